package tui

import (
	"slices"

	tea "charm.land/bubbletea/v2"
)

func (m *root) overlayContext() overlayContext { return overlayContext{m.o.Now(), m.env(), m.size} }

// raise puts an overlay on top of the others.
func (m *root) raise(o overlay) {
	if o != nil {
		m.over = append(m.over, o)
	}
}

// dismiss closes an overlay, even if it is not the topmost.
func (m *root) dismiss(o overlay) {
	m.over = slices.DeleteFunc(m.over, func(x overlay) bool { return x == o })
}

// overlaid gives a key or a paste to the topmost overlay and carries out its
// effect.
func (m *root) overlaid(msg tea.Msg) tea.Cmd {
	n := len(m.over) - 1
	next, eff := m.over[n].update(msg, m.overlayContext())
	if next == nil {
		m.over = m.over[:n]
	} else {
		m.over[n] = next
	}
	return m.perform(eff)
}

// perform does what an overlay asked for.
func (m *root) perform(eff effect) tea.Cmd {
	switch eff := eff.(type) {
	case effOpen:
		return m.open(eff.pane)
	case effSort:
		g := &m.pane().top().grid
		if g.sort != eff.index {
			g.endRange()
		}
		g.sort = eff.index
		m.settle()
	case effPlan:
		return m.startPlan(eff.dialog)
	case effApply:
		return m.startApply(eff.dialog)
	case effNamed:
		m.me.askName, m.me.actor = false, eff.name
		m.o.AnswerActor(eff.name)
		return m.ask(eff.asked)
	case effShutdown:
		return m.shutDown(eff.how)
	}
	return nil
}
