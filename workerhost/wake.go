package workerhost

// This file turns signals into kicks. A signal is a hint from anybody: it can
// make a loop look sooner, never do anything else. Losing one costs latency.

import (
	"strings"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
)

// signals hears for the loops.
type signals struct {
	loops
	settings *settings
	late     loop.Spacing // looks for work that falls due
	reread   loop.Spacing // of the intervals
	first    sync.Once
	listens  chan struct{} // closed with the first subscription
}

func (s *signals) hear(w queue.Wake) {
	switch channel := w.Channel.String(); {
	case w.Layer.String() == "config":
		s.reread.After(loop.MaxWakeGap, s.settings.invalidate)
		s.wake(loopJobs)
	case channel == "queue_wake_webhook":
		s.wakeWebhook(w)
	case strings.HasPrefix(channel, "queue_wake_"):
		hinted := s.wake(w.Hint.String())
		switch w.Layer.String() {
		case "job", "subscription", "executor":
			s.wake(loopJobs)
			switch {
			case w.Due.IsZero(): // it does not say when
				s.lookForLate()
			case w.Due.After(w.At):
				s.wake(loopDue)
			}
			return
		case "doorbell": // it does not say for what
			s.wake(loopJobs)
			s.lookForLate()
		}
		if !hinted {
			if channel == "queue_wake_staging" {
				s.wake(loopStaging)
			} else {
				s.wake(loopRoutes)
			}
		}
	}
}

// lateGap is the least time between two looks for late work because of signals that
// come for every job.
const lateGap = time.Second

func (s *signals) lookForLate() { s.late.After(lateGap, func() { s.wake(loopDue) }) }

func (s *signals) wakeWebhook(w queue.Wake) {
	if s.wake(w.Hint.String()) {
		return
	}
	layers := map[string]string{"event": loopRouter, "saga": loopOrchestrator, "job": loopWebhook}
	if next, known := layers[w.Layer.String()]; known {
		s.wake(next)
		return
	}
	for _, next := range layers {
		s.wake(next)
	}
}

// resync follows each (re)subscription: what was sent meanwhile is lost. A loop whose first tick waits for the first one
// looks by itself.
func (s *signals) resync() {
	first := false
	s.first.Do(func() {
		first = true
		close(s.listens)
	})
	s.settings.invalidate()
	for _, l := range s.loops {
		if !first || l.Name == loopJobs || l.Name == loopWebhook || !l.Status().LastTick.IsZero() {
			l.Kick()
		}
	}
}
