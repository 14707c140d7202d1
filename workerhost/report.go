package workerhost

// This file batches results: one statement per 2 ms or 1,000 of them, repeated
// while the database is away and the lease lasts, for a repeated report changes
// nothing.

import (
	"context"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
)

const reportWindow = 2 * time.Millisecond

type pending struct {
	pgclient.WebhookReport
	x     *delivery
	until func() time.Time
	done  func()
}

type reporter struct {
	h      *Host
	l      *loop
	ctx    context.Context //nolint:containedctx // ends when nothing more is tried; the reporter outlives every call
	giveUp context.CancelFunc

	mu      sync.Mutex
	queue   []pending
	busy    sync.Mutex // one flush at a time
	ring    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
}

func newReporter(h *Host, l *loop) *reporter {
	r := &reporter{h: h, l: l, ring: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	r.ctx, r.giveUp = context.WithCancel(context.Background())
	go r.run()
	return r
}

func (r *reporter) add(p pending) {
	r.mu.Lock()
	r.queue = append(r.queue, p)
	r.mu.Unlock()
	select {
	case r.ring <- struct{}{}:
	default:
	}
}

func (r *reporter) run() {
	defer close(r.stopped)
	for {
		select {
		case <-r.stop:
			return
		case <-r.ring:
		}
		select {
		case <-time.After(reportWindow):
		case <-r.stop:
		}
		r.flush()
	}
}

// finish records what is in, for at most within.
func (r *reporter) finish(within time.Duration) {
	t := time.AfterFunc(within, r.giveUp)
	defer t.Stop()
	r.flush()
}

func (r *reporter) close() {
	r.giveUp()
	close(r.stop)
	<-r.stopped
}

func (r *reporter) take() []pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.queue), fullBatch)
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	return batch
}

func (r *reporter) flush() {
	r.busy.Lock()
	defer r.busy.Unlock()
	for batch := r.take(); len(batch) > 0; batch = r.take() {
		r.send(batch)
		for _, p := range batch {
			p.done()
		}
	}
}

// send records a batch. A batch that the database refuses is taken apart: one
// result that it does not accept must not cost the others.
func (r *reporter) send(batch []pending) {
	reports := make([]pgclient.WebhookReport, len(batch))
	for i, p := range batch {
		reports[i] = p.WebhookReport
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		out, err := r.h.client.ReportWebhooks(r.ctx, reports)
		if err == nil {
			r.answered(batch, out)
			return
		}
		r.l.erred(err)
		retry := pgerror.Retryable(err) && r.ctx.Err() == nil
		if !retry && len(batch) > 1 && r.ctx.Err() == nil {
			for i := range batch {
				r.send(batch[i : i+1])
			}
			return
		}
		if !retry || !held(batch, time.Now().Add(wait)) {
			r.h.log.Error("results could not be recorded; the leases will expire and the jobs be sent again",
				"jobs", len(batch), "error", err.Error())
			return
		}
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
		}
	}
}

// held tells whether a lease of the batch may last until at.
func held(batch []pending, at time.Time) bool {
	for _, p := range batch {
		if p.until().After(at) {
			return true
		}
	}
	return false
}

func (r *reporter) answered(batch []pending, out []pgclient.JobOutcome) {
	n := int64(0)
	for _, o := range out {
		if o.Outcome == "lease_lost" {
			r.h.log.Warn("lease lost: the result was dropped", "job_id", o.JobID)
			continue
		}
		n++
	}
	for _, p := range batch {
		p.x.settled.Store(true)
	}
	r.l.ticked(n, r.h.settings.every(loopWebhook))
	r.h.kick(loopOrchestrator)
}
