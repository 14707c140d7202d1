// Package webhooks is the webhook worker of a host: it claims webhook deliveries, sends the
// requests and records their results.
//
// Start from Worker, whose Run is the body of the loop, and from deliverer, one run of it.
// One goroutine owns the run and waits for no request; requests end on a channel. Its parts:
//
//   - slots decides which claimed delivery may be sent now, so that endpoints that hang do
//     not occupy all slots.
//   - leases renews the leases of open deliveries, and hands back those that are not sent.
//   - requests sends one delivery per goroutine and records results in batches (see
//     lease.Results).
//   - keys leaves out the webhook subscriptions whose secret is not available here.
//
// Invariants: a claim commits before any request of it starts; no transaction spans HTTP; the
// lease token fences every result; deliveries that are unfinished at the end are handed back
// at once, no attempt spent.
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
	Budget      *lease.Budget        // of this host, for payloads that did not come with their claim
	Every       func() time.Duration // between two polls
	OnReported  func()               // called after results were recorded
	OnUnsigned  func()               // called after the list of what cannot be signed here has changed
}
