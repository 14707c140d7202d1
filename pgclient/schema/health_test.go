// The view v_queue_health and the section health of the snapshot have the same rows and columns.

package schema_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// health requires that the snapshot and the view, as each role that may read it, have the same rows
// in one transaction. It returns source, subject, domain and status of each row.
func (c *core) health() (rows []string) {
	c.t.Helper()
	ctx := context.Background()
	require.NoError(c.t, pgx.BeginTxFunc(ctx, c.root, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		list := func(sql string) []string {
			c.t.Helper()
			got, err := tx.Query(ctx, sql)
			require.NoError(c.t, err, sql)
			return texts(c.t, got)
		}
		shown := list("SELECT h::text FROM jsonb_array_elements(public.fn_queue_snapshot_parts()::jsonb -> 'health') h ORDER BY 1")
		for _, role := range []string{"NONE", "queue_viewer", "dot_executor", "workflow_admin", "dead_letter_operator"} {
			_, err := tx.Exec(ctx, "SET LOCAL ROLE "+role)
			require.NoError(c.t, err)
			require.Equal(c.t, shown, list("SELECT to_jsonb(h)::text FROM public.v_queue_health h ORDER BY 1"), "as %s", role)
		}
		rows = list("SELECT concat_ws(' ', source, subject, domain, status_hint) FROM public.v_queue_health ORDER BY 1")
		return nil
	}))
	return rows
}

func TestHealthIsTheSameInViewAndSnapshot(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	j := &jobs{core: c, work: c.as("event_ingest_writer", "dot_executor", "dead_letter_operator", "workflow_admin")}
	for _, row := range c.health() {
		require.Regexp(t, "^(heartbeat|cursor) ", row, "nothing else is told of an empty database")
	}

	// Dead letters: two subscriptions and two event types with one code, two codes of one job kind.
	h.die("order", 3)
	h.die("bill", 2)
	odd := h.subscribe("odd")
	h.exec("UPDATE public.subscriptions SET max_attempts = 1 WHERE id = $1", odd)
	h.emit("odd", 1)
	h.step()
	h.finish("TIMEOUT", h.claim(1)...)
	h.call("public.fn_saga_orchestrator_run()")
	for _, l := range [][3]string{{"dead", "iu", "TIMEOUT"}, {"dead", "iu", "HTTP_500"}, {"dead", "kg", "TIMEOUT"}} {
		j.deadLetter(l[0], l[1], l[2])
	}
	h.exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name, last_failed_at)
		SELECT gen_random_uuid(), jsonb_build_object('event_type', type), n, code, 'it broke', domain, 'iu_outbound_default', now() - make_interval(mins => n)
		FROM (VALUES (1, 'made', 'ROUTE_A', 'iu'), (2, 'gone', 'ROUTE_A', 'iu'), (3, 'made', 'ROUTE_A', 'kg'), (4, 'made', 'ROUTE_B', 'iu')) v (n, type, code, domain)`)

	// Webhooks that wait: two subscriptions with one endpoint, one with another endpoint, and one
	// whose deliveries are all due later.
	h.subscribe("late")
	h.subscribe("late")
	h.exec(`INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ('late', 'http://other.example/hook', true), ('late', 'http://later.example/', true)`)
	h.emit("late", 4)
	h.route()
	c.asReplica(`UPDATE public.webhook_delivery_sagas s SET next_attempt_at = now() + interval '1 hour' FROM public.subscriptions x
		WHERE x.id = s.subscription_id AND x.endpoint = 'later.example' AND s.status = 'Pending'`)

	// Queue lanes with jobs that are due, leased and due later, and one whose jobs have all ended.
	j.put("k", "iu", 5)
	j.put("k", "kg", 2)
	j.put("ended", "iu", 1)
	j.jobSubscription("w", "k", "iu", 0, 2)
	require.Len(t, j.take("w", 2), 2)
	j.jobSubscription("ender", "ended", "", 0, 1)
	require.Equal(t, "done", j.outcome("ack", j.one("ender")))
	j.exec("SELECT public.fn_job_enqueue('later', 'iu', 'external_worker', p_process_after => now() + '1 hour')")
	j.exec("UPDATE public.job_subscription SET enabled = false WHERE executor_id = 'ender'")
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '9 minutes' WHERE job_kind = 'k' AND event_domain = 'kg'")

	// Executors, cursors, broadcast shares, notifications, and rows in a default partition.
	for _, id := range []string{"silent", "stopped", "gone"} {
		c.executor(id, 60, 300, 4000)
	}
	h.exec(`UPDATE public.queue_heartbeat SET last_beat_payload = '{"state": "stopped"}' WHERE executor_id = 'stopped'`)
	h.exec(`UPDATE public.queue_heartbeat SET deregistered_at = now(), deregistered_by = 'x' WHERE executor_id = 'gone'`)
	h.exec("UPDATE public.queue_tick_worker SET last_run_at = now() WHERE worker_name IN ('metrics_sampler', 'webhook_router')")
	h.exec("INSERT INTO public.iu_outbound_route (event_domain, worker_name, enabled, updated_by) VALUES ('iu', 'iu_outbound_default', false, 'x'), ('kg', 'iu_outbound_default', true, 'x')")
	h.exec(`INSERT INTO public.iu_route_worker_cursor (worker_name, event_domain, last_run_at, events_seen, attempts_written, dead_lettered, restored_at)
		SELECT 'iu_outbound_default', domain, now() - ago, 7, 6, 5, now() - interval '1 day'
		FROM (VALUES ('system', interval '1 second'), ('iu', interval '1 minute'), ('kg', interval '1 day')) v (domain, ago)`)
	h.exec(`INSERT INTO public.queue_broadcast_share (event_domain, events_24h, broadcast_24h, percent, warn_percent, sampled_at, over_since)
		VALUES ('', 100, 5, 5, 5, now() - interval '3 minutes', NULL), ('kg', 50, 0, 0, 5, now(), NULL), ('lost', 5, 5, 100, 5, now(), now() - interval '1 hour')`)
	h.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, actor_ref, ref_id, created_at, failed_at, failure)
		SELECT gen_random_uuid(), 'a', 'user:ann', gen_random_uuid(), now() - make_interval(mins => 4 * n), CASE n WHEN 3 THEN now() END, CASE n WHEN 3 THEN 'x' END
		FROM generate_series(1, 3) n`)
	h.exec("INSERT INTO public.queue_metric_sample (at, metric, value) VALUES ('2020-05-05', 'hosts_alive', 1)")
	h.exec(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
		VALUES (gen_random_uuid(), 'future', 'iu', 'DOT', 'succeeded', 'leased', now() + interval '40 days')`)
	const event = "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, created_at) VALUES "
	c.asReplica(event + "('lost', 'made', 's', 'immediate', '2020-05-05')")

	// An open transaction delays its own events, both webhook events and rows of event_outbox.
	c.exec(`DO $$ BEGIN EXECUTE replace(pg_get_functiondef('public.fn_routing_held()'::regprocedure), '1 minute', '0'); END $$`)
	open := c.begin(c.root)
	_, err := open.Exec(context.Background(), "SET LOCAL session_replication_role = replica; "+event+"('system', 'made', 's', 'immediate', now()); INSERT INTO public.events (event_type, payload) VALUES ('x', '{}')")
	require.NoError(t, err)

	rows := c.health()
	require.NotContains(t, rows, "backlog_job_queue ended iu")
	require.Subset(t, rows, []string{
		"cursor webhook_router webhook fresh", "cursor iu_outbound_default system fresh", "cursor iu_outbound_default iu stopped",
		"cursor iu_outbound_default kg stale", "cursor_held webhook_router webhook held", "cursor_held iu_outbound_default held",
		"heartbeat w fresh", "heartbeat silent stale", "heartbeat stopped stopped", "heartbeat gone deregistered",
		"executor_subscription w enabled", "executor_subscription ender disabled",
		"backlog_job_queue k iu", "backlog_job_queue k kg", "backlog_job_queue later iu",
		"backlog_webhook 127.0.0.1:1 webhook", "backlog_webhook other.example webhook", "backlog_webhook later.example webhook",
		"dead_letter_webhook HTTP_500 webhook open", "dead_letter_webhook TIMEOUT webhook open",
		"dead_letter_job dead iu open", "dead_letter_job dead kg open",
		"dead_letter_event ROUTE_A iu open", "dead_letter_event ROUTE_A kg open", "dead_letter_event ROUTE_B iu open",
		"notification_pending iu_notification_worker iu stale", "subscription_broadcast broadcast fresh", "subscription_broadcast broadcast:lost lost over",
		"default_partition event_outbox_default stale", "default_partition job_history_default stale", "default_partition queue_metric_sample_default stale",
	})
}
