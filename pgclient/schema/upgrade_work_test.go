package schema_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// Open work continues after the upgrade: a worker reports with a lease of the release before,
// waiting work is tried again, dead letters are requeued and replayed, and each delivery keeps its
// id.
func TestUpgradeKeepsOpenWork(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	c := &core{t: t, db: db, root: db.Pool(t, "")}
	j, h := &jobs{core: c, work: c.root}, &hooks{t: t, db: db, root: c.root, work: c.root}
	c.exec(`SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue;
		UPDATE public.subscriptions SET active = false;
		INSERT INTO public.dot_config (key, value, updated_by) VALUES ('queue.retry.backoff_base_seconds', '3600', 'test'), ('webhook.backoff_base_seconds', '3600', 'test'), ('webhook.circuit_failures', '0', 'test')
		ON CONFLICT (key) DO UPDATE SET value = excluded.value`)

	// One job of each kind; the kind names the state that its job gets.
	claim := func(kind string) held {
		t.Helper()
		hs, err := tryTake(c.root, "indexer", []string{kind}, 1, nil)
		require.NoError(t, err)
		require.Len(t, hs, 1, kind)
		return hs[0]
	}
	for _, kind := range []string{"queued", "leased", "running", "lost", "waiting", "dead"} {
		c.exec("SELECT public.fn_job_enqueue($1, 'kg', 'Agent', p_max_attempts => CASE $1 WHEN 'dead' THEN 1 ELSE 5 END, p_idempotency_key => 'key')", kind)
	}
	c.exec("SELECT public.fn_job_enqueue('later', 'kg', 'Agent', p_process_after => now() + interval '1 hour')")
	leased, running, lost := claim("leased"), claim("running"), claim("lost")
	require.Equal(t, "done", j.outcome("start", running))
	for _, kind := range []string{"waiting", "dead"} {
		require.Equal(t, "done", j.outcome("TIMEOUT", claim(kind)))
	}

	// Deliveries of one event each; the payload names the state.
	h.subscribe("open")
	c.exec("UPDATE public.subscriptions SET max_attempts = 3 WHERE event_type = 'open'")
	c.exec("INSERT INTO public.events (event_type, payload) SELECT 'open', jsonb_build_object('is', s) FROM unnest('{reported,lost,waiting,dead,pending}'::text[]) s")
	const open = "public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id WHERE e.event_type = 'open'"
	eventually(t, "all are routed", func() bool {
		c.exec("SELECT public.fn_webhook_router_run(100), public.fn_saga_orchestrator_run(100)")
		return get[int](c, "SELECT count(*)::int FROM public.webhook_delivery_jobs j JOIN public.webhook_delivery_sagas x ON x.id = j.saga_id JOIN public.events e ON e.id = x.event_id WHERE e.event_type = 'open'") == 5
	})
	is := func(l lease) string { return strings.TrimSuffix(strings.TrimPrefix(l.Payload, `{"is": "`), `"}`) }
	taken := map[string]lease{}
	seen := map[string]string{} // payload name → webhook-id
	take := func(n int) {
		t.Helper()
		for _, l := range h.claim(n) {
			taken[is(l)] = l
			if id, there := seen[is(l)]; there {
				require.Equal(t, id, l.WebhookID, is(l))
			}
			seen[is(l)] = l.WebhookID
		}
	}
	take(4) // the oldest four; the delivery named pending is left
	require.Len(t, taken, 4)
	c.exec("UPDATE public.subscriptions SET max_attempts = 1 WHERE event_type = 'open'")
	h.finish("HTTP_503", taken["dead"])
	c.exec("SELECT public.fn_saga_orchestrator_run(100)")
	c.exec("UPDATE public.subscriptions SET max_attempts = 3 WHERE event_type = 'open'")
	h.finish("HTTP_503", taken["waiting"])
	c.exec("SELECT public.fn_saga_orchestrator_run(100)")
	states := "SELECT string_agg(concat_ws(' ', e.payload ->> 'is', s.status, s.attempt_count), ', ' ORDER BY s.id) FROM " + open
	before := get[string](c, states)
	require.Equal(t, "reported InProgress 0, lost InProgress 0, waiting PendingRetry 1, dead DeadLettered 1, pending InProgress 0", before)
	queue := "SELECT string_agg(concat_ws(' ', job_kind, status, attempts, job_id), ', ' ORDER BY job_kind, job_id) FROM public.v_job WHERE event_domain = 'kg' AND job_kind !~ '[.]'"
	jobsBefore := get[string](c, queue)

	up(t, db, schema.Current())
	c.root.Reset()
	require.Equal(t, before, get[string](c, states))
	require.Equal(t, jobsBefore, get[string](c, queue))

	// Hosts that were not restarted report results.
	require.Equal(t, "done", j.outcome("ack", leased))
	require.Equal(t, "done", j.outcome("renew", running))
	require.Equal(t, "done", j.outcome("ack", running))
	h.finish("", taken["reported"])
	require.Equal(t, []string{"repeated"}, h.report(result(taken["reported"], "")))
	j.expire(lost)
	j.reap()
	require.Equal(t, "lease_lost", j.outcome("ack", lost))
	require.NoError(t, h.asOwner("UPDATE public.webhook_delivery_jobs SET lease_until = now() - interval '1 second' WHERE id = $1", taken["lost"].Job))
	c.exec("SELECT public.fn_lease_reset_cleaner_run()")
	require.Equal(t, []string{"lease_lost"}, h.report(result(taken["lost"], "")))

	// All work can be finished.
	c.exec("UPDATE public.job_queue SET process_after = now() WHERE NOT ready")
	c.exec("SELECT public.fn_job_tick()")
	require.EqualValues(t, 1, call(t, c.root, replay, get[[]string](c, "SELECT array_agg(dead_letter_id::text) FROM public.job_dead_letter WHERE job_kind = 'dead'"), "ann")["replayed"])
	for _, kind := range []string{"queued", "lost", "waiting", "dead", "later"} {
		require.Equal(t, "done", j.outcome("ack", claim(kind)), kind)
	}
	require.Equal(t, "dead succeeded, later succeeded, leased succeeded, lost succeeded, queued succeeded, running succeeded, waiting succeeded",
		get[string](c, "SELECT string_agg(concat_ws(' ', job_kind, status), ', ' ORDER BY job_kind) FROM public.v_job WHERE event_domain = 'kg' AND job_kind !~ '[.]' AND status <> 'dead_letter'"))
	require.Equal(t, "leased lost queued running waiting", get[string](c, "SELECT string_agg(kind, ' ' ORDER BY kind) FROM public.producer_key WHERE key = 'key' AND status = 'succeeded'"),
		"that of a dead job was free in the release before")

	h.requeue(get[int64](c, "SELECT id FROM public.dead_letters d WHERE d.payload_snapshot ->> 'is' = 'dead'"))
	h.makeDue()
	eventually(t, "all are delivered", func() bool {
		h.step()
		taken = map[string]lease{}
		take(10)
		for _, l := range taken {
			h.finish("", l)
		}
		c.exec("SELECT public.fn_saga_orchestrator_run(100)")
		return get[int](c, "SELECT count(*)::int FROM "+open+" AND s.status = 'Completed'") == 5
	})
	require.Len(t, seen, 5)
	for what, id := range seen {
		require.Regexp(t, `^qtop_\d+_\d+$`, id, what)
	}
	h.counted()
	j.balanced()
}
