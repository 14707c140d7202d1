package tui

// This file is how the console is left: at once where no loop runs here, else
// only after its operator has said what becomes of the work.

import (
	tea "charm.land/bubbletea/v2"
)

func (m *root) quit() tea.Cmd {
	if !m.running() {
		return m.exit()
	}
	m.raise(&quitter{loops: m.loopsRunning(), inFlight: m.local.InFlight, gate: newGate(m.o.Now())})
	return later(quietFor, armMsg{})
}

// interrupt is ctrl+c: once drains, twice hands back at once.
func (m *root) interrupt() tea.Cmd {
	switch {
	case m.leave.forced:
		return m.exit()
	case m.leave.draining:
		m.leave.forced = true
		return m.handBack()
	case !m.running():
		return m.exit()
	}
	return m.leaveNow(leaveDrain)
}

func (m *root) leaveNow(how leaveHow) tea.Cmd {
	m.leave.draining = true
	m.over = []overlay{&drainer{m: func() int {
		if m.local == nil {
			return 0
		}
		return m.local.InFlight
	}}}
	if how == leaveHandBack {
		m.leave.forced = true
		return m.handBack()
	}
	return m.drainAll()
}

func (m *root) drained(msg drainedMsg) tea.Cmd {
	if msg.err != nil && !m.leave.forced {
		m.leave.forced = true
		return m.handBack()
	}
	return m.exit()
}

// suspend would freeze the loops with the console: their leases would run out.
func (m *root) suspend() tea.Cmd {
	m.mask()
	m.settle()
	if m.running() {
		m.warn("ctrl+z is off: loops run in this process and would freeze; gw stops them")
		return nil
	}
	return tea.Suspend
}
