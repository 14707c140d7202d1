package tui

// This file is what happens without a key: the heartbeat, hints, pictures and
// lists that arrive.

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

func (m *root) beat() tea.Cmd {
	now := m.o.Now()
	if !m.said.until.IsZero() && now.After(m.said.until) {
		m.said = notice{}
	}
	m.countDown(now)
	cmds := []tea.Cmd{beat(), m.poll()}
	if m.feed.due(now) {
		cmds = append(cmds, m.refresh())
	}
	if now.Sub(m.feed.asked) >= sessionLife {
		cmds = append(cmds, m.askSession())
	}
	return tea.Batch(append(cmds, m.reread(false)...)...)
}

// hint refreshes at once, or as soon as 250 ms have passed since the last.
func (m *deck) hint(msg hintMsg) tea.Cmd {
	if !msg.open {
		return nil
	}
	cmds := []tea.Cmd{m.listen()}
	wait := m.feed.hinted(m.o.Now())
	switch {
	case m.feed.paused || m.feed.waiting:
	case m.feed.inFlight:
		m.feed.again = true
	case wait == 0:
		cmds = append(cmds, m.refresh())
	default:
		m.feed.waiting = true
		cmds = append(cmds, later(wait, dueMsg{}))
	}
	return tea.Batch(cmds...)
}

func (m *deck) polled(msg polledMsg) tea.Cmd {
	m.local = msg.host
	if m.pane().here {
		m.settle()
	}
	if m.feed.setLink(msg.link, m.o.Now()) {
		m.tell("the database is back")
		return tea.Batch(m.refresh(), m.askSession())
	}
	return nil
}

func (m *deck) pictured(msg pictureMsg) tea.Cmd {
	had := m.feed.picture != nil
	m.feed.take(msg, m.o.Now())
	m.stamp++
	m.settle()
	var cmds []tea.Cmd
	if m.feed.again && !m.feed.paused && !m.feed.waiting {
		m.feed.again, m.feed.waiting = false, true
		cmds = append(cmds, later(max(m.feed.hinted(m.o.Now()), time.Millisecond), dueMsg{}))
	}
	if m.me.session == nil && !had || m.otherKind(msg) {
		cmds = append(cmds, m.askSession())
	}
	return tea.Batch(append(cmds, m.reread(false)...)...)
}
