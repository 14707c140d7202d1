package pgclient_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// All batches of an operation are one row in the audit and in the report, with the sums of their
// counts. A filter on the operation lists each batch, and what people did to the operation.
func TestAuditFoldsBatches(t *testing.T) {
	w := newWorld(t)
	began := time.Now().Add(-time.Hour)
	hooks := w.die(deadLetter{"order", acmeURL, "HTTP_503", time.Minute}, deadLetter{"order", acmeURL, "HTTP_503", time.Minute}, deadLetter{"order", acmeURL, "HTTP_503", time.Minute})
	op := w.client("dead_letter_operator", "queue_viewer")
	freeze := queue.Request{Action: queue.ActBulkPlan, Targets: hooks[:2], Reason: "healed", Args: map[string]string{"rate": "1", "canary": "0", "brake": "0"}}
	id := apply(t, op, plan(t, op, freeze)).Results[0].NewID
	require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActBulkRun, Targets: []string{id}})).Done)
	for range 2 {
		w.exec("UPDATE public.queue_bulk_operation SET credit = 0, credited_at = clock_timestamp() - interval '1 second'")
		w.exec("SELECT public.fn_queue_bulk_tick()")
	}
	require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: hooks[2:], Reason: "by hand"})).Done)

	entries := func(filter string) (said []string) {
		t.Helper()
		page, err := op.List(context.Background(), queue.Query{Kind: queue.ListAudit, Filter: filter, Limit: 50})
		require.NoError(t, err)
		rows := queue.Of[[]queue.AuditEntry](page)
		require.EqualValues(t, len(rows), page.Total)
		for _, a := range rows {
			said = append(said, say(a))
		}
		return said
	}
	require.Equal(t, []string{"dead_letter_requeue by hand 1/1", "dead_letter_requeue healed 2/2 of operation " + id + " in 2", "bulk_run healed 0/2 of operation " + id, "bulk_plan healed 0/2 of operation " + id},
		entries("actor:ann"))
	require.Equal(t, []string{"dead_letter_requeue healed 1/1 of operation " + id, "dead_letter_requeue healed 1/1 of operation " + id, "bulk_run healed 0/2 of operation " + id, "bulk_plan healed 0/2 of operation " + id},
		entries("operation_id="+id))
	require.Equal(t, []string{"dead_letter_requeue by hand 1/1"}, entries("actor:ann !operation_id="+id))
	require.Len(t, entries(`target="operation `+id+`"`), 3, "the folded row has the operation as its target")

	r, err := op.Report(context.Background(), began, time.Time{})
	require.NoError(t, err)
	var said []string
	for _, a := range r.Actions {
		if a.Actor.String() == "ann" {
			said = append(said, say(a))
		}
	}
	require.Equal(t, []string{"bulk_plan healed 0/2 of operation " + id, "bulk_run healed 0/2 of operation " + id, "dead_letter_requeue healed 2/2 of operation " + id + " in 2", "dead_letter_requeue by hand 1/1"}, said)
}

func say(a queue.AuditEntry) string {
	s := fmt.Sprintf("%s %s %d/%d", a.Action, a.Reason, *a.Changed, *a.FrozenCount)
	if a.OperationID != nil {
		s += fmt.Sprint(" of operation ", *a.OperationID)
	}
	if a.Folded() {
		s += fmt.Sprint(" in ", *a.Batches)
	}
	return s
}

// Each audit row says how many rows its action changed, from what it stores: 0 for what was not done, and
// nothing where it does not tell.
func TestAuditSaysHowManyRowsWereChanged(t *testing.T) {
	w := newWorld(t)
	viewer := w.client("queue_viewer")
	for _, x := range []struct{ action, target, frozen, after, outcome, want string }{
		{"ack", "silence:x", "NULL", `{"state":"acked"}`, "done", "1"},
		{"mark", "mark 1", "NULL", `{}`, "done", "1"},
		{"flag_set", "webhook.worker.enabled", "NULL", `{"value":"false"}`, "done", "1"},
		{"flag_set", "webhook.worker.enabled", "NULL", `{"value":"x"}`, "refused: value", "0"},
		{"flag_set", "(all flags)", "NULL", "null", "done", "-"},
		{"webhook_subscription_write", "(all webhook subscriptions)", "4", "null", "done", "4"},
		{"webhook_subscription_add", "webhook subscription x", "3", "{}", "done", "3"},
		{"dead_letter_requeue", "dead_letter 1,2,3", "3", `{"requeued":2,"skipped":1,"letters":[[1,5],[2,6]]}`, "done", "2"},
		{"dead_letter_resolve", "dead_letter 1", "1", `{"resolved":0,"skipped":1}`, "refused", "0"},
		{"job_dead_letter_replay", "job_dead_letter a,b", "2", `{"replayed":1,"skipped":1}`, "done", "1"},
		{"job_dead_letter_replay_undo", "job_dead_letter a,b", "2", `{"recalled":2}`, "done", "2"},
		{"job_cancel", "job a,b", "2", `{"cancelled":1}`, "done", "1"},
		{"job_lease_release", "job_lease a", "5", `{"released":4}`, "done", "4"},
		{"webhook_lease_release", "webhook_lease a", "2", `{"released":1}`, "done", "1"},
		{"iu_route_dead_letter_replay", "iu_route_dead_letter a", "1", `{"replayed":0,"failed":1}`, "failed", "0"},
		{"notification_requeue", "notification a", "1", `{"requeued":1}`, "done", "1"},
		{"bulk_plan", "operation 1", "413", `{"kind":"requeue_webhook"}`, "done", "0"},
		{"bulk_abort", "operation 1", "413", `{"state":"aborted","requeued":10}`, "done", "10"},
		{"bulk_brake", "operation 1", "413", `{"state":"paused"}`, "done", "-"}, // of a release that stored no counts
		{"bulk_rate", "operation 1", "413", `{"rate_per_second":5}`, "done", "-"},
		{"bulk_undo", "operation 1", "413", `{"undone":9}`, "done", "9"},
		{"bulk_undo", "operation 1", "413", "null", "refused: nothing", "0"},
		{"payload_reveal", "dead_letter 1", "1", "null", "done", "0"},
		{"quarantine_retry", "quarantine 1,2", "2", "null", "done", "2"},
		{"recount", "counters and lanes", "2", `{"counters":2,"job_lane":1,"drift":[{"n":7}]}`, "done", "3"},
		{"scheduler_install", "pg_cron", "NULL", `{"jobs":[{"id":"a","outcome":"created"},{"id":"b","outcome":"kept"}]}`, "done", "1"},
		{"scheduler_remove", "pg_cron", "NULL", `{"jobs":[{"id":"a","outcome":"removed"},{"id":"b","outcome":"absent"}]}`, "done", "1"},
		{"session_terminate", "session 1", "1", "null", "asked", "-"},
		{"tick", "metrics_sampler", "NULL", `{"ran":true}`, "done", "-"},
		{"tick", "metrics_sampler", "NULL", `{"ran":false}`, "skipped: leased", "0"},
	} {
		w.exec(fmt.Sprintf("SELECT public.fn_operator_audit($1, $2, 'ann', 'r', NULL, %s, NULL, NULLIF($3::jsonb, 'null'), $4)", x.frozen), x.action, x.target, x.after, x.outcome)
		page, err := viewer.List(context.Background(), queue.Query{Kind: queue.ListAudit, Limit: 1})
		require.NoError(t, err)
		a := queue.Of[[]queue.AuditEntry](page)[0]
		got := "-"
		if a.Changed != nil {
			got = fmt.Sprint(*a.Changed)
		}
		require.Equal(t, x.want, got, "%s %s", x.action, x.outcome)
	}

	// one row for all batches of an operation has their sum
	for _, done := range []int{2, 0, 3} {
		w.exec("SELECT public.fn_operator_audit('dead_letter_requeue', 'dead_letter 1', 'ann', 'folded', NULL, 3, NULL, jsonb_build_object('requeued', $1::int), $2, 7)",
			done, queue.Choose(done == 0, "refused", "done"))
	}
	page, err := viewer.List(context.Background(), queue.Query{Kind: queue.ListAudit, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "dead_letter_requeue folded 5/9 of operation 7 in 3", say(queue.Of[[]queue.AuditEntry](page)[0]))
}
