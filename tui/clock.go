package tui

// The messages that no key caused: the heartbeat of each second,
// change hints and the answers of reads.

import tea "charm.land/bubbletea/v2"

// onHeartbeat runs once a second: it masks revealed payloads whose time is
// over, polls the connection and the host, and starts the reads that are due.
func (m *root) onHeartbeat() tea.Cmd {
	now := m.o.Now()
	m.countDown(now)
	cmds := []tea.Cmd{heartbeat(), m.poll()}
	if m.feed.due(now) {
		cmds = append(cmds, m.refresh(m.feed.shareable()))
	}
	if now.Sub(m.feed.asked) >= sessionLife {
		cmds = append(cmds, m.askSession())
	}
	return tea.Batch(append(cmds, m.reread(false)...)...)
}

// hint handles a change hint: it refreshes now, or as soon as 250 ms have passed since
// the last refresh. Hints that arrive meanwhile are merged into one refresh.
func (m *deck) hint(msg hintMsg) tea.Cmd {
	if !msg.open {
		return nil
	}
	cmds := []tea.Cmd{m.listen()}
	wait := m.feed.hintDelay(m.o.Now())
	switch {
	case m.feed.paused || m.feed.waiting:
	case m.feed.reading():
		m.feed.again = true
	case wait == 0:
		cmds = append(cmds, m.refresh(fresh))
	default:
		m.feed.waiting = true
		cmds = append(cmds, later(wait, dueMsg{}))
	}
	return tea.Batch(cmds...)
}

// polled stores the state of the connection and of the host. If the connection
// was lost and works again, it requests a snapshot.
func (m *deck) polled(msg polledMsg) tea.Cmd {
	m.local = msg.host
	if m.pane().localOnly {
		m.settle()
	}
	if m.feed.setLink(msg.link, m.o.Now()) {
		m.inform("connected to the database again")
		m.notice.holds = func() bool { return !m.feed.lost() }
		return tea.Batch(m.refresh(fresh), m.askSession())
	}
	return nil
}

// snapshotArrived stores a new snapshot and starts the reads that depend on it.
func (m *deck) snapshotArrived(msg snapshotMsg) tea.Cmd {
	had := m.feed.snapshot != nil
	m.feed.receive(msg, m.o.Now())
	m.revision++
	m.settle()
	if m.feed.sessionDue || m.me.session == nil && !had && !m.feed.asking || m.roleChanged(msg) {
		return m.askSession()
	}
	return m.rested()
}

// sessionArrived stores the session (login, rights, environment) and starts
// the reads that waited for it.
func (m *deck) sessionArrived(msg sessionMsg) tea.Cmd {
	m.feed.asking = false
	m.me.receive(msg)
	return m.rested()
}

// rested starts the reads that wait their turn: a console uses one connection,
// so it reads the snapshot, the session and the list one after another.
func (m *deck) rested() tea.Cmd {
	return tea.Batch(append(m.reread(false), m.readAgain())...)
}
