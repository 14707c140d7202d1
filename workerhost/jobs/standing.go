package jobs

// This file is how the executor stands with the database, and its beat, which comes
// from the loop that does the work.

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// mostBeat is the longest time between two beats.
const mostBeat = 10 * time.Second

// answer is what a question for the standing brought.
type answer struct {
	work.JobStanding
	err error
}

// standing is what is known of it. The owner of the loop owns it.
type standing struct {
	*state
	told chan answer // size 1

	refusal  string
	known    bool // it has been asked for
	asking   bool
	asked    time.Time
	askBy    time.Time // when to ask again
	beaten   time.Time
	beatBy   time.Duration // 0 = it cannot beat
	worked   int64         // jobs done at the last beat
	workedAt time.Time
}

// good tells whether jobs may be claimed.
func (s *standing) good() bool { return s.known && s.refusal == "" }

// soon has it asked for again: a rule may have changed.
func (s *standing) soon() { s.askBy = s.asked.Add(jobPoll) }

// ask asks when that is due.
func (s *standing) ask(ctx context.Context) {
	if s.asking || time.Now().Before(s.askBy) {
		return
	}
	s.asking, s.asked = true, time.Now()
	s.askBy = s.asked.Add(standingEvery)
	s.errands.Go(func() {
		now, err := s.Client.JobStanding(ctx, s.ID)
		s.told <- answer{now, err}
	})
}

// take takes the answer; changed: there may be work to claim.
func (s *standing) take(a answer) (changed bool) {
	s.asking = false
	if a.err != nil {
		s.soon()
		if !errors.Is(a.err, context.Canceled) {
			s.l.Erred(a.err)
		}
		return false
	}
	if changed = !s.known || a.Refusal != s.refusal; changed {
		if a.Refusal != "" {
			s.l.Log.Warn("the executor gets no jobs", "executor", s.ID, "reason", a.Refusal)
		} else {
			s.l.Log.Info("the executor works", "executor", s.ID)
		}
	}
	s.refusal, s.known = a.Refusal, true
	s.beatBy = min(a.Cadence/3, mostBeat)
	if a.Refusal != "" {
		s.l.Waits(&queue.Error{What: queue.Clean(a.Refusal), Do: queue.Clean(advice(a.Refusal, s.ID))}, standingEvery)
	}
	return changed
}

// advice is what to do about a refusal of fn_job_refusal.
func advice(refusal, executor string) string {
	switch {
	case lease.Cloned(refusal): // it says so itself
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

// beat beats when that is due.
func (s *standing) beat(ctx context.Context) {
	if s.beatBy == 0 || time.Since(s.beaten) < s.beatBy {
		return
	}
	s.beaten = time.Now()
	b := s.account()
	b.State = "idle"
	if b.InFlight > 0 || time.Since(s.workedAt) < mostBeat {
		b.State = "working"
	}
	s.errands.Go(func() {
		refusal, err := s.Client.ExecutorBeat(ctx, s.ID, s.Worker, b)
		if err != nil && ctx.Err() == nil {
			s.l.Log.Warn("the executor could not beat", "executor", s.ID, "error", err.Error())
		} else if refusal != "" {
			s.l.Log.Warn("the executor may not beat", "executor", s.ID, "reason", refusal)
		}
	})
}

// stopped says that the loop has ended.
func (s *standing) stopped(ctx context.Context) {
	if s.beatBy == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.l.Left(), time.Second))
	defer cancel()
	b := s.account()
	b.State = "stopped"
	if _, err := s.Client.ExecutorBeat(ctx, s.ID, s.Worker, b); err != nil {
		s.l.Log.Warn("the executor could not say that it stopped", "executor", s.ID, "error", err.Error())
	}
}

// account is that of this loop.
func (s *standing) account() work.JobBeat {
	done := s.Done.worked()
	if done > s.worked {
		s.worked, s.workedAt = done, time.Now()
	}
	b := work.JobBeat{DoneTotal: done, InFlight: int(s.open.Load())}
	if !s.workedAt.IsZero() {
		b.LastWorkAt = &s.workedAt
	}
	return b
}
