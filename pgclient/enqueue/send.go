package enqueue

// This file sends what enqueues jobs, with a claim or with bells behind it.

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgerror"
)

// commit sends a statement that enqueues jobs and gives its answer once it has
// committed.
func (s *sender) commit(ctx context.Context, enqueue statement, jobs []Job) (answer, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return answer{}, err
	}
	taker := s.attached()
	claim, takes := taker.Offer(jobs)
	if claim == nil {
		defer conn.Release()
		return s.ringBehind(ctx, conn.Conn(), enqueue, jobs, taker, takes)
	}
	type told struct {
		answer
		err error
	}
	done := make(chan told, 1)
	go func() {
		defer conn.Release()
		a, err := s.claimWith(ctx, conn.Conn(), enqueue, jobs, taker, claim)
		done <- told{a, err}
	}()
	select {
	case t := <-done:
		return t.answer, t.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// enqueue puts one job into the queue.
func (s *sender) enqueue(ctx context.Context, job Job) (id string, created bool, err error) {
	a, err := s.commit(ctx, statement{enqueueSQL, job.arguments()}, []Job{job})
	return a.ID, a.Created, pgerror.Translate(err)
}
