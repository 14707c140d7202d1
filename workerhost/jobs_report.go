package workerhost

// This file batches results: one statement per 2 ms or 1,000 of them, repeated
// while the database is away and a lease lasts, for a repeated result changes
// nothing.

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
)

// mostSaid is how many bytes of what handlers said go with one statement, at least
// one's: each is searched for secrets, which can take the server milliseconds.
const mostSaid = 64 << 10

// jobSink collects the results that go with one statement.
type jobSink struct {
	e      *executor
	what   string
	record func(context.Context, []*jobRun) ([]pgtype.UUID, error) // gives those whose lease was lost
	after  func()                                                  // a batch was recorded; may be nil
	ctx    context.Context                                         //nolint:containedctx // ends when nothing more is tried; a sink outlives every call
	giveUp context.CancelFunc

	mu      sync.Mutex
	queue   []*jobRun
	ring    chan struct{} // something is in
	full    chan struct{} // a whole batch is in
	stop    chan struct{}
	stopped sync.WaitGroup
}

// sinks starts the three; acks come by the thousand and have two writers, so that
// one batch commits while the next is sent.
func (e *executor) sinks() {
	client := e.h.client
	e.acks = e.sink("succeeded", 2, func(ctx context.Context, runs []*jobRun) ([]pgtype.UUID, error) {
		return client.JobAck(ctx, leasesOf(runs))
	})
	e.returns = e.sink("released", 1, func(ctx context.Context, runs []*jobRun) ([]pgtype.UUID, error) {
		return client.JobRelease(ctx, leasesOf(runs))
	})
	e.fails = e.sink("failed", 1, func(ctx context.Context, runs []*jobRun) ([]pgtype.UUID, error) {
		failures := make([]pgclient.JobFailure, len(runs))
		for i, r := range runs {
			failures[i] = pgclient.JobFailure{JobLease: r.ref(), Code: r.code, Text: r.text, Permanent: r.outcome == jobPermanent}
		}
		return client.JobFail(ctx, failures)
	})
	e.fails.after = func() { e.h.kick(loopDue) } // it learns when the retry is due
}

func (e *executor) sink(what string, writers int, record func(context.Context, []*jobRun) ([]pgtype.UUID, error)) *jobSink {
	s := &jobSink{
		e: e, what: what, record: record,
		ring: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	s.ctx, s.giveUp = context.WithCancel(context.Background())
	for range writers {
		s.stopped.Go(s.run)
	}
	return s
}

func (s *jobSink) add(runs ...*jobRun) {
	s.mu.Lock()
	s.queue = append(s.queue, runs...)
	n := len(s.queue)
	s.mu.Unlock()
	signal(s.ring)
	if n >= fullBatch {
		signal(s.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *jobSink) run() {
	window := time.NewTimer(0)
	defer window.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.ring:
		}
		window.Reset(reportWindow)
		select {
		case <-window.C:
		case <-s.full:
		case <-s.stop:
		}
		s.flush()
	}
}

// close records what is in, until giveUp, and ends.
func (s *jobSink) close() {
	close(s.stop)
	s.stopped.Wait()
	s.flush()
	s.giveUp()
}

func (s *jobSink) take() []*jobRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, said := 0, 0
	for n < min(len(s.queue), fullBatch) && (n == 0 || said+len(s.queue[n].text) <= mostSaid) {
		said += len(s.queue[n].text)
		n++
	}
	batch := s.queue[:n:n]
	s.queue = s.queue[n:]
	if len(s.queue) > 0 {
		signal(s.ring) // for the other writer
	}
	return batch
}

func (s *jobSink) flush() {
	for batch := s.take(); len(batch) > 0; batch = s.take() {
		s.send(batch)
	}
}

// send records a batch. One that the database refuses is taken apart: a result
// that it does not accept must not cost the others.
func (s *jobSink) send(batch []*jobRun) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		lost, err := s.record(s.ctx, batch)
		if err == nil {
			s.answered(batch, lost)
			return
		}
		s.e.l.erred(err)
		retry := pgerror.Retryable(err) && s.ctx.Err() == nil
		if !retry && len(batch) > 1 && s.ctx.Err() == nil {
			s.send(batch[:len(batch)/2])
			s.send(batch[len(batch)/2:])
			return
		}
		if !retry || !s.held(batch, wait) {
			s.e.l.log.Error("results could not be recorded; the leases will expire and the jobs be worked on again",
				"result", s.what, "jobs", len(batch), "error", err.Error())
			for _, r := range batch {
				r.outcome = jobLost
			}
			s.e.settle(batch)
			return
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
		}
	}
}

// held tells whether a lease of the batch may last for wait.
func (s *jobSink) held(batch []*jobRun, wait time.Duration) bool {
	at := s.e.clock() + wait
	for _, r := range batch {
		if r.lease.until() > at {
			return true
		}
	}
	return false
}

func (s *jobSink) answered(batch []*jobRun, lost []pgtype.UUID) {
	if len(lost) > 0 {
		gone := make(map[pgtype.UUID]bool, len(lost))
		for _, id := range lost {
			gone[id] = true
		}
		for _, r := range batch {
			if gone[r.job.ID] {
				r.outcome = jobLost
				s.e.l.log.Warn("lease lost: the result was dropped", "job_id", r.job.ID.String(), "job_kind", r.job.Kind)
			}
		}
	}
	s.e.settle(batch)
	if s.after != nil {
		s.after()
	}
}

func leasesOf(runs []*jobRun) []pgclient.JobLease {
	leases := make([]pgclient.JobLease, len(runs))
	for i, r := range runs {
		leases[i] = r.ref()
	}
	return leases
}
