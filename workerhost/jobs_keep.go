package workerhost

// This file keeps the executor in good standing: its leases last, the database
// knows which jobs run, and it beats from the loop that does the work.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// mostBeat is the longest time between two beats.
const mostBeat = 10 * time.Second

// standing is what a question for the standing brought.
type standing struct {
	pgclient.JobStanding
	err error
}

// ask asks how the executor stands when that is due.
func (e *executor) ask(ctx context.Context) {
	if e.asking || time.Now().Before(e.askBy) {
		return
	}
	e.asking, e.asked = true, time.Now()
	e.askBy = e.asked.Add(standingEvery)
	e.errands.Go(func() {
		s, err := e.h.client.JobStanding(ctx, e.id)
		e.told <- standing{s, err}
	})
}

// stand takes the answer.
func (e *executor) stand(s standing) {
	e.asking = false
	if s.err != nil {
		e.askBy = e.asked.Add(jobPoll)
		if !errors.Is(s.err, context.Canceled) {
			e.l.erred(s.err)
		}
		return
	}
	if !e.known || s.Refusal != e.standing.Refusal {
		if s.Refusal != "" {
			e.l.log.Warn("the executor gets no jobs", "executor", e.id, "reason", s.Refusal)
		} else {
			e.l.log.Info("the executor works", "executor", e.id)
		}
		e.look = true
	}
	e.standing, e.known = s.JobStanding, true
	e.beatBy = min(s.Cadence/3, mostBeat)
	if s.Lease > 0 {
		for _, x := range e.leases { // a renewal lasts as long as the flag says now
			x.length.Store(min(x.length.Load(), int64(s.Lease)))
		}
	}
	if s.Refusal != "" {
		what, do := s.Refusal, advice(s.Refusal, e.id)
		e.l.waits(&queue.Error{What: queue.Clean(what), Do: queue.Clean(do)}, standingEvery)
	}
}

// advice is what to do about a refusal of fn_job_refusal.
func advice(refusal, executor string) string {
	switch {
	case cloned(refusal): // it says so itself
		return ""
	case strings.Contains(refusal, "switched off"):
		return "qtop flag set queue.job_substrate.enabled true"
	case strings.Contains(refusal, "is registered"), strings.Contains(refusal, "deregistered"):
		return "qtop executor register " + executor + " --owner-role ROLE, this host's login or a group of it"
	case strings.Contains(refusal, "subscription"):
		return "qtop executor subscribe " + executor
	case strings.Contains(refusal, "belongs to role"):
		return "ask for that role, or give this host an executor of its own (--executor)"
	}
	return "see qtop doctor"
}

// keep looks after the leases and the beat.
func (e *executor) keep(ctx context.Context) {
	now, tick := e.clock(), e.ticks.Add(1)
	e.leases = slices.DeleteFunc(e.leases, func(x *jobLease) bool { return x.open.Load() == 0 })
	for _, x := range e.leases {
		if x.until() <= now {
			e.expired(x)
		}
	}
	e.handBack(e.stock.stale(tick - slowTicks)) // others may have a place, or a more urgent job comes first here
	if !e.keeping {
		renew, start := e.due(now, tick)
		if len(renew)+len(start) > 0 {
			e.keeping = true
			e.errands.Go(func() {
				e.start(ctx, start)
				e.renew(ctx, renew)
				e.kept <- struct{}{}
			})
		}
	}
	if e.beatBy > 0 && time.Since(e.beaten) >= e.beatBy {
		e.beaten = time.Now()
		b := e.beat("")
		e.errands.Go(func() {
			refusal, err := e.h.client.ExecutorBeat(ctx, e.id, e.h.workerID(), b)
			if err != nil && ctx.Err() == nil {
				e.l.log.Warn("the executor could not beat", "executor", e.id, "error", err.Error())
			} else if refusal != "" {
				e.l.log.Warn("the executor may not beat", "executor", e.id, "reason", refusal)
			}
		})
	}
}

// beat is the account of this loop; state "" is what it is doing.
func (e *executor) beat(state string) pgclient.JobBeat {
	done := int64(0)
	for i := range e.h.jobsDone[:jobReleased] {
		done += e.h.jobsDone[i].Load()
	}
	if done > e.worked {
		e.worked, e.workedAt = done, time.Now()
	}
	b := pgclient.JobBeat{State: state, DoneTotal: done, InFlight: int(e.open.Load())}
	if !e.workedAt.IsZero() {
		b.LastWorkAt = &e.workedAt
	}
	if state == "" {
		b.State = "idle"
		if b.InFlight > 0 || time.Since(e.workedAt) < mostBeat {
			b.State = "working"
		}
	}
	return b
}

// expired cancels what is left of a lease that could not be renewed in time.
func (e *executor) expired(x *jobLease) {
	for i := range x.runs {
		if r := &x.runs[i]; r.lose() {
			e.l.log.Warn("the lease ran out here", "job_id", r.job.ID.String(), "job_kind", r.job.Kind)
		}
	}
}

// due finds the leases that are a third old, and the jobs that run for a while and
// of which the database does not know it.
func (e *executor) due(now time.Duration, tick int64) (renew []*jobLease, start []*jobRun) {
	for _, x := range e.leases {
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

// slow tells whether the job runs long enough for the database to hear of it.
func (r *jobRun) slow(tick int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == jobRunning && !r.told && !r.lost && tick-r.tick > slowTicks
}

// start tells which jobs run.
func (e *executor) start(ctx context.Context, runs []*jobRun) {
	for batch := range slices.Chunk(runs, fullBatch) {
		lost, err := e.h.client.JobStart(ctx, leasesOf(batch))
		if err != nil {
			if ctx.Err() == nil {
				e.l.erred(err)
			}
			return // at the next tick again
		}
		for _, r := range batch {
			r.mu.Lock()
			r.told = true
			r.mu.Unlock()
		}
		e.lose(batch, lost)
	}
}

// renew prolongs what is open of the leases, about a thousand jobs at a time.
func (e *executor) renew(ctx context.Context, leases []*jobLease) {
	for len(leases) > 0 {
		var open []*jobRun
		n := 0
		for ; n < len(leases) && len(open) < fullBatch; n++ {
			for i := range leases[n].runs {
				if r := &leases[n].runs[i]; !r.settled() {
					open = append(open, r)
				}
			}
		}
		at := e.clock()
		if len(open) > 0 {
			lost, err := e.h.client.JobRenew(ctx, leasesOf(open))
			if err != nil {
				if ctx.Err() == nil {
					e.l.erred(err)
				}
				return // at the next tick again, as long as they last
			}
			e.lose(open, lost)
		}
		for _, x := range leases[:n] {
			x.at.Store(int64(at))
		}
		leases = leases[n:]
	}
}

// lose cancels those of the jobs whose lease the database knows no more.
func (e *executor) lose(runs []*jobRun, lost []pgtype.UUID) {
	for _, id := range lost {
		i := slices.IndexFunc(runs, func(r *jobRun) bool { return r.job.ID == id })
		if i >= 0 && runs[i].lose() {
			e.l.log.Warn("lease lost: the handler is cancelled", "job_id", id.String(), "job_kind", runs[i].job.Kind)
		}
	}
}
