// Routing through the client: events are routed again, one by one and in bulk; routes are switched
// on and off; consumers are set.

package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func outcome(res queue.Result, id string) (o queue.Outcome) {
	for _, o := range res.Results {
		if o.ID == id {
			return o
		}
	}
	return o
}

func TestReplayOfEvents(t *testing.T) {
	w := newWorld(t)
	ids := w.dieEvents("made", "made", "sent", "broken")
	w.exec("UPDATE public.iu_route_dead_letter SET event_snapshot = event_snapshot - 'event_stream' || '{\"event_domain\": null}' WHERE 'event:' || dead_letter_id = $1", ids[3])
	hook := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})[0]
	op := w.client("queue_viewer", "dead_letter_operator")
	p := plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{ids[0]}, Reason: "cured"})
	require.EqualValues(t, 1, p.Count)
	require.Contains(t, lineOf(p, "to"), "1 × event iu/made ROUTE_22P02")
	require.Equal(t, queue.Outcome{ID: ids[0], Outcome: "would_requeue"}, p.Results[0])
	res := apply(t, op, p)
	require.Equal(t, "requeued", outcome(res, ids[0]).Outcome)
	require.Equal(t, get[int64](w, "SELECT max(id) FROM public.queue_operator_action WHERE action = 'iu_route_dead_letter_replay'"), res.AuditID)
	d := w.detail(op, ids[0])
	require.Equal(t, "requeued ann", d.State+" "+d.RequeuedBy.String())
	again := plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{ids[0]}, Reason: "x"})
	require.Contains(t, again.Refused, "closed already as replayed by ann at")
	undo := plan(t, op, queue.Request{Action: queue.ActUndoRequeue, Targets: []string{ids[0]}, Reason: "x"})
	require.Contains(t, undo.Refused, "routed events cannot be recalled: their recipients have them")

	// selected by a filter, together with a dead letter of another source; one event fails again
	p = plan(t, op, queue.Request{Action: queue.ActRequeue, Filter: "type:sent|broken", Reason: "cured"})
	require.EqualValues(t, 2, p.Count)
	res = apply(t, op, p)
	require.EqualValues(t, 1, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.Equal(t, "requeued", outcome(res, ids[2]).Outcome)
	failed := outcome(res, ids[3])
	require.Equal(t, "failed", failed.Outcome)
	require.Contains(t, failed.Why.String(), "ROUTE_23502 ")
	d = w.detail(op, ids[3])
	require.Equal(t, "open ROUTE_23502", d.State+" "+d.Code.String())
	p = plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{hook, ids[1]}, Reason: "cured"})
	require.EqualValues(t, 2, p.Count)
	require.EqualValues(t, 2, apply(t, op, p).Done)
	require.EqualValues(t, 3, get[int64](w, "SELECT count(*) FROM public.iu_route_attempt"))

	w.exec("SELECT public.fn_dot_config_set('queue.dlq.replay_enabled', 'false', 'ann', 'x')")
	p = plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: ids[3:], Reason: "x"})
	require.Contains(t, p.Refused, "queue.dlq.replay_enabled")
	_, err := w.client("queue_viewer").Plan(context.Background(), queue.Request{Action: queue.ActRequeue, Targets: ids[3:], Reason: "x"})
	kind(t, queue.KindPermission, err)
}

func lineOf(p queue.Plan, label string) (text string) {
	for _, l := range p.Lines {
		if l.Label == label {
			text += l.Value.String() + "\n"
		}
	}
	return text
}

func TestBulkReplayOfEvents(t *testing.T) {
	w := newWorld(t)
	ids := w.dieEvents("made", "made", "made")
	bulkDeadLetters(w)
	op := w.client("queue_viewer", "dead_letter_operator")
	r := bulkPlan("source:event")
	r.Args["canary"], r.Args["rate"] = "0", "1000"
	p := plan(t, op, r)
	require.EqualValues(t, 3, p.Count)
	require.Contains(t, lineOf(p, "to"), "3 × event iu/made ROUTE_22P02")
	require.Contains(t, lineOf(p, "first ids"), "event:")
	res := apply(t, op, p)
	require.Len(t, res.Results, 1)
	require.Equal(t, "event planned", res.Results[0].ID+" "+res.Results[0].Outcome)
	id := res.Results[0].NewID
	run := queue.Request{Action: queue.ActBulkRun, Targets: []string{id}}
	w.flag("iu_core.routes_master_enabled", "false")
	require.Contains(t, blockers(plan(t, op, run)), "iu_core.routes_master_enabled is off")
	w.flag("iu_core.routes_master_enabled", "true")
	p = plan(t, op, run)
	require.NotContains(t, blockers(p), "iu_core.routes_master_enabled is off")
	apply(t, op, p)
	require.Eventually(t, func() bool {
		w.exec("SELECT public.fn_queue_bulk_tick()")
		return get[string](w, "SELECT state FROM public.queue_bulk_operation WHERE operation_id = $1::text::bigint", id) == "completed"
	}, 30*time.Second, 50*time.Millisecond)
	page, err := op.List(context.Background(), queue.Query{Kind: queue.ListOperation, ID: id})
	require.NoError(t, err)
	o := queue.Of[*queue.OperationDetail](page)
	require.Equal(t, "replay_event", o.Kind)
	require.Equal(t, []int64{3, 3, 0, 0}, []int64{o.Done, o.FirstOK, o.Failed, o.Unknown()})
	require.Equal(t, "requeued", w.detail(op, ids[2]).State)
	undo := plan(t, op, queue.Request{Action: queue.ActBulkUndo, Targets: []string{id}})
	require.Contains(t, undo.Refused, "routed events cannot be recalled")

	// a selection of dead letters of all sources becomes one operation per source
	more := w.dieEvents("more")
	r = bulkPlan("age>0s|<1d")
	r.Filter, r.Targets = "source:webhook|job|event", nil
	p = plan(t, op, r)
	require.EqualValues(t, 5, p.Count)
	require.Len(t, apply(t, op, p).Results, 3)
	r.Filter, r.Targets, r.Args["what"] = "", more, "resolve"
	require.EqualValues(t, 1, apply(t, op, plan(t, op, r)).Done)
}

func TestRoutesAndConsumers(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	w.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
	admin := w.client("queue_viewer", "workflow_admin")
	list := func(k queue.ListKind) queue.Page {
		p, err := admin.List(context.Background(), queue.Query{Kind: k})
		require.NoError(t, err)
		return p
	}
	route := func() queue.Route {
		for _, r := range queue.Of[[]queue.Route](list(queue.ListRoutes)) {
			if r.Domain.String() == "iu" {
				return r
			}
		}
		return queue.Route{}
	}
	require.Equal(t, "iu_outbound_default", route().Worker.String())
	require.Nil(t, route().LastRunAt)
	require.EqualValues(t, 1, route().Waiting)
	off := queue.Request{Action: queue.ActRouteSet, Targets: []string{"iu"}, Args: map[string]string{"enabled": "false"}, Reason: "flood"}
	p := plan(t, admin, off)
	require.Equal(t, "enabled, by iu_outbound_default\n", lineOf(p, "now"))
	require.Equal(t, "disabled, by iu_outbound_default\n", lineOf(p, "then"))
	require.Contains(t, lineOf(p, "waiting"), "1 event waits, and new ones will wait too")
	require.Equal(t, "qtop route set iu --enabled=false --reason flood", p.Command)
	stale := p
	require.Equal(t, "changed", outcome(apply(t, admin, p), "iu").Outcome)
	require.False(t, route().Enabled)
	res := apply(t, admin, stale)
	require.Contains(t, res.Refused, "changed since the preview, last by ann")
	require.Equal(t, "route_set iu: ann, flood, refused: changed", auditRow(w, res.AuditID))
	off.Args = map[string]string{"enabled": "perhaps"}
	_, err := admin.Plan(context.Background(), off)
	kind(t, queue.KindUsage, err)
	off.Targets, off.Args = []string{"nowhere"}, map[string]string{"enabled": "true"}
	require.Contains(t, plan(t, admin, off).Refused, "no event type of domain nowhere is registered")

	set := queue.Request{
		Action: queue.ActConsumerSet, Targets: []string{"indexer"}, Reason: "new",
		Args: map[string]string{"domain": "iu", "type": "made", "kind": "kg.index", "executor": "Agent"},
	}
	p = plan(t, admin, set)
	require.Equal(t, "enabled, one job kg.index for Agent per iu/made\n", lineOf(p, "then"))
	require.Equal(t, "0 executors subscribe to such jobs\n", lineOf(p, "run by"))
	made := outcome(apply(t, admin, p), "indexer")
	require.Equal(t, "created: enabled, one job kg.index for Agent per iu/made", made.Outcome+": "+made.Why.String())
	res = apply(t, admin, p)
	require.Contains(t, res.Refused, "changed since the preview, last by ann", "what was previewed was that there is none")
	require.Equal(t, "consumer_set indexer: ann, new, refused: changed", auditRow(w, res.AuditID))
	c := queue.Of[[]queue.Consumer](list(queue.ListConsumers))
	require.Len(t, c, 1)
	require.Equal(t, "indexer iu made kg.index Agent ann", c[0].ID.String()+" "+c[0].Domain.String()+" "+c[0].EventType.String()+" "+c[0].JobKind.String()+" "+
		c[0].Executor.String()+" "+c[0].UpdatedBy.String())
	set.Args = map[string]string{"enabled": "false"}
	require.Equal(t, "changed", outcome(apply(t, admin, plan(t, admin, set)), "indexer").Outcome)
	require.False(t, queue.Of[[]queue.Consumer](list(queue.ListConsumers))[0].Enabled)
	set.Args = map[string]string{"executor": "DOT"}
	p = plan(t, admin, set)
	require.Equal(t, "disabled, one job kg.index for DOT per iu/made\n", lineOf(p, "then"), "what is not named stays")
	apply(t, admin, p)
	require.False(t, queue.Of[[]queue.Consumer](list(queue.ListConsumers))[0].Enabled)
	set.Args = map[string]string{"domain": "iu", "type": "nothing", "kind": "k", "executor": "DOT"}
	require.Contains(t, plan(t, admin, set).Refused, "event type iu/nothing is not registered")
	set.Args["executor"] = "MOT"
	_, err = admin.Plan(context.Background(), set)
	kind(t, queue.KindUsage, err)
	_, err = w.client("queue_viewer", "dead_letter_operator").Plan(context.Background(), set)
	kind(t, queue.KindPermission, err)
}
