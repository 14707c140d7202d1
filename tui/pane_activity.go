package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// activityPane returns pane gl: the sessions that may delay queues.
func activityPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneActivity, Keys: "gl", Title: "Activity",
			From: "fn_queue_activity",
			Help: "sessions that may hold up queues: oldest PostgreSQL snapshot, blockers, open transactions, listeners; cancel, terminate",
		},
		list:       pagedList(queue.Query{Kind: queue.ListActivity}, func(a queue.Activity) string { return a.ID }),
		selectable: true, rereadOften: true,
		source: func(at scene) views.Source { return listSource(at, views.Activity(sessions(at))) },
		enter:  func(at scene, i int) level { return sessionLevel(sessions(at)[i].ID) },
		acts:   acts{targets: map[queue.ActionID]target{queue.ActSessionCancel: sessionTarget, queue.ActSessionTerminate: sessionTarget}},
	}
}

func sessions(at scene) []queue.Activity { return queue.Of[[]queue.Activity](at.base().list.page) }

// sessionLevel returns the page of one session. It reads all sessions, because the filter of the
// pane may leave out those that block this one. The page goes on showing a session that has ended.
func sessionLevel(id string) level {
	return level{id: id, title: id, list: listOf(queue.ListActivity, ""), page: func(at scene) (views.Page, bool) {
		all := sessions(at)
		if at.level.list.read {
			all = queue.Of[[]queue.Activity](at.level.list.page)
		}
		a, ok := queue.Find(all, func(a queue.Activity) bool { return a.ID == id })
		return views.ActivityPage(a, all, at.env, at.size.W), ok
	}}
}

// sessionTarget fills in the selected sessions, else the one under the cursor.
func sessionTarget(at scene, req *queue.Request) string {
	req.Targets = at.level.grid.selectedIDs()
	if len(req.Targets) == 0 {
		req.Targets = []string{at.subject()}
	}
	for _, id := range req.Targets {
		if _, _, ok := queue.ParseSessionID(id); !ok {
			return at.noRow("C and X need a session; this row is not a session")
		}
	}
	return ""
}
