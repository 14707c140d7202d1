// The notification worker and the trigger that stages notifications, under load: their cost,
// corrupt rows, documents whose units are published in several runs, the sweep.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// T9: the trigger makes one insert and one look-up by primary key, according to its plan and to the
// counters of the server.
func TestNotificationT9HotPath(t *testing.T) {
	b := newBoard(t)
	for _, fn := range []string{"fn_iu_notif_birth", "fn_iu_notif_version", "fn_iu_notif_draft", "fn_iu_notif_comment"} {
		src := strings.ToLower(get[string](b.core, "SELECT prosrc FROM pg_proc WHERE proname = $1", fn))
		require.Equal(t, 1, strings.Count(src, "insert into"), fn)
		require.True(t, get[bool](b.core, "SELECT 'enable_seqscan=off' = ANY (proconfig) FROM pg_proc WHERE proname = $1", fn), fn)
		require.Equal(t, 1, strings.Count(src, "from public."), fn)
		require.NotRegexp(t, `\b(join|count|sum|group by|order by|loop|delete|perform|update public)\b`, src, fn)
	}
	sizes := []int{1, 1000, 20_000}
	if full() {
		sizes = append(sizes, 1_000_000)
	}
	var first string
	have := 0
	for _, n := range sizes {
		for ; have < n; have = min(have+10_000, n) {
			b.exec(`WITH u AS (INSERT INTO public.information_unit (canonical_address, source_document_ref, created_by)
				SELECT 'u/' || i, 'd' || i / 5, 'user:ann' FROM generate_series($1::int, $2::int - 1) i RETURNING id)
				INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) SELECT id, 1, 'x', 'user:ann' FROM u`, have, min(have+10_000, n))
		}
		b.exec("ANALYZE public.information_unit, public.unit_version, public.iu_notification_pending")
		cost := b.birthCost()
		if first == "" {
			first = cost
		}
		require.Equal(t, first, cost, "with %d units", n)
		plan, blocks := b.lookup()
		require.Contains(t, plan, "information_unit_pkey")
		require.LessOrEqual(t, blocks, 5, "blocks of a lookup among %d units", n)
	}
	require.Equal(t, "pending +1, units: 1 by index, 0 scans, 1 row; 0 scans of pending", first)
}

// birthCost returns what the trigger adds to the insert of a unit's first version: the server's
// counters of the transaction with the trigger, minus those without it (then only the check of
// foreign keys remains).
func (b board) birthCost() string {
	b.t.Helper()
	type stat struct{ ins, idx, seq, rows, pendingSeq int64 }
	measure := func(hook string) stat {
		tx := b.begin(b.root)
		defer func() { _ = tx.Rollback(b.t.Context()) }()
		_, err := tx.Exec(b.t.Context(), "ALTER TABLE public.unit_version "+hook+" TRIGGER trg_aa_iu_notif_birth")
		require.NoError(b.t, err)
		read := func() (s stat) {
			require.NoError(b.t, tx.QueryRow(b.t.Context(), `SELECT
				pg_stat_get_xact_tuples_inserted('public.iu_notification_pending'::regclass),
				pg_stat_get_xact_numscans('public.information_unit_pkey'::regclass), pg_stat_get_xact_numscans('public.information_unit'::regclass),
				pg_stat_get_xact_tuples_fetched('public.information_unit_pkey'::regclass) + pg_stat_get_xact_tuples_fetched('public.information_unit'::regclass),
				pg_stat_get_xact_numscans('public.iu_notification_pending'::regclass)`).Scan(&s.ins, &s.idx, &s.seq, &s.rows, &s.pendingSeq))
			return s
		}
		var unit string
		require.NoError(b.t, tx.QueryRow(b.t.Context(), "INSERT INTO public.information_unit (canonical_address, created_by) VALUES ('new', 'user:ann') RETURNING id").Scan(&unit))
		before := read()
		_, err = tx.Exec(b.t.Context(), "INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) VALUES ($1, 1, 'x', 'user:ann')", unit)
		require.NoError(b.t, err)
		after := read()
		return stat{after.ins - before.ins, after.idx - before.idx, after.seq - before.seq, after.rows - before.rows, after.pendingSeq - before.pendingSeq}
	}
	on, off := measure("ENABLE"), measure("DISABLE")
	require.Zero(b.t, off.ins)
	return fmt.Sprintf("pending +%d, units: %d by index, %d scans, %d row; %d scans of pending", on.ins, on.idx-off.idx, on.seq-off.seq, on.rows-off.rows, on.pendingSeq)
}

// lookup explains the statement in the source of the trigger function as it runs there: with a
// parameter, and with the function's own setting.
func (b board) lookup() (plan string, blocks int) {
	b.t.Helper()
	conn, err := b.root.Acquire(b.t.Context())
	require.NoError(b.t, err)
	defer conn.Release()
	_, err = conn.Exec(b.t.Context(), "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; PREPARE hook (uuid) AS SELECT iu.canonical_address, iu.source_document_ref, iu.import_batch_ref FROM public.information_unit iu WHERE iu.id = $1", pgx.QueryExecModeSimpleProtocol)
	require.NoError(b.t, err)
	var unit string
	require.NoError(b.t, conn.QueryRow(b.t.Context(), "SELECT id FROM public.information_unit OFFSET (SELECT count(*) / 2 FROM public.information_unit) LIMIT 1").Scan(&unit))
	for range 2 { // the second run counts: the first has work that is needed only once
		require.NoError(b.t, conn.QueryRow(b.t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE hook ('"+unit+"')", pgx.QueryExecModeSimpleProtocol).Scan(&plan))
	}
	var out []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(b.t, json.Unmarshal([]byte(plan), &out))
	_, err = conn.Exec(b.t.Context(), "DEALLOCATE hook; RESET plan_cache_mode; RESET enable_seqscan", pgx.QueryExecModeSimpleProtocol)
	require.NoError(b.t, err)
	return plan, out[0].Plan.Hit + out[0].Plan.Read
}

// T13: rows that cannot be sent fail, each with its reason, and the other rows of the batch are
// sent, also those of the same document. The run is logged and no lock remains. Once fixed and
// requeued, the failed rows are sent.
func TestNotificationT13ErrorHandling(t *testing.T) {
	b := newBoard(t)
	for i := range 3 {
		b.save(fmt.Sprintf("a/%d", i), "user:ann", "a", "")
	}
	b.save("alone", "user:bob", "", "")
	b.save("odd", "user:bob", "", "")
	b.save("wrong", "user:bob", "", "")
	b.exec("ALTER TABLE public.iu_notification_pending ALTER actor_ref DROP NOT NULL")
	b.exec("UPDATE public.iu_notification_pending SET actor_ref = NULL WHERE canonical_address IN ('a/1', 'alone')")
	b.exec("UPDATE public.iu_notification_pending SET event_kind = 'piece_death' WHERE canonical_address = 'odd'")
	b.age()
	got := b.tick()
	require.Equal(t, []any{"processed", 6.0, 3.0, 1.0, 1.0, 3.0, 3.0, 3.0}, []any{got["status"], got["pending_pre"], got["pending_post"], got["groups_emitted"],
		got["pieces_emitted"], got["rows_marked"], got["error_count"], got["failed_total"]}, got)
	require.Equal(t, []string{"document_imported update a/1 user:ann 2", "new_piece_created update wrong user:bob"}, b.firsts())
	require.Equal(t, "6 3 1 1 3 3 t", get[string](b.core, `SELECT concat_ws(' ', pending_pre, pending_post, groups_emitted, pieces_emitted, rows_marked, error_count,
		error_text <> '') FROM public.iu_notification_worker_log`))
	require.Equal(t, []string{"a/1 actor_ref is missing", "alone actor_ref is missing", "odd event_kind is not piece_birth"}, get[[]string](b.core,
		"SELECT array_agg(canonical_address || ' ' || failure ORDER BY canonical_address) FROM public.iu_notification_pending WHERE failed_at IS NOT NULL"))
	b.counted()
	require.Equal(t, "idle", b.tick()["status"], "it is passed over from now on")
	b.save("later", "user:ann", "", "")
	b.age()
	require.Equal(t, []any{1.0, 0.0, 3.0}, func() []any { g := b.tick(); return []any{g["rows_marked"], g["error_count"], g["failed_total"]} }(), "and counted")
	require.Zero(t, get[int](b.core, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"))

	operator := b.as("dead_letter_operator")
	ids := get[[]string](b.core, "SELECT array_agg(id::text ORDER BY canonical_address) FROM public.iu_notification_pending WHERE failed_at IS NOT NULL OR canonical_address = 'later'")
	dry := call(t, operator, "public.fn_iu_notification_requeue($1, 'ben', NULL, true)", ids)
	require.Equal(t, []any{3.0, 1.0, true}, []any{dry["requeued"], dry["skipped"], dry["dry_run"]})
	require.Equal(t, 3, get[int](b.core, "SELECT count(failed_at) FROM public.iu_notification_pending"), "a dry run changes nothing")
	b.exec("UPDATE public.iu_notification_pending SET actor_ref = 'user:ann' WHERE actor_ref IS NULL")
	done := call(t, operator, "public.fn_iu_notification_requeue($1, 'ben', 'mended')", ids)
	require.EqualValues(t, 3, done["requeued"])
	require.Equal(t, "ben mended done", get[string](b.core, "SELECT concat_ws(' ', actor, reason, outcome) FROM public.queue_operator_action WHERE action = 'notification_requeue'"))
	b.counted()
	got = b.tick()
	require.Equal(t, []any{2.0, 1.0, 1.0}, []any{got["rows_marked"], got["error_count"], got["failed_total"]}, "what is still wrong fails again")
	b.counted()
}

// The server refuses one row among thousands for a reason that no check of its values could
// foresee. That row is found, and the others are processed. If an error is not caused by a row, no
// row is marked as failed: the run reports the error, and the next run processes the batch again.
func TestNotificationT13Unforeseen(t *testing.T) {
	b := newBoard(t)
	const n = 3000
	b.births(n)
	b.exec("ALTER TABLE public.iu_notification_event ADD CONSTRAINT tidy CHECK (canonical_address NOT LIKE '%7')")
	before := get[int](b.core, "SELECT count(*) FROM public.unit_version v JOIN public.information_unit u ON u.id = v.unit_id WHERE canonical_address LIKE '%7'")
	require.Equal(t, n/10, before)
	b.age()
	run := call(t, b.worker, "public.fn_queue_tick_request('iu_notification_worker', 'operator')")
	got := run["result"].(map[string]any)
	require.Equal(t, "ok true", get[string](b.core, `SELECT state || ' ' || (last_result ->> 'row_error' LIKE '%tidy%') FROM public.v_queue_scheduler_status
		WHERE worker_name = 'iu_notification_worker'`), "rows failed, not the run")
	require.Equal(t, []any{"processed", 3000.0, 2700.0, 300.0}, []any{got["status"], got["pending_pre"], got["rows_marked"], got["error_count"]}, got)
	require.Contains(t, got["error"], "tidy")
	require.Equal(t, n/10, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending WHERE failure LIKE '23514 %tidy%' AND canonical_address LIKE '%7'"))
	b.counted()

	b.save("blocked", "user:ann", "", "")
	b.age()
	b.exec("REVOKE INSERT ON public.iu_notification_event FROM queue_owner")
	run = call(t, b.worker, "public.fn_queue_tick_request('iu_notification_worker', 'operator')")
	require.Equal(t, []any{false, true}, []any{run["ran"], run["failed"]}, run)
	require.Contains(t, run["error"], "permission denied")
	require.Equal(t, "1 0 0 301 300 42501", get[string](b.core, `SELECT concat_ws(' ', error_count, rows_marked, pieces_emitted, pending_post, failed_total, left(error_text, 5))
		FROM public.iu_notification_worker_log ORDER BY run_at DESC LIMIT 1`), "it says what stands")
	require.True(t, get[bool](b.core, "SELECT failed_at IS NULL AND processed_at IS NULL FROM public.iu_notification_pending WHERE canonical_address = 'blocked'"))
	b.exec("GRANT INSERT ON public.iu_notification_event TO queue_owner")
	run = call(t, b.worker, "public.fn_queue_tick_request('iu_notification_worker', 'operator')")
	require.Equal(t, true, run["ran"], run)
	require.Equal(t, n-n/10+1, get[int](b.core, "SELECT done_total FROM public.queue_tick_worker WHERE worker_name = 'iu_notification_worker'"), "work is rows, not the sum of all numbers")
}

// If very many rows are refused, a run ends after a thousand of them, so that it ends in time; the
// next run continues there.
func TestNotificationT13VeryMany(t *testing.T) {
	b := newBoard(t)
	b.births(2500)
	b.exec("ALTER TABLE public.iu_notification_event ADD CONSTRAINT tidy CHECK (canonical_address !~ '[02468]$') NOT VALID")
	b.age()
	runs, errors, marked := 0, 0, 0
	for {
		got := b.tick()
		n, ok := got["rows_marked"].(float64)
		if !ok {
			break
		}
		refused, _ := got["error_count"].(float64)
		require.LessOrEqual(t, int(refused), 1000)
		runs, errors, marked = runs+1, errors+int(refused), marked+int(n)
	}
	require.Equal(t, 1250, errors)
	require.Equal(t, 1250, marked)
	require.LessOrEqual(t, 2, runs, "a slow machine needs more")
	require.Equal(t, 1250, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending WHERE failed_at IS NOT NULL AND canonical_address ~ '[02468]$'"))
	require.Equal(t, 1250, get[int](b.core, `SELECT sum(COALESCE((payload ->> 'piece_count')::int, 1))::int FROM public.iu_notification_event`))
	b.counted()
}

// births stages the notifications of n new units through the trigger, in documents of five units
// each.
func (b board) births(n int) {
	b.t.Helper()
	const most = 10_000
	for from := 0; from < n; from += most {
		b.exec(`WITH u AS (INSERT INTO public.information_unit (canonical_address, source_document_ref, created_by)
			SELECT 'd' || i / 5 || '/' || i, CASE WHEN i % 10 < 5 THEN 'd' || i / 5 END, 'user:ann' FROM generate_series($1::int, $2::int) i RETURNING id)
			INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) SELECT id, 1, 'x', 'user:ann' FROM u`, from, min(n, from+most)-1)
	}
}

// A run processes a bounded number of rows, the oldest first. A document that this splits gets two
// events.
func TestNotificationRunIsBounded(t *testing.T) {
	b := newBoard(t)
	for i := range 5 {
		b.save(fmt.Sprintf("a/%d", i), "user:ann", "a", "")
	}
	b.exec("UPDATE public.iu_notification_pending SET created_at = now() - interval '1 hour' + right(canonical_address, 1)::int * interval '1 second'")
	taken := func() string {
		return get[string](b.core, `SELECT concat_ws(' ', r ->> 'rows_marked', r ->> 'groups_emitted') FROM public.fn_iu_notification_emit(now(), 2, 3) r`)
	}
	require.Equal(t, []string{"3 1", "2 1", "0 0"}, []string{taken(), taken(), taken()})
	require.Equal(t, []string{"document_imported update a/0 user:ann 3", "document_imported update a/3 user:ann 2"}, b.events())
}

// A hundred thousand rows are processed in one run, with one statement per step.
func TestNotificationHundredThousand(t *testing.T) {
	b := newBoard(t)
	n := 10_000
	if full() {
		n = 100_000
	}
	b.births(n)
	b.age()
	began := time.Now()
	got := b.tick()
	t.Logf("%d rows in %s", n, time.Since(began))
	require.EqualValues(t, n, got["rows_marked"])
	require.EqualValues(t, 0, got["pending_post"])
	require.EqualValues(t, n, get[int](b.core, `SELECT (SELECT sum((payload ->> 'piece_count')::int) FROM public.iu_notification_event WHERE event_type = 'document_imported')
		+ (SELECT count(*) FROM public.iu_notification_event WHERE event_type = 'new_piece_created')`))
	b.counted()
}

// New units arrive, age and are published in any order, by workers that race: each unit is
// published once, alone or in the one document_imported that its document gets per run.
func TestNotificationStraddle(t *testing.T) {
	b := newBoard(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	rounds := 12
	if full() {
		rounds = 100
	}
	pieces := 0
	for range rounds {
		for range rng.IntN(12) {
			b.save(fmt.Sprintf("p/%d", pieces), "user:ann", []string{"", "a", "b", "c"}[rng.IntN(4)], []string{"", "n"}[rng.IntN(2)])
			pieces++
		}
		b.exec("UPDATE public.iu_notification_pending SET created_at = now() - interval '120 seconds' WHERE processed_at IS NULL AND ('x' || right(md5(id::text || $1), 2))::bit(8)::int < 128", fmt.Sprint(rng.Uint64()))
		waiting := get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending WHERE processed_at IS NULL AND created_at < now() - interval '100 seconds'")
		events, groups := len(b.events()), get[int](b.core, `SELECT count(*) FROM (SELECT 1 FROM public.iu_notification_pending WHERE processed_at IS NULL
			AND created_at < now() - interval '100 seconds' AND COALESCE(source_document_ref, import_batch_ref) IS NOT NULL
			GROUP BY COALESCE(source_document_ref, import_batch_ref) HAVING count(*) > 1) g`)
		got := together(t, 3, func(int) (map[string]any, error) { return tryCall(b.worker, "public.fn_iu_notification_worker_tick()") })
		if waiting > 0 {
			require.Equal(t, 1, count(got, "status", "processed"), got)
		}
		require.Equal(t, groups, get[int](b.core, "SELECT count(*) FROM public.iu_notification_event WHERE event_type = 'document_imported'")-b.documents(events), "one per document and run")
	}
	b.age()
	b.tick()
	require.Equal(t, pieces, get[int](b.core, `SELECT COALESCE(sum(COALESCE((payload ->> 'piece_count')::int, 1)), 0) FROM public.iu_notification_event`), "none lost, none doubled")
	require.Equal(t, pieces, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending WHERE processed_at IS NOT NULL"))
	require.Equal(t, get[int](b.core, "SELECT count(*) FROM public.iu_notification_event"), get[int](b.core, "SELECT COALESCE(sum(groups_emitted + pieces_emitted), 0) FROM public.iu_notification_worker_log"))
	require.Equal(t, pieces, get[int](b.core, "SELECT sum(rows_marked) FROM public.iu_notification_worker_log"))
	b.counted()
}

// documents counts the document events among the first n events; all events of one run have the
// same time.
func (b board) documents(n int) int {
	return get[int](b.core, `SELECT count(*) FROM (SELECT event_type FROM public.iu_notification_event ORDER BY created_at, event_type DESC LIMIT $1) e
		WHERE event_type = 'document_imported'`, n)
}

// The sweep deletes rows that were processed long ago, but never rows that wait or have failed.
func TestNotificationSweep(t *testing.T) {
	b := newBoard(t)
	b.births(10)
	b.age()
	b.tick()
	b.exec("UPDATE public.iu_notification_pending SET processed_at = now() - interval '16 days' WHERE id IN (SELECT id FROM public.iu_notification_pending ORDER BY id LIMIT 6)")
	b.save("waits", "user:ann", "", "")
	b.save("failed", "user:ann", "", "")
	b.exec("UPDATE public.iu_notification_pending SET created_at = now() - interval '1 year' WHERE canonical_address IN ('waits', 'failed')")
	b.exec("UPDATE public.iu_notification_pending SET failed_at = now() - interval '1 year', failure = 'x' WHERE canonical_address = 'failed'")
	run := call(t, b.worker, "public.fn_queue_tick_request('staging_cleanup_sweep', 'operator')")
	require.Equal(t, map[string]any{"deleted": 6.0}, run["result"])
	require.Equal(t, 6, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending"))
	b.exec("UPDATE public.iu_notification_pending SET processed_at = now() - interval '2 days' WHERE processed_at IS NOT NULL")
	b.exec("SELECT public.fn_dot_config_set('retention.staging_days', '0', 'test', 'keep all')")
	require.Equal(t, map[string]any{"deleted": 0.0}, call(t, b.worker, "public.fn_staging_cleanup_sweep()"))
	b.exec("SELECT public.fn_dot_config_set('retention.staging_days', '1', 'test', 'a day')")
	require.Equal(t, map[string]any{"deleted": 4.0}, call(t, b.worker, "public.fn_staging_cleanup_sweep()"))
	require.Equal(t, []string{"failed", "waits"}, get[[]string](b.core, "SELECT array_agg(canonical_address ORDER BY canonical_address) FROM public.iu_notification_pending"))
	b.counted()
}

// Health shows how many notifications wait and how many failed, from counters and from the end of
// an index, not from a count of the table.
func TestNotificationHealth(t *testing.T) {
	b := newBoard(t)
	line := func() string {
		var s *string
		require.NoError(t, b.as("queue_viewer").QueryRow(context.Background(), `SELECT (SELECT concat_ws(' ', subject, domain, events_seen, dead_lettered, status_hint, age_seconds >= 600)
			FROM public.v_queue_health WHERE source = 'notification_pending')`).Scan(&s))
		if s == nil {
			return ""
		}
		return *s
	}
	require.Empty(t, line())
	b.births(3)
	silent := func(s int) {
		b.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - make_interval(secs => $1) WHERE executor_id = 'iu_notification_worker'", s)
	}
	silent(3600)
	require.Equal(t, "iu_notification_worker iu 3 0 stale f", line(), "its worker is silent")
	silent(0)
	require.Equal(t, "iu_notification_worker iu 3 0 fresh f", line())
	b.exec("UPDATE public.iu_notification_pending SET created_at = now() - interval '10 minutes'")
	require.Equal(t, "iu_notification_worker iu 3 0 stale t", line(), "whatever the heartbeat says: they wait too long")
	b.exec("UPDATE public.iu_notification_pending SET created_at = now() - interval '7 minutes'")
	b.exec("UPDATE public.iu_notification_pending SET failed_at = now(), failure = 'x' WHERE canonical_address = 'd0/1'")
	require.Equal(t, "iu_notification_worker iu 2 1 open f", line())
	silent(3600)
	require.Equal(t, "iu_notification_worker iu 2 1 stale f", line())
	b.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, actor_ref, ref_id, created_at)
		SELECT gen_random_uuid(), 'x', 'user:ann', gen_random_uuid(), now() - interval '5 minutes' FROM generate_series(1, 500)`)
	tx := b.begin(b.root)
	read := func() (scans, rows int) {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_numscans('public.iu_notification_pending'::regclass),
			(SELECT sum(pg_stat_get_xact_tuples_fetched(i.indexrelid)) FROM pg_index i WHERE i.indrelid = 'public.iu_notification_pending'::regclass)`).Scan(&scans, &rows))
		return scans, rows
	}
	scans, rows := read()
	_, err := tx.Exec(t.Context(), "SELECT public.fn_iu_notification_backlog()")
	require.NoError(t, err)
	scansAfter, rowsAfter := read()
	require.Equal(t, scans, scansAfter, "it goes through no table")
	require.Less(t, rowsAfter-rows, 20, "and looks at the ends of an index")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "stale", get[string](b.core, `SELECT h ->> 'status_hint' FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'health') h WHERE h ->> 'source' = 'notification_pending'`))
}

// A role without the right cannot stage, send or read notifications, and no viewer reads the text
// of a unit.
func TestNotificationRights(t *testing.T) {
	b := newBoard(t)
	viewer := b.as("queue_viewer", "workflow_admin", "dead_letter_operator", "dot_executor")
	for _, sql := range []string{
		"SELECT body FROM public.unit_version", "SELECT body FROM public.iu_comment", "SELECT body FROM public.iu_draft", "SELECT payload FROM public.iu_notification_event",
		"UPDATE public.iu_notification_pending SET failed_at = NULL", "INSERT INTO public.information_unit (canonical_address, created_by) VALUES ('x', 'y')",
		"SELECT public.fn_iu_save('x', 'y', 'z')", "SELECT * FROM public.fn_iu_notification_board('user:ann')",
	} {
		fails(t, viewer, "42501", sql)
	}
	fails(t, b.writer, "42501", "SELECT public.fn_iu_notification_worker_tick()")
	fails(t, b.writer, "42501", "SELECT public.fn_iu_notification_requeue(ARRAY[gen_random_uuid()], 'a', 'b')")
	fails(t, b.root, "42501", "TRUNCATE public.iu_notification_pending")
	fails(t, b.root, "23514", `INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source, payload)
		VALUES ('comment_added', 'comment', gen_random_uuid(), 'x', gen_random_uuid(), 'a', 's', '{"body": "x"}')`)
	fails(t, b.root, "23514", `INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source)
		VALUES ('comment_added', 'update', gen_random_uuid(), 'x', gen_random_uuid(), 'a', 's')`)
}
