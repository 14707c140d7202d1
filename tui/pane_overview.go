package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// overviewPane returns pane 1, the Overview: the most urgent rows of all
// panes. Enter on a row opens the pane that it comes from.
func overviewPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneOverview, Keys: "1", Title: "Overview", Short: "Over",
			From: "all",
			Help: "flags that are off, held cursors, silent executors, longest waits, dead letters, flow and actions of the last hour",
		},
		board: func(at scene, s views.Size, cursor views.Target) views.OverviewView {
			return views.Overview(views.OverviewState{Snapshot: at.snap, Cursor: cursor, Gone: at.level.vanished(), Expanded: at.base().expanded}, at.env, s)
		},
		copyText:     func(at scene) string { return at.overviewID("") },
		rowBehindWhy: true,
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActAck: acknowledge(func(at scene) (queue.Alert, bool) { return alertBy(at.snap, at.overviewID(queue.PaneAlerts)) },
					func(at scene) string {
						return at.noRow("A needs the row of an alert, such as one under SILENT; enter opens a row that several share")
					}),
				queue.ActFlagSet: setFlag(func(at scene) string { return at.overviewID(queue.PaneFlags) }),
			},
			queueName: func(at scene) string {
				if a, ok := alertBy(at.snap, at.overviewID(queue.PaneAlerts)); ok && a.Queue() != "" {
					return a.Queue()
				}
				return waitingAt(at.snap, at.overviewID(""))
			},
		},
	}
}

// overviewID returns the id of the row under the cursor of the Overview, if
// that row comes from pane to; an empty to means any pane. It returns "" for a
// row that stands for several troubles.
func (at scene) overviewID(to queue.PaneID) string {
	l := at.base()
	if !l.armed || l.target.Pane == queue.PaneOverview || to != "" && l.target.Pane != to {
		return ""
	}
	return l.target.ID
}
