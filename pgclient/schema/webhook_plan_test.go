// The frequent statements use their indexes however long the history is.

package schema_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// history inserts n sagas with one finished, settled job each, without triggers, as no role may.
func (h *hooks) history(n int) {
	h.t.Helper()
	sub := h.subscribe("history")
	_, err := h.root.Exec(context.Background(), `BEGIN; SET LOCAL session_replication_role = replica;
		INSERT INTO public.events (event_type, payload) SELECT 'history', '{}' FROM generate_series(1, `+strconv.Itoa(n)+`);
		INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id, status, next_attempt_at)
		SELECT id, `+strconv.FormatInt(sub, 10)+`, 'Completed', NULL FROM public.events WHERE event_type = 'history';
		INSERT INTO public.webhook_delivery_jobs (saga_id, subscription_id, status, attempt_no, worker_id, lease_token, lease_until,
			started_at, finished_at, response_status, settled_at)
		SELECT id, subscription_id, 'Completed', 1, 'w', gen_random_uuid(), now(), now(), now(), 200, now() FROM public.webhook_delivery_sagas;
		UPDATE public.router_offsets SET last_xid = pg_current_xact_id(), last_event_id = 9000000000; COMMIT`)
	require.NoError(h.t, err)
}

func TestWebhookHotPathScansNoHistory(t *testing.T) {
	h := newHooks(t)
	h.history(200000)
	for _, analysed := range []bool{false, true} {
		if analysed {
			h.exec("ANALYZE")
		}
		h.subscribe("order")
		h.emit("order", 50)
		h.route()
		for _, step := range []struct{ what, sql string }{
			{"make", "SELECT public.fn_saga_orchestrator_run()"},
			{"claim", "SELECT public.fn_webhook_job_claim('w', 20)"},
			{"report", `SELECT public.fn_webhook_job_report((SELECT jsonb_agg(jsonb_build_object('job_id', id, 'lease_token', lease_token,
				'delivered', true, 'status', 200)) FROM (SELECT * FROM public.webhook_delivery_jobs WHERE status = 'Leased' OFFSET 0) j))`},
			{"settle", "SELECT public.fn_saga_orchestrator_run()"},
			{"clean", "SELECT public.fn_lease_reset_cleaner_run()"},
			{"endpoints", "SELECT * FROM public.v_webhook_endpoint"},
		} {
			h.scansNothing(step.what, step.sql, step.what != "endpoints")
		}
	}
}

// scansNothing runs sql in a separate transaction and requires, by the server's statistics, that it
// read fewer than 3,000 rows of each table of webhooks.
func (h *hooks) scansNothing(what, sql string, commit bool) {
	h.t.Helper()
	ctx := context.Background()
	conn := h.db.Conn(h.t, "")
	tx, err := conn.Begin(ctx)
	require.NoError(h.t, err)
	if what == "report" {
		_, err = tx.Exec(ctx, "SET LOCAL enable_seqscan = off") // only the query of this test that finds the leased jobs needs this
		require.NoError(h.t, err)
	}
	_, err = tx.Exec(ctx, sql)
	require.NoError(h.t, err, what)
	rows, err := tx.Query(ctx, `SELECT relname::text, COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)
		FROM pg_stat_xact_user_tables
		WHERE relname IN ('webhook_delivery_jobs', 'webhook_delivery_sagas', 'events', 'dead_letters')`)
	require.NoError(h.t, err)
	read := map[string]int64{}
	var table string
	var tuples int64
	_, err = pgx.ForEachRow(rows, []any{&table, &tuples}, func() error {
		read[table] = tuples
		return nil
	})
	require.NoError(h.t, err)
	require.NotEmpty(h.t, read)
	for table, tuples := range read {
		require.Less(h.t, tuples, int64(3000), "%s read %d rows of %s", what, tuples, table)
	}
	if commit {
		require.NoError(h.t, tx.Commit(ctx))
	} else {
		require.NoError(h.t, tx.Rollback(ctx))
	}
}

func TestWebhookSuspendedBacklogCostsAClaimNothing(t *testing.T) {
	h := newHooks(t)
	blocked := h.subscribe("blocked")
	h.emit("blocked", 20000)
	h.route()
	h.call("public.fn_saga_orchestrator_run(100000)")
	h.call("public.fn_endpoint_suspend($1, 'ann', 'down')", blocked)
	h.call("public.fn_saga_orchestrator_run(100000)")
	h.subscribe("order")
	h.emit("order", 10)
	h.step()
	h.scansNothing("claim behind a suspended backlog", "SELECT public.fn_webhook_job_claim('w', 10)", false)
	require.Len(t, h.claim(100), 10)
}

func TestWebhookClaimAroundASaturatedSubscription(t *testing.T) {
	h := newHooks(t)
	busy := h.subscribe("busy")
	h.emit("busy", 20000)
	h.route()
	h.call("public.fn_saga_orchestrator_run(100000)")
	h.subscribe("order")
	h.subscribe("order")
	limited := h.subscribe("slow")
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = 1000 WHERE id = $1", limited)
	h.emit("order", 10)
	h.emit("slow", 10)
	h.step()
	claim := func(limit int, skip []int64, per any) map[int64]int {
		t.Helper()
		rows, err := h.work.Query(context.Background(), "SELECT subscription_id FROM public.fn_webhook_job_claim('w', $1, $2, $3)", limit, skip, per)
		require.NoError(t, err)
		subs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		got := map[int64]int{}
		for _, sub := range subs {
			got[sub]++
		}
		return got
	}
	h.scansNothing("claim around a backlog", "SELECT public.fn_webhook_job_claim('w', 50, '{"+strconv.FormatInt(busy, 10)+"}', 8)", false)
	require.Equal(t, map[int64]int{busy: 8, limited: 8}, claim(50, nil, 8), "no more than a share")
	require.Equal(t, map[int64]int{busy + 1: 8, busy + 2: 8, limited: 2}, claim(50, []int64{busy}, 8))
	require.Equal(t, map[int64]int{busy + 1: 2}, claim(50, []int64{busy, busy + 2, limited}, 8))
	require.Equal(t, map[int64]int{busy + 2: 2}, claim(3, []int64{busy}, nil))
	_, err := h.work.Exec(context.Background(), "SELECT public.fn_webhook_job_claim('w', 1, NULL, 0)")
	refused(t, "22023", err, "a share of nothing")
}

// A claim locks only the jobs that it takes: other sessions can claim the rest before it commits.
func TestWebhookClaimLocksWhatItTakes(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.subscribe("order")
	h.emit("order", 10)
	h.step()
	tx, err := h.work.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var taken int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM public.fn_webhook_job_claim('w', 20, NULL, 3)").Scan(&taken))
	require.Equal(t, 6, taken)
	require.Len(t, h.claim(20), 14)
}

func TestWebhookFunctionsPassPlpgsqlCheck(t *testing.T) {
	h := newHooks(t)
	if !one[bool](h, "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'plpgsql_check')") {
		t.Skip("plpgsql_check is not installed on this server: the functions were NOT checked statically")
	}
	h.exec("CREATE EXTENSION plpgsql_check")
	found := one[string](h, `SELECT COALESCE(string_agg(c::text, E'\n'), '') FROM pg_proc p
		CROSS JOIN LATERAL plpgsql_check_function(p.oid, fatal_errors => false, extra_warnings => false) c
		WHERE p.pronamespace = 'public'::regnamespace AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')
			AND p.prorettype <> 'trigger'::regtype AND p.proname ~ 'webhook|saga|dead_letter|endpoint|lease_reset' AND c ~ '^error'`)
	require.Empty(t, found)
}
