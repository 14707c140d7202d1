package tui

// The end of the console: at once if no loop runs in this process, else
// after the operator has chosen what happens to the claimed work.

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// quit handles key q.
func (m *root) quit() tea.Cmd {
	if !m.running() {
		return m.exit()
	}
	m.raise(&quitDialog{now: m.work, gate: newKeyGate(m.o.Now())})
	return later(quietFor, armMsg{})
}

// work returns what the loops of this process do now.
func (m *root) work() (w localWork) {
	if m.local != nil {
		w = localWork{m.loopsRunning(), m.local.InFlight, m.onlyHere()}
	}
	return w
}

// onlyHere returns the loops that run in this process and, as far as the
// snapshot shows, on no other live host.
func (m *root) onlyHere() (names []string) {
	s := m.feed.snapshot
	if _, unread := s.OrEmpty().Missing["hosts"]; s == nil || unread {
		return nil
	}
	for _, l := range m.local.Loops {
		elsewhere := slices.ContainsFunc(s.Hosts, func(h queue.Host) bool {
			return h.Alive && h.Instance != m.local.Instance && slices.Contains(h.Loops, queue.Clean(l.Name))
		})
		if l.State == "running" && !elsewhere {
			names = append(names, l.Name)
		}
	}
	return names
}

// interrupt handles ctrl+c. The first press drains the loops, the second
// returns claimed work to the queue at once, the third quits without waiting.
func (m *root) interrupt() tea.Cmd {
	switch {
	case m.shutdown.forced:
		return m.exit()
	case m.shutdown.draining:
		m.shutdown.forced = true
		return m.handBack()
	case !m.running():
		return m.exit()
	}
	return m.shutDown(shutdownDrain)
}

// shutDown starts to drain the loops or to hand back their work. The program
// quits when that is done.
func (m *root) shutDown(how shutdownMode) tea.Cmd {
	m.shutdown.draining = true
	m.over = []overlay{&drainDialog{now: m.work}}
	if how == shutdownHandBack {
		m.shutdown.forced = true
		return m.handBack()
	}
	return m.drainAll()
}

// drained quits. If the drain failed, it first returns the remaining claimed
// work to the queue.
func (m *root) drained(msg drainedMsg) tea.Cmd {
	if msg.err != nil && !m.shutdown.forced {
		m.shutdown.forced = true
		return m.handBack()
	}
	return m.exit()
}

// suspend handles ctrl+z. It is refused while loops run in this process: they would freeze
// too, and their leases would expire.
func (m *root) suspend() tea.Cmd {
	m.mask()
	m.settle()
	if m.running() {
		m.warn("ctrl+z is off: loops run in this process and would freeze; stop them in Worker host (gw)")
		return nil
	}
	return tea.Suspend
}
