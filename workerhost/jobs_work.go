package workerhost

// This file works on jobs: one goroutine per place, the handler contained, the
// outcome sorted into a result.

import (
	"context"
	"errors"
	"sync"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost/handler"
)

// The states of a job in this process.
const (
	jobWaiting = iota
	jobRunning
	jobReported // its result is on the way to the database
	jobSettled
)

// The outcomes of a try, as the metrics name them.
const (
	jobSucceeded = iota
	jobFailed
	jobPermanent
	jobReleased
	jobLost
	jobOutcomes
)

func outcomeNames() [jobOutcomes]string {
	return [jobOutcomes]string{"succeeded", "failed", "permanent", "released", "lease_lost"}
}

// jobRun is one leased job inside this process.
type jobRun struct {
	job   *pgclient.Job
	lease *jobLease

	mu     sync.Mutex
	state  uint8
	lost   bool  // its lease is gone: the result counts for nothing
	told   bool  // the database knows that it runs
	tick   int64 // when it came or, once it runs, began
	cancel context.CancelFunc

	// of the result; set before it is reported
	outcome    uint8
	code, text string
}

func (r *jobRun) ref() pgclient.JobLease {
	return pgclient.JobLease{ID: r.job.ID, Token: r.job.Token}
}

// begin gives the job its context; nil when it must not start any more.
func (r *jobRun) begin(e *executor) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.lease.until() <= e.clock() {
		r.lost = true
		return nil
	}
	var ctx context.Context
	if longest := e.h.opts.JobTimeout; longest > 0 {
		ctx, r.cancel = context.WithTimeout(e.working, longest)
	} else {
		ctx, r.cancel = context.WithCancel(e.working)
	}
	r.state, r.tick = jobRunning, e.ticks.Load()
	return ctx
}

// end records that the handler is over; true when the lease was lost meanwhile.
func (r *jobRun) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		r.cancel()
	}
	r.state = jobReported
	return r.lost
}

// lose cancels a job whose lease is gone; false when its result is on the way: the
// token fences that.
func (r *jobRun) lose() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.state >= jobReported {
		return false
	}
	r.lost = true
	if r.cancel != nil {
		r.cancel()
	}
	return true
}

func (r *jobRun) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == jobSettled
}

// settle forgets the payload: one slow job keeps those of its whole claim.
func (r *jobRun) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.job.Payload = jobSettled, nil
}

// worker is one place.
func (e *executor) worker() {
	for r := e.stock.take(); r != nil; r = e.stock.take() {
		e.work(r)
	}
}

func (e *executor) work(r *jobRun) {
	ctx := r.begin(e)
	var err error
	switch {
	case ctx == nil:
	case r.job.Payload == nil:
		err = handler.Permanent(handler.Coded("PAYLOAD_UNREADABLE", errors.New("not run: "+payloadUnreadable)))
	default:
		err = e.runner.Run(ctx, e.h.handlers[r.job.Kind], handlerJob(r.job))
	}
	switch {
	case r.end():
		e.drop(r)
	case err == nil:
		r.outcome = jobSucceeded
		e.acks.add(r)
	case e.working.Err() != nil: // stopped: that says nothing about the job
		r.outcome = jobReleased
		e.returns.add(r)
	default:
		var permanent bool
		r.outcome = jobFailed
		if r.code, r.text, permanent = handler.Outcome(err); permanent {
			r.outcome = jobPermanent
		}
		e.fails.add(r)
	}
}

// drop forgets a job whose lease is gone: somebody else may work on it already.
func (e *executor) drop(r *jobRun) {
	e.l.log.Warn("lease lost: the result was dropped", "job_id", r.job.ID.String(), "job_kind", r.job.Kind)
	r.outcome = jobLost
	e.settle([]*jobRun{r})
}

// handBack releases jobs that nobody works on.
func (e *executor) handBack(runs []*jobRun) {
	if len(runs) == 0 {
		return
	}
	for _, r := range runs {
		r.end()
		r.outcome = jobReleased
	}
	e.returns.add(runs...)
}

// settle counts jobs out; the database has answered for them, or nobody can.
func (e *executor) settle(runs []*jobRun) {
	var counts [jobOutcomes]int64
	for _, r := range runs {
		r.settle()
		r.lease.open.Add(-1)
		counts[r.outcome]++
	}
	for i, n := range counts {
		if n > 0 {
			e.h.jobsDone[i].Add(n)
		}
	}
	done := counts[jobSucceeded] + counts[jobFailed] + counts[jobPermanent]
	e.pace.add(e.clock(), int(done))
	e.open.Add(-int64(len(runs)))
	e.l.ticked(done, jobPoll)
	e.soon() // a place under max_parallel may be free
}

// handlerJob is the job as a handler sees it.
func handlerJob(j *pgclient.Job) handler.Job {
	return handler.Job{
		ID: j.ID.String(), Kind: j.Kind, Domain: j.Domain, Executor: j.Executor,
		Attempt: int(j.Attempts) + 1, MaxAttempts: int(j.MaxAttempts), Priority: int(j.Priority),
		EnqueuedAt: j.EnqueuedAt, LeaseUntil: j.LeaseUntil, SourceRef: j.SourceRef, TargetRef: j.TargetRef,
		PayloadRef: j.PayloadRef, IdempotencyKey: j.IdempotencyKey, CorrelationID: j.CorrelationID, Payload: j.Payload,
	}
}
