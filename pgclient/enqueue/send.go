package enqueue

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgerror"
)

// commit sends a statement that enqueues jobs, with a claim or with wake signals, and returns
// its answer after the commit.
func (s *sender) commit(ctx context.Context, enqueue statement, jobs []Job) (answer, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return answer{}, err
	}
	claimer := s.attached()
	claim, willLook := claimer.Offer(jobs)
	if claim == nil {
		defer conn.Release()
		return s.sendAndNotify(ctx, conn.Conn(), enqueue, jobs, claimer, willLook)
	}
	type result struct {
		answer
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer conn.Release()
		a, err := s.claimInTx(ctx, conn.Conn(), enqueue, jobs, claimer, claim)
		done <- result{a, err}
	}()
	select {
	case t := <-done:
		return t.answer, t.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// enqueue enqueues one job.
func (s *sender) enqueue(ctx context.Context, job Job) (id string, created bool, err error) {
	a, err := s.commit(ctx, statement{enqueueSQL, job.arguments()}, []Job{job})
	return a.ID, a.Created, pgerror.Translate(s.explain(err))
}
