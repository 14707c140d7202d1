// The audit rows of the batches of an operation: each has the id of its operation and a number, and
// they do not crowd other rows out of the snapshot.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// Every audit row that an operation writes has the operation's id, and the row of the last batch
// has the counts of all batches.
func TestAuditRowsOfAnOperation(t *testing.T) {
	h := newHooks(t)
	h.flag("webhook.circuit_failures", "0")
	_, deadLetters := h.die("order", 7)
	ids := []string{}
	for _, id := range deadLetters {
		ids = append(ids, fmt.Sprint(id))
	}
	h.exec("SELECT public.fn_queue_bulk_plan('requeue_webhook', $1::text[], 'code:X', 1000, 0, 2, 'ann', 'healed')", ids)
	op := one[int64](h, "SELECT max(operation_id) FROM public.queue_bulk_operation")
	h.exec("SELECT public.fn_queue_bulk_run($1, 'ben')", op)
	require.NoError(t, h.asOwner("SELECT public.fn_queue_bulk_step($1)", op)) // the canary
	h.exec("UPDATE public.queue_bulk_operation SET canary_passed = true, credited_at = now() - interval '1 second' WHERE operation_id = $1", op)
	require.NoError(t, h.asOwner("SELECT public.fn_queue_bulk_step($1)", op)) // the others
	h.exec("SELECT public.fn_queue_bulk_pause($1, 'ben')", op)
	h.exec("SELECT public.fn_queue_bulk_undo($1, 'cleo')", op)

	require.Equal(t, []string{
		"bulk_plan ann - - 7", "bulk_run ben - - 7", "dead_letter_requeue ann 1 2 2", "dead_letter_requeue ann 2 7 5",
		"bulk_pause ben - - 7", "dead_letter_requeue_undo cleo 1 7 7", "bulk_undo cleo - - 7",
	}, one[[]string](h, `SELECT array_agg(concat_ws(' ', action, actor, COALESCE(batch::text, '-'), COALESCE(batch_items::text, '-'), frozen_count) ORDER BY id)
		FROM public.queue_operator_action WHERE operation_id = $1`, op))
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.queue_operator_action WHERE operation_id IS NULL AND action LIKE 'dead_letter%'"))

	// A requeue by a person meanwhile belongs to no operation, and no login can pretend that it
	// does.
	login := h.db.Pool(t, pgtest.Login(t, h.db, "dead_letter_operator"))
	_, err := login.Exec(context.Background(), "SELECT public.fn_dead_letter_requeue($1::bigint[], 'dora', 'by hand', false)", deadLetters[:1])
	require.NoError(t, err)
	require.Equal(t, "dora t t", one[string](h, `SELECT concat_ws(' ', actor, operation_id IS NULL, batch IS NULL) FROM public.queue_operator_action ORDER BY id DESC LIMIT 1`))
	for _, f := range one[[]string](h, `SELECT array_agg(format('%s(%s)', p.oid::regproc, pg_catalog.oidvectortypes(p.proargtypes))) FROM pg_catalog.pg_proc p
			WHERE p.pronamespace = 'public'::regnamespace AND 'p_operation_id' = ANY (p.proargnames) AND 'p_actor' = ANY (p.proargnames) AND p.proname LIKE '%\_as'`) {
		require.False(t, one[bool](h, "SELECT has_function_privilege('dead_letter_operator', $1::text, 'EXECUTE')", f), f)
	}
	require.Equal(t, 11, one[int](h, `SELECT count(*) FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname LIKE '%dead\_letter%\_as'`))
}

// Batches of which every item was skipped are all recorded, and are none of the refusals of a login
// that are limited.
func TestAuditOfSkippedBatchesIsWhole(t *testing.T) {
	h := newHooks(t)
	h.exec("SELECT public.fn_operator_audit('dead_letter_requeue', 'dead_letter 1', 'ben', 'r', NULL, 2, NULL, NULL, 'refused', 12) FROM generate_series(1, 150)")
	require.Equal(t, "150 300 refused", one[string](h, "SELECT concat_ws(' ', count(*), max(batch_items), string_agg(DISTINCT outcome, ',')) FROM public.queue_operator_action WHERE operation_id = 12"))
	require.NotNil(t, one[*int64](h, "SELECT public.fn_operator_audit('ack', 'x', 'ann', 'r', p_outcome => 'refused: changed')"))
}

// The snapshot shows what people did, however many newer batches and refusals there are, and reads
// only the rows of people.
func TestSnapshotActionsBehindBatches(t *testing.T) {
	h := newHooks(t)
	h.exec("SELECT public.fn_operator_audit('endpoint_suspend', 'x', 'ann', 'deploy', NULL, NULL, NULL, NULL, 'done')")
	h.exec("SELECT public.fn_operator_audit('dead_letter_requeue', 'dead_letter 1', 'ben', 'r', NULL, 1, NULL, NULL, 'done', 12) FROM generate_series(1, 5000)")
	h.exec(`INSERT INTO public.queue_operator_action (actor, action, target, outcome)
		SELECT 'eve', 'flag_set', 'x', 'refused: disabled' FROM generate_series(1, 5000)`)
	require.Equal(t, int64(5000), one[int64](h, "SELECT batch FROM public.queue_operator_action WHERE operation_id = 12 ORDER BY id DESC LIMIT 1"))
	s := snapshotOf(t, one[[]byte](h, "SELECT public.fn_queue_snapshot('0')"))
	got := []string{}
	for _, a := range s.Actions {
		if a.Action.String() != "flag_set" { // written by newHooks
			got = append(got, fmt.Sprint(a.By, " ", a.Action))
		}
	}
	require.Equal(t, []string{"ann endpoint_suspend"}, got)

	conn := h.db.Conn(t, "")
	run := func(sql string) {
		t.Helper()
		_, err := conn.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
	run("ANALYZE public.queue_operator_action")
	run("SELECT public.fn_snapshot_actions()")
	run("BEGIN") // the counts of a transaction are of its session alone
	run("SELECT public.fn_snapshot_actions() FROM generate_series(1, 20)")
	var table, people int64
	require.NoError(t, conn.QueryRow(context.Background(), `SELECT
		pg_catalog.pg_stat_get_xact_numscans('public.queue_operator_action'::regclass),
		pg_catalog.pg_stat_get_xact_numscans('public.ix_queue_operator_action_people'::regclass)`).Scan(&table, &people))
	run("COMMIT")
	require.Zero(t, table, "no scan of the table")
	require.GreaterOrEqual(t, people, int64(20), "by the index of what people did")
	var ms float64
	require.NoError(t, conn.QueryRow(context.Background(), `WITH a AS MATERIALIZED (SELECT clock_timestamp() AS t), b AS MATERIALIZED (
		SELECT count(public.fn_snapshot_actions()::text) AS n FROM a, generate_series(1, 100)), c AS MATERIALIZED (SELECT clock_timestamp() AS t, n FROM b)
		SELECT extract(epoch FROM c.t - a.t) * 1000 / c.n FROM a, c`).Scan(&ms))
	t.Logf("fn_snapshot_actions: %.3f ms", ms)
}
