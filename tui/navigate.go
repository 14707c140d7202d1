package tui

// Navigation between panes and levels.

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// open shows a pane. It clears the filter of the pane that is left: if the
// operator returned later, a forgotten filter would hide rows.
func (m *deck) open(id queue.PaneID) tea.Cmd {
	if _, ok := m.panes[id]; !ok {
		return nil
	}
	if id != m.at {
		m.mask()
		m.pane().top().refilter("")
		m.pane().cancelReads()
		m.at = id
	}
	m.settle()
	return tea.Batch(m.reread(true)...)
}

// cycle opens the pane that is d entries further in the menu.
func (m *deck) cycle(d int) tea.Cmd {
	panes := Panes()
	for i, p := range panes {
		if p.ID == m.at {
			return m.open(panes[(i+d+len(panes))%len(panes)].ID)
		}
	}
	return nil
}

// push opens a level below the current one.
func (m *deck) push(l level) tea.Cmd {
	m.mask()
	p := m.pane()
	p.cancelReads()
	p.levels = append(p.levels, l)
	cmd := m.read(p.top())
	m.settle()
	return cmd
}

// enter opens the row under the cursor. It never starts an action.
func (m *deck) enter() tea.Cmd {
	l := m.pane().top()
	if l.board != nil {
		return m.follow(l)
	}
	if i, ok := l.grid.current(); ok && l.table != nil {
		return m.push(l.table.under(m.scene(), i))
	}
	if l.page != nil {
		m.warn("nothing can be opened on this page; esc goes back")
	} else {
		m.warn(m.scene().noRow("there is no row to open"))
	}
	return nil
}

// follow opens, from the Overview, the pane that the row under the cursor
// comes from, with the cursor on that row. A row that stands for several
// troubles is expanded or collapsed instead.
func (m *deck) follow(from *level) tea.Cmd {
	if !from.armed {
		m.warn(m.scene().noRow("there is no row to open"))
		return nil
	}
	t := from.target
	if t.Pane == queue.PaneOverview { // this row stands for several troubles
		if from.expanded == nil {
			from.expanded = map[string]bool{}
		}
		from.expanded[t.ID] = !from.expanded[t.ID]
		m.settle()
		return nil
	}
	to := m.panes[t.Pane]
	to.levels = to.levels[:1]
	l := to.top()
	l.refilter("") // a filter that was set when the pane was left could hide the row
	if to.beforeFollow != nil {
		to.beforeFollow(l, t.ID)
	}
	cmd := m.open(t.Pane)
	switch {
	case l.list.queried() || to.localOnly: // the row comes with the read, or the pane has no row for it
	case !l.goTo(to, t.ID, m.rows):
		l.grid.at, l.grid.gone = t.ID, true // else a key would work on the row that the cursor was on before
		m.settle()
		m.warn(to.Title + " has no row for this now; move to a row first")
	case to.enterOnFollow:
		return tea.Batch(cmd, m.enter())
	}
	return cmd
}

// goTo puts the cursor on the row of a pane that a row of the Overview with this id is about, and
// reports whether there is one.
func (l *level) goTo(p *pane, id string, rows func() int) bool {
	g := &l.grid
	if g.jump(id, rows) {
		return true
	}
	if p.matches == nil {
		return false
	}
	i := slices.IndexFunc(g.order, func(o int) bool { return p.matches(g.src, o, id) })
	if i >= 0 {
		g.place(i, rows)
	}
	return i >= 0
}

// why opens the page that explains why the work of a queue waits. An empty
// name means the queue of the row under the cursor.
func (m *deck) why(name string) tea.Cmd {
	if name == "" {
		if name = m.scene().acting().queueName(); name == "" {
			m.warn(":why needs a queue: put the cursor on a waiting row (1, 7, 8) or type a name; tab completes names")
			return nil
		}
	}
	return m.push(whyLevel(name))
}

// back handles esc. It undoes one thing, the first of these that there is: the
// filter, the selection, the open level, the open pane (it returns to the
// Overview). It never quits.
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
		l.list.cancel()
		p.levels = p.levels[:len(p.levels)-1]
		m.revision++
		m.settle()
		return tea.Batch(m.reread(true)...)
	case m.at != home():
		return m.open(home())
	default:
		m.inform("this is the first pane; q quits")
	}
	return nil
}
