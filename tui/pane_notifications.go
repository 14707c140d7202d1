package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// notificationsPane is pane gn: what is staged, what failed, what the worker did.
func notificationsPane() pane {
	staged := func(at scene) *queue.Notifications { return queue.Of[*queue.Notifications](at.base().list.page) }
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneNotify, Keys: "gn", Title: "Notifications", Short: "Notify",
			From: "iu_notification_pending, iu_notification_worker_log",
			Help: "what is staged, what it will be told as, what failed, what the worker did; requeue",
		},
		badge: views.NotificationsBadge,
		list: list{query: queue.Query{Kind: queue.ListNotify}, count: func(p queue.Page) int {
			if n := queue.Of[*queue.Notifications](p); n != nil {
				return len(n.Failures) + len(n.Groups) + len(n.Log)
			}
			return 0
		}},
		often:  true,
		source: func(at scene) views.Source { return listed(at, views.Notifications(staged(at))) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: views.Plain(id), page: func(at scene) (views.Page, bool) {
				return views.NotificationPage(staged(at), id, at.env, at.size.W)
			}}
		},
		above: func(at scene) []string { return views.NotificationHead(staged(at), at.env, at.size.W) },
		tick:  "iu_notification_worker",
		acts: acts{targets: map[queue.ActionID]target{
			queue.ActTick: tickMeant,
			queue.ActNotifyRequeue: func(at scene, req *queue.Request) string {
				if req.Targets = views.FailedIDs(staged(at), at.subject()); len(req.Targets) == 0 {
					return at.noRow("R works on what FAILED; there is none under the cursor")
				}
				return ""
			},
		}},
	}
}
