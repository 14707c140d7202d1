package main

// Many real processes at once, and hostile strings in every column that a verb
// prints.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Sixteen processes requeue one dead letter at the same moment: there is one
// saga, and every other process reports who requeued it and when.
func TestRequeueRace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), conn, 1, "HTTP_503"))
	race(t, db, "1", `already requeued by operator-\d+ at \d{4}-`)
	var sagas, jobs int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.webhook_delivery_sagas WHERE status <> 'DeadLettered'),
		(SELECT count(*) FROM public.webhook_delivery_jobs j JOIN public.dead_letter_requeues r ON r.new_saga_id = j.saga_id)`).Scan(&sagas, &jobs))
	require.Equal(t, 1, sagas)
	require.Zero(t, jobs)
}

// The same with a dead letter of a job: there is one new job.
func TestReplayRace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadJobs(t.Context(), conn, 1, "kg.reindex", "kg"))
	var id string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT 'job:' || dead_letter_id FROM public.job_dead_letter").Scan(&id))
	made := race(t, db, id, `already replayed by operator-\d+ at \d{4}-.* as job [0-9a-f-]{36}`)
	var jobs, audits int
	var job string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.v_job WHERE idempotency_key LIKE 'replay:%'),
		(SELECT count(*) FROM public.queue_operator_action WHERE action = 'job_dead_letter_replay' AND outcome = 'done'),
		(SELECT replayed_job_id::text FROM public.job_dead_letter)`).Scan(&jobs, &audits, &job))
	require.Equal(t, 1, jobs)
	require.Equal(t, 1, audits)
	require.Equal(t, job, made)
}

// race lets sixteen processes requeue the same dead letter at once. One
// succeeds; the answers of the others match the regular expression told. It
// returns the id of what the one made.
func race(t *testing.T, db *pgtest.DB, id, told string) (made string) {
	t.Helper()
	dsn := db.DSN(operator(t, db))
	const n = 16
	type answer struct {
		code int
		out  string
	}
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		cmd := qtop(t, dsn, "requeue", id, "--yes", "--reason", fmt.Sprintf("process %d", i), "-o", "json")
		cmd.Env = append(cmd.Env, fmt.Sprintf("QTOP_ACTOR=operator-%d", i))
		var out bytes.Buffer
		cmd.Stdout = &out // a refusal is on stderr too
		wg.Go(func() {
			_ = cmd.Run()
			answers[i] = answer{cmd.ProcessState.ExitCode(), out.String()}
		})
	}
	wg.Wait()
	won := 0
	for _, a := range answers {
		var res struct {
			Results []queue.Outcome `json:"results"`
			AuditID int64           `json:"audit_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.out), &res), a.out)
		require.Len(t, res.Results, 1, a.out)
		if res.Results[0].Outcome == "requeued" {
			won++
			require.Zero(t, a.code)
			require.NotZero(t, res.AuditID)
			made = res.Results[0].NewID
			continue
		}
		require.Equal(t, 1, a.code, a.out)
		require.Regexp(t, told, res.Results[0].Why.String())
	}
	require.Equal(t, 1, won)
	return made
}

// corpus returns strings that would control a terminal or mislead a reader if
// they were printed unchanged.
func corpus() []string {
	return []string{
		"\x1b[2J\x1b]0;owned\x07", "\x1b]52;c;aGFjaw==\x07", "\u009b31mC1", "\u202eevil\u202c\u2066x\u2069", "zero\u200bwidth\u200d\ufeff",
		"tag\U000e0041\U000e007f", "line\nbreak\r\ttab\b\x07\x7f", "a" + strings.Repeat("\u0301", 500), strings.Repeat("A", 1<<20),
		"\u2028\u2029\u00ad\u034f\u061c\u115f\u3164",
	}
}

// TestHostileStrings writes the corpus into every text column that the verbs
// print, and runs every verb that reads, as a table and as JSON: only plain
// text is printed.
func TestHostileStrings(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	ctx := t.Context()
	require.NoError(t, deadLetters(ctx, conn, 2, "HTTP_500"))
	exec := func(sql string, args ...any) {
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	// CHECK constraints would refuse most of these strings. They are dropped,
	// because an older release or a superuser may have stored such strings
	// nevertheless.
	exec(`ALTER TABLE public.queue_heartbeat DROP CONSTRAINT queue_heartbeat_executor_id_check`)
	exec(`ALTER TABLE public.queue_host DROP CONSTRAINT queue_host_host_id_check`)
	exec(`DROP INDEX public.ix_queue_operator_action_target`)
	exec(`ALTER DOMAIN public.job_executor DROP CONSTRAINT chk_job_executor`)
	exec(`ALTER DOMAIN public.job_failure_code DROP CONSTRAINT chk_job_failure_code`)
	exec(`ALTER TABLE public.job_lane DROP CONSTRAINT chk_job_lane_domain, DROP CONSTRAINT chk_job_lane_kind`)
	exec(`ALTER TABLE public.job_subscription DROP CONSTRAINT chk_job_subscription_kind, DROP CONSTRAINT chk_job_subscription_job_kind,
		DROP CONSTRAINT chk_job_subscription_domain`)
	exec(`SET session_replication_role = replica`)
	for i, long := range corpus() {
		s := long[:min(len(long), 2000)] // only two columns get the whole megabyte, enough to test that it is cut
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
		exec(`UPDATE public.events SET payload = jsonb_build_object('x', $1::text)`, long)
		exec(`UPDATE public.dead_letters SET payload_snapshot = jsonb_build_object('x', $1::text)`, long)
		exec(`INSERT INTO public.queue_operator_action (actor, action, target, reason, outcome) VALUES ('a', 'b', 'c', $1, 'd')`, long)
		exec(`INSERT INTO public.dot_config (key, value, description, updated_by) VALUES ($1, $2, $2, $2)`, fmt.Sprint("x", i, s), s)
		exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds,
			registered_by, owner_role, deregistered_by) VALUES ($1, 'Agent', ARRAY[$2::text], now() - interval '1 hour', 60, 60, $2, $2, $2)`, fmt.Sprint(s, i), s)
		exec(`INSERT INTO public.queue_alert_ack (alert_key, subject, severity, acked_by, comment, expires_at)
			SELECT alert_key, subject, 'critical', $1, $1, now() + interval '1 hour' FROM public.v_queue_alert WHERE subject = $2`, s, fmt.Sprint(s, i))
		exec(`INSERT INTO public.queue_host (host_id, instance, version, loops, progress) VALUES ($1, gen_random_uuid(), $2, ARRAY[$2::text], jsonb_build_object($2::text, '{}'::jsonb))`, fmt.Sprint(s, i), s)
		exec(`INSERT INTO public.queue_operator_action (actor, db_role, action, target, filter, reason, before, after, outcome)
			VALUES ($1, $1, $1, $1, $1, $1, to_jsonb($1::text), to_jsonb($1::text), $1)`, s)
		exec(`UPDATE public.queue_tick_worker SET last_result = to_jsonb($1::text) WHERE worker_name = 'config_expiry'`, s)
		exec(`UPDATE public.webhook_delivery_jobs SET response_excerpt = $1, worker_id = left($1, 200)`, s)
		hostileJobs(exec, i, s)
		hostileEvents(exec, i, s)
		exec(`UPDATE public.subscriptions SET event_type = left($1, 90), callback_url = left($1, 2000)`, s)
	}
	user := operator(t, db)
	verbs := [][]string{
		{"status"}, {"health"}, {"alerts"}, {"executors"}, {"hosts"}, {"dlq"}, {"dlq", "1"}, {"dlq-groups"}, {"flags"}, {"scheduler"}, {"audit"},
		{"requeue", "1", "--dry-run"}, {"flag", "set", "x0" + "\x1b[2J", "1", "--reason", "\x1b[2J", "--yes"},
		{"executor", "deregister", "\x1b]0;x\x07", "--reason", "\u202e", "--yes"}, {"dlq", "--filter", "\x1b[2J"}, {"ack", "\u009b2J", "--comment", "\x1b", "--yes"},
		{"queues"}, {"queues", "--filter", "kind:* !domain:none"}, {"queues", "--kind", "\x1b[2J", "--domain", "\x07"}, {"lease", "list"}, {"executor", "subscriptions"},
		{"executor", "subscriptions", "\x1b[2J0"}, {"job", "show", uuid("1", 0)}, {"job", "show", uuid("2", 3)}, {"job", "show", "\x1b[2J"},
		{"dlq", "--filter", "source:job state:*"}, {"dlq", "job:" + uuid("3", 0)}, {"dlq", "show", "job:" + uuid("3", 6)}, {"dlq", "job:\x1b[2J"},
		{"requeue", "--filter", "source:job", "--dry-run"}, {"undo", "job:" + uuid("3", 2), "--dry-run"}, {"job", "cancel", "--filter", "kind:*", "--dry-run"},
		{"job", "cancel", "--kind", "\x1b[2J", "--dry-run"}, {"lease", "release", uuid("4", 0), uuid("4", 1), uuid("4", 2), "--dry-run"}, {"lease", "release", "\x1b[2J", "--dry-run"},
		{"executor", "subscribe", "\x1b[2J\x1b]0;owned\x070", "--dry-run"}, {"executor", "subscribe", "\u202eevil", "--kind", "\x07", "--notes", "\x1b", "--yes", "--reason", "\x1b"},
		{"executor", "deregister", "line\nbreak\r\ttab\b\x07\x7f6", "--reason", "\x1b", "--dry-run"}, {"job", "enqueue", "--kind", "\x1b[2J", "--domain", "\x07", "--executor", "DOT"},
		{"job", "enqueue", "--kind", "a", "--domain", "b", "--executor", "\x1b[2J"},
		{"dlq", "event:" + uuid("5", 0)}, {"dlq", "show", "event:" + uuid("5", 3)}, {"dlq", "--filter", "source:event"}, {"webhooks"}, {"webhooks", "1"},
		{"webhooks", "--filter", "\x1b[2J"}, {"why"}, {"why", "\x1b[2J"}, {"why", "1"}, {"ops"}, {"ops", "show", "1"}, {"ops", "--filter", "by:*owned*"},
		{"subscriptions"}, {"subscriptions", "--share"}, {"subscriptions", "--resolve", "shop/\x1b[2J\x1b]0;owned\x070"}, {"subscriptions", "--filter", "recipient:*owned*"},
		{"subscription", "mute", "10", "--reason", "\x1b", "--dry-run"}, {"subscription", "add", "user:\x1b[2J", "--type", "\u202e", "--dry-run"},
		{"endpoint", "suspend", "1", "--reason", "\x1b[2J", "--dry-run"}, {"endpoint", "suspend", "\x1b[2J", "--reason", "r", "--yes"},
		{"report", "--since", "1h"}, {"mark", "\x1b[2J\x1b]0;owned\x07", "--yes"}, {"requeue", "--filter", "source:webhook", "--rate", "1", "--reason", "\x1b", "--dry-run"},
		{"export", "operation-items", "--id", "1"}, {"export", "flag-history", "--id", "x0" + "\x1b[2J"}, {"export", "\x1b[2J"}, {"export", "dlq", "\x1b[2J/\x07.csv"},
	}
	for _, l := range queue.ExportLists() {
		if l.Of == "" || l.Optional {
			verbs = append(verbs, []string{"export", l.Name})
		}
	}
	for _, args := range verbs {
		for _, form := range []string{"table", "json"} {
			if args[0] == "export" && form == "table" {
				form = "csv"
			}
			t.Run(strings.Trim(fmt.Sprintf("%q %s", args, form), "[]"), func(t *testing.T) {
				t.Parallel()
				cmd := qtop(t, db.DSN(user), append(slices.Clone(args), "-o", form)...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = cmd.Run()
				require.Contains(t, []int{0, 1, 2, 3, 77}, cmd.ProcessState.ExitCode(), "%.300s", out.String())
				require.True(t, utf8.Valid(out.Bytes()))
				if shows := strings.Join(args, " "); shows == "queues" || strings.HasPrefix(shows, "job show 1") || strings.HasPrefix(shows, "dlq job:3") || strings.HasPrefix(shows, "dlq event:5") ||
					shows == "ops show 1" || shows == "subscriptions" || shows == "subscriptions --share" ||
					shows == "lease list" || shows == "executor subscriptions" || slices.Contains(args, "audit") || shows == "export jobs" || shows == "export flags" {
					require.Contains(t, out.String(), "owned", "the row itself is what was read")
				}
				for i, r := range out.String() {
					if r != '\n' && queue.Unsafe(r) {
						t.Fatalf("it prints %U at %d: %.80q", r, i, out.String()[max(0, i-40):])
					}
				}
			})
		}
	}
}

// uuid returns the id of a hostile row: the table and the number of the string.
func uuid(table string, i int) string {
	return fmt.Sprintf("%s0000000-0000-4000-8000-00000000000%d", table, i)
}

// hostileEvents puts a hostile string into dead letters of events, bulk operations, suspensions,
// marks, event subscriptions and the other tables about events.
func hostileEvents(exec func(string, ...any), i int, s string) {
	short := s[:min(len(s), 400)]
	for !utf8.ValidString(short) {
		short = short[:len(short)-1]
	}
	short = fmt.Sprint(short, i)
	exec(`INSERT INTO public.iu_route_dead_letter (dead_letter_id, event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name, resolved_at,
		resolved_by, resolution, note)
		SELECT $1, $2, jsonb_build_object('event_type', $3::text), $3, $3, $4, $3, $4, CASE WHEN $5 THEN now() END, CASE WHEN $5 THEN $4 END, CASE WHEN $5 THEN $4 END, $4`,
		uuid("5", i), uuid("6", i), short, s, i%2 == 1)
	exec(`INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name) VALUES ($1, 'user:' || $2, 1, $2, $2, $3)`, uuid("6", i), short, s)
	exec(`INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n) VALUES ('dead_event', $1, $1, $1, 1)`, short)
	exec(`INSERT INTO public.queue_bulk_operation (kind, filter, created_by, reason, state, state_why, state_by, rate_per_second, brake_percent, canary, canary_passed, frozen_count, next_item)
		VALUES ('requeue_webhook', $1, $1, $1, 'paused', $1, $1, 1, 1, 1, true, 1, 2)`, s)
	exec(`INSERT INTO public.queue_bulk_operation_item (operation_id, item_no, target, outcome, why, new_id, at, first_result, first_code, first_at)
		SELECT max(operation_id), 1, $1, 'failed', $1, $1, now(), 'failed', $1, now() FROM public.queue_bulk_operation`, s)
	exec(`INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, by, note) SELECT id, 'operator', $1, $1 FROM public.subscriptions
		ON CONFLICT (subscription_id) DO UPDATE SET by = $1, note = $1`, s)
	exec(`INSERT INTO public.queue_mark (label, created_by) VALUES (left($1, 190), $1)`, short)
	exec(`INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter) VALUES ('user:' || $1, $1, $1, $1, $1, jsonb_build_object('x', $1::text))`, short)
	exec(`INSERT INTO public.event_subscription (recipient_ref, scope_subject_table) VALUES ('agent:' || $1, $1)`, short)
	exec(`INSERT INTO public.queue_broadcast_share (event_domain, events_24h, broadcast_24h, percent, warn_percent, sampled_at, over_since) VALUES ($1, 2, 1, 50, 5, now(), now())`, short)
	exec(`INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, description) VALUES ('shop', $1, $1, 'immediate', $1)`, short)
	exec(`INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane) VALUES ('shop', $1, 'other', 'immediate')`, short)
}

// hostileJobs puts a string into every text column of the job tables. Values in
// an index are cut, because an index limits their length.
func hostileJobs(exec func(string, ...any), i int, s string) {
	short := s[:min(len(s), 400)]
	for !utf8.ValidString(short) {
		short = short[:len(short)-1]
	}
	kind := fmt.Sprint(short, i)
	exec(`INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, idempotency_key, source_ref, target_ref, payload_ref, payload, last_error,
		failure_code, actor, correlation_id, process_after, status, lease_owner, lease_until, lease_token)
		VALUES ($1, $3, $3, $2::text, left($3, 500), $2, $2, $2, jsonb_build_object('x', $2::text), left($2, 900), left($2, 900), $2, $2, now() - interval '1 hour',
			CASE WHEN $4::uuid IS NULL THEN 'queued' ELSE 'leased' END, CASE WHEN $4::uuid IS NOT NULL THEN $2 END,
			CASE WHEN $4::uuid IS NOT NULL THEN now() - interval '1 minute' END, $4)`, uuid("1", i), s, kind, map[bool]any{true: uuid("4", i), false: nil}[i%2 == 0])
	exec(`INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
		VALUES ($1, $2, gen_random_uuid(), now() - interval '1 minute', ARRAY[$3::uuid], 1)`, uuid("4", i), s, uuid("1", i))
	exec(`INSERT INTO public.job_lane (event_domain, job_kind) VALUES ($1, $1)`, kind)
	exec(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at, idempotency_key, source_ref, target_ref,
		payload_ref, payload, last_error, failure_code, actor, correlation_id, lease_owner)
		VALUES ($1, $3, $3, $2::text, 'succeeded', 'leased', now(), $3::text, $2, $2, $2, jsonb_build_object('x', $2::text), $2::text, $2::text, $2, $2, $2)`, uuid("2", i), s, kind)
	exec(`INSERT INTO public.job_subscription (executor_id, executor_kind, job_kind, event_domain, enabled, notes, registered_by, updated_by)
		VALUES (left($2, 200), $1, $2, $2, true, $1, $1, $1)`, s, kind)
	exec(`INSERT INTO public.job_dead_letter (dead_letter_id, job_id, job_kind, event_domain, executor, attempts, failure_code, last_error, payload,
		first_failed_at, last_failed_at, triage_status, triage_note, resolved_at, resolved_by, resolution, replayed_job_id)
		SELECT $1, $4, $3, $3, $2, 3, $3, $2, jsonb_build_object('x', $2::text), now(), now(), t, $2, CASE WHEN t <> 'open' THEN now() END,
			CASE WHEN t <> 'open' THEN $2 END, CASE WHEN t <> 'open' THEN $2 END, CASE WHEN t = 'replayed' THEN gen_random_uuid() END
		FROM (SELECT (ARRAY['open', 'duplicate', 'replayed'])[$5::int % 3 + 1]) x (t)`, uuid("3", i), s, kind, uuid("2", i), i)
	exec(`INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n) SELECT v.scope, v.k1, $1, v.k3, 1 FROM (VALUES
		('job', $1, 'queued'), ('dead_job', $1, $1), ('dead_job_5m', $1, '0')) v (scope, k1, k3)`, kind)
}
