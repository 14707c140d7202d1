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
	require.Equal(t, []string{"dead_letter_requeue by hand 1", "dead_letter_requeue healed 2 of operation " + id + " in 2", "bulk_run healed 2 of operation " + id, "bulk_plan healed 2 of operation " + id},
		entries("actor:ann"))
	require.Equal(t, []string{"dead_letter_requeue healed 1 of operation " + id, "dead_letter_requeue healed 1 of operation " + id, "bulk_run healed 2 of operation " + id, "bulk_plan healed 2 of operation " + id},
		entries("operation_id="+id))
	require.Equal(t, []string{"dead_letter_requeue by hand 1"}, entries("actor:ann !operation_id="+id))
	require.Len(t, entries(`target="operation `+id+`"`), 3, "the folded row has the operation as its target")

	r, err := op.Report(context.Background(), began, time.Time{})
	require.NoError(t, err)
	var said []string
	for _, a := range r.Actions {
		if a.Actor.String() == "ann" {
			said = append(said, say(a))
		}
	}
	require.Equal(t, []string{"bulk_plan healed 2 of operation " + id, "bulk_run healed 2 of operation " + id, "dead_letter_requeue healed 2 of operation " + id + " in 2", "dead_letter_requeue by hand 1"}, said)
}

func say(a queue.AuditEntry) string {
	s := fmt.Sprintf("%s %s %d", a.Action, a.Reason, *a.FrozenCount)
	if a.OperationID != nil {
		s += fmt.Sprint(" of operation ", *a.OperationID)
	}
	if a.Folded() {
		s += fmt.Sprint(" in ", *a.Batches)
	}
	return s
}
