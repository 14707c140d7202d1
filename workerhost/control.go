package workerhost

// This file is what the console may do to the host in its process.

import (
	"context"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
)

// Start starts a loop, or all that do not run for "".
func (h *Host) Start(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	names := LoopNames()
	if name != "" {
		l := h.loops.get(name)
		if l == nil {
			return fmt.Errorf("there is no loop %s", name)
		}
		if st := l.Status().State; st == loop.Running || st == loop.Draining {
			return fmt.Errorf("loop %s is %s already", name, st)
		}
		names = []string{name}
	}
	return h.startLoops(ctx, names)
}

// Drain lets a loop finish what it has and take nothing new.
func (h *Host) Drain(name string) error {
	return h.loops.each(name, func(l *loop.Loop) error {
		if name != "" && l.Status().State == loop.Stopped {
			return fmt.Errorf("loop %s does not run here", l.Name)
		}
		l.Drain()
		return nil
	})
}

// Stop ends a loop at once; what it had is handed back.
func (h *Host) Stop(name string) error {
	return h.loops.each(name, func(l *loop.Loop) error {
		if name != "" && l.Status().State == loop.Stopped {
			return fmt.Errorf("loop %s does not run here", l.Name)
		}
		l.Stop()
		return nil
	})
}

// Status is the host as the console shows it.
func (h *Host) Status() queue.HostStatus {
	st := h.loops.status()
	st.ID, st.Instance = h.opts.ID, h.row.instance.String()
	st.Refused, _ = h.row.state()
	h.mu.Lock()
	lst := h.listener
	h.mu.Unlock()
	st.Listener = queue.ListenerStatus{State: "off"}
	if lst != nil {
		st.Listener, st.Wakes = lst.Status(), lst.Wakes()
	}
	return st
}
