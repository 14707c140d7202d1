package views

import (
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
)

// SnapshotTable returns the table that has the rows of an export list
// (queue.ExportLists), for lists that are part of the snapshot.
func SnapshotTable(list string, s *queue.Snapshot) Source {
	for _, table := range []func(*queue.Snapshot) Source{Alerts, DeadGroups, Executors, Flags, Health, Hosts, everyLane, Scheduler, WaitingQueues} {
		if src := table(s); slices.ContainsFunc(src.lists, func(l lines) bool { return l.list == list }) {
			return src
		}
	}
	return Source{}
}

func everyLane(s *queue.Snapshot) Source { return Lanes(s, 0) }

// Exported returns what is exported for the rows of one export list. order has
// the indices of the rows, in the order of the export. The result is never
// nil, so that JSON has [] instead of null.
func (s Source) Exported(list string, order []int) []any {
	rows := []any{}
	for _, i := range order {
		if l, x := s.Export(i); l == list {
			rows = append(rows, x...)
		}
	}
	return rows
}
