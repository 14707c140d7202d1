package views

// This file finds the rows of lists that come with the picture, for an export.

import "github.com/qtop/qtop/pgclient/queue"

// Pictured is the table in which a list without a kind of its own stands.
func Pictured(list string, s *queue.Snapshot) Source {
	switch list {
	case "alerts":
		return Alerts(s)
	case "dlq-groups":
		return DeadGroups(s)
	case "executors", "executor-rules":
		return Executors(s)
	case "flags":
		return Flags(s)
	case "health":
		return Health(s)
	case "hosts":
		return Hosts(s)
	case "queues", "job-leases":
		return Lanes(s, 0)
	case "scheduler":
		return Scheduler(s)
	case "waiting":
		return Waits(s)
	}
	return Source{}
}

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
