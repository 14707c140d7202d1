package tui

// This file turns a capital into a request: which action the key means here and
// now, on what it works, and why it cannot.

import (
	"maps"
	"slices"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// works tells whether an action's key works in a pane.
func works(a queue.Action, pane queue.PaneID) bool { return slices.Contains(a.Panes, pane) }

// bound finds the action of a capital in the open pane. Where one key means two
// actions, the row decides: A takes an open alert and gives up one that is had.
func (m *root) bound(k string) (queue.Action, bool) {
	var found []queue.Action
	for _, a := range queue.Actions() {
		if a.Key == k && works(a, m.at) {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return queue.Action{}, false
	}
	if len(found) > 1 && m.at == queue.PaneOps {
		if o, ok := m.bulk(); ok && o.State == queue.BulkPaused {
			return found[1], true
		}
	} else if len(found) > 1 && m.at == queue.PaneWebhooks {
		if r, ok := m.endpoint(); ok && r.Since != nil {
			return found[1], true
		}
	} else if len(found) > 1 && m.at == queue.PaneScheduler {
		if t, ok := m.ticked(m.subject()); ok && t.IntervalSeconds == 0 {
			return found[1], true
		}
	} else if len(found) > 1 && m.at == queue.PaneExecutors {
		if x, ok := views.SubscriptionOf(m.feed.picture, m.subject()); ok && !x.Enabled {
			return found[1], true
		}
	} else if len(found) > 1 && m.at == queue.PaneRules {
		if s, ok := m.rule(); ok && s.Mute {
			return found[1], true
		}
	} else if len(found) > 1 {
		if al, ok := m.alert(); ok && al.State == "acked" {
			return found[1], true
		}
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
	req, problem := m.request(a)
	if problem != "" {
		m.warn(problem)
		return nil
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
	d.production, d.about = m.o.Production, m.about(a, req)
	m.raise(d)
	if d.stage == stagePlanning {
		return m.startPlan(d)
	}
	return later(quietFor, armMsg{})
}

const moveFirst = "the row you were on is gone; move to another one first"

// request says what an action is asked to work on.
func (m *root) request(a queue.Action) (req queue.Request, problem string) {
	req.Args = map[string]string{}
	switch a.ID {
	case queue.ActAck, queue.ActUnack:
		al, ok := m.alert()
		if !ok {
			return req, m.noAlert()
		}
		if a.ID == queue.ActAck && al.State == "acked" {
			return req, al.Subject.String() + " is acknowledged by " + al.AckedBy.String() + "; A in Alerts (3) gives it up"
		}
		req.Targets = []string{al.Key.String()}
	case queue.ActRequeue, queue.ActResolve, queue.ActUndoRequeue, queue.ActBulkPlan:
		return m.letters(req)
	case queue.ActBulkRun, queue.ActBulkPause, queue.ActBulkResume, queue.ActBulkAbort, queue.ActBulkRate, queue.ActBulkUndo:
		o, ok := m.bulk()
		if !ok {
			return req, m.noRow("there is no operation under the cursor; N in 5 plans one")
		}
		req.Targets = []string{strconv.FormatInt(o.ID, 10)}
	case queue.ActReveal:
		return m.revealing(req)
	case queue.ActJobCancel:
		return m.jobs(req)
	case queue.ActNotifyRequeue:
		req.Targets = views.FailedIDs(queue.Of[*queue.Notifications](m.pane().levels[0].list.page), m.subject())
		if len(req.Targets) == 0 {
			return req, m.noRow("R works on what FAILED; there is none under the cursor")
		}
	case queue.ActSuspend, queue.ActResume:
		r, ok := m.endpoint()
		if !ok {
			return req, m.noRow("there is no endpoint under the cursor")
		}
		req.Targets = []string{strconv.FormatInt(r.ID, 10)}
	case queue.ActLeaseRelease:
		if m.at == queue.PaneWebhooks {
			return m.hookLeases(req)
		}
		return m.leases(req)
	case queue.ActJobSubscribe:
		return m.subscription(req)
	case queue.ActJobRuleOff, queue.ActJobRuleOn:
		x, ok := views.SubscriptionOf(m.feed.picture, m.subject())
		if !ok {
			return req, m.noRow("D works on a row under MAY CLAIM; there is none under the cursor")
		}
		req.Targets = []string{x.ID}
	case queue.ActRuleMute, queue.ActRuleUnmute:
		return m.muting(req)
	case queue.ActRuleAdd:
		return m.ruling(req)
	case queue.ActFlagSet:
		f, ok := m.flag()
		if !ok {
			return req, m.noRow("E works on a flag: those that stand OFF in 1, the intervals and the mode in 9, or all of them in gf")
		}
		req.Targets = []string{f.Key.String()}
	case queue.ActHostStart, queue.ActHostDrain, queue.ActHostStop:
		name := m.subject()
		if name == "" || m.at != queue.PaneHost {
			return req, m.noRow("there is no loop under the cursor")
		}
		req.Targets = []string{name}
	case queue.ActTick:
		if _, ok := m.ticked(m.subject()); !ok && m.at == queue.PaneScheduler {
			return req, m.noRow("T ticks a worker; there is none under the cursor")
		}
		req.Args["worker"] = m.tickWorker()
	case queue.ActTickPause, queue.ActTickResume:
		t, ok := m.ticked(m.subject())
		if !ok {
			return req, m.noRow("P pauses a worker; there is none under the cursor")
		}
		req.Targets = []string{t.Name.String()}
	}
	return req, ""
}

func (m *root) noRow(otherwise string) string {
	p := m.pane()
	if l := p.top(); (l.kind == kindTable || l.listed()) && l.grid.gone && len(l.grid.order) > 0 {
		return moveFirst
	}
	if p.top().kind == kindOverview && !p.armed && p.target != (views.Target{}) {
		return moveFirst
	}
	return otherwise
}

// subject is the id of the row that is open or under the cursor.
func (m *root) subject() string {
	l := m.pane().top()
	if l.kind == kindPage {
		return l.id
	}
	if i, ok := l.grid.current(); ok {
		return l.grid.src.ID(i)
	}
	return ""
}

// alert is the alert that A would work on.
func (m *root) alert() (queue.Alert, bool) {
	pic, p := m.feed.picture, m.pane()
	if pic == nil {
		return queue.Alert{}, false
	}
	is := func(queue.Alert) bool { return false }
	switch {
	case m.at == queue.PaneOverview && p.armed && p.target.Pane == queue.PaneAlerts:
		is = func(a queue.Alert) bool { return a.Key.String() == p.target.ID }
	case m.at == queue.PaneAlerts:
		id := m.subject()
		is = func(a queue.Alert) bool { return id != "" && a.Key.String() == id }
	case m.at == queue.PaneExecutors:
		id := m.executor()
		is = func(a queue.Alert) bool { return id != "" && a.Kind == "silence" && a.Subject.String() == id }
	}
	if i := slices.IndexFunc(pic.Alerts, is); i >= 0 {
		return pic.Alerts[i], true
	}
	return queue.Alert{}, false
}

func (m *root) noAlert() string {
	switch m.at {
	case queue.PaneExecutors:
		if id := m.executor(); id != "" {
			return id + " is not silent: there is nothing to acknowledge"
		}
	case queue.PaneOverview:
		return m.noRow("A works on a row under SILENT")
	}
	return m.noRow("there is no alert under the cursor")
}

func (m *root) flag() (queue.Flag, bool) {
	pic, p := m.feed.picture, m.pane()
	if pic == nil {
		return queue.Flag{}, false
	}
	id := m.subject()
	if m.at == queue.PaneOverview {
		if !p.armed || p.target.Pane != queue.PaneFlags {
			return queue.Flag{}, false
		}
		id = p.target.ID
	}
	if _, ok := m.ticked(id); ok && m.at == queue.PaneScheduler {
		id = queue.TickInterval(id)
	}
	return m.flagByKey(id)
}

func (m *root) flagByKey(key string) (queue.Flag, bool) {
	if m.feed.picture != nil && key != "" {
		for _, f := range m.feed.picture.Flags {
			if f.Key.String() == key {
				return f, true
			}
		}
	}
	return queue.Flag{}, false
}

// letters is the dead letters that an action works on: a whole group by its
// filter, all that match, the marked ones, or the one under the cursor.
func (m *root) letters(req queue.Request) (queue.Request, string) {
	l := m.pane().top()
	switch {
	case l.why != "":
		return req, "this page is about a queue; esc goes back to the letters"
	case l.kind == kindPage:
		req.Targets = []string{l.letter.ID}
	case l.kind == kindTable:
		i, ok := l.grid.current()
		if !ok {
			return req, m.noRow("there is no group under the cursor")
		}
		req.Filter = groupFilter(m.feed.picture.DeadGroups[i])
	case l.grid.all:
		req.Filter = l.list.query.Filter
	case len(l.grid.marks) > 0:
		req.Targets = l.grid.marked()
	default:
		i, ok := l.grid.current()
		if !ok {
			return req, m.noRow("there is no letter under the cursor")
		}
		req.Targets = []string{queue.Of[[]queue.DeadLetter](l.list.page)[i].ID}
	}
	return req, ""
}

// bulk is the operation that is open or under the cursor.
func (m *root) bulk() (queue.Operation, bool) {
	l := m.pane().top()
	if m.at != queue.PaneOps {
		return queue.Operation{}, false
	}
	if l.kind == kindPage {
		return l.op, true
	}
	if i, ok := l.grid.current(); ok && i < len(queue.Of[[]queue.Operation](l.list.page)) {
		return queue.Of[[]queue.Operation](l.list.page)[i], true
	}
	return queue.Operation{}, false
}

// rate doubles or halves the rate of the operation under the cursor, through the
// same preview as every action.
func (m *root) rate(k string) tea.Cmd {
	a, _ := queue.ActionByID(queue.ActBulkRate)
	o, _ := m.bulk()
	to := o.Rate * 2
	if k == "-" {
		to = o.Rate / 2
	}
	return m.act(a, map[string]string{"rate": strconv.FormatFloat(min(max(to, 0.01), 1000), 'f', -1, 64)})
}

// prefill is what a form starts with: a switch is offered turned.
func (m *root) prefill(a queue.Action, req queue.Request) []queue.Arg {
	args := slices.Clone(a.Args)
	for i := range args {
		if v := req.Args[args[i].Name]; v != "" {
			args[i].Default = v
			continue
		}
		if a.ID == queue.ActFlagSet && args[i].Name == "value" && len(req.Targets) == 1 {
			if f, ok := m.flagByKey(req.Targets[0]); ok {
				args[i].Default = turned(f)
				switch {
				case f.Kind == "boolean":
					args[i].Choices = []string{"true", "false"}
				case f.Key.String() == queue.SchedulerMode:
					args[i].Choices = queue.SchedulerModes()
				}
			}
		}
		if a.ID == queue.ActTick && args[i].Name == "worker" {
			args[i].Choices = m.tickWorkers()
		}
	}
	return args
}

// about tells what a form should know of its target.
func (m *root) about(a queue.Action, req queue.Request) []queue.PlanLine {
	if len(req.Targets) != 1 {
		return nil
	}
	switch a.ID {
	case queue.ActJobSubscribe:
		return m.stands(req.Targets[0])
	case queue.ActJobRuleOff, queue.ActJobRuleOn:
		if i := slices.IndexFunc(m.feed.picture.JobSubscriptions, func(x queue.JobSubscription) bool { return x.ID == req.Targets[0] }); i >= 0 {
			x := m.feed.picture.JobSubscriptions[i]
			return []queue.PlanLine{{Label: "executor", Value: x.ExecutorID}, {Label: "may claim", Value: queue.Clean(views.Rule(x))}}
		}
	}
	if a.ID != queue.ActFlagSet {
		return nil
	}
	f, ok := m.flagByKey(req.Targets[0])
	if !ok {
		return nil
	}
	return []queue.PlanLine{{Label: "now", Value: f.Value}, {Label: "what", Value: f.Description}}
}

func turned(f queue.Flag) string {
	switch v := f.Value.String(); {
	case f.Kind != "boolean":
		return v
	case v == "true":
		return "false"
	default:
		return "true"
	}
}
