package workerhost

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
)

// Start starts a loop by its name, or with "" all loops that do not run. It fails when the loop
// runs already, when another instance has the host id, or after 10 s.
func (h *Host) Start(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if base := h.base.Load(); base != nil { // when Run ends, the start is cancelled: it must not delay the end of the host
		defer context.AfterFunc(*base, cancel)()
	}
	names := LoopNames()
	if name != "" {
		l := h.loops.get(name)
		if l == nil {
			return queue.NewError(queue.KindUsage, "there is no loop "+name, "", "use one of "+strings.Join(names, ", "))
		}
		if st := l.Status().State; st == loop.Running || st == loop.Draining {
			return queue.NewError(queue.KindFailed, fmt.Sprintf("loop %s is %s already", name, st), "", "")
		}
		names = []string{name}
	}
	return h.startLoops(ctx, names)
}

// Drain asks a loop, or with "" all loops, to finish the current work and take no new work. As at
// the end of a host, work that has not ended within the grace time is stopped and handed back.
func (h *Host) Drain(name string) error {
	began := time.Now()
	return h.endLoops(name, func(l *loop.Loop) {
		l.Drain()
		ended := l.Ended()
		go func() {
			late := time.NewTimer(time.Until(h.drainedBy(began)))
			defer late.Stop()
			select {
			case <-ended:
			case <-late.C:
				l.Stop(began.Add(h.opts.Grace + handBackSpare))
			}
		}()
	})
}

// Stop ends a loop, or with "" all loops, at once. Unfinished work is handed back.
func (h *Host) Stop(name string) error {
	deadline := time.Now().Add(min(h.opts.Grace, loop.HandBackTime))
	return h.endLoops(name, func(l *loop.Loop) { l.Stop(deadline) })
}

func (h *Host) endLoops(name string, end func(*loop.Loop)) error {
	if name == "" {
		for _, l := range h.loops {
			end(l)
		}
		return nil
	}
	l := h.loops.get(name)
	switch {
	case l == nil:
		return queue.NewError(queue.KindUsage, "this host has no loop "+name, "", "use one of "+strings.Join(LoopNames(), ", "))
	case l.Status().State == loop.Stopped:
		return queue.NewError(queue.KindFailed, fmt.Sprintf("loop %s is not running in this host", name), "", "")
	}
	end(l)
	return nil
}

// Status returns the status of the host and its loops, as the console shows it.
func (h *Host) Status() queue.HostStatus {
	st := h.loops.status()
	st.ID, st.Instance = h.opts.ID, h.row.instance.String()
	st.Executor, st.Kinds = h.jobs.ID, h.jobs.Kinds()
	st.Refused = *h.row.refused.Load()
	st.Failing = queue.Clean(h.row.failing.Load().String())
	st.Listener = queue.ListenerStatus{State: "off"}
	if lst := h.listener.Load(); lst != nil {
		st.Listener, st.Wakes = lst.Status(), lst.Wakes()
	}
	return st
}
