package jobs

// This file keeps the leases: they last, and the database knows which jobs run.

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/workerhost/lease"
)

// leases are those with jobs that are not settled. The owner of the loop owns them.
type leases struct {
	*state
	results *results
	all     []*claimed
	kept    chan struct{} // they were looked after
	keeping bool
}

// take keeps what a claim brought.
func (s *leases) take(f *fetch) []*run {
	x := &claimed{runs: make([]run, len(f.jobs))}
	x.at.Store(int64(f.at))
	x.length.Store(int64(f.jobs[0].Lease))
	x.open.Store(int32(len(f.jobs)))
	runs, tick := make([]*run, len(f.jobs)), s.ticks.Load()
	for i := range f.jobs {
		x.runs[i].job, x.runs[i].lease, x.runs[i].tick = &f.jobs[i], x, tick
		runs[i] = &x.runs[i]
	}
	s.all = append(s.all, x)
	return runs
}

// tokens are those of the leases with jobs that are not settled.
func (s *leases) tokens() []pgtype.UUID {
	known := make(map[pgtype.UUID]bool, len(s.all))
	for _, x := range s.all {
		for i := range x.runs {
			known[x.runs[i].job.Token] = true // one claim may have several
		}
	}
	return slices.Collect(maps.Keys(known))
}

// shorten has the leases last no longer than the flag says now, as a renewal will.
func (s *leases) shorten(length time.Duration) {
	for _, x := range s.all {
		x.length.Store(min(x.length.Load(), int64(length)))
	}
}

// keep looks after them.
func (s *leases) keep(ctx context.Context) {
	now, tick := s.clock(), s.ticks.Add(1)
	s.all = slices.DeleteFunc(s.all, func(x *claimed) bool { return x.open.Load() == 0 })
	for _, x := range s.all {
		if x.until() <= now {
			s.expired(x)
		}
	}
	s.results.handBack(s.stock.stale(tick - slowTicks)) // others may have a place, or a more urgent job comes first here
	if s.keeping {
		return
	}
	if renew, start := s.due(now, tick); len(renew)+len(start) > 0 {
		s.keeping = true
		s.errands.Go(func() {
			s.start(ctx, start)
			s.renew(ctx, renew)
			s.kept <- struct{}{}
		})
	}
}

// expired cancels what is left of a lease that could not be renewed in time.
func (s *leases) expired(x *claimed) {
	for i := range x.runs {
		if r := &x.runs[i]; r.lose(false) {
			s.l.Log.Warn("the lease ran out here", "job_id", r.job.ID.String(), "job_kind", r.job.Kind)
		}
	}
}

// due finds the leases that are a third old, and the jobs that run for a while and
// of which the database does not know it.
func (s *leases) due(now time.Duration, tick int64) (renew []*claimed, start []*run) {
	for _, x := range s.all {
		length := time.Duration(x.length.Load())
		if left := x.until() - now; left > 0 && left <= length*2/3 {
			renew = append(renew, x)
		}
		for i := range x.runs {
			if r := &x.runs[i]; r.slow(tick) {
				start = append(start, r)
			}
		}
	}
	return renew, start
}

// start tells which jobs run.
func (s *leases) start(ctx context.Context, runs []*run) {
	for batch := range slices.Chunk(runs, lease.Most) {
		lost, err := s.Client.JobStart(ctx, leasesOf(batch))
		if err != nil {
			if ctx.Err() == nil {
				s.l.Erred(err)
			}
			return // at the next tick again
		}
		for _, r := range batch {
			r.mu.Lock()
			r.told = true
			r.mu.Unlock()
		}
		s.lose(batch, lost)
	}
}

// renew prolongs what is open of the leases, about a thousand jobs at a time.
func (s *leases) renew(ctx context.Context, leases []*claimed) {
	for len(leases) > 0 {
		var open []*run
		n := 0
		for ; n < len(leases) && len(open) < lease.Most; n++ {
			for i := range leases[n].runs {
				if r := &leases[n].runs[i]; !r.isSettled() {
					open = append(open, r)
				}
			}
		}
		at := s.clock()
		if len(open) > 0 {
			lost, err := s.Client.JobRenew(ctx, leasesOf(open))
			if err != nil {
				if ctx.Err() == nil {
					s.l.Erred(err)
				}
				return // at the next tick again, as long as they last
			}
			s.lose(open, lost)
		}
		for _, x := range leases[:n] {
			x.at.Store(int64(at))
		}
		leases = leases[n:]
	}
}

// lose cancels those of the jobs whose lease the database knows no more.
func (s *leases) lose(runs []*run, lost []pgtype.UUID) {
	for _, id := range lost {
		i := slices.IndexFunc(runs, func(r *run) bool { return r.job.ID == id })
		if i >= 0 && runs[i].lose(true) {
			s.l.Log.Warn("lease lost: the handler is cancelled", "job_id", id.String(), "job_kind", runs[i].job.Kind)
		}
	}
}
