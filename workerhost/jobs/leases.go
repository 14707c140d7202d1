package jobs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// leases renews the leases of jobs that are not settled, cancels handlers whose lease is lost,
// and records in the database which jobs have run for longer than slowTicks × checkEvery. Only
// the owner of the loop uses it.
type leases struct {
	*state
	results  *results
	all      []*leaseGroup
	checked  chan struct{} // a background check has ended
	checking bool
}

// add registers the jobs of a claim for renewal and returns them as runs.
func (s *leases) add(c *claim) []*run {
	g := &leaseGroup{runs: make([]run, len(c.jobs))}
	g.from.Store(int64(c.sentAt))
	g.length.Store(int64(c.jobs[0].Lease))
	g.open.Store(int32(len(c.jobs)))
	runs, tick := make([]*run, len(c.jobs)), s.ticks.Load()
	for i := range c.jobs {
		g.runs[i].job, g.runs[i].group, g.runs[i].tick = &c.jobs[i], g, tick
		runs[i] = &g.runs[i]
	}
	s.all = append(s.all, g)
	return runs
}

// tokens returns the lease tokens that this process knows.
func (s *leases) tokens() []pgtype.UUID {
	known := make(map[pgtype.UUID]bool, len(s.all))
	for _, g := range s.all {
		for i := range g.runs {
			known[g.runs[i].job.Token] = true // the jobs of one claim may have several tokens
		}
	}
	return slices.Collect(maps.Keys(known))
}

// shorten limits the remaining time of all leases to length, the current value of the flag,
// because the next renewal will grant no more.
func (s *leases) shorten(length time.Duration) {
	for _, g := range s.all {
		if int64(length) < g.length.Load() {
			until := min(g.until(), s.clock()+length)
			g.from.Store(int64(until - length)) // first: until then the lease only seems longer
			g.length.Store(int64(length))
		}
	}
}

// check runs every checkEvery: it cancels jobs whose lease expired, hands back jobs that
// waited too long in the buffer, and starts renewals.
func (s *leases) check(ctx context.Context) {
	now, tick := s.clock(), s.ticks.Add(1)
	s.all = slices.DeleteFunc(s.all, func(g *leaseGroup) bool { return g.settled(now) })
	for _, g := range s.all {
		if g.until() <= now {
			s.cancelExpired(g)
		}
	}
	s.results.handBack(s.buffer.takeOlder(tick - slowTicks)) // another host may have a free slot, and this host may then claim more urgent jobs
	if s.checking {
		return
	}
	if renew, start := s.due(now, tick); len(renew)+len(start) > 0 {
		s.checking = true
		s.background.Go(func() {
			s.renew(ctx, renew)
			s.start(ctx, start)
			s.checked <- struct{}{}
		})
	}
}

// cancelExpired cancels the unsettled jobs of a lease that could not be renewed in time.
func (s *leases) cancelExpired(g *leaseGroup) {
	for i := range g.runs {
		if r := &g.runs[i]; r.lose(false) {
			s.l.Log.Warn("the lease expired by this host's clock: the job is cancelled here", "job_id", r.job.ID.String(), "job_kind", r.job.Kind)
		}
	}
}

// due returns the leases of which a third has passed, those last whose renewal failed, and the jobs
// that have run for so long that their start must be recorded.
func (s *leases) due(now time.Duration, tick int64) (renew []*leaseGroup, start []*run) {
	for _, g := range s.all {
		length := time.Duration(g.length.Load())
		if left := g.until() - now; g.open.Load() > 0 && left > 0 && left <= length*2/3 {
			renew = append(renew, g)
		}
		for i := range g.runs {
			if r := &g.runs[i]; r.startDue(tick) {
				start = append(start, r)
			}
		}
	}
	slices.SortStableFunc(renew, func(a, b *leaseGroup) int { return cmp.Compare(a.failed, b.failed) })
	return renew, start
}

// start records in the database that the jobs have started.
func (s *leases) start(ctx context.Context, runs []*run) {
	for batch := range slices.Chunk(runs, lease.MaxBatch) {
		started, lost, err := s.call(ctx, batch, s.Client.JobStart)
		if err != nil {
			return // the next check repeats it
		}
		for _, r := range started {
			r.mu.Lock()
			r.startRecorded = true
			r.mu.Unlock()
		}
		s.cancelLost(started, lost)
	}
}

// call runs a statement about leased jobs. If other sessions have locked rows, it runs it again without
// the jobs that would wait for them, which the next check repeats. done are the jobs of the
// statement that succeeded, and lost the ids that it returned.
func (s *leases) call(ctx context.Context, runs []*run, statement func(context.Context, []work.JobLease) ([]pgtype.UUID, error)) (done []*run, lost []pgtype.UUID, err error) {
	done = runs
	for range 2 {
		if lost, err = statement(ctx, leasesOf(done)); err == nil {
			return done, lost, nil
		}
		if ctx.Err() == nil {
			s.l.RecordError(err)
		}
		locked, others := s.apart(ctx, done, err)
		if len(locked) == 0 {
			break
		}
		if done = others; len(done) == 0 {
			return nil, nil, nil
		}
	}
	return nil, nil, err
}

// apart divides runs, of which a statement failed with err because other sessions have locked rows: into
// those that would wait for such a row, and the others. It returns none if that is not the cause.
func (s *state) apart(ctx context.Context, runs []*run, err error) (locked, others []*run) {
	if !pgerror.WaitedForLock(err) {
		return nil, nil
	}
	ids, err := s.Client.JobLocked(ctx, leasesOf(runs))
	if err != nil { // such as by a schema that lacks the function
		return nil, nil
	}
	waits := make(map[pgtype.UUID]bool, len(ids))
	for _, id := range ids {
		waits[id] = true
	}
	for _, r := range runs {
		if waits[r.job.ID] {
			locked = append(locked, r)
		} else {
			others = append(others, r)
		}
	}
	return locked, others
}

// renew extends the leases of unsettled jobs, about a thousand jobs per statement. A lease or job that
// another session has locked does not stop the renewal of the others (call). After another failure
// that may be due to the number of jobs, each lease of the statement is renewed alone.
func (s *leases) renew(ctx context.Context, leases []*leaseGroup) {
	for len(leases) > 0 {
		var open []*run
		n := 0
		for ; n < len(leases) && len(open) < lease.MaxBatch && (n == 0 || leases[n].failed == 0); n++ {
			for i := range leases[n].runs {
				if r := &leases[n].runs[i]; !r.isSettled() {
					open = append(open, r)
				}
			}
		}
		at := s.clock()
		if len(open) > 0 {
			renewed, lost, err := s.call(ctx, open, s.Client.JobRenew)
			if err != nil {
				if _, smaller := pgerror.FateOf(err); !smaller {
					return // the next check repeats it, as long as the leases last
				}
				for _, g := range leases[:n] {
					g.failed++
				}
				leases = leases[n:]
				continue
			}
			s.cancelLost(renewed, lost)
			for _, r := range renewed { // one renewed job renews the whole lease
				r.group.from.Store(int64(at))
				r.group.failed = 0
			}
		}
		leases = leases[n:]
	}
}

// cancelLost cancels the runs whose job ids are in lost: the database reported that their lease
// is lost.
func (s *leases) cancelLost(runs []*run, lost []pgtype.UUID) {
	for _, id := range lost {
		i := slices.IndexFunc(runs, func(r *run) bool { return r.job.ID == id })
		if i >= 0 && runs[i].lose(true) {
			s.l.Log.Warn("lease lost: the handler is cancelled", "job_id", id.String(), "job_kind", runs[i].job.Kind)
		}
	}
}
