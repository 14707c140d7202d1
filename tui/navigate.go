package tui

// This file goes from pane to pane and from level to level.

import (
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// open shows a pane. Filters do not travel: one that was forgotten would hide
// rows of an incident.
func (m *root) open(id queue.PaneID) tea.Cmd {
	p, ok := m.panes[id]
	if !ok {
		return nil
	}
	if id != m.at {
		m.mask()
		m.clearFilter(m.pane().top())
		m.at = id
	}
	l := p.top()
	if kind := ownList(p.id); kind != "" && l.list.query.Kind == "" {
		m.serial++
		l.serial, l.list.query.Kind = m.serial, kind
	}
	m.settle()
	return tea.Batch(m.reread(true)...)
}

// ownList is the list that is a pane's own table; empty where that comes with the
// picture.
func ownList(id queue.PaneID) queue.ListKind {
	switch id {
	case queue.PaneAudit:
		return queue.ListAudit
	case queue.PaneOps:
		return queue.ListOperations
	case queue.PaneWebhooks:
		return queue.ListEndpoints
	case queue.PaneNotify:
		return queue.ListNotify
	case queue.PaneRules:
		return queue.ListRules
	}
	return ""
}

// cycle goes to the next pane, or the one before.
func (m *root) cycle(d int) tea.Cmd {
	panes := queue.Panes()
	for i, p := range panes {
		if p.ID == m.at {
			return m.open(panes[(i+d+len(panes))%len(panes)].ID)
		}
	}
	return nil
}

// push goes one level deeper.
func (m *root) push(l level) tea.Cmd {
	m.serial++
	l.serial = m.serial
	m.mask()
	p := m.pane()
	p.levels = append(p.levels, l)
	cmd := m.read(p.top())
	m.settle()
	return cmd
}

// enter opens what is under the cursor. It never acts.
func (m *root) enter() tea.Cmd {
	p := m.pane()
	l := p.top()
	if l.kind == kindOverview {
		return m.follow(p)
	}
	if l.kind == kindPage {
		return nil
	}
	i, ok := l.grid.current()
	if !ok {
		return nil
	}
	id := l.grid.src.ID(i)
	next := level{kind: kindPage, id: id, title: id}
	switch {
	case l.kind == kindJobs:
		next.job = queue.Of[[]queue.Job](l.list.page)[i]
		next.title = "job " + views.ShortID(id)
		next.list.query = queue.Query{Kind: queue.ListJob, ID: id}
	case p.id == queue.PaneQueues:
		next = m.lane(id, next)
	case l.kind == kindLetters:
		next.letter, next.title = queue.Of[[]queue.DeadLetter](l.list.page)[i], views.ShortID(id)
		next.list.query = queue.Query{Kind: queue.ListDeadLetter, ID: id}
	case p.id == queue.PaneDead:
		g := m.feed.picture.DeadGroups[i]
		next = level{kind: kindLetters, id: id, title: g.Code.String() + " " + views.GroupNames(m.feed.picture.DeadGroups)[i], grid: newGrid(true)}
		next.list.base = groupFilter(g)
		next.list.query = queue.Query{Kind: queue.ListDeadLetters, Filter: next.list.base}
	case p.id == queue.PaneAudit:
		next.audit = queue.Of[[]queue.AuditEntry](l.list.page)[i]
		next.title = "#" + strconv.FormatInt(next.audit.ID, 10)
	case p.id == queue.PaneOps:
		next.op, next.title = queue.Of[[]queue.Operation](l.list.page)[i], "operation "+id
		next.list.query = queue.Query{Kind: queue.ListOperation, ID: id}
	case p.id == queue.PaneNotify:
		next.title = views.Plain(id)
	case p.id == queue.PaneWebhooks:
		next = m.hook(id, next)
	case p.id == queue.PaneRules:
		next = m.ruleLevel(id, next)
	case p.id == queue.PaneExecutors:
		next.title = m.executor()
	case p.id == queue.PaneAlerts:
		next.list.query = queue.Query{Kind: queue.ListAlertHistory, ID: id}
	case p.id == queue.PaneScheduler:
		next.list.query = schedulerList(id)
	case p.id == queue.PaneFlags:
		next.list.query = queue.Query{Kind: queue.ListFlagHistory, ID: id}
	}
	return m.push(next)
}

// follow opens the pane that knows more about a row of the Overview, with the
// cursor on it.
func (m *root) follow(p *pane) tea.Cmd {
	if !p.armed {
		return nil
	}
	t := p.target
	to := m.panes[t.Pane]
	to.levels = to.levels[:1]
	g := &to.levels[0].grid
	switch t.Pane {
	case queue.PaneWebhooks:
		g.text = hookFilter(t.ID)
		to.levels[0].list.refilter(g.text)
	case queue.PaneOps: // its rows may still have to be read
		g.at = t.ID
	}
	cmd := m.open(t.Pane)
	if !g.jump(t.ID, m.rows) && t.Pane == queue.PaneHealth {
		for i, o := range g.order { // a queue is named by its subject there
			if v, _ := g.src.Field(o, "subject"); v != "" && views.Names(t.ID, v) {
				g.place(i, m.rows)
				break
			}
		}
	}
	if t.Pane == queue.PaneDead {
		return tea.Batch(cmd, m.enter())
	}
	return cmd
}

// back is esc: filter, then selection, then the parent. It never quits.
func (m *root) back() tea.Cmd {
	p := m.pane()
	l := p.top()
	switch {
	case l.kind == kindPage && l.find != "":
		l.find = ""
	case l.grid.text != "":
		return m.setFilter("")
	case l.grid.clear():
	case len(p.levels) > 1:
		m.mask()
		p.levels = p.levels[:len(p.levels)-1]
		m.stamp++
		m.settle()
		return tea.Batch(m.reread(true)...)
	case m.at != queue.PaneOverview:
		return m.open(queue.PaneOverview)
	}
	return nil
}
