package tui

// This file moves the cursor and marks rows.

import (
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// move puts the cursor of whatever is open by d.
func (m *deck) move(d int) tea.Cmd {
	l := m.pane().top()
	switch {
	case l.board != nil:
		m.moveOverview(l, d)
	case l.page != nil:
		l.scrollTo(l.offset+d, m.body().H)
	default:
		l.grid.move(d, m.rows)
		return m.more()
	}
	return nil
}

func (m *deck) moveTo(i int) tea.Cmd {
	l := m.pane().top()
	switch {
	case l.board != nil:
		m.moveOverview(l, queue.Choose(i == 0, -1<<20, 1<<20))
	case l.page != nil:
		l.scrollTo(i, m.body().H)
	default:
		l.grid.place(i, m.rows)
		return m.more()
	}
	return nil
}

func (m *deck) moveOverview(l *level, d int) {
	targets := m.rowsOfBoard(l)
	if len(targets) == 0 {
		return
	}
	at := 0
	for i, t := range targets {
		if t == l.target {
			at = i + d
		}
	}
	l.target, l.armed = targets[min(max(at, 0), len(targets)-1)], true
}

func (m *deck) mark(k string) {
	g := &m.pane().top().grid
	if g.marks == nil {
		m.warn("rows are marked in the letters of a group (5, enter) and the jobs of a lane (8, enter); here a key acts on the row under the cursor")
		return
	}
	if i, ok := g.current(); ok && k != "ctrl+a" && !g.markable(i) {
		m.warn("lanes are not marked: enter opens its jobs, which are; so are the stuck leases")
		return
	}
	switch k {
	case "space":
		if g.toggle() {
			g.move(1, m.rows)
		}
	case "v":
		g.ranges()
	case "ctrl+a":
		g.markAll(m.pane().top().list.asks())
		m.sayMarked()
	}
}

func (m *deck) sayMarked() {
	l := m.pane().top()
	n := int64(len(l.grid.marked()))
	switch {
	case l.grid.all:
		m.tell("all " + m.totalWords(l) + " that match are selected")
	case l.list.page.Total > n:
		m.tell(views.Count(n) + " marked; ctrl+a again takes all " + m.totalWords(l) + " that match")
	default:
		m.tell(views.Count(n) + " marked")
	}
}

func (m *deck) totalWords(l *level) string {
	return queue.Choose(l.list.page.TotalBound, m.look.theme.G.AtLeast, "") + views.Count(l.list.page.Total)
}
