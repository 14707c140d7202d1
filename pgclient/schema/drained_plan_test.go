// Statements read few rows although the planner's statistics say that nothing waits.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// drainedCase is a statement, with what has to be written before it in its transaction.
type drainedCase struct{ what, before, sql string }

// frozen switches autovacuum off for all tables: the statistics stay those of the last ANALYZE.
const frozen = `DO $$ DECLARE r record; BEGIN FOR r IN SELECT c.oid::regclass AS t FROM pg_class c
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' LOOP
	EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', r.t); END LOOP; END $$`

// drained runs each statement as long as nothing waits, calls fill, and requires that each statement
// then reads fewer than 3,000 rows of a table, and hardly more pages than with fresh statistics: in a
// new session, and in one whose plans were made before. Each transaction is rolled back.
func drained(t *testing.T, c *core, fill func(), cases []drainedCase) {
	t.Helper()
	c.exec(frozen)
	c.exec("VACUUM ANALYZE")
	early, late := c.db.Conn(t, ""), c.db.Conn(t, "")
	for _, conn := range []*pgx.Conn{early, late} {
		_, err := conn.Exec(t.Context(), "SET statement_timeout = 0; SET plan_cache_mode = "+map[bool]string{true: "force_generic_plan", false: "auto"}[conn == early])
		require.NoError(t, err)
	}
	for _, k := range cases {
		read(t, early, k)
	}
	fill()
	type cost struct {
		rows  map[string]int64
		pages int
	}
	stale := map[string]cost{}
	for _, k := range cases {
		for name, conn := range map[string]*pgx.Conn{"new session": late, "old plans": early} {
			rows, pages := read(t, conn, k)
			stale[name+": "+k.what] = cost{rows, pages}
		}
	}
	c.exec("ANALYZE")
	for _, k := range cases {
		_, fresh := read(t, late, k)
		for _, name := range []string{"new session", "old plans"} {
			what := name + ": " + k.what
			t.Logf("%s: %d pages, with fresh statistics %d, rows %v", what, stale[what].pages, fresh, stale[what].rows)
			for table, rows := range stale[what].rows {
				if rows >= 3000 {
					t.Errorf("%s read %d rows of %s", what, rows, table)
				}
			}
			if stale[what].pages >= fresh+fresh/3+60 {
				t.Errorf("%s read %d pages, with fresh statistics %d", what, stale[what].pages, fresh)
			}
		}
	}
}

// read runs the statement of a case twice, and returns the rows of tables and the pages that the second
// run read.
func read(t *testing.T, conn *pgx.Conn, k drainedCase) (rows map[string]int64, read int) {
	t.Helper()
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	counted := func() (n map[string]int64) {
		n = map[string]int64{}
		got, err := tx.Query(ctx, "SELECT relname::text, COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables")
		require.NoError(t, err)
		var table string
		var tuples int64
		_, err = pgx.ForEachRow(got, []any{&table, &tuples}, func() error { n[table] = tuples; return nil })
		require.NoError(t, err)
		return n
	}
	_, err = tx.Exec(ctx, "SET LOCAL session_replication_role = replica; "+k.before+"; SET LOCAL session_replication_role = origin; SET LOCAL ROLE queue_owner; SAVEPOINT again")
	require.NoError(t, err, k.what)
	var before map[string]int64
	for range 2 {
		_, err = tx.Exec(ctx, "ROLLBACK TO again")
		require.NoError(t, err)
		before = counted()
		read = pages(t, tx, k.sql)
	}
	rows = counted()
	for table := range rows {
		rows[table] -= before[table]
		if rows[table] < 500 {
			delete(rows, table)
		}
	}
	return rows, read
}

// idList writes numbers as PostgreSQL reads them in an array.
func idList(n []int64) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ","), "[]") }

// Waiting deliveries: 200 to 40 subscriptions, behind them 10,000 to another one, behind those 200 to
// two more.
func TestPlansOfDrainedWebhooks(t *testing.T) { plansOfWebhooks(t, 20000) }

// As before, but when the plans were made nothing was there at all.
func TestPlansOfEmptyWebhooks(t *testing.T) { plansOfWebhooks(t, 0) }

func plansOfWebhooks(t *testing.T, history int) {
	h := newHooks(t)
	h.emit("nobody", 1)
	h.history(history)
	many := make([]int64, 0, 40)
	for range 40 {
		many = append(many, h.subscribe("many"))
	}
	busy, first, second := h.subscribe("busy"), h.subscribe("order"), h.subscribe("order")
	blocked := h.subscribe("blocked")
	h.exec("UPDATE public.subscriptions SET callback_url = 'http://h' || id || '.test/hook'")
	suspended := func(sub int64) string {
		return fmt.Sprintf(`INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by, note)
			VALUES (%d, 'circuit', now() - interval '1 second', 'test', 'x')`, sub)
	}
	operation := `INSERT INTO public.queue_bulk_operation (operation_id, kind, filter, created_by, reason, state, state_by, rate_per_second, brake_percent, canary,
			canary_passed, frozen_count) OVERRIDING SYSTEM VALUE VALUES (1, 'requeue_webhook', 'x', 'ann', 'x', 'running', 'ann', 1000, 0, 0, true, 1);
		INSERT INTO public.webhook_operation_bucket (operation_id, tokens) VALUES (1, 1000)`
	drained(t, &core{t: t, db: h.db, root: h.root}, func() {
		h.emit("many", 5)
		h.step()
		h.emit("busy", 10000)
		h.route()
		h.call("public.fn_saga_orchestrator_run(100000)")
		h.call("public.fn_endpoint_suspend($1, 'ann', 'down')", blocked)
		h.exec("INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT id, $1 FROM public.events LIMIT 20000", blocked)
		h.emit("order", 100)
		h.step()
		require.EqualValues(t, 10400, one[int64](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Pending'"))
	}, []drainedCase{
		{"claim", "", "SELECT public.fn_webhook_job_claim('w', 200)"},
		{"claim around a subscription", "", fmt.Sprintf("SELECT public.fn_webhook_job_claim('w', 50, '{%d}', 8)", busy)},
		{"claim of an operation", operation + fmt.Sprintf("; UPDATE public.webhook_delivery_jobs SET controlled = true, operation_id = 1 WHERE subscription_id = %d AND status = 'Pending'", first),
			fmt.Sprintf("SELECT public.fn_webhook_job_claim('w', 100, '{%d}')", busy)},
		{"make beside an operation", operation + fmt.Sprintf("; UPDATE public.webhook_delivery_jobs SET controlled = true, operation_id = 1 WHERE subscription_id = %d AND status = 'Pending'; INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT 1, %[1]d", first),
			"SELECT public.fn_saga_orchestrator_part('make', 1000, NULL, '{}', 0)"},
		{"lanes", fmt.Sprintf("UPDATE public.subscriptions SET rate_limit_per_second = 5 WHERE id = %d", first),
			"SELECT public.fn_saga_orchestrator_part('lanes', 1000, NULL, '{}', 0)"},
		{"make behind a circuit", suspended(first) + fmt.Sprintf(`; UPDATE public.webhook_delivery_jobs SET controlled = true WHERE subscription_id = %d AND status = 'Pending';
			INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT 1, %[1]d`, first),
			"SELECT public.fn_saga_orchestrator_part('make', 1000, NULL, '{}', 0)"},
		{"slow start", fmt.Sprintf(`INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
			SELECT endpoint, now(), 'x', 1, now() - interval '1 minute', now() FROM public.subscriptions WHERE id = ANY ('{%s}')`, idList(append(many, second))),
			"SELECT public.fn_webhook_slow_start_step(NULL, '{}')"},
		{"next items of an operation", suspended(second) + "; " + operation + fmt.Sprintf(`; INSERT INTO public.queue_bulk_operation_item (operation_id, item_no, target, subscription_id)
			SELECT 1, i, i::text, %d FROM generate_series(1, 10) i`, second), "SELECT public.fn_queue_bulk_next(1, 10, '{}')"},
		{"settle", fmt.Sprintf(`UPDATE public.webhook_delivery_jobs SET status = 'Completed', lease_token = gen_random_uuid(), worker_id = 'w', lease_until = now(), started_at = now(),
			finished_at = now(), response_status = 200 WHERE subscription_id = ANY ('{%s}') AND status = 'Pending'`, idList(many)), "SELECT public.fn_saga_orchestrator_part('settle', 1000, NULL, '{}', 0)"},
		{"backlog", "", "SELECT * FROM public.v_webhook_backlog"},
		{"lease cleaner", "", "SELECT public.fn_lease_reset_cleaner_run()"},
		{"quick run", `UPDATE public.queue_tick_worker SET last_result = jsonb_build_object('settled_from', '0', 'made_through', (SELECT COALESCE(max(id), 50) - 50 FROM public.webhook_delivery_sagas)::text)
			WHERE worker_name = 'saga_orchestrator'`, "SELECT public.fn_saga_orchestrator_quick(100)"},
		{"look", `UPDATE public.queue_tick_worker SET last_result = jsonb_build_object('settled_from', (SELECT COALESCE(max(id), 0) FROM public.webhook_delivery_jobs)::text, 'made_through', (SELECT COALESCE(max(id), 50) - 50 FROM public.webhook_delivery_sagas)::text)
			WHERE worker_name = 'saga_orchestrator'`, "SELECT public.fn_queue_tick_look('saga_orchestrator')"},
	})
}

// Open dead letters: 10 of one code between 10,000 of another one. Staged notifications, items and first attempts of bulk operations: 10,000 each.
func TestPlansOfDrainedLists(t *testing.T) { plansOfLists(t, 10000) }

// As before, but when the plans were made nothing was there at all.
func TestPlansOfEmptyLists(t *testing.T) { plansOfLists(t, 0) }

func plansOfLists(t *testing.T, history int) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	j := &jobs{core: c}
	sub := h.subscribe("order")
	deadLetters := func(code, state string, from, to int) {
		closed := map[string]string{"open": "NULL, NULL, NULL", "abandoned": "now(), 'ann', 'abandoned'"}[state]
		c.exec(fmt.Sprintf(`INSERT INTO public.job_dead_letter (dead_letter_id, job_id, job_kind, event_domain, executor, attempts, failure_code, payload, first_failed_at, last_failed_at, triage_status,
				resolved_at, resolved_by, resolution)
			SELECT md5(i::text)::uuid, gen_random_uuid(), 'k', 'iu', 'external_worker', 1, '%s', '{}', now(), now() + i * interval '1 second', '%s', %s FROM generate_series(%d, %d) i`, code, state, closed, from, to))
		c.exec(fmt.Sprintf(`INSERT INTO public.iu_route_dead_letter (dead_letter_id, event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name, last_failed_at,
				resolved_at, resolved_by, resolution)
			SELECT md5(i::text)::uuid, gen_random_uuid(), '{"event_type": "made"}', i, '%s', 'x', 'iu', 'w', now() + i * interval '1 second', %s FROM generate_series(%d, %d) i`, code, closed, from, to))
	}
	staged := func(processed string, from, to int) {
		j.unguarded(fmt.Sprintf(`INSERT INTO public.iu_notification_pending (id, unit_id, canonical_address, actor_ref, ref_id, created_at, processed_at)
			SELECT md5(i::text)::uuid, gen_random_uuid(), 'a', 'user:ann', gen_random_uuid(), now(), %s FROM generate_series(%d, %d) i`, processed, from, to))
	}
	items := func(operation int, outcome string, from, to int) {
		j.unguarded(fmt.Sprintf(`INSERT INTO public.queue_bulk_operation_item (operation_id, item_no, target, subscription_id, outcome, new_id, at)
			SELECT %d, i, (CASE WHEN %[1]d = 3 THEN 'job:' ELSE 'event:' END) || md5(i::text)::uuid, 0, %s, i, now() FROM generate_series(%d, %d) i`, operation, outcome, from, to))
	}
	for i, state := range []string{"completed", "paused", "running", "running"} {
		j.unguarded(fmt.Sprintf(`INSERT INTO public.queue_bulk_operation (operation_id, kind, filter, created_by, reason, state, state_by, rate_per_second, brake_percent, canary,
			canary_passed, frozen_count) OVERRIDING SYSTEM VALUE VALUES (%d, '%s', 'x', 'ann', 'x', '%s', 'ann', 1000, 0, 0, true, 1)`, i+1, map[bool]string{true: "resolve", false: "requeue_webhook"}[i == 1 || i == 2], state))
	}
	deadLetters("OLD", "abandoned", 1, history)
	staged("now()", 1, history)
	items(1, "'skipped'", 1, history)
	quarantined := func(step, target string) string {
		return fmt.Sprintf("INSERT INTO public.queue_quarantine (step, target, code, error, next_try_at) VALUES ('%s', '%s', 'XX000', 'x', now())", step, target)
	}
	drained(t, c, func() {
		deadLetters("MANY", "open", 20001, 25000)
		deadLetters("FEW", "open", 25001, 25010)
		deadLetters("MANY", "open", 25011, 30000)
		deadLetters("OLD", "abandoned", 10001, 20000)
		c.exec("SELECT public.fn_queue_counter_compact()")
		staged("NULL", 10001, 20000)
		items(2, "NULL", 10001, 20000)
		items(3, "'done'", 19901, 20000)
		j.unguarded(fmt.Sprintf(`INSERT INTO public.events (event_type, payload) SELECT 'order', '{}' FROM generate_series(1, 10000);
			INSERT INTO public.webhook_delivery_sagas (id, event_id, subscription_id, status, next_attempt_at) OVERRIDING SYSTEM VALUE
			SELECT 10000 + row_number() OVER (), id, %d, 'Completed', NULL FROM public.events;
			INSERT INTO public.webhook_delivery_jobs (saga_id, subscription_id, status, attempt_no, worker_id, lease_token, lease_until, started_at, finished_at, response_status, settled_at)
			SELECT id, subscription_id, 'Completed', 1, 'w', gen_random_uuid(), now(), now(), now(), 200, now() FROM public.webhook_delivery_sagas`, sub))
		items(4, "'done'", 19901, 20000)
		require.Equal(t, "event FEW 10, event MANY 9990, job FEW 10, job MANY 9990", get[string](c, "SELECT string_agg(concat_ws(' ', source, code, open), ', ' ORDER BY source, code) FROM public.fn_dead_letter_top(10, 10, '{}')"))
	}, []drainedCase{
		{"groups of dead letters", "", "SELECT * FROM public.fn_dead_letter_top(10, 10, '{}')"},
		{"open dead letters of jobs", "", "SELECT * FROM public.fn_job_dead_letters_open()"},
		{"staged notifications one by one", "", "SELECT public.fn_step_notify(100, ARRAY(SELECT md5(i::text)::uuid::text FROM generate_series(19991, 20000) i), NULL)"},
		{"staged notification given up", quarantined("notify", "00000000-0000-0000-0000-000000000000") + "; UPDATE public.queue_quarantine SET target = md5('20000')::uuid::text",
			"SELECT public.fn_iu_notification_bury(q) FROM public.queue_quarantine q"},
		{"items one by one", "", "SELECT public.fn_step_bulk_item(100, ARRAY(SELECT '2/' || i FROM generate_series(19991, 20000) i), '{}')"},
		{"items of a batch", "", "SELECT public.fn_queue_bulk_carry(o, ARRAY(SELECT i FROM generate_series(19901, 20000) i), now()) FROM public.queue_bulk_operation o WHERE operation_id = 2"},
		{"item given up", quarantined("bulk_item", "2/20000"), "SELECT public.fn_queue_bulk_bury(q) FROM public.queue_quarantine q"},
		{"dead letters that others closed", "", "SELECT public.fn_queue_bulk_others(o, 1, 20000) FROM public.queue_bulk_operation o WHERE operation_id = 3"},
		{"first attempts", "", "SELECT public.fn_queue_bulk_watch(o) FROM public.queue_bulk_operation o WHERE operation_id = 4"},
	})
}
