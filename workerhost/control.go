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
	if base := h.base.Load(); base != nil { // a start must not hold up the end of the host
		defer context.AfterFunc(*base, cancel)()
	}
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

// Drain lets a loop, or all for "", finish what it has and take nothing new.
func (h *Host) Drain(name string) error { return h.end(name, (*loop.Loop).Drain) }

// Stop ends a loop, or all for "", at once; what it had is handed back.
func (h *Host) Stop(name string) error {
	by := time.Now().Add(min(h.opts.Grace, loop.HandBackTime))
	return h.end(name, func(l *loop.Loop) { l.Stop(by) })
}

func (h *Host) end(name string, how func(*loop.Loop)) error {
	if name == "" {
		for _, l := range h.loops {
			how(l)
		}
		return nil
	}
	l := h.loops.get(name)
	switch {
	case l == nil:
		return fmt.Errorf("there is no loop %s", name)
	case l.Status().State == loop.Stopped:
		return fmt.Errorf("loop %s does not run here", name)
	}
	how(l)
	return nil
}

// Status is the host as the console shows it.
func (h *Host) Status() queue.HostStatus {
	st := h.loops.status()
	st.ID, st.Instance = h.opts.ID, h.row.instance.String()
	st.Refused = *h.row.refused.Load()
	st.Listener = queue.ListenerStatus{State: "off"}
	if lst := h.listener.Load(); lst != nil {
		st.Listener, st.Wakes = lst.Status(), lst.Wakes()
	}
	return st
}
