package workerhost

// This file turns signals into kicks. A signal is a hint from anybody: it can
// make a loop look sooner, never do anything else. Losing one costs latency, and
// those that find nothing are followed by ever fewer looks.

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

func (h *Host) onWake(w queue.Wake) {
	switch channel := w.Channel.String(); {
	case w.Layer.String() == "config":
		h.reread.after(mostWakeGap, h.settings.invalidate)
		h.wake(loopJobs)
	case channel == "queue_wake_webhook":
		h.wakeWebhook(w)
	case strings.HasPrefix(channel, "queue_wake_"):
		hinted := h.wake(w.Hint.String())
		switch w.Layer.String() {
		case "job", "subscription", "executor":
			h.wake(loopJobs)
			if w.Due.After(w.At) {
				h.wake(loopDue)
			}
			return
		case "doorbell": // it does not say for what
			h.wake(loopJobs)
			h.late.after(lateGap, func() { h.wake(loopDue) })
		}
		if !hinted {
			if channel == "queue_wake_staging" {
				h.wake(loopStaging)
			} else {
				h.wake(loopRoutes)
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

// leastWakeGap and mostWakeGap bound the time between two looks of a loop that signals ask for.
const (
	leastWakeGap = 10 * time.Millisecond
	mostWakeGap  = 250 * time.Millisecond
)

// wakes spaces the looks of one loop that signals ask for: a look that finds work
// ends the gap, each that finds none doubles it.
type wakes struct {
	spacing
	gap   atomic.Int64 // of time.Duration
	woken atomic.Bool  // a signal asked for the next look
}

// wakeNow makes the loop look for a signal, as soon as its gap allows it.
func (l *loop) wakeNow() {
	l.wakes.after(time.Duration(l.wakes.gap.Load()), func() {
		l.wakes.woken.Store(true)
		l.kickNow()
	})
}

// looked records what a look found. One that no signal asked for, and that found
// nothing, says nothing about signals.
func (l *loop) looked(found bool) {
	woken := l.wakes.woken.Swap(false)
	switch {
	case found:
		l.wakes.gap.Store(0)
	case woken:
		l.wakes.gap.Store(int64(min(max(2*time.Duration(l.wakes.gap.Load()), leastWakeGap), mostWakeGap)))
	}
}

func (h *Host) wakeWebhook(w queue.Wake) {
	if h.wake(w.Hint.String()) {
		return
	}
	switch w.Layer.String() {
	case "event":
		h.wake(loopRouter)
	case "saga":
		h.wake(loopOrchestrator)
	case "job":
		h.wake(loopWebhook)
	default:
		h.wake(loopRouter)
		h.wake(loopOrchestrator)
		h.wake(loopWebhook)
	}
}

// wake makes a loop look for a signal; false when there is no such loop.
func (h *Host) wake(name string) bool {
	l := h.loop(name)
	if l == nil {
		return false
	}
	l.wakeNow()
	return true
}

// kick makes a loop look now, for what this process knows.
func (h *Host) kick(name string) {
	if l := h.loop(name); l != nil {
		l.kickNow()
	}
}

// kickAll follows each (re)subscription: what was sent meanwhile is lost.
func (h *Host) kickAll() {
	h.settings.invalidate()
	for _, l := range h.loops {
		l.kickNow()
	}
}
