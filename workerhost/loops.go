package workerhost

// This file is the loops of a host by name, and how they hand work to each other.

import (
	"fmt"
	"log/slog"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

type loops []*loop.Loop

func newLoops(log *slog.Logger) (all loops) {
	for _, w := range catalogue() {
		all = append(all, loop.New(w.name, w.what, log))
	}
	return all
}

// get is nil when there is no such loop.
func (ls loops) get(name string) *loop.Loop {
	for _, l := range ls {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// each applies f to one loop, or to all for "".
func (ls loops) each(name string, f func(*loop.Loop) error) error {
	if name != "" {
		l := ls.get(name)
		if l == nil {
			return fmt.Errorf("there is no loop %s", name)
		}
		return f(l)
	}
	for _, l := range ls {
		if err := f(l); err != nil {
			return err
		}
	}
	return nil
}

// status is that of all.
func (ls loops) status() (st queue.HostStatus) {
	for _, l := range ls {
		s := l.Status()
		st.Loops = append(st.Loops, s)
		st.InFlight += s.InFlight
		st.Running = st.Running || s.State != loop.Stopped
	}
	return st
}

func (ls loops) running() []string {
	names := []string{}
	for _, l := range ls {
		if l.Status().State != loop.Stopped {
			names = append(names, l.Name)
		}
	}
	return names
}

// wake makes a loop look for a signal; false when there is no such loop.
func (ls loops) wake(name string) bool {
	l := ls.get(name)
	if l != nil {
		l.Wake()
	}
	return l != nil
}

// handOn kicks the loops that have the next step after a pass of one, inside this
// process, and the loop itself when there is more.
func (ls loops) handOn(name string, result map[string]int64) {
	for _, n := range result {
		if n >= lease.Most {
			ls.get(name).Kick()
		}
	}
	for _, w := range catalogue() {
		if w.name != name {
			continue
		}
		for _, h := range w.wakes {
			if result[h.count] > 0 {
				ls.get(h.next).Kick()
			}
		}
	}
}
