package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// furnished is a database in which every list has a row, with the ids of these
// rows.
type furnished struct {
	db                                                  *pgtest.DB
	conn                                                *pgx.Conn // of a superuser
	open, closed, requeued                              string    // dead letters of webhooks
	jobDeadLetter, event                                string    // a job's dead letter; a webhook's event
	job, webhookJob, lease, jobSubscription, quarantine string
	session                                             string // a session of another program, which holds a transaction open
}

// furnish fills a database: dead letters, live and leased jobs, a host, silent executors, staged notifications, rows in
// quarantine, subscriptions of all three kinds, an endpoint that is suspended, an operation, flags that were changed, a mark.
func furnish(t *testing.T) furnished {
	t.Helper()
	f := furnished{db: pgtest.New(t)}
	f.conn = f.db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), f.conn, 5, "HTTP_503"))
	require.NoError(t, deadJobs(t.Context(), f.conn, 3, "mail.render", "mail"))
	get := func(sql string) (text string) {
		require.NoError(t, f.conn.QueryRow(t.Context(), sql).Scan(&text), sql)
		return text
	}
	f.open, f.closed, f.requeued = get("SELECT dead_letter_id::text FROM public.dead_letter_open ORDER BY 1 DESC LIMIT 1"),
		get("SELECT min(dead_letter_id)::text FROM public.dead_letter_open"), get("SELECT (min(dead_letter_id) + 1)::text FROM public.dead_letter_open")
	f.event = get("SELECT 'event:' || event_id FROM public.dead_letters WHERE id = " + f.requeued + " + 1")
	f.jobDeadLetter = get("SELECT 'job:' || dead_letter_id FROM public.job_dead_letter LIMIT 1")
	for _, args := range [][]string{
		{"resolve", f.closed, "--reason", "r", "--yes"},
		{"requeue", f.requeued, "--reason", "r", "--yes"},
		{"mark", "deploy", "--yes"},
		{"flag", "set", "queue.backlog.warn_seconds", "700", "--for", "30m", "--reason", "r", "--yes"},
		{"event-type", "set", "kg/node.changed", "--stream", "update", "--lane", "immediate", "--description", "d", "--reason", "r", "--yes"},
		{"consumer", "set", "reindex", "--domain", "kg", "--type", "node.changed", "--kind", "kg.reindex", "--executor", "Agent", "--reason", "r", "--yes"},
		{"subscription", "mute", "8", "--reason", "r", "--yes"}, // event subscription 8 is for domain kg; while it is muted, its events reach only broadcast
		{"executor", "producer", "Agent", "--role", "event_ingest_writer", "--reason", "r", "--yes"},
		{"ops", "plan", "--filter", "code:HTTP_503", "--reason", "r", "--yes"},
	} {
		code, _, errs := jsonRun(t, append(args, "--dsn", f.db.DSN(""))...)
		require.Zero(t, code, "%v: %s", args, errs)
	}
	for _, sql := range []string{
		`INSERT INTO public.queue_host (host_id, instance, version, loops, progress)
			VALUES ('host-1', gen_random_uuid(), 'v0.2.0', ARRAY['job_executor'], '{"job_executor": {"done": 1}}')`,
		`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds,
			registered_by) VALUES ('mailer', 'Agent', '{mail}', now() - interval '95 hours', 30, 300, 'anna')`,
		`INSERT INTO public.queue_quarantine (step, target, attempts, code, error, next_try_at, set_aside_at)
			VALUES ('counter_fold', '["x"]', 3, '22012', 'division by zero', now(), now())`,
		`SELECT public.fn_iu_emit_event('kg', 'node.changed', 'update', 'immediate', 'info', 'node', 'u', '{"n": 1}')`,
		`SELECT public.fn_job_enqueue('kg.reindex', 'kg', 'Agent', '{"n": 1}'::jsonb) FROM generate_series(1, 3)`,
		`SELECT public.fn_iu_save('manual/' || i, 'text', 'importer', 'manual') FROM generate_series(1, 3) i`,
		`UPDATE public.iu_notification_pending SET created_at = now() - interval '2 minutes'`,
		`ALTER TABLE public.iu_notification_pending ALTER actor_ref DROP NOT NULL`,
		`UPDATE public.iu_notification_pending SET actor_ref = NULL WHERE canonical_address = 'manual/2'`,
		`SELECT public.fn_iu_notification_worker_tick()`,
		`SELECT public.fn_iu_save('later', 'text', 'anna', NULL, 'night-run')`,
		`SELECT public.fn_queue_tick_run('iu_outbound_default', 'operator'), public.fn_queue_tick_run('stale_heartbeat_check', 'operator')`,
		`SELECT public.fn_queue_tick_run('metrics_sampler', 'operator')`,
		`INSERT INTO public.events (event_type, payload) VALUES ('t.HTTP_503', '{"n": 9}')`,
		`SELECT public.fn_webhook_router_run(100), public.fn_saga_orchestrator_run(100)`,
	} {
		_, err := f.conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	_ = get("SELECT max(job_id::text) FROM public.fn_job_claim('undertaker', ARRAY['kg.reindex'], 1)")
	f.job = get("SELECT job_id::text FROM public.job_queue WHERE status = 'queued' LIMIT 1")
	f.jobSubscription = get("SELECT subscription_id::text FROM public.job_subscription LIMIT 1")
	f.quarantine = get("SELECT quarantine_id::text FROM public.queue_quarantine")
	f.webhookJob = get("SELECT max(job_id)::text FROM public.fn_webhook_job_claim('host-1', 1)")
	for _, sql := range []string{
		`UPDATE public.job_lease SET lease_until = now() - interval '1 minute'`,
		`UPDATE public.job_queue SET lease_until = now() - interval '1 minute' WHERE lease_until IS NOT NULL`,
	} {
		_, err := f.conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	_, err := f.conn.Exec(t.Context(), `WITH gone AS (INSERT INTO public.subscriptions (event_type, callback_url, active, verified)
			VALUES ('gone', 'https://gone.example/hook', true, true) RETURNING id)
		INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, by) SELECT id, '410', 'webhook_worker' FROM gone`)
	require.NoError(t, err)
	code, out, _ := jsonRun(t, "lease", "list", "--dsn", f.db.DSN(""))
	require.Zero(t, code)
	var leases []queue.JobLease
	require.NoError(t, json.Unmarshal([]byte(out), &leases), out)
	// The other lease is that of a webhook job.
	i := slices.IndexFunc(leases, func(l queue.JobLease) bool { return l.ID != "" })
	require.GreaterOrEqual(t, i, 0, out)
	f.lease = leases[i].ID
	code, _, out = jsonRun(t, "flag", "set", "iu_core.route_worker_enabled", "false", "--reason", "r", "--yes", "--dsn", f.db.DSN(""))
	require.Zero(t, code, out)
	other := f.db.Conn(t, "")
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var pid int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM pg_current_xact_id()").Scan(&pid))
	f.session = fmt.Sprint(pid)
	return f
}
