// Package webhooks is the webhook worker of a host: it claims webhook deliveries, sends the
// requests and records their results.
//
// Start from Worker, whose Run is the body of the loop, and from deliverer, one run of it. One
// goroutine owns the run and waits for no request; the ends of requests arrive on a channel. The
// parts:
//
//   - slots decides which claimed delivery may be sent now, so that endpoints that hang do
//     not occupy all slots.
//   - leases renews the leases of open deliveries, and hands back unsent deliveries.
//   - requests sends one delivery per goroutine and records results in batches (see
//     lease.Results).
//   - keys makes claims skip the webhook subscriptions whose secret is not available in this
//     host.
//
// Invariants: a claim commits before any of its requests starts; no transaction spans an HTTP
// request; the lease token fences every result; deliveries that are unfinished at the end, or
// that cannot be sent for lack of something in this host, are handed back at once, and no attempt is counted.
package webhooks

import (
	"log/slog"
	"time"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/sender"
)

// Worker is the configuration of the loop.
type Worker struct {
	Client      *work.Client
	ID          string // the name of this host in leases
	Concurrency int    // requests in flight
	PerEndpoint int    // requests in flight per host:port
	Sender      *sender.Sender
	Secrets     *sender.Secrets
	Log         *slog.Logger
	Budget      *lease.Budget        // of this host, for payloads that were too long to be returned by the claim
	Every       func() time.Duration // returns the time between two polls
	OnReported  func()               // called after results were recorded
	OnUnsigned  func()               // called after the list of unsigned webhook subscriptions has changed
}
