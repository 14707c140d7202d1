package workerhost

// This file turns signals into kicks. A signal is a hint from anybody: it can
// make a loop look sooner, never do anything else. Losing one costs latency.

import (
	"strings"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

func (h *Host) onWake(w queue.Wake) {
	switch channel := w.Channel.String(); {
	case w.Layer.String() == "config":
		h.settings.invalidate()
		h.kick(loopJobs)
	case channel == "queue_wake_webhook":
		h.kickWebhook(w)
	case strings.HasPrefix(channel, "queue_wake_"):
		hinted := h.kick(w.Hint.String())
		switch w.Layer.String() {
		case "job", "subscription", "executor":
			h.kick(loopJobs)
			if w.Due.After(w.At) {
				h.kick(loopDue)
			}
			return
		case "doorbell": // it does not say for what
			h.kick(loopJobs)
			h.late.after(lateGap, func() { h.kick(loopDue) })
		}
		if !hinted {
			if channel == "queue_wake_staging" {
				h.kick(loopStaging)
			} else {
				h.kick(loopRoutes)
			}
		}
	}
}

// lateGap is the least time between two looks for late work because of a bell,
// which rings for every job.
const lateGap = time.Second

// spacing calls at most once per gap, the last time at its end.
type spacing struct {
	mu   sync.Mutex
	next time.Time
	set  bool
}

func (s *spacing) after(gap time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set {
		return
	}
	wait := time.Until(s.next)
	if wait <= 0 {
		s.next = time.Now().Add(gap)
		f()
		return
	}
	s.set = true
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		s.set, s.next = false, time.Now().Add(gap)
		s.mu.Unlock()
		f()
	})
}

func (h *Host) kickWebhook(w queue.Wake) {
	if h.kick(w.Hint.String()) {
		return
	}
	switch w.Layer.String() {
	case "event":
		h.kick(loopRouter)
	case "saga":
		h.kick(loopOrchestrator)
	case "job":
		h.kick(loopWebhook)
	default:
		h.kick(loopRouter)
		h.kick(loopOrchestrator)
		h.kick(loopWebhook)
	}
}

// kick makes a loop look now; false when there is no such loop.
func (h *Host) kick(name string) bool {
	l := h.loop(name)
	if l == nil {
		return false
	}
	l.kickNow()
	return true
}

// kickAll follows each (re)subscription: what was sent meanwhile is lost.
func (h *Host) kickAll() {
	h.settings.invalidate()
	for _, l := range h.loops {
		l.kickNow()
	}
}
