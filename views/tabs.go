package views

import (
	"cmp"
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Tab is one pane in the second line of the screen, with the count of its badge.
type Tab struct {
	Keys, Title, Short string
	Count              int64
	Loud               int // the highest urgency (rank) of the counted rows; it gives the badge its style
	Open               bool
}

// Badge is a function that counts the rows of a pane that need attention. loud
// is the highest urgency (rank) of these rows.
type Badge func(s *queue.Snapshot) (n int64, loud int)

// NewTab returns the tab of a pane with the count of its badge; a nil badge means no count.
func NewTab(p queue.Pane, open bool, badge Badge, s *queue.Snapshot) Tab {
	t := Tab{Keys: p.Keys, Title: p.Title, Short: cmp.Or(p.Short, p.Title), Open: open}
	if s != nil && badge != nil {
		t.Count, t.Loud = badge(s)
	}
	return t
}

// counted returns how many of the rows count, and the highest rank of these.
func counted[T any](rows []T, of func(T) (rank int, counts bool)) (n int64, loud int) {
	for _, x := range rows {
		if r, counts := of(x); counts {
			n, loud = n+1, max(loud, r)
		}
	}
	return n, loud
}

// ranked counts the rows whose rank is at least a warning.
func ranked[T any](rows []T, rank func(T) int) (n int64, loud int) {
	return counted(rows, func(x T) (int, bool) { return rank(x), rank(x) > rankQuiet })
}

// AlertsBadge counts the alerts without an owner, one per cause.
func AlertsBadge(s *queue.Snapshot) (n int64, loud int) {
	return counted(queue.Causes(s.Alerts), func(a queue.Alert) (int, bool) { return rank(a.Severity), a.State != "acked" })
}

// DeadBadge counts open dead letters.
func DeadBadge(s *queue.Snapshot) (n int64, loud int) { return s.Flow.DeadOpen, rankWarning }

// OperationsBadge counts operations that were started and have not ended.
func OperationsBadge(s *queue.Snapshot) (n int64, loud int) {
	return counted(s.Operations, func(o queue.Operation) (int, bool) { return operationRank(o), o.State != queue.BulkPlanned })
}

// WebhooksBadge counts the endpoints to which nothing is sent.
func WebhooksBadge(s *queue.Snapshot) (n int64, loud int) {
	return int64(len(s.Suspended)), rankWarning
}

// EventSubscriptionsBadge counts alerts without an owner about broadcast shares over their limit.
func EventSubscriptionsBadge(s *queue.Snapshot) (n int64, loud int) {
	return counted(s.Alerts, func(a queue.Alert) (int, bool) { return rank(a.Severity), a.Kind == "broadcast" && a.State != "acked" })
}

// QueuesBadge counts the queue lanes that are at least a warning.
func QueuesBadge(s *queue.Snapshot) (n int64, loud int) { return ranked(s.Queues, laneRank) }

// NotificationsBadge counts staged notifications that failed.
func NotificationsBadge(s *queue.Snapshot) (n int64, loud int) {
	for _, h := range s.Health {
		if h.Source.String() == "notification_pending" && h.DeadLettered != nil {
			n, loud = n+*h.DeadLettered, rankCritical
		}
	}
	return n, loud
}

// SchedulerBadge counts the tick workers that are at least a warning.
func SchedulerBadge(s *queue.Snapshot) (n int64, loud int) { return ranked(s.Ticks, tickRank) }

// FlagsBadge counts the flags that are at least a warning.
func FlagsBadge(s *queue.Snapshot) (n int64, loud int) {
	return ranked(s.Flags, func(f queue.Flag) int { return rank(flagState(f)) })
}

// TabLine draws the tabs in exactly w cells. If they do not fit, it uses short titles; then it
// leaves out tabs whose badge is 0, first those that need two keys; then the other tabs that need
// two keys. The menu always has all panes.
func TabLine(tabs []Tab, e Env, w int) string {
	th := e.Theme
	for _, form := range []struct {
		long bool
		gap  int
	}{{true, 3}, {true, 2}, {false, 2}, {false, 1}} {
		line, used := tabLine(tabs, th, form.long, form.gap)
		if used <= w {
			return line + theme.Blank(w-used)
		}
	}
	for _, drop := range []struct {
		keys    int
		counted bool
	}{{2, false}, {1, false}, {2, true}, {1, true}} {
		for i := len(tabs) - 1; i > 0; i-- {
			if t := tabs[i]; len(t.Keys) == drop.keys && !t.Open && (t.Count > 0) == drop.counted {
				tabs = slices.Delete(slices.Clone(tabs), i, i+1)
				if line, used := tabLine(tabs, th, false, 1); used <= w {
					return line + theme.Blank(w-used)
				}
			}
		}
	}
	line, _ := tabLine(tabs, th, false, 1)
	return th.Left(line, w)
}

// tabLine draws the tabs with gap cells between them. The open tab is highlighted, and one cell
// wider on both sides.
func tabLine(tabs []Tab, th theme.Theme, long bool, gap int) (string, int) {
	out, used, wasOpen := "", 0, false
	for i, t := range append(tabs, Tab{Keys: "0", Title: "menu", Short: th.G.Ellipsis}) {
		space := queue.Choose(i == 0, 1, gap)
		used += space
		if wasOpen && gap > 1 {
			out += th.Tab.Paint(" ")
			space--
		}
		if t.Open && (gap > 1 || i == 0) {
			out += theme.Blank(space-1) + th.Tab.Paint(" ")
		} else {
			out += theme.Blank(space)
		}
		wasOpen = t.Open
		title := queue.Choose(long, t.Title, t.Short)
		count := queue.Choose(t.Count > 0, th.G.Dot+table.Short(t.Count), "")
		used += theme.Width(t.Keys + " " + title + count)
		if t.Open {
			out += th.Tab.Paint(t.Keys + " " + title + count)
			continue
		}
		loud := []theme.Style{th.Dim, th.Warning, th.Critical}[min(max(t.Loud, 0), 2)]
		out += th.Accent.Paint(t.Keys) + th.Text.Paint(" "+title) + loud.Paint(count)
	}
	return out, used
}
