package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// Endpoints are listed with the reason why nothing is delivered to them. Suspend and resume do what
// their previews show, take effect once, and refuse endpoints that changed since the preview.
func TestEndpoints(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"order", "https://u:hush@hooks.acme.test/a?t=hush", "HTTP_503", time.Minute}, deadLetter{"invoice", "https://slow.test/b", "TIMEOUT", time.Minute})
	op := w.client("dead_letter_operator", "queue_viewer")
	list := func(q queue.Query) queue.Page {
		t.Helper()
		p, err := op.List(context.Background(), q)
		require.NoError(t, err)
		return p
	}
	all := queue.Of[queue.EndpointList](list(queue.Query{Kind: queue.ListEndpoints}))
	require.Len(t, all.Endpoints, 2)
	require.Empty(t, all.Leases)
	acme := queue.Of[queue.EndpointList](list(queue.Query{Kind: queue.ListEndpoints, Filter: "endpoint:*acme* dead>0"})).Endpoints[0]
	require.Equal(t, "https://•••@hooks.acme.test/a?•••", acme.URL.String())
	require.EqualValues(t, 1, acme.Recent)
	require.EqualValues(t, 0, acme.RecentOK)
	require.EqualValues(t, 1, acme.DeadLettered)
	require.Empty(t, queue.Of[queue.EndpointList](list(queue.Query{Kind: queue.ListEndpoints, Filter: "gate:suspended"})).Endpoints)

	suspend := queue.Request{Action: queue.ActSuspend, Targets: []string{"1", "1"}, Reason: "mending", Args: map[string]string{"for": "30m"}}
	p := plan(t, op, suspend)
	require.EqualValues(t, 1, p.Count, "named twice is one")
	require.EqualValues(t, 1, apply(t, op, p).Done)
	one := queue.Of[*queue.EndpointDetail](list(queue.Query{Kind: queue.ListEndpoint, ID: "1"}))
	require.Equal(t, "suspended", one.Gate)
	require.Equal(t, "operator", one.Reason.String())
	require.WithinDuration(t, time.Now().Add(30*time.Minute), *one.Until, time.Minute)
	require.Len(t, one.Attempts, 1)
	require.Len(t, one.Retries, 7)
	require.NotEmpty(t, one.Why.Links)
	require.Contains(t, plan(t, op, suspend).Refused, "suspended already: operator by")

	resume := plan(t, op, queue.Request{Action: queue.ActResume, Targets: []string{"1"}, Reason: "back"})
	w.exec("UPDATE public.webhook_endpoint_suspensions SET since = now() + interval '1 second', \"by\" = 'ben'")
	require.Contains(t, apply(t, op, resume).Refused, "was suspended again (operator) by ben")
	require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActResume, Targets: []string{"1"}, Reason: "back"})).Done)
	require.Contains(t, plan(t, op, queue.Request{Action: queue.ActResume, Targets: []string{"1"}, Reason: "back"}).Refused, "not suspended")

	// Somebody suspends one of two endpoints between the preview and the change.
	suspend.Targets = []string{"1", "2", "02"}
	p = plan(t, op, suspend)
	require.EqualValues(t, 2, p.Count, "named twice is one")
	suspend.Targets = []string{"2"}
	require.EqualValues(t, 1, apply(t, op, plan(t, op, suspend)).Done)
	res := apply(t, op, p)
	require.EqualValues(t, 1, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.Empty(t, res.Refused, "endpoint 1 was suspended")
	require.Equal(t, "refused", res.Results[1].Outcome)
	require.Contains(t, res.Results[1].Why.String(), "suspended")
	require.NotZero(t, res.AuditID)
	again := apply(t, op, p)
	require.NotEmpty(t, again.Refused, "now both are refused, so nothing was done")
	require.Zero(t, again.Done)
}

// Leases of jobs and of webhook jobs are released in one request. A login without the right to read
// endpoints may still list leases.
func TestWebhookLeases(t *testing.T) {
	w := newWorld(t)
	w.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ('order', 'https://a.test/', true)")
	w.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
	require.Eventually(t, func() bool {
		w.exec("SELECT public.fn_webhook_router_run(), public.fn_saga_orchestrator_run()")
		w.exec("SELECT public.fn_webhook_job_claim('w1', 1)")
		return get[int](w, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Leased'") == 1
	}, 30*time.Second, 10*time.Millisecond)
	op := w.client("dead_letter_operator")
	p, err := op.List(context.Background(), queue.Query{Kind: queue.ListLeases})
	require.NoError(t, err)
	leases := queue.Of[[]queue.WebhookLease](p)
	require.Len(t, leases, 1)
	require.Equal(t, "w1", leases[0].Worker.String())
	require.False(t, leases[0].Expired)
	got := plan(t, op, queue.Request{Action: queue.ActLeaseRelease, Targets: []string{"1", "0190a1b2-1111-4222-8333-0123456789ab"}, Reason: "r"})
	require.Contains(t, lines(got), "w1 may be sending")
	require.Contains(t, lines(got), "no such lease")
	_, err = op.Plan(context.Background(), queue.Request{Action: queue.ActLeaseRelease, Targets: []string{"nonsense"}, Reason: "r"})
	require.ErrorContains(t, err, "not the id of a lease")
}

// workflow_admin may reveal payloads, so the role may also request the reveal of a webhook's
// dead letter.
func TestAdminRevealsADeadLetter(t *testing.T) {
	w := newWorld(t)
	id := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})[0]
	admin := w.client("workflow_admin", "queue_viewer")
	res := apply(t, admin, plan(t, admin, queue.Request{Action: queue.ActReveal, Targets: []string{id}, Reason: "what was sent"}))
	require.Contains(t, res.Payload.String(), "hidden")
}

// A refused connection does not count for the latency of a receiver, and a queue without backlog
// has no age.
func TestLatencyIsOfAnswers(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"a", "https://answers.test/", "HTTP_503", time.Minute}, deadLetter{"b", "https://refuses.test/", "CONNECTION_REFUSED", time.Minute},
		deadLetter{"c", "https://hangs.test/", "TIMEOUT", time.Minute})
	w.exec(`DO $$ BEGIN PERFORM set_config('session_replication_role', 'replica', true); UPDATE public.webhook_delivery_jobs SET took_ms = 7; END $$`)
	p, err := w.client("queue_viewer").List(t.Context(), queue.Query{Kind: queue.ListEndpoints})
	require.NoError(t, err)
	measured := map[string]bool{}
	for _, e := range queue.Of[queue.EndpointList](p).Endpoints {
		measured[e.Endpoint.String()] = e.P50MS != nil && *e.P50MS == 7 && e.P95MS != nil
		require.Equal(t, e.OldestAt == nil, e.AgeSeconds == nil)
		require.Nil(t, e.AgeSeconds)
		require.EqualValues(t, 1, e.Recent)
	}
	require.Equal(t, map[string]bool{"answers.test": true, "refuses.test": false, "hangs.test": true}, measured)
}

// A filter finds the words that the screen shows, not the values that the tables store.
func TestListsFindWhatIsShown(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"a", "https://a.test/", "HTTP_503", time.Minute}, deadLetter{"b", "https://b.test/", "HTTP_503", time.Minute})
	op := w.client("dead_letter_operator", "workflow_admin", "queue_viewer")
	apply(t, op, plan(t, op, queue.Request{Action: queue.ActSuspend, Targets: []string{"1"}, Reason: "r", Args: map[string]string{"for": "30m"}}))
	apply(t, op, plan(t, op, queue.Request{Action: queue.ActFlagSet, Targets: []string{"queue.backlog.warn_seconds"}, Reason: "r", Args: map[string]string{"value": "700"}}))
	rows := func(kind queue.ListKind, filter string) int {
		t.Helper()
		p, err := op.List(t.Context(), queue.Query{Kind: kind, Filter: filter, Limit: 100})
		require.NoError(t, err, filter)
		if kind == queue.ListEndpoints {
			return len(queue.Of[queue.EndpointList](p).Endpoints)
		}
		return len(queue.Of[[]queue.AuditEntry](p))
	}
	require.Equal(t, 1, rows(queue.ListEndpoints, "gate:sending"))
	require.Equal(t, 1, rows(queue.ListEndpoints, "sending"))
	require.Equal(t, 1, rows(queue.ListEndpoints, "gate:open"), "the stored value too")
	require.Equal(t, 1, rows(queue.ListEndpoints, "gate:operator"))
	require.Equal(t, 1, rows(queue.ListEndpoints, "!sending"))
	p, err := op.List(t.Context(), queue.Query{Kind: queue.ListAudit, Limit: 100})
	require.NoError(t, err)
	all := queue.Of[[]queue.AuditEntry](p)
	require.GreaterOrEqual(t, len(all), 2)
	for _, a := range all {
		for _, field := range []struct{ name, stored, shown string }{
			{"action", a.Action.String(), queue.AuditWords(a.Action.String())}, {"target", a.Target.String(), queue.AuditTarget(a.Target.String())},
		} {
			n := rows(queue.ListAudit, field.name+`="`+field.stored+`"`)
			require.Positive(t, n, field)
			require.Equal(t, n, rows(queue.ListAudit, field.name+`="`+field.shown+`"`), field)
			require.GreaterOrEqual(t, rows(queue.ListAudit, `"`+field.shown+`"`), n, field)
		}
	}
	require.Positive(t, rows(queue.ListAudit, `"flag set"`))
}
