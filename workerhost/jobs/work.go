package jobs

// This file works on jobs: one goroutine per place, the handler contained, the
// outcome sorted into a result.

import (
	"context"
	"errors"
	"sync"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/lease"
)

// crew is the workers.
type crew struct {
	*state
	stock   *stock
	results *results
	runner  handler.Runner
	working context.Context //nolint:containedctx // of the handlers; outlives the loop's by the drain
	halt    context.CancelFunc
	workers int
	places  sync.WaitGroup
}

// staff has as many workers as there are jobs, at most one per place.
func (c *crew) staff() {
	for ; c.workers < min(c.Concurrency, int(c.open.Load())); c.workers++ {
		c.places.Go(func() {
			for r := c.stock.take(); r != nil; r = c.stock.take() {
				c.work(r)
			}
		})
	}
}

// work runs the handler and sorts its outcome.
func (c *crew) work(r *run) {
	ctx := r.begin(c.state, c.working)
	var err error
	switch {
	case ctx == nil:
	case r.job.Payload == nil:
		err = handler.Permanent(handler.Coded("PAYLOAD_UNREADABLE", errors.New("not run: "+lease.Unreadable)))
	default:
		err = c.runner.Run(ctx, c.Handlers[r.job.Kind], handlerJob(r.job))
	}
	switch {
	case r.end():
		c.results.drop(r)
		c.results.settle([]*run{r})
	case err == nil:
		r.outcome = succeeded
		c.results.acks.Add(r)
	case c.working.Err() != nil: // stopped: that says nothing about the job
		r.outcome = released
		c.results.returns.Add(r)
	default:
		var forGood bool
		r.outcome = failed
		if r.code, r.text, forGood = handler.Outcome(err); forGood {
			r.outcome = permanent
		}
		c.results.fails.Add(r)
	}
}

// handlerJob is the job as a handler sees it.
func handlerJob(j *work.Job) handler.Job {
	return handler.Job{
		ID: j.ID.String(), Kind: j.Kind, Domain: j.Domain, Executor: j.Executor,
		Attempt: int(j.Attempts) + 1, MaxAttempts: int(j.MaxAttempts), Priority: int(j.Priority),
		EnqueuedAt: j.EnqueuedAt, LeaseUntil: j.LeaseUntil, SourceRef: j.SourceRef, TargetRef: j.TargetRef,
		PayloadRef: j.PayloadRef, IdempotencyKey: j.IdempotencyKey, CorrelationID: j.CorrelationID, Payload: j.Payload,
	}
}
