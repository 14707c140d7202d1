package tui

// This file turns a capital into a request: which action the key means here and
// now, on what it works, and why it cannot.

import (
	"maps"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// works tells whether an action's key works in a pane.
func works(a queue.Action, pane queue.PaneID) bool { return slices.Contains(a.Panes, pane) }

// bound finds the action of a capital in the open pane. Where one key means two
// actions, the row decides.
func (m *deck) bound(k string) (queue.Action, bool) {
	var found []queue.Action
	for _, a := range m.actions {
		if a.Key == k && works(a, m.at) {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return queue.Action{}, false
	}
	if len(found) > 1 && m.scene().acting().second() {
		return found[1], true
	}
	return found[0], true
}

// act starts an action on what is under the cursor or selected; args are put into
// its form.
func (m *root) act(a queue.Action, args map[string]string) tea.Cmd {
	if off := m.off(a); off != "" {
		m.warn(a.Verb + " is off: " + off)
		return nil
	}
	req := queue.Request{Args: map[string]string{}}
	at := m.scene().acting()
	if t := at.target(a.ID); t != nil {
		if problem := t(at, &req); problem != "" {
			m.warn(problem)
			return nil
		}
	}
	maps.Copy(req.Args, args)
	return m.ask(a, req)
}

// ask raises the dialog of an action; the first one asks for a name where the
// actor is a shared account's.
func (m *root) ask(a queue.Action, req queue.Request) tea.Cmd {
	req.Action, req.Actor = a.ID, m.me.actor
	if m.me.ask && a.Danger != queue.DangerLocal {
		m.raise(newNamer(a, req, m.me.actor))
		return nil
	}
	m.serial++
	d := newDialog(m.serial, a, req, m.o.Now(), m.prefill(a, req))
	d.production, d.about, d.undo = m.production(), m.about(a, req), m.actions.Undo(a)
	m.raise(d)
	if d.stage == stagePlanning {
		return m.startPlan(d)
	}
	return later(quietFor, armMsg{})
}

// form is what the panes know of an action's targets.
func (m *root) form(id queue.ActionID) form {
	for _, p := range m.panes {
		if f, ok := p.forms[id]; ok {
			return f
		}
	}
	return form{}
}

// prefill is what a form starts with.
func (m *root) prefill(a queue.Action, req queue.Request) []queue.Arg {
	args := slices.Clone(a.Args)
	if start := m.form(a.ID).start; start != nil && len(req.Targets) == 1 {
		start(m.feed.picture, req.Targets[0], args)
	}
	for i := range args {
		if v := req.Args[args[i].Name]; v != "" {
			args[i].Default = v
		}
		if args[i].Positional && a.Targets.Name == "" { // the name that it asks for is the target
			args[i].Choices = m.ids(a)
		}
	}
	return args
}

// about tells what a form should know of its target.
func (m *root) about(a queue.Action, req queue.Request) []queue.PlanLine {
	if about := m.form(a.ID).about; about != nil && len(req.Targets) == 1 {
		return about(m.feed.picture, req.Targets[0])
	}
	return nil
}
