package jobs

// This file settles jobs: results in batches, and the count of what is open.

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// results go to the database by what is done with them.
type results struct {
	*state
	later                func() // has a claim made soon
	acks, fails, returns *lease.Results[*run]
}

// newResults starts the three; acks come by the thousand and have two writers.
func newResults(s *state, later func()) *results {
	r := &results{state: s, later: later}
	r.acks = r.batches("succeeded", 2, func(ctx context.Context, runs []*run) ([]pgtype.UUID, error) {
		return s.Client.JobAck(ctx, leasesOf(runs))
	})
	r.returns = r.batches("released", 1, func(ctx context.Context, runs []*run) ([]pgtype.UUID, error) {
		return s.Client.JobRelease(ctx, leasesOf(runs))
	})
	r.fails = r.batches("failed", 1, func(ctx context.Context, runs []*run) ([]pgtype.UUID, error) {
		failures := make([]work.JobFailure, len(runs))
		for i, x := range runs {
			failures[i] = work.JobFailure{JobLease: x.ref(), Code: x.code, Text: x.text, Permanent: x.outcome == permanent}
		}
		lost, err := s.Client.JobFail(ctx, failures)
		if err == nil {
			s.Failed()
		}
		return lost, err
	})
	return r
}

// batches records with a statement that gives those whose lease was lost.
func (r *results) batches(what string, writers int, record func(context.Context, []*run) ([]pgtype.UUID, error)) *lease.Results[*run] {
	return lease.NewResults(writers, lease.Recorder[*run]{
		Record: func(ctx context.Context, batch []*run) error {
			lost, err := record(ctx, batch)
			if err == nil {
				r.answered(batch, lost)
			}
			return err
		},
		Lasts: func(x *run, wait time.Duration) bool { return x.lease.until() > r.clock()+wait },
		Lost: func(batch []*run, err error) {
			r.l.Log.Error("results could not be recorded; the leases will expire and the jobs be worked on again",
				"result", what, "jobs", len(batch), "error", err.Error())
			for _, x := range batch {
				x.outcome = leaseLost
			}
			r.settle(batch)
		},
		Erred: r.l.Erred,
		Said:  func(x *run) int { return len(x.text) },
		Plain: func(x *run) { x.text = "" },
	})
}

// close records what is in, all of it in the same time.
func (r *results) close(by time.Time) {
	for _, s := range []*lease.Results[*run]{r.acks, r.fails, r.returns} {
		s.Close(by)
	}
}

// stuck tells that results cannot be recorded now: nothing is claimed or begun, for it
// might have to be done again.
func (r *results) stuck() bool { return r.acks.Stuck() || r.fails.Stuck() }

// answered takes what the database said.
func (r *results) answered(batch []*run, lost []pgtype.UUID) {
	if len(lost) > 0 {
		gone := make(map[pgtype.UUID]bool, len(lost))
		for _, id := range lost {
			gone[id] = true
		}
		for _, x := range batch {
			if gone[x.job.ID] {
				r.drop(x)
			}
		}
	}
	r.settle(batch)
}

// drop notes a job whose lease is gone: somebody else may work on it already.
func (r *results) drop(x *run) {
	x.outcome = leaseLost
	r.l.Log.Warn("lease lost: the result was dropped", "job_id", x.job.ID.String(), "job_kind", x.job.Kind)
}

// handBack releases jobs that nobody works on.
func (r *results) handBack(runs []*run) {
	if len(runs) == 0 {
		return
	}
	for _, x := range runs {
		x.end()
		x.outcome = released
	}
	r.returns.Add(runs...)
}

// settle counts jobs out; the database has answered for them, or nobody can.
func (r *results) settle(runs []*run) {
	var counts [outcomes]int64
	for _, x := range runs {
		x.settle()
		x.lease.open.Add(-1)
		counts[x.outcome]++
	}
	for i, n := range counts {
		if n > 0 {
			r.Done[i].Add(n)
		}
	}
	done := counts[succeeded] + counts[failed] + counts[permanent]
	r.pace.Add(r.clock(), int(done))
	r.open.Add(-int64(len(runs)))
	r.l.Ticked(done, jobPoll)
	r.later() // a place under max_parallel may be free
}
