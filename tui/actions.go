package tui

// Four questions about an action key: which action a
// capital letter has in the open pane, which rows are its targets, what its dialog
// shows about them, and why it may be refused.

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// worksIn reports whether an action's key works in a pane.
func worksIn(a queue.Action, pane queue.PaneID) bool { return slices.Contains(a.Panes, pane) }

// actionFor returns the action of a key in the open pane. If the key has two actions, the
// row under the cursor decides.
func (m *deck) actionFor(k string) (queue.Action, bool) {
	var found []queue.Action
	for _, a := range m.actions {
		if a.Key == k && worksIn(a, m.at) {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return queue.Action{}, false
	}
	if len(found) > 1 && m.scene().acting().usesSecond() {
		return found[1], true
	}
	return found[0], true
}

// act starts an action on the selected rows or the row under the cursor. args and
// reason are defaults for its form.
func (m *root) act(a queue.Action, args map[string]string, reason string) tea.Cmd {
	if off := m.off(a); off != "" {
		m.warnWhile(a.Verb+" is off: "+off, func() bool { return m.off(a) == off })
		return nil
	}
	if off := m.offHere(a); off != "" {
		m.warn(a.Verb + " is off: " + off)
		return nil
	}
	req := queue.Request{Args: map[string]string{}, Reason: reason}
	at := m.scene().acting()
	if where := at.elsewhere(a.ID); where != "" {
		m.warn(at.noRow(where))
		return nil
	}
	selected := false
	if t := at.target(a.ID); t != nil {
		if problem := t(at, &req); problem != "" {
			m.warn(problem)
			return nil
		}
		selected = at.bySelection(t, req)
	}
	if refused := at.refusal(a, req); refused != "" {
		m.warn(refused)
		return nil
	}
	if a.Targets.Instead != "filter" {
		req.Within = ""
	}
	maps.Copy(req.Args, args)
	return m.ask(asked{action: a, req: req, taken: at.taken(a, req), selected: selected})
}

// asked is the request for an action, made by a key or by a typed command.
type asked struct {
	action   queue.Action
	req      queue.Request
	ready    bool             // the request needs no form
	taken    []queue.PlanLine // lines that name the targets, for the dialog
	selected bool             // the targets are the selected rows
}

// ask opens the dialog of an action. If the actor is a shared account, the first action
// asks for the operator's name before that, unless nothing records it.
func (m *root) ask(x asked) tea.Cmd {
	a := x.action
	x.req.Action, x.req.Actor = a.ID, m.me.actor
	if a.Guards() {
		x.req.Confirm = m.production()
	}
	args := m.prefill(a, x.req)
	if problem := notOffered(args, x.req); problem != "" && !x.ready {
		m.warn(":" + a.Words + ": " + problem)
		return nil
	}
	if m.me.askName && (a.Past == "" || m.unmarked() == "") {
		m.raise(newNameDialog(x, m.me.actor))
		return nil
	}
	m.serial++
	d := newDialog(m.serial, a, x.req, m.o.Now(), args)
	d.keys = m.form(a.ID).keys
	d.place, d.facts, d.actions, d.taken, d.selected = m.place(), m.facts(a, x.req), m.actions, x.taken, x.selected
	if x.ready {
		d.stage, d.form = stagePlanning, nil
	}
	m.raise(d)
	if d.stage == stagePlanning {
		return m.startPlan(d)
	}
	return tea.Batch(later(quietFor, armMsg{}), m.look(d))
}

// notOffered returns why a form cannot show a value that the request already
// has: its input offers only others.
func notOffered(args []queue.Arg, req queue.Request) string {
	for _, a := range args {
		if v, all := req.Args[a.Name], a.Options(); v != "" && len(all) > 0 && !slices.Contains(all, v) {
			return strconv.Quote(v) + " is none of " + strings.Join(all, ", ")
		}
	}
	return ""
}

// form returns the form that a pane declares for an action. If no pane
// declares one, it returns an empty form.
func (m *root) form(id queue.ActionID) form {
	for _, p := range m.panes {
		if f, ok := p.forms[id]; ok {
			return f
		}
	}
	return form{}
}

// prefill returns the inputs of the action's form. Each has as default what
// the key or command already named, else what the pane proposes
// (form.prefill).
func (m *root) prefill(a queue.Action, req queue.Request) []queue.Arg {
	args := slices.Clone(a.Args)
	if start := m.form(a.ID).prefill; start != nil && len(req.Targets) == 1 {
		start(m.feed.snapshot, req, args)
	}
	for i := range args {
		if v := req.Args[args[i].Name]; v != "" {
			args[i].Default = v
		}
		if args[i].Positional && a.Targets.Name == "" { // the input is the name of the target
			args[i].Choices = m.ids(a)
		}
	}
	return args
}

// facts returns what the pane has to show about the target above the inputs,
// such as the current value of a flag; nil if there is nothing or more than
// one target.
func (m *root) facts(a queue.Action, req queue.Request) []queue.PlanLine {
	if about := m.form(a.ID).facts; about != nil && len(req.Targets) == 1 {
		return about(m.feed.snapshot, req.Targets[0])
	}
	return nil
}
