package tui

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// refusal returns why an action would be refused for every target of a request, as far as the
// rows on the screen show it, or "". An operator is told before a dialog asks for a reason.
// A target that is not on the screen, and a filter, are left to the plan.
func (at scene) refusal(a queue.Action, req queue.Request) string {
	if req.Filter != "" && a.Targets.Instead != "filter" {
		return cmp.Or(a.Key, ":"+a.Words) + " works on selected rows, not on all that match: esc clears the selection, space selects a row"
	}
	targets := req.Targets
	if a.ID == queue.ActTick { // its target is an argument
		targets = []string{req.Args["worker"]}
	}
	if len(targets) > rowsJudged {
		return ""
	}
	why := ""
	for _, id := range targets {
		refused := at.refuses(a.ID, id)
		if refused == "" {
			return ""
		}
		if why == "" {
			why = refused
		}
	}
	return queue.Choose(len(targets) > 1, "none of these "+views.Count(int64(len(targets)))+": ", "") + why
}

// rowsJudged is the largest number of targets that refusal looks at: a key must not wait.
const rowsJudged = 200

// refuses returns why an action on the row with this id would be refused, or "". While the list is
// being read again, its rows may be older than an action just done: the plan then decides.
func (at scene) refuses(a queue.ActionID, id string) string {
	if at.level.list.reading != 0 {
		return ""
	}
	switch rows := at.level.list.page.Rows.(type) {
	case *queue.DeadLetterDetail:
		return rows.Refuses(a)
	case *queue.JobDetail:
		return rows.Refuses(a)
	case *queue.OperationDetail:
		_, why := rows.Refuses(a)
		return why
	case []queue.DeadLetter:
		return refusedRow(rows, func(x queue.DeadLetter) bool { return x.ID == id }, func(x queue.DeadLetter) string { return x.Refuses(a) })
	case []queue.Job:
		return refusedRow(rows, func(x queue.Job) bool { return x.ID == id }, func(x queue.Job) string { return x.Refuses(a) })
	case []queue.Activity:
		return refusedRow(rows, func(x queue.Activity) bool { return x.ID == id }, func(x queue.Activity) string { return x.Refuses(a) })
	case []queue.Operation:
		return refusedRow(rows, func(x queue.Operation) bool { return strconv.FormatInt(x.ID, 10) == id }, func(x queue.Operation) string {
			_, why := x.Refuses(a)
			return why
		})
	}
	switch {
	case a == queue.ActTick:
		return refusedRow(at.snap.OrEmpty().Ticks, func(x queue.TickWorker) bool { return x.Name.String() == id }, func(x queue.TickWorker) string { return x.Refuses(a) })
	case at.pane.localOnly:
		return refusedRow(loops(at.local), func(x queue.LoopStatus) bool { return x.Name == id }, func(x queue.LoopStatus) string { return loopRefusal(a, x) })
	}
	return refusedRow(at.snap.OrEmpty().Executors, func(x queue.Executor) bool { return x.ID.String() == id }, func(x queue.Executor) string { return x.Refuses(a) })
}

// refusedRow returns why the row for which is holds refuses, or "" if there is no such row.
func refusedRow[T any](rows []T, is func(T) bool, refuses func(T) string) string {
	if x, ok := queue.Find(rows, is); ok {
		return refuses(x)
	}
	return ""
}

// offHere returns why an action is not available for the row under the cursor, or "". It completes
// off, which knows the action alone: the login may lack the role of one loop.
func (m *deck) offHere(a queue.Action) string {
	s := m.me.session
	if a.ID != queue.ActHostStart || s == nil || m.o.OwnLogin {
		return ""
	}
	l, ok := queue.Find(loops(m.local), func(l queue.LoopStatus) bool { return l.Name == m.scene().subject() })
	if !ok || l.Role == "" || slices.Contains(s.Roles, l.Role) {
		return ""
	}
	return "loop " + l.Name + ": " + s.Holder() + " lacks the role " + l.Role
}

// loopRefusal returns why an action on a loop of this process is refused, or "".
func loopRefusal(a queue.ActionID, l queue.LoopStatus) string {
	switch start := a == queue.ActHostStart; {
	case start && (l.State == "running" || l.State == "draining"):
		return "loop " + l.Name + " is already " + l.State
	case !start && l.State == "stopped":
		return "loop " + l.Name + " is not running"
	}
	return ""
}
