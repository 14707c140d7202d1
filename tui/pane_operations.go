package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// operationsPane returns pane 6: bulk operations; enter on one shows its
// items.
func operationsPane() pane {
	p := pane{
		Pane: queue.Pane{
			ID: queue.PaneOps, Keys: "6", Title: "Operations", Short: "Ops",
			From: "queue_bulk_operation",
			Help: "bulk operations on frozen selections: start, rate, pause, brake, abort, undo, result of each item",
		},
		badge:       views.OperationsBadge,
		list:        pagedList(queue.Query{Kind: queue.ListOperations}, func(x queue.Operation) int64 { return x.ID }),
		rereadOften: true,
		source: func(at scene) views.Source {
			return listSource(at, views.Operations(queue.Of[[]queue.Operation](at.level.list.page)))
		},
		enter:        func(at scene, i int) level { return operationLevel(queue.Of[[]queue.Operation](at.level.list.page)[i]) },
		beforeFollow: func(l *level, id string) { l.grid.at = id }, // works also before the list is read: the cursor goes to the row when it comes
		actionKeys: func(at scene, key string) (queue.ActionID, map[string]string) {
			o, _ := operationAt(at)
			to := o.Rate * 2
			switch key {
			case "-":
				to = o.Rate / 2
			case "+":
			default:
				return "", nil
			}
			return queue.ActBulkRate, map[string]string{"rate": strconv.FormatFloat(min(max(to, 0.01), 1000), 'f', -1, 64)}
		},
	}
	p.targets = map[queue.ActionID]target{}
	for _, id := range []queue.ActionID{queue.ActBulkRun, queue.ActBulkPause, queue.ActBulkResume, queue.ActBulkAbort, queue.ActBulkRate, queue.ActBulkUndo} {
		p.targets[id] = rowTarget(operationAt, func(o queue.Operation) string { return strconv.FormatInt(o.ID, 10) }, "there is no operation under the cursor; N in Dead letters (5) plans one")
	}
	p.usesSecond = func(at scene) bool {
		o, ok := operationAt(at)
		return ok && o.State == queue.BulkPaused
	}
	return p
}

// operationAt returns the operation whose page is open, as it was read last,
// else the one under the cursor.
func operationAt(at scene) (queue.Operation, bool) {
	if d := queue.Of[*queue.OperationDetail](at.level.list.page); d != nil {
		return d.Operation, true
	}
	id := at.subject()
	return queue.Find(queue.Of[[]queue.Operation](at.base().list.page), func(o queue.Operation) bool { return strconv.FormatInt(o.ID, 10) == id })
}

// operationLevel returns the page of one operation with its items.
func operationLevel(o queue.Operation) level {
	id := strconv.FormatInt(o.ID, 10)
	return level{id: id, title: "operation " + id, list: listOf(queue.ListOperation, id), page: func(at scene) (views.Page, bool) {
		d := queue.Of[*queue.OperationDetail](at.level.list.page)
		if d == nil {
			d = &queue.OperationDetail{Operation: o}
		}
		return views.OperationPage(d.Operation, loaded(at.level, d.Items), at.env, at.size.W), true
	}}
}
