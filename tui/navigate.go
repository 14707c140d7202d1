package tui

// This file goes from pane to pane and from level to level.

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// open shows a pane. Filters do not travel: one that was forgotten would hide
// rows of an incident.
func (m *deck) open(id queue.PaneID) tea.Cmd {
	if _, ok := m.panes[id]; !ok {
		return nil
	}
	if id != m.at {
		m.mask()
		m.clearFilter(m.pane().top())
		m.pane().top().list.end()
		m.at = id
	}
	m.settle()
	return tea.Batch(m.reread(true)...)
}

// cycle goes to the next pane, or the one before.
func (m *deck) cycle(d int) tea.Cmd {
	panes := Panes()
	for i, p := range panes {
		if p.ID == m.at {
			return m.open(panes[(i+d+len(panes))%len(panes)].ID)
		}
	}
	return nil
}

// push goes one level deeper.
func (m *deck) push(l level) tea.Cmd {
	m.mask()
	p := m.pane()
	p.top().list.end()
	p.levels = append(p.levels, l)
	cmd := m.read(p.top())
	m.settle()
	return cmd
}

// enter opens what is under the cursor. It never acts.
func (m *deck) enter() tea.Cmd {
	l := m.pane().top()
	if l.board != nil {
		return m.follow(l)
	}
	if i, ok := l.grid.current(); ok && l.table != nil {
		return m.push(l.table.under(m.scene(), i))
	}
	return nil
}

// follow opens the pane that knows more about a row of the Overview, with the
// cursor on it.
func (m *deck) follow(from *level) tea.Cmd {
	if !from.armed {
		return nil
	}
	t := from.target
	to := m.panes[t.Pane]
	to.levels = to.levels[:1]
	l := to.top()
	if to.land != nil {
		to.land(l, t.ID)
	}
	cmd := m.open(t.Pane)
	if g := &l.grid; !g.jump(t.ID, m.rows) && to.means != nil {
		if i := slices.IndexFunc(g.order, func(o int) bool { return to.means(g.src, o, t.ID) }); i >= 0 {
			g.place(i, m.rows)
		}
	}
	if to.goOn {
		return tea.Batch(cmd, m.enter())
	}
	return cmd
}

// why opens the page that says why a queue waits; without a name that of the row
// under the cursor.
func (m *deck) why(name string) tea.Cmd {
	if name == "" {
		if name = m.scene().acting().waiting(); name == "" {
			m.warn(":why needs a queue: a row that waits (1, 7, 8), or its name; tab completes")
			return nil
		}
	}
	return m.push(whyLevel(name))
}

// back is esc: filter, then selection, then the parent. It never quits.
func (m *deck) back() tea.Cmd {
	p := m.pane()
	l := p.top()
	switch {
	case l.page != nil && l.find != "":
		l.find = ""
	case l.grid.text != "":
		return m.setFilter("")
	case l.grid.clear():
	case len(p.levels) > 1:
		m.mask()
		l.list.end()
		p.levels = p.levels[:len(p.levels)-1]
		m.stamp++
		m.settle()
		return tea.Batch(m.reread(true)...)
	case m.at != home():
		return m.open(home())
	}
	return nil
}
