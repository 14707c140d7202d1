package pgclient_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// subscriptionsOf lists the event subscriptions that match the filter, with the broadcast share.
func subscriptionsOf(t *testing.T, c *console, filter string) queue.EventSubscriptionList {
	t.Helper()
	p, err := c.List(context.Background(), queue.Query{Kind: queue.ListEventSubscriptions, Filter: filter})
	require.NoError(t, err)
	return queue.Of[queue.EventSubscriptionList](p)
}

// The broadcast share and its event types are those of the views. A mute changes the share as its
// preview says, and is refused if the event subscription changed since the preview.
func TestEventSubscriptionsAndTheirShare(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.event_type_registry VALUES ('kg', 'made', 's', 'immediate'), ('lost', 'made', 's', 'immediate')")
	w.exec("SELECT public.fn_iu_emit_event('kg', 'made', 's', 'immediate', 'info', NULL, NULL) FROM generate_series(1, 9)")
	w.exec("SELECT public.fn_iu_emit_event('lost', 'made', 's', 'immediate', 'info', NULL, NULL)")
	w.exec("SELECT public.fn_metrics_sampler_run()")
	c := w.client("workflow_admin", "queue_viewer")
	p := subscriptionsOf(t, c, "")
	require.Len(t, p.Subscriptions, 9)
	require.Equal(t, []queue.BroadcastShare{
		{Events: 10 + 1, Broadcast: 1, Percent: 100.0 / 11, Over: true}, // one of these is the event that reports the excess
		{Domain: queue.Clean("lost"), Events: 1, Broadcast: 1, Percent: 100, Over: true},
		{Domain: queue.Clean("kg"), Events: 9}, {Domain: queue.Clean("system"), Events: 1},
	}, p.Broadcast.Shares)
	require.Equal(t, []queue.UnroutedType{{Domain: queue.Clean("lost"), Type: queue.Clean("made"), Stream: queue.Clean("s"), Events: 1, Broadcast: 1}}, p.Broadcast.Unrouted)
	require.EqualValues(t, 5, p.Broadcast.Line)
	require.True(t, p.Broadcast.On)
	require.Len(t, p.Broadcast.Trend, 24)
	require.Len(t, subscriptionsOf(t, c, "recipient:role:* domain:staging").Subscriptions, 2)
	_, err := c.List(context.Background(), queue.Query{Kind: queue.ListEventSubscriptions, Filter: "nonsense:1"})
	kind(t, queue.KindUsage, err)

	id := get[string](w, "SELECT subscription_id::text FROM public.event_subscription WHERE recipient_ref = 'role:kg_indexer'")
	mute := queue.Request{Action: queue.ActEventSubscriptionMute, Targets: []string{id}, Reason: "too loud"}
	first, second := plan(t, c, mute), plan(t, c, mute)
	require.Contains(t, lines(first), "9.09 % (1 of 11 in 24 h)")
	require.Contains(t, lines(first), "90.91 % (10 of 11 in 24 h)")
	require.Equal(t, "qtop subscription mute "+id+" --reason 'too loud'", first.Command)
	require.EqualValues(t, 1, apply(t, c, first).Done)
	require.EqualValues(t, 10, subscriptionsOf(t, c, "").Broadcast.Shares[0].Broadcast, "as previewed")
	require.Contains(t, apply(t, c, second).Refused, "already muted, last changed by ann", "two operators, one mute")
	require.Contains(t, plan(t, c, mute).Refused, "muted already")
	require.Contains(t, plan(t, c, queue.Request{Action: queue.ActEventSubscriptionMute, Targets: []string{"99"}, Reason: "r"}).Refused, "no event subscription 99")
	_, err = c.Plan(context.Background(), queue.Request{Action: queue.ActEventSubscriptionMute, Targets: []string{"x"}, Reason: "r"})
	kind(t, queue.KindUsage, err)
	require.EqualValues(t, 1, apply(t, c, plan(t, c, queue.Request{Action: queue.ActEventSubscriptionUnmute, Targets: []string{id}, Reason: "back"})).Done)

	add := queue.Request{Action: queue.ActEventSubscriptionAdd, Reason: "they are read now", Args: map[string]string{"recipient": "role:finder", "domain": "lost", "payload": `{"n": 1}`}}
	got := plan(t, c, add)
	require.Contains(t, lines(got), "up to 1 event of 1 type")
	require.Equal(t, `qtop subscription add role:finder --domain lost --payload '{"n": 1}' --reason 'they are read now'`, got.Command)
	res := apply(t, c, got)
	require.Equal(t, get[string](w, "SELECT subscription_id::text FROM public.event_subscription WHERE recipient_ref = 'role:finder'"), res.Results[0].NewID)
	require.NotZero(t, res.AuditID)
	require.Contains(t, apply(t, c, got).Refused, "the same event subscription exists already")
	require.Contains(t, plan(t, c, add).Refused, "the same event subscription exists already")
	for _, bad := range []map[string]string{{"recipient": "finder"}, {"recipient": "role:x", "payload": "[1]"}, {"recipient": "role:x", "payload": "{"}, {"recipient": "role:x", "domain": "No"}} {
		_, err = c.Plan(context.Background(), queue.Request{Action: queue.ActEventSubscriptionAdd, Reason: "r", Args: bad})
		kind(t, queue.KindUsage, err)
	}

	viewer := w.client("queue_viewer")
	require.Len(t, subscriptionsOf(t, viewer, "").Subscriptions, 10, "who may look sees them")
	_, err = viewer.Plan(context.Background(), mute)
	kind(t, queue.KindPermission, err)
	_, err = viewer.Apply(context.Background(), plan(t, c, mute))
	kind(t, queue.KindPermission, err)
	_, err = w.client("event_ingest_writer").List(context.Background(), queue.Query{Kind: queue.ListEventSubscriptions})
	kind(t, queue.KindPermission, err)
}

func TestResolution(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.event_type_registry VALUES ('kg', 'made', 's', 'immediate'), ('kg', 'a/b', 's', 'immediate')")
	w.exec("INSERT INTO public.event_subscription (recipient_ref, event_domain, scope_subject_table, scope_filter, mute) VALUES ('user:t', 'kg', 'units', '{}', false), ('user:f', 'kg', NULL, '{\"x\": 1}', false), ('user:m', NULL, NULL, '{}', true)")
	w.exec("SELECT public.fn_iu_emit_event('kg', 'made', 's', 'immediate', 'info', NULL, NULL)")
	c := w.client("queue_viewer")
	ask := func(id string, scope queue.Scope) (steps string, r queue.Resolution) {
		t.Helper()
		p, err := c.List(context.Background(), queue.Query{Kind: queue.ListResolution, ID: id, Scope: scope})
		require.NoError(t, err)
		for _, x := range queue.Of[*queue.Resolution](p).Subscriptions {
			steps += x.Recipient.String() + " " + x.Outcome + " "
		}
		return steps, *queue.Of[*queue.Resolution](p)
	}
	steps, r := ask("kg/made", queue.Scope{})
	require.Equal(t, "role:kg_indexer taken user:f filter user:m muted user:t subject_table ", steps)
	require.Equal(t, []queue.Text{queue.Clean("role:kg_indexer")}, r.Recipients)
	require.Equal(t, "s", r.Stream.String(), "that of the registry")
	require.EqualValues(t, 1, r.Events)
	steps, _ = ask("kg/made/alert", queue.Scope{SubjectTable: "units", Payload: `{"x": 1, "y": 2}`})
	require.Equal(t, "agency:sysop taken role:kg_indexer taken user:f taken user:m muted user:t taken ", steps)
	_, r = ask("kg/a/b", queue.Scope{})
	require.Equal(t, "a/b s", r.Type.String()+" "+r.Stream.String(), "the registry knows the type")
	_, r = ask("kg/a/c", queue.Scope{})
	require.Equal(t, "a c", r.Type.String()+" "+r.Stream.String())
	require.False(t, r.Registered)
	_, r = ask("nobody/x", queue.Scope{})
	require.Equal(t, []queue.Text{queue.Clean("broadcast")}, r.Recipients)
	for _, bad := range []string{"", "kg", "kg/", "/made"} {
		_, err := c.List(context.Background(), queue.Query{Kind: queue.ListResolution, ID: bad})
		kind(t, queue.KindUsage, err)
	}
	_, err := c.List(context.Background(), queue.Query{Kind: queue.ListResolution, ID: "kg/made", Scope: queue.Scope{Payload: "{"}})
	kind(t, queue.KindUsage, err)
}
