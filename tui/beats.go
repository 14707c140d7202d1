package tui

// This file is what happens without a key: the heartbeat, hints, pictures and
// lists that arrive.

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
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
	if m.at == queue.PaneHost {
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
	p := m.pane()
	l := p.top()
	switch l.kind {
	case kindOverview:
		m.settleOverview(p)
	case kindTable, kindLetters, kindJobs:
		if lost := l.grid.refresh(m.source(p, l), m.env().Now); lost > 0 {
			m.warn(views.Count(int64(lost)) + " marked rows are gone; " + views.Count(int64(len(l.grid.marks))) + " are left")
		}
		l.grid.scroll(m.rows())
	case kindPage:
		m.settlePage(p, l)
	}
}

// settleOverview keeps the cursor on what it was on; where that is gone it
// stays in sight but acts on nothing.
func (m *root) settleOverview(p *pane) {
	targets := m.overview(p).Targets
	p.armed = false
	for _, t := range targets {
		if t == p.target {
			p.armed = true
			return
		}
	}
	if p.target == (views.Target{}) && len(targets) > 0 {
		p.target, p.armed = targets[0], true
	}
}

// paged takes a list in for the level that asked, if it is still there.
func (m *root) paged(msg pageMsg) {
	for _, p := range m.panes {
		for i := range p.levels {
			l := &p.levels[i]
			if l.serial != msg.level || (l.list.query.Filter != msg.query.Filter) {
				continue
			}
			l.list.loading = false
			l.list.err = msg.err
			if msg.err == nil {
				l.list.read = true
				if msg.more {
					l.list.add(msg.page)
				} else {
					l.list.page = msg.page
				}
			}
			m.stamp++
			m.settle()
		}
	}
}
