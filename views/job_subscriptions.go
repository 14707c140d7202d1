package views

// The job subscriptions of executors: the second table of pane 4, and a part of
// an executor's page.

import (
	"cmp"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// subscriptionCount is how many job subscriptions an executor has.
type subscriptionCount struct{ all, enabled int64 }

func subscriptionCounts(subs []queue.JobSubscription) map[queue.Text]subscriptionCount {
	counts := make(map[queue.Text]subscriptionCount, len(subs))
	for _, x := range subs {
		c := counts[x.ExecutorID]
		c.all++
		if x.Enabled {
			c.enabled++
		}
		counts[x.ExecutorID] = c
	}
	return counts
}

// needsSubscriptions reports whether an executor can claim work only by a job
// subscription. Tick workers and other workers inside the database need none:
// their work is fixed.
func needsSubscriptions(x queue.Executor) bool {
	return !x.TickWorker && x.State != "deregistered" && x.Kind.String() != "PG_worker" && x.Kind.String() != "DOT"
}

// mayClaimCell shows how many job subscriptions an executor has. It warns if
// the executor needs one and has none.
func mayClaimCell(x queue.Executor, c subscriptionCount, e Env) table.Cell {
	switch {
	case c.all == 0 && needsSubscriptions(x):
		return cell("nothing", e.Theme.Warning)
	case c.all == 0:
		return cell(e.Theme.G.Dash, e.Theme.Dim)
	case c.enabled == 0:
		return cell("off", e.Theme.Warning)
	case c.enabled < c.all:
		return cell(Count(c.enabled)+" of "+Count(c.all), e.Theme.Text)
	}
	return cell(Count(c.all), e.Theme.Text)
}

// subscriptionRowID returns the row id of a job subscription. Its prefix distinguishes it from the
// row id of an executor.
func subscriptionRowID(x queue.JobSubscription) string { return "sub\x00" + x.ID }

// orEvery returns "every" for an empty kind or domain.
func orEvery(t queue.Text) string {
	return cmp.Or(t.String(), "every")
}

func subscriptionState(x queue.JobSubscription) string {
	return queue.Choose(x.Enabled, "enabled", "off")
}

// subscriptionWords returns the priority floor and the number of parallel jobs of a job
// subscription in one line.
func subscriptionWords(x queue.JobSubscription) string {
	return queue.Choose(x.Enabled, "", "OFF; ") + "priority " + strconv.FormatInt(x.PriorityFloor, 10) + " and up, " + Count(x.InFlight) + " of " + Count(x.MaxParallel) + " in flight"
}

// JobSubscriptionText returns a job subscription in one line: which jobs it covers, and how many
// run at once.
func JobSubscriptionText(x queue.JobSubscription) string {
	s := orEvery(x.JobKind) + " in " + orEvery(x.Domain) + ": " + subscriptionWords(x)
	if note := x.Notes.String(); note != "" {
		s += " (" + note + ")"
	}
	return s
}

// subscriptions adds the part with the jobs that an executor may claim.
func (p *pageBuilder) subscriptions(x queue.Executor, subs []queue.JobSubscription) {
	p.head("May claim")
	n := 0
	for _, s := range subs {
		if s.ExecutorID != x.ID {
			continue
		}
		n++
		p.paint("job kind", JobSubscriptionText(s), p.e.warn(!s.Enabled))
	}
	switch {
	case n > 0:
	case needsSubscriptions(x):
		p.para("No subscription: this executor gets no jobs. E adds one.", p.e.Theme.Warning)
	default:
		p.para("No job subscription.", p.e.Theme.Dim)
	}
}

// SubscriptionOf returns the job subscription that a row of the second table of pane 4 shows.
func SubscriptionOf(s *queue.Snapshot, row string) (queue.JobSubscription, bool) {
	return queue.Find(s.OrEmpty().JobSubscriptions, func(x queue.JobSubscription) bool { return subscriptionRowID(x) == row })
}

// subscriptionList returns the second table of pane 4.
func subscriptionList(subs []queue.JobSubscription) lines {
	return List[queue.JobSubscription]{
		Name: "executor-rules", Rows: subs, ID: subscriptionRowID,
		Title: func(x queue.JobSubscription) string {
			return x.ExecutorID.String() + " may claim " + orEvery(x.JobKind) + " in " + orEvery(x.Domain)
		},
		First: "state executor_id executor_kind job_kind event_domain priority_floor max_parallel in_flight registered_by registered_at subscription_id notes",
		// The filter field kind means the executor kind here, as in the first
		// table of the pane.
		Filter: "id=executor_id kind=executor_kind domain=event_domain state",
		Word: func(x queue.JobSubscription, word string) (any, bool) {
			return subscriptionState(x), word == "state"
		},
		Look: func(x queue.JobSubscription, e Env) (table.Cell, theme.Style) {
			if !x.Enabled {
				return cell(e.Theme.G.Lost, e.Theme.Dim), e.Theme.Warning
			}
			return cell(e.Theme.G.Live, e.Theme.Accent), e.Theme.Text
		},
		Columns: []Column[queue.JobSubscription]{
			{Name: "executor_id", Title: "MAY CLAIM", Head: "EXECUTOR", Width: 20, Want: 22, Max: 36, Tone: func(x queue.JobSubscription, e Env) theme.Style { return e.strongUnless(!x.Enabled) }},
			{Name: "job_kind", Width: 12, Max: 30, Say: everything, Plain: func(x queue.JobSubscription) string { return plainEvery(x.JobKind) }},
			{Name: "event_domain", Title: "domain", Width: 9, Max: 18, Say: everything, Plain: func(x queue.JobSubscription) string { return plainEvery(x.Domain) }},
			{Name: "priority_floor", Title: "floor", Width: 5, Right: true, Drop: 2, Look: dim, Say: digits},
			{Name: "in_flight", Width: 10, Max: 14, Right: true,
				Text: func(x queue.JobSubscription, _ Env) string { return Count(x.InFlight) + " of " + Count(x.MaxParallel) },
				Tone: func(x queue.JobSubscription, e Env) theme.Style {
					return e.warn(x.Enabled && x.InFlight >= x.MaxParallel)
				}}, // a disabled subscription is drawn dim: the executor claims nothing by it
			{Name: "state", Width: 7, Look: ofRow, Text: func(x queue.JobSubscription, _ Env) string { return subscriptionState(x) }, Plain: func(x queue.JobSubscription) string { return OnOff(x.Enabled) }},
			{Name: "notes", Width: 12, Max: 50, Drop: 3, Look: dim},
			{Name: "registered_by", Title: "by", Width: 8, Max: 16, Drop: 4, Look: dim},
			{Name: "executor_kind"},
			{Name: "max_parallel", Head: "AT ONCE"},
			{Name: "registered_at", Head: "SINCE"},
			{Name: "subscription_id", Head: "SUBSCRIPTION"},
		},
	}.lines()
}
