package tui

// This file is what happens without a key: the heartbeat, hints, pictures and
// lists that arrive.

import (
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/views"
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
func (m *root) hint(msg hintMsg) tea.Cmd {
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

func (m *root) polled(msg polledMsg) tea.Cmd {
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

func (m *root) pictured(msg pictureMsg) tea.Cmd {
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

// otherKind tells that a picture is of a primary and the session of a standby, or the
// other way round: the standby was promoted, or another server answers.
func (m *root) otherKind(msg pictureMsg) bool {
	s := m.me.session
	return s != nil && msg.err == nil && s.InRecovery != msg.picture.Server.InRecovery && m.o.Now().Sub(m.feed.asked) >= kindLife
}

// settle brings the open level up to date with the picture, its list, the size.
func (m *root) settle() {
	l := m.pane().top()
	switch {
	case l.board != nil:
		m.settleOverview(l)
	case l.page != nil:
		m.settlePage(l)
	default:
		if lost := l.grid.refresh(l.table.rows(m.scene()), m.env().Now); lost > 0 {
			m.warn(views.Count(int64(lost)) + " marked rows are gone; " + views.Count(int64(len(l.grid.marks))) + " are left")
		}
		l.grid.scroll(m.rows())
	}
}

// settlePage builds a page anew where what it shows has changed.
func (m *root) settlePage(l *level) {
	if l.stamp == m.stamp {
		return
	}
	if page, ok := l.page(m.scene()); ok {
		l.built = page
	}
	l.stamp = m.stamp
	l.offset = min(max(l.offset, 0), max(len(l.built.Lines)-m.body().H, 0))
}

// settleOverview keeps the cursor on what it was on; where that is gone it
// stays in sight but acts on nothing.
func (m *root) settleOverview(l *level) {
	targets := m.rowsOfBoard(l)
	l.armed = slices.Contains(targets, l.target)
	if l.target == (views.Target{}) && len(targets) > 0 {
		l.target, l.armed = targets[0], true
	}
}

// rowsOfBoard are the rows of the Overview that the cursor can be on.
func (m *root) rowsOfBoard(l *level) []views.Target {
	return l.board(m.scene(), m.body(), l.target).Targets
}
