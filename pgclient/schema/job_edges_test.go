// The state machine of jobs against direct writes: of 9 × 9 edges only the legal ones are accepted,
// no row can be deleted, no table can be truncated, and every executor has a kind.

package schema_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

var (
	liveStates  = []string{"queued", "leased", "in_progress", "retry_waiting"}
	finalStates = []string{"succeeded", "failed", "dead_letter", "cancelled", "cleaned"}
)

// legal lists, per status, the statuses that an UPDATE of job_queue may set; finishing a job moves
// it to job_history.
var legal = map[string][]string{
	"queued":        {"leased"},
	"leased":        {"in_progress", "queued", "retry_waiting"},
	"in_progress":   {"queued", "retry_waiting"},
	"retry_waiting": {"leased"},
}

var finishing = map[string][]string{
	"queued":        {"cancelled"},
	"leased":        {"succeeded", "failed", "dead_letter", "cancelled"},
	"in_progress":   {"succeeded", "failed", "dead_letter", "cancelled"},
	"retry_waiting": {"cancelled"},
	"succeeded":     {"cleaned"}, "failed": {"cleaned"}, "dead_letter": {"cleaned"}, "cancelled": {"cleaned"},
}

// byHand runs a statement as superuser or as another role, and rolls it back; it returns the
// SQLSTATE.
func (j *jobs) byHand(role, sql string, args ...any) (state string) {
	j.t.Helper()
	ctx := context.Background()
	tx := j.begin(j.root)
	defer func() { _ = tx.Rollback(ctx) }()
	if role != "" {
		_, err := tx.Exec(ctx, "SET LOCAL ROLE "+role)
		require.NoError(j.t, err)
	}
	_, err := tx.Exec(ctx, sql, args...)
	if err == nil {
		return ""
	}
	var pg *pgconn.PgError
	require.ErrorAs(j.t, err, &pg, sql)
	return pg.Code
}

func TestJobEdgesByHand(t *testing.T) {
	j := newJobs(t)
	const columns = `lease_owner = CASE WHEN $2 IN ('leased', 'in_progress') THEN 'w' END, lease_until = CASE WHEN $2 IN ('leased', 'in_progress') THEN now() END,
		lease_token = CASE WHEN $2 IN ('leased', 'in_progress') THEN gen_random_uuid() END`
	for _, role := range []string{"", "queue_owner"} {
		for _, from := range liveStates {
			h := j.standing(from)
			for _, to := range slices.Concat(liveStates, finalStates) {
				state := j.byHand(role, "UPDATE public.job_queue SET status = $2, "+columns+" WHERE job_id = $1", h.Job, to)
				if to == from || slices.Contains(legal[from], to) {
					require.Empty(t, state, "%s to %s", from, to)
				} else {
					require.Equal(t, "42501", state, "%s to %s as %q", from, to, role)
				}
			}
			call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'out of the way')", h.Job)
		}
		for _, from := range finalStates {
			h := j.standing(from)
			for _, to := range slices.Concat(liveStates, finalStates) {
				state := j.byHand(role, `UPDATE public.job_history SET status = $2, from_status = status, payload = '{}', last_error = NULL WHERE job_id = $1`, h.Job, to)
				if to == "cleaned" && from != "cleaned" {
					require.Empty(t, state, "%s to cleaned", from)
				} else {
					require.Equal(t, "42501", state, "%s to %s as %q", from, to, role)
				}
			}
			require.NotEmpty(t, j.byHand(role, "UPDATE public.job_history SET status = 'cleaned', from_status = status, attempts = 0, payload = '{}', priority = 9 WHERE job_id = $1", h.Job))
		}
		// A job enters job_history only by a finishing edge, and a new job is always queued.
		j.standing("queued")
		for _, from := range slices.Concat(liveStates, finalStates) {
			for _, to := range slices.Concat(liveStates, finalStates) {
				state := j.byHand(role, `INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
					VALUES (gen_random_uuid(), 'k', 'iu', 'DOT', $1, $2, now())`, to, from)
				if slices.Contains(finishing[from], to) {
					require.Empty(t, state, "%s from %s", to, from)
				} else {
					require.Equal(t, "23514", state, "%s from %s", to, from)
				}
			}
		}
		for _, to := range slices.Concat(liveStates, finalStates) {
			state := j.byHand(role, `INSERT INTO public.job_queue (job_kind, event_domain, executor, status, lease_owner, lease_until, lease_token)
				SELECT 'k', 'iu', 'DOT', s, CASE WHEN s IN ('leased', 'in_progress') THEN 'w' END, CASE WHEN s IN ('leased', 'in_progress') THEN now() END,
				CASE WHEN s IN ('leased', 'in_progress') THEN gen_random_uuid() END FROM (VALUES ($1)) v (s)`, to)
			require.Equal(t, map[bool]string{true: "", false: "42501"}[to == "queued"], state, "born %s", to)
		}
		j.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue")
	}
}

func TestJobIsWhatItIs(t *testing.T) {
	j := newJobs(t)
	h := j.standing("leased")
	for _, set := range []string{"job_id = gen_random_uuid()", "job_kind = 'other'", "event_domain = 'kg'", "executor = 'DOT'", "enqueued_at = '2020-01-01'",
		"max_attempts = 9", "idempotency_key = 'x'", "attempts = attempts + 1", "attempts = -1", "status = 'queued', lease_owner = NULL, lease_until = NULL, lease_token = NULL, attempts = 2"} {
		require.Equal(t, "42501", j.byHand("queue_owner", "UPDATE public.job_queue SET "+set+" WHERE job_id = $1", h.Job), set)
	}
	for _, set := range []string{"lease_token = NULL", "lease_owner = NULL, lease_until = NULL", "status = 'queued'", "finished_at = now()"} {
		require.Equal(t, "23514", j.byHand("queue_owner", "UPDATE public.job_queue SET "+set+" WHERE job_id = $1", h.Job), set)
	}
	require.Equal(t, "42501", j.byHand("queue_owner", "INSERT INTO public.job_queue (job_kind, event_domain, executor, attempts) VALUES ('k', 'iu', 'DOT', 1)"))
	dead := j.standing("dead_letter")
	for _, set := range []string{"payload = '{}'", "failure_code = 'OTHER'", "attempts = 0", "job_id = gen_random_uuid()", "last_error = 'x'", "triage_note = 'x'"} {
		require.Equal(t, "42501", j.byHand("queue_owner", "UPDATE public.job_dead_letter SET "+set+" WHERE job_id = $1", dead.Job), set)
	}
}

// Nobody can DELETE or TRUNCATE, on any leaf, even if no row would be affected.
func TestJobNothingGoes(t *testing.T) {
	j := newJobs(t)
	j.standing("dead_letter")
	j.standing("leased")
	h := j.standing("queued")
	leaves := get[[]string](j.core, "SELECT array_agg(relid::regclass::text) FROM pg_partition_tree('public.job_history')")
	require.Greater(t, len(leaves), 35)
	tables := append(leaves, "public.job_queue", "public.job_dead_letter")
	for _, role := range []string{"", "queue_owner"} {
		for _, table := range tables {
			require.Equal(t, "42501", j.byHand(role, "TRUNCATE "+table), table)
			require.Equal(t, "42501", j.byHand(role, "TRUNCATE "+table+" CASCADE"), table)
		}
		leaf := get[string](j.core, "SELECT tableoid::regclass::text FROM public.job_history")
		for _, sql := range []string{"public.job_queue WHERE job_id = '" + h.Job + "'", "public.job_queue", "public.job_queue WHERE false", "public.job_history", leaf, "public.job_dead_letter"} {
			require.Equal(t, "42501", j.byHand(role, "DELETE FROM "+sql), sql)
		}
		require.Equal(t, "42501", j.byHand(role, "UPDATE "+leaf+" SET status = 'succeeded'"), leaf)
		// The guard accepts only functions of qtop, not another function with a similar name, and not a
		// statement with such a name in a comment.
		for _, sql := range []string{"DO $$ BEGIN DELETE FROM public.job_queue; END $$", "DO $$ BEGIN DELETE FROM public.job_queue /* PL/pgSQL function public.fn_job_ack(uuid[]) */; END $$",
			"CREATE FUNCTION public.fn_job_mine() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DELETE FROM public.job_queue; END $$; SELECT public.fn_job_mine()",
			"CREATE FUNCTION pg_temp.fn_job_mine() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DELETE FROM public.job_queue; END $$; SELECT pg_temp.fn_job_mine()"} {
			tx := j.begin(j.root)
			if role != "" && strings.HasPrefix(sql, "CREATE") {
				continue // the owner may not create temporary objects
			}
			_, err := tx.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol)
			refused(t, "42501", err, sql)
			require.NoError(t, tx.Rollback(context.Background()))
		}
	}
	fails(t, j.work, "42501", "DELETE FROM public.job_queue")
	require.Equal(t, 2, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
}

// Finished jobs of a day without a partition move from the default when the partition of the day is
// made. The guards allow this move, the jobs are not counted again, and the retention sweep may
// delete them, once.
func TestJobHistoryPartitions(t *testing.T) {
	j := newJobs(t)
	j.standing("succeeded")
	h := j.standing("failed")
	j.exec(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at, payload)
		VALUES ($1, 'late', 'iu', 'DOT', 'succeeded', 'leased', now() + interval '40 days', '{"n": 1}')`, "00000000-0000-0000-0000-00000000000a")
	where := func() string {
		return get[string](j.core, "SELECT tableoid::regclass::text FROM public.job_history WHERE job_kind = 'late'")
	}
	require.Equal(t, "public.job_history_default", where())
	stale := "SELECT count(*) FROM public.v_queue_health WHERE source = 'default_partition' AND subject = 'job_history_default' AND status_hint = 'stale'"
	require.Equal(t, 1, get[int](j.core, stale))
	j.balanced()
	j.exec("UPDATE public.queue_partitioned SET ahead = '45 days' WHERE parent = 'job_history'")
	require.EqualValues(t, 1, call(t, j.root, "public.fn_queue_partitions_ensure()")["moved"])
	require.NotEqual(t, "public.job_history_default", where())
	require.Zero(t, get[int](j.core, stale))
	j.balanced()
	for _, table := range []string{where(), "public.job_history_default"} {
		require.Equal(t, "42501", j.byHand("", "TRUNCATE "+table), table)
	}
	require.Equal(t, "42501", j.byHand("queue_owner", "DELETE FROM "+where()))
	const clean = "UPDATE public.job_history SET status = 'cleaned', from_status = status, payload = '{}', last_error = NULL WHERE status <> 'cleaned'"
	j.exec(clean)
	j.balanced()
	require.Equal(t, "42501", j.byHand("", "UPDATE public.job_history SET updated_at = now() WHERE job_id = $1", h.Job))
	require.Equal(t, 3, get[int](j.core, "SELECT count(*) FROM public.job_history WHERE status = 'cleaned'"))
	require.Equal(t, "23514", j.byHand("", "INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at, payload) "+
		"VALUES (gen_random_uuid(), 'k', 'iu', 'DOT', 'cleaned', 'failed', now(), '{\"n\": 1}')"), "cleaned is empty")
}

// Rows that are inserted directly follow the same rules as those of the functions: a job that is
// due later is outside the claim index and is counted as scheduled, and an INSERT of many rows
// cannot set columns of a job's past, such as attempts.
func TestJobBornByHand(t *testing.T) {
	j := newJobs(t)
	const insert = "INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, attempts, lost_leases, prior_token) SELECT "
	for _, rows := range []int{1, 3} {
		j.exec(insert+"'late' || $1::int, 'iu', 'DOT', now() + n * interval '1 hour', 0, 0, NULL FROM generate_series(1, $1::int) n", rows)
		j.exec(insert+"'both' || $1::int, 'iu', 'DOT', now() + (n % 2) * interval '1 hour', 0, 0, NULL FROM generate_series(1, $1::int) n", rows)
		for _, past := range []string{"1, 0, NULL", "0, 1, NULL", "0, 0, gen_random_uuid()", "-1, 1, NULL"} {
			require.Equal(t, "42501", j.byHand("queue_owner", insert+"'k', 'iu', 'DOT', now(), "+past+" FROM generate_series(1, $1::int)", rows), past)
		}
		require.Equal(t, "23514", j.byHand("queue_owner", insert+"'k', 'iu', 'DOT', now(), 0, -1, NULL FROM generate_series(1, $1::int)", rows))
	}
	j.none("a job that is ready before it is due, or the reverse", "SELECT 1 FROM public.job_queue WHERE ready = (process_after > now())")
	require.Equal(t, "both1 scheduled 1,both3 queued 1,both3 scheduled 2,late1 scheduled 1,late3 scheduled 3", get[string](j.core,
		"SELECT string_agg(k1 || ' ' || k3 || ' ' || n, ',' ORDER BY k1, k3) FROM public.v_queue_counter WHERE scope = 'job' AND n <> 0"))
	j.balanced()
}

// Invalid values of a job are refused, whichever role writes them.
func TestJobValuesByHand(t *testing.T) {
	j := newJobs(t)
	h := j.standing("leased")
	for _, set := range []string{"payload = '[]'", `payload = '{"token": 1}'`, "last_error = repeat('x', 4097)", "failure_code = 'no code'", "prior_result = 'lost'", "lost_leases = -1"} {
		require.Equal(t, "23514", j.byHand("queue_owner", "UPDATE public.job_queue SET "+set+" WHERE job_id = $1", h.Job), set)
	}
	for column, value := range map[string]string{"executor": "'MOT'", "max_attempts": "0", "idempotency_key": "''", "payload": `'{"body": 1}'`, "last_error": "repeat('x', 4097)",
		"failure_code": "'no code'", "prior_result": "'lost'", "finished_at": "now()", "lease_owner": "'w'"} {
		columns := "job_kind, event_domain, " + column
		values := "'k', 'iu', " + value
		if column != "executor" {
			columns, values = columns+", executor", values+", 'DOT'"
		}
		require.Equal(t, "23514", j.byHand("queue_owner", "INSERT INTO public.job_queue ("+columns+") VALUES ("+values+")"), column)
	}
	// Of several rows the last one is refused too, and so is a payload that is compressed or stored apart.
	const long = "(SELECT string_agg(md5(g || ' ' || random()), '') FROM generate_series(1, 125) g)"
	for _, bad := range []string{"jsonb_build_object('body', " + long + ")", "jsonb_build_object('body', repeat('x', 100000))", "jsonb_build_array(" + long + ")", `jsonb '{"token": 1}'`} {
		require.Equal(t, "23514", j.byHand("queue_owner", `INSERT INTO public.job_queue (job_kind, event_domain, executor, payload)
			SELECT 'k', 'iu', 'DOT', CASE WHEN n = 3 THEN `+bad+` ELSE '{}' END FROM generate_series(1, 3) n`), bad)
		require.Equal(t, "23514", j.byHand("queue_owner", "INSERT INTO public.job_queue (job_kind, event_domain, executor, payload) VALUES ('k', 'iu', 'DOT', "+bad+")"), bad)
	}
	for payload, said := range map[string]string{"jsonb_build_object('token', " + long + ")": "payload may not hold the key token", "jsonb_build_array(" + long + ")": "payload must be a JSON object"} {
		_, err := j.root.Exec(context.Background(), "INSERT INTO public.job_queue (job_kind, event_domain, executor, payload) VALUES ('k', 'iu', 'DOT', "+payload+")")
		require.ErrorContains(t, err, said)
	}
	require.Equal(t, "23514", j.byHand("queue_owner", "UPDATE public.job_lease SET live = -1"))
	f := j.standing("failed")
	leaf := get[string](j.core, "SELECT tableoid::regclass::text FROM public.job_history")
	for _, table := range []string{"public.job_history", leaf} {
		require.Equal(t, "23514", j.byHand("queue_owner", "UPDATE "+table+" SET status = 'cleaned', from_status = status WHERE job_id = $1", f.Job), table)
		require.Equal(t, "23514", j.byHand("queue_owner", "INSERT INTO "+table+" (job_id, job_kind, event_domain, executor, status, from_status, finished_at, source_ref) "+
			"VALUES (gen_random_uuid(), 'k', 'iu', 'DOT', 'cleaned', 'failed', now(), 'x')"), table)
	}
}

// The limits of the lengths of names, to the character.
func TestJobNamesHaveBounds(t *testing.T) {
	j := newJobs(t)
	enqueue := func(kind, domain string) error {
		_, err := tryCall(j.work, "public.fn_job_enqueue($1, $2, 'DOT')", kind, domain)
		return err
	}
	require.NoError(t, enqueue("K"+strings.Repeat("-", 99), "d"+strings.Repeat("_", 50)))
	for kind, domain := range map[string]string{"": "iu", "K" + strings.Repeat("x", 100): "iu", "1k": "iu", "k k": "iu", "k\n": "iu", "k": "", "kind": "Iu", "a": "iu\n", "b": "iu-x",
		"c": "d" + strings.Repeat("x", 51)} {
		refused(t, "22023", enqueue(kind, domain), kind+" "+domain)
	}
	_, err := tryCall(j.work, "public.fn_queue_doorbell($1)", "d"+strings.Repeat("_", 50))
	require.NoError(t, err)
	for _, domain := range []any{nil, "", "iu\n", "d" + strings.Repeat("x", 51)} {
		_, err := tryCall(j.work, "public.fn_queue_doorbell($1)", domain)
		refused(t, "22023", err, fmt.Sprint(domain))
	}
}

// A dead letter's columns that describe its job cannot be changed.
func TestJobDeadLetterIsWhatItIs(t *testing.T) {
	j := newJobs(t)
	h := j.standing("dead_letter")
	for _, set := range []string{"priority = priority + 1", "max_attempts = 9", "source_ref = 'x'", "target_ref = 'x'", "payload_ref = 'x'",
		"correlation_id = 'x'", "causation_event_id = gen_random_uuid()"} {
		require.Equal(t, "42501", j.byHand("queue_owner", "UPDATE public.job_dead_letter SET triage_status = 'resolved', resolution = 'abandoned', "+
			"resolved_at = now(), resolved_by = 'ann', "+set+" WHERE job_id = $1", h.Job), set)
	}
}
