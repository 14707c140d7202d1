package views

// This file finds the rows of lists that come with the picture, for an export.

import (
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
)

// SnapshotTable is the table in which a list without a kind of its own stands.
func SnapshotTable(list string, s *queue.Snapshot) Source {
	for _, table := range []func(*queue.Snapshot) Source{Alerts, DeadGroups, Executors, Flags, Health, Hosts, everyLane, Scheduler, WaitingQueues} {
		if src := table(s); slices.ContainsFunc(src.lists, func(l lines) bool { return l.list == list }) {
			return src
		}
	}
	return Source{}
}

func everyLane(s *queue.Snapshot) Source { return Lanes(s, 0) }

// Exported is what rows of a table are in one list, in their order. They are at
// hand even where there is none.
func (s Source) Exported(list string, order []int) []any {
	rows := []any{}
	for _, i := range order {
		if l, x := s.Export(i); l == list {
			rows = append(rows, x...)
		}
	}
	return rows
}
