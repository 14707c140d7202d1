package viewstest

// Bulk operations in every state, and the items of one of them.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Operations returns bulk operations, newest first; the brake has paused the second one.
func Operations() []queue.Operation {
	op := func(id int64, state, filter string, frozen, requeued, skipped int64) queue.Operation {
		ok, failed := requeued*9/10, requeued/50
		return queue.Operation{
			ID: id, Kind: "requeue_webhook", Filter: t(filter), CreatedBy: t("ben"), CreatedAt: ago(2 * time.Hour), Reason: t("receiver is back since 02:00"),
			State: state, StateBy: t("ben"), StateAt: ago(20 * time.Minute), StartedAt: ptr(ago(40 * time.Minute)), Rate: 20, Brake: 20, Canary: 5,
			CanaryPassed: true, Frozen: frozen, Requeued: requeued, Sent: min(ok+failed+8, requeued), Done: ok + failed, Skipped: skipped, FirstOK: ok, FirstFailed: failed,
		}
	}
	braked := op(12, queue.BulkPaused, "code:HTTP_503 endpoint:hooks.acme.example", 4640, 1190, 12)
	braked.StateBy, braked.StateWhy = t("bulk_operation_runner"), t("the brake: 12 of the last 50 first attempts failed (mostly HTTP_503)")
	braked.Failed, braked.Undone = 2, 30
	planned := op(14, queue.BulkPlanned, "source:job kind:kg.reindex", 600, 0, 0)
	planned.Kind, planned.CanaryPassed, planned.StartedAt = "replay_job", false, nil
	running := op(13, queue.BulkRunning, "code:TIMEOUT age<2h", 50_000, 30_512, 41)
	running.Waits = t("items of subscription 5 (hooks.acme.example) wait: circuit open until 00:14:30Z")
	closed := op(9, queue.BulkCompleted, "code:HTTP_404", 300, 300, 0)
	closed.Kind, closed.Canary, closed.Brake, closed.Done, closed.FirstOK, closed.FirstFailed = "resolve", 0, 0, 300, 0, 0
	return []queue.Operation{planned, running, braked, op(11, queue.BulkAborted, "12 ids", 12, 3, 1), closed}
}

// OperationItems returns items with their results, the latest attempted first.
func OperationItems() []queue.OperationItem {
	at := ptr(ago(time.Minute))
	return []queue.OperationItem{
		{No: 6, Target: t("90998"), Outcome: "done", NewID: t("120455"), At: at},
		{No: 5, Target: t("90997"), Outcome: "done", NewID: t("120454"), At: at, FirstResult: "failed", FirstCode: t("HTTP_503")},
		{No: 4, Target: t("90996"), Outcome: "skipped", Why: t("already requeued by anna at 2026-11-20 00:01:12Z as saga 120001"), At: at},
		{No: 3, Target: t("job:3f2a9484-1111-4222-8333-0123456789ab"), Outcome: "failed", Why: t("no such luck"), At: at},
		{No: 2, Target: t("90995"), Outcome: "undone", Why: t("recalled by ben"), NewID: t("120453"), At: at},
		{No: 1, Target: t("90994"), Outcome: "done", NewID: t("120452"), At: at, FirstResult: "ok"},
	}
}
