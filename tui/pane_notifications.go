package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// notificationsPane returns pane gn: staged notifications, failed ones, and
// the log of the tick worker.
func notificationsPane() pane {
	staged := func(at scene) *queue.Notifications { return queue.Of[*queue.Notifications](at.base().list.page) }
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneNotify, Keys: "gn", Title: "Notifications", Short: "Notify",
			From: "iu_notification_pending, iu_notification_worker_log",
			Help: "staged notifications and how they will be sent, failures, the worker's log; requeue",
		},
		badge: views.NotificationsBadge,
		list: list{query: queue.Query{Kind: queue.ListNotify}, count: func(p queue.Page) int {
			if n := queue.Of[*queue.Notifications](p); n != nil {
				return len(n.Failures) + len(n.Groups) + len(n.Log)
			}
			return 0
		}},
		rereadOften: true,
		source:      func(at scene) views.Source { return listSource(at, views.Notifications(staged(at))) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: views.Plain(id), rowBelow: true, page: func(at scene) (views.Page, bool) {
				return views.NotificationPage(staged(at), id, at.env, at.size.W)
			}}
		},
		header: func(at scene) []string { return views.NotificationHead(staged(at), at.env, at.size.W) },
		leftOut: func(at scene, a queue.Action) string {
			left := views.FailedLeft(staged(at), at.subject())
			if a.ID != queue.ActNotifyRequeue || left == 0 {
				return ""
			}
			return views.Plural(left, "more row with this failure was", "more rows with this failure were") + " not read; qtop notifications requeue --all takes all that failed"
		},
		tickWorker: "iu_notification_worker",
		acts: acts{targets: map[queue.ActionID]target{
			queue.ActTick: tickTarget,
			queue.ActNotifyRequeue: func(at scene, req *queue.Request) string {
				if req.Targets = views.FailedIDs(staged(at), at.subject()); len(req.Targets) == 0 {
					return at.noRow("R needs a FAILED row under the cursor")
				}
				return ""
			},
		}},
	}
}
