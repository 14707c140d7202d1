package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// auditPane returns pane ga: who did what, and why.
func auditPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneAudit, Keys: "ga", Title: "Audit",
			From: "queue_operator_action",
			Help: "who did what and why, with the values before and after",
		},
		list:          pagedList(queue.Query{Kind: queue.ListAudit}, func(x queue.AuditEntry) int64 { return x.ID }),
		filterOnEnter: true,
		beforeFollow: func(l *level, id string) { // the Overview also lists marks, which have no row in the audit
			if _, err := strconv.ParseInt(id, 10, 64); err == nil {
				l.grid.at = id
			}
		},
		source: func(at scene) views.Source {
			return listSource(at, views.Audit(queue.Of[[]queue.AuditEntry](at.level.list.page)))
		},
		enter: func(at scene, i int) level {
			x := queue.Of[[]queue.AuditEntry](at.level.list.page)[i]
			if x.Folded() {
				return auditOfOperation(x)
			}
			return auditLevel(x)
		},
		nested: operationAudit{},
	}
}

// auditLevel returns the page of an audit row.
func auditLevel(x queue.AuditEntry) level {
	id := strconv.FormatInt(x.ID, 10)
	return level{id: id, title: "#" + id, page: func(at scene) (views.Page, bool) { return views.AuditPage(x, at.env, at.size.W), true }}
}

// operationAudit is the table that lists the audit rows of one bulk operation.
type operationAudit struct{}

// auditOfOperation returns the level that lists the audit rows of one bulk
// operation: those of people, and those of each batch of items. x is the row
// that stands for all of them in the audit's own table.
func auditOfOperation(x queue.AuditEntry) level {
	operation := strconv.FormatInt(*x.OperationID, 10)
	l := level{id: strconv.FormatInt(x.ID, 10), title: "operation " + operation, table: operationAudit{}, grid: newGrid(false)}
	l.list = pagedList(queue.Query{Kind: queue.ListAudit, Filter: queue.AuditOperation + "=" + operation}, func(x queue.AuditEntry) int64 { return x.ID })
	l.list.base = l.list.query.Filter
	return l
}

func (operationAudit) what() string { return "rows of an operation" }

func (operationAudit) rows(at scene) views.Source {
	return listSource(at, views.Audit(queue.Of[[]queue.AuditEntry](at.level.list.page)))
}

func (operationAudit) under(at scene, i int) level {
	return auditLevel(queue.Of[[]queue.AuditEntry](at.level.list.page)[i])
}
