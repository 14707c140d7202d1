package tui

// This file is what lies over the picture. An overlay takes keys and answers
// with an effect; it never touches the model, and only the root carries effects
// out.

import (
	"slices"

	tea "charm.land/bubbletea/v2"
)

func (m *root) here() place { return place{m.o.Now(), m.env(), m.size} }

func (m *root) raise(o overlay) {
	if o != nil {
		m.over = append(m.over, o)
	}
}

// lower takes an overlay away, wherever it lies.
func (m *root) lower(o overlay) {
	m.over = slices.DeleteFunc(m.over, func(x overlay) bool { return x == o })
}

// overlaid hands a key or a paste to the top overlay.
func (m *root) overlaid(msg tea.Msg) tea.Cmd {
	n := len(m.over) - 1
	next, eff := m.over[n].update(msg, m.here())
	if next == nil {
		m.over = m.over[:n]
	} else {
		m.over[n] = next
	}
	return m.perform(eff)
}

// perform carries an effect out.
func (m *root) perform(eff effect) tea.Cmd {
	switch eff := eff.(type) {
	case effOpen:
		return m.open(eff.pane)
	case effSort:
		g := &m.pane().top().grid
		g.sort = eff.index
		m.settle()
	case effPlan:
		return m.startPlan(eff.dialog)
	case effApply:
		return m.startApply(eff.dialog)
	case effNamed:
		m.me.ask, m.me.actor = false, eff.name
		m.o.AnswerActor(eff.name)
		eff.req.Actor = eff.name
		return m.ask(eff.action, eff.req)
	case effLeave:
		return m.leaveNow(eff.how)
	}
	return nil
}
