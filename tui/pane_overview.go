package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// overviewPane is pane 1, the Overview: the worst of everything. Its rows lead to the
// panes that know more.
func overviewPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneOverview, Keys: "1", Title: "Overview", Short: "Over",
			From: "all",
			Help: "what is off or held, who is silent, what waits longest, what is dead, the flow",
		},
		board: func(at scene, s views.Size, cursor views.Target) views.OverviewView {
			return views.Overview(views.OverviewState{Picture: at.pic, Cursor: cursor}, at.env, s)
		},
		copies: func(at scene) string { return at.pointed("") },
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActAck: acknowledge(func(at scene) (queue.Alert, bool) { return alertBy(at.pic, at.pointed(queue.PaneAlerts)) },
					func(at scene) string { return at.noRow("A works on a row under SILENT") }),
				queue.ActFlagSet: setFlag(func(at scene) string { return at.pointed(queue.PaneFlags) }),
			},
			waits: func(at scene) string { return waitingAt(at.pic, at.pointed("")) },
		},
	}
}

// pointed is the id under the cursor of the Overview, if its row leads to this
// pane; empty: to any.
func (at scene) pointed(to queue.PaneID) string {
	l := at.base()
	if !l.armed || to != "" && l.target.Pane != to {
		return ""
	}
	return l.target.ID
}
