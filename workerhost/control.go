package workerhost

// This file is what the console may do to the host in its process.

import (
	"context"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

func (h *Host) loop(name string) *loop {
	for _, l := range h.loops {
		if l.name == name {
			return l
		}
	}
	return nil
}

// each applies f to one loop, or to all for "".
func (h *Host) each(name string, f func(*loop) error) error {
	if name == "" {
		for _, l := range h.loops {
			if err := f(l); err != nil {
				return err
			}
		}
		return nil
	}
	l := h.loop(name)
	if l == nil {
		return fmt.Errorf("there is no loop %s", name)
	}
	return f(l)
}

// Start starts a loop, or all that do not run for "".
func (h *Host) Start(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	names := LoopNames()
	if name != "" {
		l := h.loop(name)
		if l == nil {
			return fmt.Errorf("there is no loop %s", name)
		}
		if st := l.status().State; st == stateRunning || st == stateDraining {
			return fmt.Errorf("loop %s is %s already", name, st)
		}
		names = []string{name}
	}
	return h.startLoops(ctx, names)
}

// Drain lets a loop finish what it has and take nothing new.
func (h *Host) Drain(name string) error {
	return h.each(name, func(l *loop) error {
		if name != "" && l.status().State == stateStopped {
			return fmt.Errorf("loop %s does not run here", l.name)
		}
		l.drainNow()
		return nil
	})
}

// Stop ends a loop at once; what it had is handed back.
func (h *Host) Stop(name string) error {
	return h.each(name, func(l *loop) error {
		if name != "" && l.status().State == stateStopped {
			return fmt.Errorf("loop %s does not run here", l.name)
		}
		l.stopNow()
		return nil
	})
}

func (h *Host) body(name string) func(context.Context, *loop) error {
	switch name {
	case loopWebhook:
		return h.deliver
	case loopJobs:
		return h.execute
	}
	return h.tickLoop
}

func (h *Host) running() []string {
	names := []string{}
	for _, l := range h.loops {
		if l.status().State != stateStopped {
			names = append(names, l.name)
		}
	}
	return names
}

// Status is the host as the console shows it.
func (h *Host) Status() queue.HostStatus {
	h.mu.Lock()
	st := queue.HostStatus{ID: h.opts.ID, Instance: h.instance.String(), Refused: h.refused}
	lst := h.listener
	h.mu.Unlock()
	st.Listener = queue.ListenerStatus{State: "off"}
	if lst != nil {
		st.Listener, st.Wakes = lst.Status(), lst.Wakes()
	}
	for _, l := range h.loops {
		s := l.status()
		st.Loops = append(st.Loops, s)
		st.InFlight += s.InFlight
		st.Running = st.Running || s.State != stateStopped
	}
	return st
}
