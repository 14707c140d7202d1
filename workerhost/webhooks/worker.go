// Package webhooks is the webhook worker: claim, send, report. A claim commits before
// any request starts, no transaction spans HTTP, every result is fenced by its lease
// token, and what is unfinished at the end is handed back at once.
package webhooks

import (
	"log/slog"
	"time"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/sender"
)

// Worker is what the loop needs of its host.
type Worker struct {
	Client      *work.Client
	ID          string // of this host, in leases
	Concurrency int    // requests in flight
	PerEndpoint int
	Sender      *sender.Sender
	Secrets     *sender.Secrets
	Log         *slog.Logger
	Budget      *lease.Budget        // of this host, for payloads that are read apart from their claim
	Every       func() time.Duration // between two polls
	Reported    func()               // results are in the database
	Unsigned    func()               // what cannot be signed here has changed
}
