package workerhost

// This file turns signals into kicks. A signal is a hint from anybody: it can
// make a loop look sooner, never do anything else. Losing one costs latency.

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

func (h *Host) onWake(w queue.Wake) {
	switch channel := w.Channel.String(); {
	case w.Layer.String() == "config":
		h.settings.invalidate()
	case channel == "queue_wake_webhook":
		h.kickWebhook(w)
	case strings.HasPrefix(channel, "queue_wake_"):
		if !h.kick(w.Hint.String()) {
			h.kick("iu_outbound_default")
		}
	}
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
