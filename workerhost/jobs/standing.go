package jobs

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// maxHeartbeatInterval is the longest time between two heartbeats.
const maxHeartbeatInterval = 10 * time.Second

// answer is the database's answer to the question whether the executor may claim.
type answer struct {
	work.JobStanding
	err error
}

// standing holds the last answer of the database to the question whether the executor may claim
// jobs, and sends the heartbeat of the executor. The heartbeat is sent by the loop that does the
// work, so that the heartbeat stops when the loop hangs. Only the owner of the loop uses
// standing.
type standing struct {
	*state
	answers chan answer // size 1

	refusal           string
	known             bool // the database has answered
	asking            bool
	askedAt           time.Time
	askAt             time.Time // when to ask the database again
	heartbeatAt       time.Time
	heartbeatInterval time.Duration // 0 = the executor sends no heartbeat
	beating           atomic.Bool   // a heartbeat is being sent: a second one would wait with it, each on a connection
	worked            int64         // jobs that had ended at the last heartbeat
	workedAt          time.Time
}

// allowed reports whether jobs may be claimed.
func (s *standing) allowed() bool { return s.known && s.refusal == "" }

// askSoon makes the next question due jobPoll after the last one, because a job subscription may
// have changed.
func (s *standing) askSoon() { s.askAt = s.askedAt.Add(jobPoll) }

// ask asks the database in the background whether the executor may claim, when that question is
// due.
func (s *standing) ask(ctx context.Context) {
	if s.asking || time.Now().Before(s.askAt) {
		return
	}
	s.asking, s.askedAt = true, time.Now()
	s.askAt = s.askedAt.Add(standingEvery)
	s.background.Go(func() {
		now, err := s.Client.JobStanding(ctx, s.ID)
		s.answers <- answer{now, err}
	})
}

// handle records the answer of the database to ask. changed reports that the reason why this
// executor may not claim has ended or has changed, so that there may be jobs to claim.
func (s *standing) handle(a answer) (changed bool) {
	s.asking = false
	if a.err != nil {
		s.askSoon()
		if !errors.Is(a.err, context.Canceled) {
			s.l.RecordError(a.err)
		}
		return false
	}
	if changed = !s.known || a.Refusal != s.refusal; changed {
		if a.Refusal != "" {
			s.l.Log.Warn("the executor may not claim jobs", "executor", s.ID, "reason", a.Refusal)
		} else {
			s.l.Log.Info("the executor may claim jobs", "executor", s.ID)
		}
	}
	s.refusal, s.known = a.Refusal, true
	s.heartbeatInterval = min(a.Cadence/3, maxHeartbeatInterval)
	if a.Refusal != "" {
		s.l.RecordBlocked(&queue.Error{What: queue.Clean(a.Refusal), Do: queue.Clean(advice(a.Refusal, s.ID))}, standingEvery)
	}
	return changed
}

// advice returns what the operator can do about a refusal of fn_job_refusal.
func advice(refusal, executor string) string {
	switch {
	case lease.IsCloneRefusal(refusal): // the text of the refusal contains the advice
		return ""
	case strings.Contains(refusal, "switched off"):
		return "qtop flag set queue.job_substrate.enabled true"
	case strings.Contains(refusal, "is registered"), strings.Contains(refusal, "deregistered"):
		return "qtop executor register " + queue.ShellQuote(executor) + " --owner-role ROLE, this host's login or a group of it"
	case strings.Contains(refusal, "subscription"):
		return "qtop executor subscribe " + queue.ShellQuote(executor)
	case strings.Contains(refusal, "belongs to role"):
		return "ask for that role, or give this host its own executor (--executor)"
	}
	return "see qtop doctor"
}

// heartbeat sends a heartbeat in the background, when that is due.
func (s *standing) heartbeat(ctx context.Context) {
	if s.heartbeatInterval == 0 || time.Since(s.heartbeatAt) < s.heartbeatInterval || !s.beating.CompareAndSwap(false, true) {
		return
	}
	s.heartbeatAt = time.Now()
	b := s.progress()
	b.State = "idle"
	if b.InFlight > 0 || time.Since(s.workedAt) < maxHeartbeatInterval {
		b.State = "working"
	}
	s.background.Go(func() {
		defer s.beating.Store(false)
		refusal, err := s.Client.ExecutorHeartbeat(ctx, s.ID, s.Worker, b)
		if err != nil && ctx.Err() == nil {
			s.l.Log.Warn("could not record the heartbeat of the executor", "executor", s.ID, "error", err.Error())
		} else if refusal != "" {
			s.l.Log.Warn("the heartbeat of the executor was refused", "executor", s.ID, "reason", refusal)
		}
	})
}

// heartbeatStopped sends a last heartbeat, which records that the loop has ended.
func (s *standing) heartbeatStopped(ctx context.Context) {
	if s.heartbeatInterval == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.l.Remaining(), time.Second))
	defer cancel()
	b := s.progress()
	b.State = "stopped"
	if _, err := s.Client.ExecutorHeartbeat(ctx, s.ID, s.Worker, b); err != nil {
		s.l.Log.Warn("could not record that the executor stopped", "executor", s.ID, "error", err.Error())
	}
}

// progress returns the figures of a heartbeat.
func (s *standing) progress() work.JobHeartbeat {
	done := s.Outcomes.worked()
	if done > s.worked {
		s.worked, s.workedAt = done, time.Now()
	}
	b := work.JobHeartbeat{DoneTotal: done, InFlight: int(s.open.Load())}
	if !s.workedAt.IsZero() {
		now := time.Now().UTC()
		at := now.Add(-now.Sub(s.workedAt)) // now.Sub is monotonic, whatever step the clock has made meanwhile
		b.LastWorkAt, b.Now = &at, &now
	}
	return b
}
