package pgclient_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
)

// beat registers a live host with the webhook sender that reports these secrets; nil = its release
// reports none.
func (w *world) beat(host string, secrets *[]string) {
	w.t.Helper()
	const instance = "00000000-0000-4000-8000-00000000000"
	id := instance + map[string]string{"a": "1", "b": "2"}[host]
	progress, err := json.Marshal(map[string]queue.LoopMark{"webhook_worker": {State: "running", Secrets: secrets}})
	require.NoError(w.t, err)
	w.exec("SELECT public.fn_queue_host_register($1, $2, 'v1', '{webhook_worker}')", host, id)
	w.exec("SELECT public.fn_queue_host_beat($1, $2, '{webhook_worker}', 0, $3)", host, id, string(progress))
}

// A secret is rotated only after every live host has the new one. The rotation is refused if the
// subscription changed since the preview.
func TestWebhookRotateSecret(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified, secret_ref) VALUES ('order', 'https://a.test/?t=hush', true, 'old')")
	admin := w.client("subscription_admin", "queue_viewer")
	rotate := queue.Request{Action: queue.ActWebhookRotate, Targets: []string{"1"}, Args: map[string]string{"secret": "new"}, Reason: "yearly"}
	ref := func() string { return get[string](w, "SELECT secret_ref FROM public.subscriptions") }

	require.Contains(t, plan(t, admin, rotate).Refused, "no live host sends webhooks")
	w.beat("a", &[]string{"new", "old"})
	w.beat("b", nil)
	require.Contains(t, plan(t, admin, rotate).Refused, "host b (qtop v1) does not report its secrets")
	w.beat("b", &[]string{"old"})
	p := plan(t, admin, rotate)
	require.Contains(t, p.Refused, "host b cannot sign with new: give every host the secret")
	require.NotContains(t, p.Refused, "host a")
	w.beat("b", &[]string{"new", "old"})
	p = plan(t, admin, rotate)
	require.Empty(t, p.Refused)
	require.Equal(t, "old", ref(), "a preview changes nothing")
	w.exec("UPDATE public.subscriptions SET secret_ref = 'other'")
	require.Contains(t, apply(t, admin, p).Refused, "the secret of webhook subscription 1 is other now")
	require.Equal(t, "other", ref())

	p = plan(t, admin, rotate)
	w.beat("b", &[]string{"old"})
	require.Contains(t, apply(t, admin, p).Refused, "host b cannot sign with new", "the hosts are asked again")
	w.exec("UPDATE public.queue_host SET stopped_at = now() WHERE host_id = 'b'")
	res := apply(t, admin, plan(t, admin, rotate))
	require.EqualValues(t, 1, res.Done, res.Refused)
	require.Equal(t, "new", ref())
	require.Equal(t, "other new", get[string](w, `SELECT concat_ws(' ', before ->> 'secret_ref', after ->> 'secret_ref') FROM public.queue_operator_action
		WHERE action = 'webhook_secret_rotate' AND outcome = 'done' AND id = $1`, res.AuditID))
	require.Contains(t, plan(t, admin, rotate).Refused, "is signed with new already")
	rotate.Args = map[string]string{"secret": "whsec_aGVsbG8="}
	_, err := admin.Plan(context.Background(), rotate)
	require.ErrorContains(t, err, "not the secret")
	_, err = w.client("dead_letter_operator", "queue_viewer").Plan(context.Background(), queue.Request{Action: queue.ActWebhookRotate, Targets: []string{"1"}, Args: map[string]string{"secret": "new"}, Reason: "r"})
	require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
}

// A rate limit is set, raised and lifted. Each preview has the command that sets the old limit
// again, and a change since the preview is not overwritten.
func TestWebhookLimit(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ('order', 'https://a.test/?t=hush', true)")
	w.exec("INSERT INTO public.events (event_type, payload) SELECT 'order', '{}' FROM generate_series(1, 300)")
	require.Eventually(t, func() bool { // the transaction of another test delays the router for a moment
		w.exec("SELECT public.fn_webhook_router_run()")
		return get[int](w, "SELECT count(*)::int FROM public.webhook_delivery_sagas") == 300
	}, 30*time.Second, 10*time.Millisecond)
	admin := w.client("subscription_admin", "queue_viewer")
	limit := func(to string) queue.Request {
		return queue.Request{Action: queue.ActWebhookLimit, Targets: []string{"1"}, Args: map[string]string{"per-second": to}, Reason: "overloaded"}
	}
	now := func() string {
		return get[string](w, "SELECT COALESCE(rate_limit_per_second::numeric::text, 'none') FROM public.subscriptions")
	}
	said := func(p queue.Plan) map[string]string {
		lines := map[string]string{}
		for _, l := range p.Lines {
			lines[l.Label] = l.Value.String()
		}
		return lines
	}
	for _, bad := range []string{"", "NaN", "inf", "-1", "0", "0.000009", "1000001", "many"} {
		_, err := admin.Plan(t.Context(), limit(bad))
		require.Equal(t, queue.KindUsage, queue.KindOf(err), "%q: %v", bad, err)
	}
	require.Contains(t, plan(t, admin, limit("none")).Refused, "webhook subscription 1 has no limit already")

	p := plan(t, admin, limit("0.5"))
	require.Empty(t, p.Refused)
	require.NotContains(t, said(p)["subscription"], "hush")
	require.Equal(t, "no limit", said(p)["now"])
	require.Equal(t, "0.5/s over all hosts, also for waiting deliveries", said(p)["then"])
	require.Equal(t, "300 deliveries: at this rate at least 10m 00s", said(p)["waiting"])
	require.NotContains(t, said(p), "slow start")
	require.Equal(t, "qtop webhook limit 1 --per-second 0.5 --reason overloaded", p.Command)
	require.Equal(t, "qtop webhook limit 1 --per-second none --reason 'undo: overloaded'", p.Undo)
	require.Equal(t, "none", now(), "a preview changes nothing")
	res := apply(t, admin, p)
	require.EqualValues(t, 1, res.Done, res.Refused)
	require.Equal(t, "0.5", now())
	require.Equal(t, "ann overloaded 0.5", get[string](w, `SELECT concat_ws(' ', actor, reason, before ->> 'rate_limit_per_second', after ->> 'rate_limit_per_second')
		FROM public.queue_operator_action WHERE action = 'webhook_rate_limit_set' AND outcome = 'done' AND id = $1`, res.AuditID))

	p = plan(t, admin, limit("20"))
	require.Equal(t, "10/s at first, doubled every 10 s while it delivers", said(p)["slow start"])
	require.Contains(t, said(p), "blocked", "no host sends webhooks")
	w.exec("UPDATE public.subscriptions SET rate_limit_per_second = 3")
	require.Contains(t, apply(t, admin, p).Refused, "webhook subscription 1 has the limit 3/s now: look at it, then repeat")
	require.Equal(t, "3", now())
	require.EqualValues(t, 1, apply(t, admin, plan(t, admin, limit("1e-5"))).Done)
	require.Equal(t, "0.00001", now())
	p = plan(t, admin, limit("none"))
	require.Contains(t, p.Undo, "--per-second 0.00001 ")
	require.Equal(t, "no limit, also for waiting deliveries", said(p)["then"])
	require.EqualValues(t, 1, apply(t, admin, p).Done)
	require.Equal(t, "none", now())
	// An earlier release accepted smaller limits: the preview prints no command that is refused.
	w.exec("ALTER TABLE public.subscriptions DISABLE TRIGGER USER; UPDATE public.subscriptions SET rate_limit_per_second = 1e-6; ALTER TABLE public.subscriptions ENABLE TRIGGER USER")
	p = plan(t, admin, limit("5"))
	require.Equal(t, "0.000001/s over all hosts", said(p)["now"])
	require.Empty(t, p.Undo)
	require.Equal(t, "the old value is refused now, so it cannot be set again", p.Final)
	gone := limit("5")
	gone.Targets = []string{"99"}
	require.Contains(t, plan(t, admin, gone).Refused, "there is no webhook subscription 99")
	_, err := w.client("dead_letter_operator", "queue_viewer").Plan(t.Context(), limit("5"))
	require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
}

// A disabled webhook subscription gets no new sagas, and its waiting ones are not sent; enabling it
// lifts both.
func TestWebhookDisableEnable(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ('order', 'https://a.test/', true), ('order', 'https://b.test/', true)")
	admin := w.client("subscription_admin", "queue_viewer")
	off := queue.Request{Action: queue.ActWebhookOff, Targets: []string{"1", "01"}, Reason: "customer left"}
	on := queue.Request{Action: queue.ActWebhookOn, Targets: []string{"1"}, Reason: "customer is back"}
	sagas := func() int {
		return get[int](w, "SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE subscription_id = 1")
	}
	route := func() {
		w.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
		w.exec("SELECT public.fn_webhook_router_run()")
	}
	route()
	require.Equal(t, 1, sagas())
	require.EqualValues(t, 1, apply(t, admin, plan(t, admin, off)).Done, "named twice is one")
	route()
	require.Equal(t, 1, sagas(), "no delivery of an event that came while it was disabled")
	require.Equal(t, "inactive", get[string](w, "SELECT gate FROM public.v_webhook_endpoint WHERE subscription_id = 1"))
	require.Contains(t, plan(t, admin, off).Refused, "is disabled already")
	require.EqualValues(t, 1, apply(t, admin, plan(t, admin, on)).Done)
	route()
	require.Equal(t, 2, sagas())
	apply(t, admin, plan(t, admin, off))
	w.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ('order', 'https://a.test/', true)")
	require.Contains(t, plan(t, admin, on).Refused, "webhook subscription 3 sends order to the same URL already")
	off.Targets = []string{"2", "99"}
	p := plan(t, admin, off)
	require.EqualValues(t, 1, p.Count)
	require.EqualValues(t, 1, p.Skipped)
	require.Equal(t, 3, get[int](w, "SELECT count(*)::int FROM public.queue_operator_action WHERE action LIKE 'webhook_subscription_%able' AND outcome = 'done'"))
	_, err := w.client("workflow_admin", "queue_viewer").Plan(context.Background(), off)
	require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
}

// Only a 2xx answer makes a webhook subscription verified, and only if the subscription did not
// change since the preview.
func TestWebhookVerify(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified, secret_ref) VALUES ('order', 'https://a.test/?t=hush', false, 'acme')")
	admin := w.client("subscription_admin", "queue_viewer")
	verify := queue.Request{Action: queue.ActWebhookVerify, Targets: []string{"1"}, Reason: "new receiver"}
	verified := func() bool { return get[bool](w, "SELECT verified FROM public.subscriptions") }
	require.Contains(t, plan(t, admin, verify).Refused, "this process has no settings for sending")

	answer, asked := actions.ProbeAnswer{Answer: "HTTP_503 answered 503"}, 0
	admin.Probing(func(_ context.Context, url, secret string, id int64, ahead time.Duration) (actions.ProbeAnswer, error) {
		asked++
		require.InDelta(t, 0, ahead.Seconds(), 10, "both clocks are that of this machine")
		require.Equal(t, "https://a.test/?t=hush acme 1", url+" "+secret+" "+map[int64]string{1: "1"}[id])
		return answer, nil
	})
	p := plan(t, admin, verify)
	require.Zero(t, asked, "a preview sends nothing")
	for _, l := range p.Lines {
		require.NotContains(t, l.Value.String(), "hush")
	}
	require.Contains(t, apply(t, admin, p).Refused, "the receiver did not answer with a status of 200 to 299, so nothing was changed: HTTP_503 answered 503")
	require.False(t, verified())
	answer = actions.ProbeAnswer{Delivered: true, Answer: "HTTP_204"}
	p = plan(t, admin, verify)
	w.exec("UPDATE public.subscriptions SET max_attempts = 3")
	res := apply(t, admin, p)
	require.Contains(t, res.Refused, "changed since the preview")
	require.Regexp(t, "^webhook_subscription_verify .*: ann, new receiver, refused: changed$", auditRow(w, res.AuditID))
	require.Equal(t, 1, asked, "nothing is sent to what nobody has seen")
	res = apply(t, admin, plan(t, admin, verify))
	require.EqualValues(t, 1, res.Done)
	require.True(t, verified())
	require.Equal(t, "HTTP_204 true", get[string](w, "SELECT concat_ws(' ', after ->> 'answer', after ->> 'signed') FROM public.queue_operator_action WHERE id = $1", res.AuditID))
	require.Equal(t, 1, get[int](w, "SELECT count(*)::int FROM public.queue_operator_action WHERE outcome = 'refused: answer'"))
	_, err := w.client("queue_viewer").Plan(context.Background(), verify)
	require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
}

// The lists of event types and of producers show the values that the actions set.
func TestEventTypesAndProducers(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('zz', 'made', 'update', 'immediate')")
	w.exec("INSERT INTO public.executor_producer VALUES ('Codex', 'event_ingest_writer')")
	c := w.client("queue_viewer")
	p, err := c.List(context.Background(), queue.Query{Kind: queue.ListEventTypes})
	require.NoError(t, err)
	types := queue.Of[[]queue.EventType](p)
	last := types[len(types)-1]
	require.Equal(t, "zz/made update immediate", last.Domain.String()+"/"+last.EventType.String()+" "+last.Stream.String()+" "+last.Lane.String())
	require.True(t, last.Active)
	p, err = c.List(context.Background(), queue.Query{Kind: queue.ListProducers})
	require.NoError(t, err)
	roles := map[string]string{}
	for _, r := range queue.Of[[]queue.ProducerRole](p) {
		roles[r.Kind.String()] = r.Role.String()
	}
	require.Len(t, roles, len(queue.ExecutorKinds()))
	require.Equal(t, "event_ingest_writer", roles["Codex"])
	require.Empty(t, roles["DOT"])
}
