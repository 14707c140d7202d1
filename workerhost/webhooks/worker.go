// Package webhooks is the webhook worker: claim, send, report. A claim commits before
// any request starts, no transaction spans HTTP, every result is fenced by its lease
// token, and what is unfinished at the end is handed back at once.
package webhooks

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/work"
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
	Every       func() time.Duration // between two polls
	Reported    func()               // results are in the database
	Unsigned    func()               // what cannot be signed here has changed
}

// delivery is one claimed job inside this process.
type delivery struct {
	work.WebhookJob
	endpoint string
	claimed  time.Time // before the claim was sent
	// sent, delivered and fault (it could not be signed) are written before the
	// request's end is told, report before it is queued.
	sent, delivered bool
	fault           *sender.Fault
	report          work.WebhookReport
	settled         atomic.Bool // the database answered for the result

	mu sync.Mutex
	// until is the local end of the lease, counted from before the claim was
	// sent: the server's clock and the way there can only make it later.
	until time.Time
	lost  bool // a renewal found the lease gone
}

// length is how long the lease lasts from a claim or renewal.
func (x *delivery) length() time.Duration { return time.Duration(x.LeaseSeconds) * time.Second }

// left is how long the lease lasts from now.
func (x *delivery) left() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Until(x.until)
}

// due tells whether the lease is a third old.
func (x *delivery) due() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.lost && time.Until(x.until) < x.length()*2/3
}

// renewed takes the answer of a renewal that was asked for at a time.
func (x *delivery) renewed(at time.Time, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if done {
		x.until = at.Add(x.length())
	} else { // too late to send; what is under way is fenced
		x.lost, x.until = true, at
	}
}
