package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// results records the outcomes of jobs. Acknowledgements, failures and returned jobs each have a
// separate statement and queue.
type results struct {
	*state
	claimSoon            func() // requests a claim: slots may be free
	acks, fails, returns *lease.Results[*run]
}

// newResults starts the writers: two for acknowledgements, which arrive by the thousand, and one
// each for failures and returned jobs.
func newResults(s *state, claimSoon func()) *results {
	r := &results{state: s, claimSoon: claimSoon}
	r.acks = r.newRecorder("succeeded", 2, func(ctx context.Context, runs []*run) ([]pgtype.UUID, error) {
		return s.Client.JobAck(ctx, leasesOf(runs))
	})
	r.returns = r.newRecorder("released", 1, func(ctx context.Context, runs []*run) ([]pgtype.UUID, error) {
		return s.Client.JobRelease(ctx, leasesOf(runs))
	})
	r.fails = r.newRecorder("failed", 1, func(ctx context.Context, runs []*run) ([]pgtype.UUID, error) {
		failures := make([]work.JobFailure, len(runs))
		for i, run := range runs {
			failures[i] = work.JobFailure{JobLease: run.ref(), Code: run.code, Text: run.text, Permanent: run.outcome == permanent}
		}
		lost, err := s.Client.JobFail(ctx, failures)
		if err == nil {
			s.OnFailed()
		}
		return lost, err
	})
	return r
}

// newRecorder starts writers for one kind of result. record sends a batch and returns the ids
// of the jobs whose lease was lost.
func (r *results) newRecorder(result string, writers int, record func(context.Context, []*run) ([]pgtype.UUID, error)) *lease.Results[*run] {
	return lease.NewResults(writers, lease.Recorder[*run]{
		Record: func(ctx context.Context, batch []*run) error {
			lost, err := record(ctx, batch)
			if err == nil {
				r.handleAnswer(batch, lost)
			}
			return err
		},
		LeaseLeft: func(run *run) time.Duration { return run.group.until() - r.clock() },
		OnLost: func(batch []*run, err error) {
			r.l.Log.Error("results could not be recorded: the leases will expire and the jobs will run again",
				"result", result, "jobs", len(batch), "error", err.Error())
			r.lost(batch)
		},
		Apart:     r.apart,
		OnError:   r.l.RecordError,
		TextBytes: func(run *run) int { return len(run.text) },
		DropText:  func(run *run) { run.text = "" },
	})
}

// lost settles jobs whose results will never be recorded.
func (r *results) lost(runs []*run) {
	for _, run := range runs {
		run.outcome = leaseLost
		run.group.lost.Store(true)
	}
	r.settle(runs)
}

// hurry says that results must be recorded until deadline.
func (r *results) hurry(deadline time.Time) {
	for _, s := range []*lease.Results[*run]{r.acks, r.fails, r.returns} {
		s.Hurry(deadline)
	}
}

// close records the queued results of all three kinds, until deadline. They are recorded side by side:
// one that waits for a locked row leaves the others their time.
func (r *results) close(deadline time.Time) {
	var closing sync.WaitGroup
	for _, s := range []*lease.Results[*run]{r.acks, r.fails, r.returns} {
		closing.Go(func() { s.Close(deadline) })
	}
	closing.Wait()
}

// stuck reports that results cannot be recorded at present. Then no job is claimed or begun,
// because a job whose result is not recorded runs again.
func (r *results) stuck() bool { return r.acks.Stuck() || r.fails.Stuck() }

// handleAnswer settles a batch that the database has answered; lost are the ids of the jobs
// whose lease was lost.
func (r *results) handleAnswer(batch []*run, lost []pgtype.UUID) {
	if len(lost) > 0 {
		gone := make(map[pgtype.UUID]bool, len(lost))
		for _, id := range lost {
			gone[id] = true
		}
		for _, x := range batch {
			if gone[x.job.ID] {
				r.markLost(x)
			}
		}
	}
	r.settle(batch)
}

// markLost marks a job whose lease is lost: another host may work on the job already.
func (r *results) markLost(x *run) {
	x.outcome = leaseLost
	r.l.Log.Warn("lease lost: the result was dropped", "job_id", x.job.ID.String(), "job_kind", x.job.Kind)
}

// handBack returns jobs that no worker has begun to the queue, without counting an attempt.
func (r *results) handBack(runs []*run) {
	if len(runs) == 0 {
		return
	}
	for _, x := range runs {
		x.finish()
		x.outcome = released
	}
	r.returns.Add(runs...)
}

// settle counts jobs as finished in this process: the database has recorded their results, or
// never will.
func (r *results) settle(runs []*run) {
	var counts [outcomes]int64
	for _, x := range runs {
		x.settle()
		x.group.open.Add(-1)
		counts[x.outcome]++
	}
	for i, n := range counts {
		if n > 0 {
			r.Outcomes[i].Add(n)
		}
	}
	done := counts[succeeded] + counts[failed] + counts[permanent]
	r.pace.Add(r.clock(), int(done))
	r.open.Add(-int64(len(runs)))
	r.l.RecordTick(done, jobPoll)
	r.claimSoon() // max_parallel may allow another job now
}
