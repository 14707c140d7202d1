package viewstest

// Staged notifications: documents that wait, documents that are due, rows that failed, and past
// runs of the worker.

import (
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Notifications returns the data of pane gn.
func Notifications() queue.Notifications {
	row := func(i int, address string) queue.StagedRow {
		return queue.StagedRow{
			ID: fmt.Sprintf("7c0e11d2-0000-4222-8333-00000000000%d", i), Kind: t("piece_birth"), Address: t(address), Key: t("doc-4711"), Actor: t("importer"),
			StagedAt: ago(50 * time.Minute), FailedAt: ago(48 * time.Minute),
		}
	}
	lost := row(3, "kg/node/551208")
	lost.Actor = t("")
	group := func(key string, document bool, pieces, due int64, oldest, newest time.Duration, first, actor string) queue.StagedGroup {
		return queue.StagedGroup{
			Key: t(key), Keyed: key != "", Document: document, Pieces: pieces, Due: due, OldestAt: ago(oldest), NewestAt: ago(newest), FirstUnit: t(first), Actor: t(actor),
		}
	}
	run := func(i int, at time.Duration, taken, left, groups, pieces, errs int64, why string) queue.NotificationRun {
		return queue.NotificationRun{
			ID: fmt.Sprintf("a1b2c3d4-0000-4222-8333-00000000000%d", i), At: ago(at), Taken: taken, Left: left, Groups: groups, Pieces: pieces, Marked: taken - errs,
			Errors: errs, Error: t(why), Failed: 3, TookMS: 12.4 * float64(i), Conflicts: int64(i / 2),
		}
	}
	return queue.Notifications{
		Waiting: 1249, Debouncing: 37, Failed: 3, DebounceSeconds: 90, Threshold: 2, LastRunAt: ptr(ago(34 * time.Second)), IntervalSeconds: 120,
		Groups: []queue.StagedGroup{
			group("doc-2026-0077", true, 1180, 1180, 118*time.Second, 97*time.Second, "doc-2026-0077/p0001", "importer"),
			group("", false, 32, 32, 111*time.Second, 92*time.Second, "note/8812", "user:anna"),
			group("doc-2026-0078", true, 24, 0, 44*time.Second, 2*time.Second, "doc-2026-0078/p0001", "importer"),
			group("night-run-19", false, 12, 0, 31*time.Second, 12*time.Second, "kg/node/551301", "crawler"),
			group("doc-2026-0079", true, 1, 0, 5*time.Second, 5*time.Second, "doc-2026-0079/p0001", "importer"),
		},
		Failures: []queue.StagedFailure{
			{Failure: t("23514 new row for relation \"iu_notification_event\" violates check constraint \"tidy\""), N: 2, FirstAt: ago(48 * time.Minute), LastAt: ago(46 * time.Minute),
				Rows: []queue.StagedRow{row(1, "doc-4711/p0007"), row(2, "doc-4711/p0017")}},
			{Failure: t("actor_ref is missing"), N: 1, FirstAt: ago(26 * time.Hour), LastAt: ago(26 * time.Hour), Rows: []queue.StagedRow{lost}},
		},
		Log: []queue.NotificationRun{
			run(1, 34*time.Second, 212, 1252, 9, 14, 0, ""), run(2, 48*time.Minute, 88, 40, 3, 9, 2, "23514 new row for relation \"iu_notification_event\" violates check constraint \"tidy\""),
			run(3, 26*time.Hour, 12, 1, 0, 11, 1, "actor_ref is missing"),
		},
	}
}
