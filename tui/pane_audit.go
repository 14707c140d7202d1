package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// auditPane is pane ga: who did what, and why.
func auditPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneAudit, Keys: "ga", Title: "Audit",
			From: "queue_operator_action",
			Help: "who did what and why, with the values before and after",
		},
		list:          pagedList(queue.Query{Kind: queue.ListAudit}, func(x queue.AuditEntry) int64 { return x.ID }),
		filterOnEnter: true,
		beforeFollow: func(l *level, id string) { // the list may not be read yet; a mark has no such row
			if _, err := strconv.ParseInt(id, 10, 64); err == nil {
				l.grid.at = id
			}
		},
		source: func(at scene) views.Source {
			return listSource(at, views.Audit(queue.Of[[]queue.AuditEntry](at.level.list.page)))
		},
		enter: func(at scene, i int) level {
			x := queue.Of[[]queue.AuditEntry](at.level.list.page)[i]
			return level{
				id: at.level.grid.src.ID(i), title: "#" + strconv.FormatInt(x.ID, 10),
				page: func(at scene) (views.Page, bool) { return views.AuditPage(x, at.env, at.size.W), true },
			}
		},
	}
}
