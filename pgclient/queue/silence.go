package queue

import (
	"slices"
	"strings"
)

// CausedBy returns the waiting queues whose first cause names the executor or tick worker.
func (s *Snapshot) CausedBy(executor string) (out []Waiting) {
	for _, w := range s.OrEmpty().Waiting {
		// a reason may name several executors, and a tick worker in the key of its interval
		words := strings.FieldsFunc(w.Why.String(), func(r rune) bool { return strings.ContainsRune(" ,:.", r) })
		if slices.Contains(words, executor) {
			out = append(out, w)
		}
	}
	return out
}

// Cure returns what ends the silence of the executor: the verb, or what a person has to do; "" = it is not silent.
func (x Executor) Cure() string {
	switch name := x.ID.String(); {
	case x.State != "silent":
		return ""
	case x.TickWorker:
		return "qtop worker --loops " + name
	default:
		return "start its program or host; qtop executor deregister " + ShellQuote(name) + " if it is gone for good"
	}
}
