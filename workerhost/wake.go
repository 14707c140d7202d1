package workerhost

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
)

// signals receives wake signals and makes the loops concerned check for work.
// Any session can send a wake signal, so a loop does not trust its content. If
// a signal is lost, the loop finds the work at its next interval.
type signals struct {
	loops
	settings     *settings
	lateGate     loop.Spacing // limits how often the loop that finds due work is woken
	settingsGate loop.Spacing // limits how often the intervals are read
	first        sync.Once
	listening    chan struct{} // closed when the listener first listens
}

func (s *signals) handle(w queue.Wake) {
	channel, layer, hint := w.Channel.String(), w.Layer.String(), w.Hint.String()
	switch {
	case layer == "config":
		s.settingsGate.After(loop.MaxWakeGap, s.settings.invalidate)
		s.wake(loopJobs)
		return
	case !strings.HasPrefix(channel, "queue_wake_"):
		return
	}
	hinted := s.wake(hint)
	if channel == "queue_wake_webhook" { // webhooks, or jobs and events of a domain with this name
		if slices.Contains([]string{loopRouter, loopOrchestrator, loopWebhook}, hint) {
			return
		}
		if !hinted {
			s.wakeWebhooks(layer)
		}
	}
	switch layer {
	case "job", "subscription", "executor":
		if hint != loopJobs { // a second wake would make the loop claim twice
			s.wake(loopJobs)
		}
		switch {
		case w.Delayed == nil: // the signal does not say whether some jobs become due only later
			s.wakeDue()
		case *w.Delayed > 0:
			s.wake(loopDue)
		}
		return
	case "doorbell": // the signal names no loop
		if hint != loopJobs {
			s.wake(loopJobs)
		}
		s.wakeDue()
	}
	if !hinted {
		if channel == "queue_wake_staging" {
			s.wake(loopStaging)
		} else {
			s.wake(loopRoutes)
		}
	}
}

// lateGap is the least time between two checks for due work that are caused by signals of single
// jobs.
const lateGap = time.Second

func (s *signals) wakeDue() { s.lateGate.After(lateGap, func() { s.wake(loopDue) }) }

// wakeWebhooks wakes the loops of webhooks for a signal that names no loop.
func (s *signals) wakeWebhooks(layer string) {
	layers := map[string]string{"event": loopRouter, "saga": loopOrchestrator, "job": loopWebhook}
	if next, known := layers[layer]; known {
		s.wake(next)
		return
	}
	for _, next := range layers {
		s.wake(next)
	}
}

// resync is called each time the listener begins to listen (again). Earlier signals are lost, so
// resync makes all loops check for work. The first call leaves out tick workers that have not
// ticked yet, because their first tick waits for the listener anyway.
func (s *signals) resync() {
	first := false
	s.first.Do(func() {
		first = true
		close(s.listening)
	})
	s.settings.invalidate()
	for _, l := range s.loops {
		if !first || l.Name == loopJobs || l.Name == loopWebhook || !l.Status().LastTick.IsZero() {
			l.Kick()
		}
	}
}
