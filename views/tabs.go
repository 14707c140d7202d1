package views

// This file is the second line: the panes with their keys, and how much is in
// those where something should be looked at.

import (
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Tab is one pane in the line.
type Tab struct {
	Keys, Title, Short string
	Count              int64
	Loud               int // rank of the count
	Open               bool
}

// Tabs counts what is in each pane.
func Tabs(s *queue.Snapshot, open queue.PaneID) []Tab {
	short := map[queue.PaneID]string{
		queue.PaneOverview: "Over", queue.PaneExecutors: "Exec", queue.PaneDead: "Dead", queue.PaneOps: "Ops", queue.PaneWebhooks: "Hooks", queue.PaneQueues: "Queue", queue.PaneScheduler: "Sch", queue.PaneRules: "Subs", queue.PaneHost: "Host", queue.PaneNotify: "Notify",
	}
	var tabs []Tab
	for _, p := range queue.Panes() {
		t := Tab{Keys: p.Keys, Title: p.Title, Short: p.Title, Open: p.ID == open}
		if x, ok := short[p.ID]; ok {
			t.Short = x
		}
		if s != nil {
			t.Count, t.Loud = paneCount(s, p.ID)
		}
		tabs = append(tabs, t)
	}
	return tabs
}

func paneCount(s *queue.Snapshot, id queue.PaneID) (n int64, loud int) {
	switch id {
	case queue.PaneAlerts:
		for _, a := range s.Alerts {
			if a.State != "acked" {
				n++
				loud = max(loud, rank(a.Severity))
			}
		}
	case queue.PaneDead:
		n, loud = s.Flow.DeadOpen, rankWarning
	case queue.PaneOps:
		for _, o := range s.Operations {
			if o.State != queue.BulkPlanned {
				n++
				loud = max(loud, operationRank(o))
			}
		}
	case queue.PaneWebhooks:
		n, loud = int64(len(s.Suspended)), rankWarning
	case queue.PaneRules:
		for _, a := range s.Alerts {
			if a.Kind == "broadcast" && a.State != "acked" {
				n, loud = n+1, max(loud, rank(a.Severity))
			}
		}
	case queue.PaneQueues:
		for _, l := range s.Queues {
			if r := laneRank(l); r > rankQuiet {
				n++
				loud = max(loud, r)
			}
		}
	case queue.PaneNotify:
		for _, h := range s.Health {
			if h.Source.String() == "notification_pending" && h.DeadLettered != nil {
				n, loud = n+*h.DeadLettered, rankCritical
			}
		}
	case queue.PaneScheduler:
		for _, t := range s.Ticks {
			if r := tickRank(t); r > rankQuiet {
				n++
				loud = max(loud, r)
			}
		}
	case queue.PaneFlags:
		for _, f := range s.Flags {
			if r := rank(flagState(f)); r > rankQuiet {
				n++
				loud = max(loud, r)
			}
		}
	}
	return n, loud
}

// TabLine draws the panes in exactly w cells, with short titles where the long
// ones do not fit, and at last without panes in which there is nothing, first
// those of two keys, and then without others of two keys: the menu has them all.
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

// tabLine sets the panes gap cells apart; the open one is a badge that reaches a
// cell into the gaps on both sides.
func tabLine(tabs []Tab, th theme.Theme, long bool, gap int) (string, int) {
	out, used, wasOpen := "", 0, false
	for i, t := range append(tabs, Tab{Keys: "0", Title: "menu", Short: th.G.Ellipsis}) {
		space := gap
		if i == 0 {
			space = 1
		}
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
		title := t.Short
		if long {
			title = t.Title
		}
		count := ""
		if t.Count > 0 {
			count = th.G.Dot + Short(t.Count)
		}
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
