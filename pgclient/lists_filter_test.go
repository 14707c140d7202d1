package pgclient_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/queue"
)

// rowsOf counts the rows of a page: the entries of its list, or of the lists that its value has.
func rowsOf(p queue.Page) (n int) {
	switch rows := p.Rows.(type) {
	case queue.EventSubscriptionList:
		return len(rows.Subscriptions) + len(rows.Broadcast.Unrouted)
	case queue.EndpointList:
		return len(rows.Endpoints) + len(rows.Leases)
	case *queue.Notifications:
		return len(rows.Groups) + len(rows.Failures) + len(rows.Log)
	}
	return reflect.ValueOf(p.Rows).Len()
}

// A list that takes a filter applies it to all of its rows, and every other list refuses one. A list
// that ignored its filter would show, export and act on rows that the screen says are left out.
func TestNoListIgnoresItsFilter(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"order.paid", "https://hooks.acme.test/a", "HTTP_503", time.Minute})
	w.enqueue("kg.reindex", "kg", 1)
	w.exec(`INSERT INTO public.event_type_registry VALUES ('lost', 'made', 's', 'immediate')`)
	w.exec(`SELECT public.fn_iu_emit_event('lost', 'made', 's', 'immediate', 'info', NULL, NULL)`)
	w.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, source_document_ref, actor_ref, ref_id, created_at)
		VALUES (gen_random_uuid(), 'piece', 'document', 'user:ann', gen_random_uuid(), now() - interval '1 hour')`)
	w.exec(`SELECT public.fn_iu_notification_worker_tick()`)
	w.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, source_document_ref, actor_ref, ref_id, created_at)
		VALUES (gen_random_uuid(), 'piece', 'document', 'user:ann', gen_random_uuid(), now())`)
	c := w.client("workflow_admin", "dead_letter_operator", "queue_viewer", "pg_read_all_stats")
	const flag = "webhook.worker.enabled"
	require.EqualValues(t, 1, apply(t, c, plan(t, c, queue.Request{Action: queue.ActFlagSet, Targets: []string{flag}, Args: map[string]string{"value": "false"}, Reason: "r"})).Done)
	require.EqualValues(t, 1, apply(t, c, plan(t, c, bulkPlan("code:HTTP_503"))).Done)

	filtered := map[queue.ListKind]string{ // with the id that the list needs
		queue.ListDeadLetters: "", queue.ListJobs: "", queue.ListOperations: "", queue.ListEndpoints: "", queue.ListNotify: "",
		queue.ListEventSubscriptions: "", queue.ListAudit: "", queue.ListFlagHistory: flag, queue.ListActivity: "",
	}
	for _, kind := range lists.Kinds() {
		id, takes := filtered[kind]
		q := queue.Query{Kind: kind, ID: id}
		if takes {
			p, err := c.List(context.Background(), q)
			require.NoError(t, err, kind)
			require.NotZero(t, rowsOf(p), kind)
			require.NotZero(t, p.Total, kind)
		}
		q.Filter = "nothing-matches-this"
		p, err := c.List(context.Background(), q)
		if !takes {
			require.ErrorContains(t, err, "takes no filter", kind)
			require.Equal(t, queue.KindUsage, queue.KindOf(err))
			continue
		}
		require.NoError(t, err, kind)
		require.Zero(t, rowsOf(p), "%s: %v", kind, p.Rows)
		require.Zero(t, p.Total, kind)
	}
	p, err := c.List(context.Background(), queue.Query{Kind: queue.ListActivity, Filter: "program:qtop*"})
	require.NoError(t, err)
	require.NotZero(t, p.Total)
	for _, a := range queue.Of[[]queue.Activity](p) {
		require.Contains(t, a.Program.String(), "qtop")
	}
}
