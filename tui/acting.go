package tui

// The requests that a dialog sends to the store (plan, apply),
// and what the console does with the answers.

import (
	"context"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// startPlan requests the plan: what the action would change now.
func (m *root) startPlan(d *dialog) tea.Cmd {
	d.stage, d.err, d.focus = stagePlanning, nil, 0
	if d.action.Danger == queue.DangerLocal {
		p := m.planHere(d.req)
		return func() tea.Msg { return plannedMsg{d.serial, p, nil} }
	}
	if d.asked == nil {
		r := d.req
		d.asked = &r
	}
	if d.action.Guards() { // the guard of the database may have changed since the dialog opened
		d.asked.Confirm = m.production()
	}
	ctx, stop := context.WithCancel(m.ctx)
	d.stop = stop
	return m.plan(ctx, d.serial, *d.asked)
}

// planHere returns the plan of an action on the loops of this process. It
// needs no database, and starting or stopping loops has no condition to check.
func (m *shell) planHere(r queue.Request) queue.Plan {
	p := queue.Plan{Request: r, Ephemeral: true, Count: int64(len(r.Targets)), ReadAt: m.o.Now()}
	a := m.actions.ByID(r.Action)
	p.Command = ":" + a.Words + " " + strings.Join(r.Targets, " ")
	twin := strings.ReplaceAll(a.Twin, a.Targets.Name, strings.Join(r.Targets, ","))
	if strings.HasPrefix(twin, "qtop ") {
		p.Command = twin
	}
	l, ok := queue.Find(loops(m.local), func(l queue.LoopStatus) bool { return len(r.Targets) == 1 && l.Name == r.Targets[0] })
	if !ok {
		p.Refused = "this process has no loop " + strings.Join(r.Targets, " ")
		return p
	}
	p.Refused = loopRefusal(r.Action, l)
	p.Lines = []queue.PlanLine{
		{Label: "loop", Value: queue.Clean(l.Name + ": " + l.What)},
		{Label: "now", Value: queue.Clean(l.State + ", " + views.Count(int64(l.InFlight)) + " in flight")},
		{Label: "in a worker", Value: queue.Clean(twin)},
		{Label: "audit", Value: queue.Clean("a mark: " + strconv.Quote(m.markLabel(a, r)))},
	}
	if off := m.unmarked(); off != "" {
		p.Lines[len(p.Lines)-1].Value = queue.Clean(notRecorded + off)
	}
	return p
}

// startApply carries out the plan. The store first compares the plan with the current rows. If the
// database was guarded or renamed while the preview was open, or is another one since, a new preview asks for the name first.
func (m *root) startApply(d *dialog) tea.Cmd {
	if off := m.off(d.action); off != "" {
		d.finish(queue.Result{Refused: off}, nil, m.o.Now())
		return later(quietFor, armMsg{})
	}
	typed := len(d.typed) > 0 && d.typed[0].arg.Name == d.place.name && d.place == m.place()
	if !typed && m.locked(d.action, d.plan.Count) {
		return m.startPlan(d)
	}
	if typed {
		m.me.unlocked, m.me.place = m.o.Now().Add(unlockedFor), d.place
	}
	if d.action.Danger == queue.DangerLocal {
		label := ""
		if d.mark = notRecorded + m.unmarked(); d.mark == notRecorded {
			d.mark, label = "a mark is being set", m.markLabel(d.action, d.plan.Request)
		}
		return m.applyHere(d.serial, d.plan, label)
	}
	m.unshown = d.title()
	return m.apply(d.serial, d.plan)
}

// dialog returns the dialog that an answer is for, or nil if it was closed.
func (m *root) dialog(serial int) *dialog {
	for _, o := range m.over {
		if d, ok := o.(*dialog); ok && d.serial == serial {
			return d
		}
	}
	return nil
}

// planned gives a plan, or the error of the planning, to the dialog that asked
// for it.
func (m *root) planned(msg plannedMsg) tea.Cmd {
	d := m.dialog(msg.dialog)
	if d == nil || d.stage != stagePlanning {
		return nil
	}
	d.leave()
	if msg.err != nil {
		d.finish(queue.Result{Refused: why(msg.err)}, nil, m.o.Now())
	} else {
		d.place = m.place()
		d.preview(msg.plan, m.locked(d.action, msg.plan.Count), m.o.Now())
	}
	return later(quietFor, armMsg{})
}

// applied gives the result of an action to its dialog. It also requests a new
// snapshot and list, which show what the action changed.
func (m *root) applied(msg appliedMsg) tea.Cmd {
	m.feed.acted = true
	cmds := []tea.Cmd{later(quietFor, armMsg{}), m.refresh(fresh), m.poll()}
	cmds = append(cmds, m.readActed()...)
	m.line.list.acted = true
	if msg.mark != "" {
		cmds = append(cmds, m.mark(msg.dialog, msg.mark, msg.actor))
	}
	d := m.dialog(msg.dialog)
	if d == nil {
		return tea.Batch(cmds...)
	}
	if m.ctx.Err() == nil { // else the end of the console ended the call, and no frame follows
		m.unshown = ""
	}
	if payload := msg.result.Payload; !payload.Empty() {
		m.dismiss(d) // the revealed payload replaces the dialog
		m.reveal(msg.result)
		return tea.Batch(cmds...)
	}
	d.finish(msg.result, msg.err, m.o.Now())
	if !d.failed() && d.selected {
		m.pane().top().grid.clear()
		m.settle()
	}
	return tea.Batch(cmds...)
}
