// Rights on jobs: each function may be called by the roles that need it and by no others, no role
// writes rows of jobs directly, and viewers see no payloads.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The functions that roles may call, and which roles; no role may call any other function.
func TestJobRolesEveryFunction(t *testing.T) {
	j := newJobs(t)
	const viewers = "dead_letter_operator dot_executor queue_viewer workflow_admin"
	want := map[string]string{
		"fn_job_enqueue": "event_ingest_writer", "fn_job_enqueue_many": "event_ingest_writer",
		"fn_job_claim": "dot_executor", "fn_job_start": "dot_executor", "fn_job_renew": "dot_executor", "fn_job_ack": "dot_executor",
		"fn_job_fail": "dot_executor", "fn_job_release": "dot_executor", "fn_job_locked": "dot_executor", "fn_job_payload": "dot_executor", "fn_job_tick": "dot_executor", "fn_job_reap_expired": "dot_executor",
		"fn_job_root": "dot_executor", "fn_job_key": "dot_executor", "fn_job_claim_lost": "dot_executor", "fn_job_watermark_advance": "dot_executor", "fn_job_next_due": "dot_executor",
		"fn_job_cancel": "dead_letter_operator", "fn_job_cancel_seen": "dead_letter_operator", "fn_job_lease_release": "dead_letter_operator", "fn_job_dead_letter_replay": "dead_letter_operator",
		"fn_job_dead_letter_resolve": "dead_letter_operator", "fn_job_dead_letter_reopen": "dead_letter_operator",
		"fn_job_dead_letter_replay_undo": "dead_letter_operator",
		"fn_job_subscription_set":        "workflow_admin",
		"fn_job_refusal":                 viewers, "fn_job_backlog": viewers, "fn_job_dead_letters_open": viewers, "fn_job_letters_open": viewers,
	}
	rows, err := j.root.Query(context.Background(), `SELECT p.proname::text, COALESCE(string_agg(a.grantee::regrole::text, ' ' ORDER BY a.grantee::regrole::text), '')
		FROM pg_proc p LEFT JOIN LATERAL aclexplode(p.proacl) a ON a.grantee <> p.proowner
		WHERE p.pronamespace = 'public'::regnamespace AND p.proname ~ '^fn_job_' GROUP BY p.oid, p.proname`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var fn, roles string
		require.NoError(t, rows.Scan(&fn, &roles))
		require.Equal(t, want[fn], roles, "the roles that may call %s; if they are meant, add them to want", fn)
		delete(want, fn)
	}
	require.NoError(t, rows.Err())
	require.Empty(t, want, "missing")
}

func TestJobRolesOfAnExecutor(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	j.put("k", "iu", 6)
	dot := j.as("dot_executor")
	ctx := context.Background()
	hs, err := tryTake(dot, "w", nil, 6, nil)
	require.NoError(t, err)
	require.Len(t, hs, 6)
	for i, what := range []string{"start", "renew", "ack", "release", "TIMEOUT", "BROKEN!"} {
		got, err := tell(ctx, dot, what, hs[i])
		require.NoError(t, err)
		require.Equal(t, "done", got[hs[i].Job], what)
	}
	call(t, dot, "public.fn_job_tick()")
	call(t, dot, "public.fn_job_reap_expired()")
	for _, sql := range []string{
		"INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('k', 'iu', 'external_worker')", "UPDATE public.job_queue SET priority = 1", "DELETE FROM public.job_queue",
		"TRUNCATE public.job_queue", "INSERT INTO public.job_history SELECT * FROM public.job_history", "UPDATE public.job_history SET status = 'cleaned'", "DELETE FROM public.job_history",
		"UPDATE public.job_lease SET lease_until = 'infinity'", "DELETE FROM public.job_lease", "INSERT INTO public.job_lane (event_domain, job_kind) VALUES ('iu', 'k')",
		"INSERT INTO public.job_subscription (executor_id, executor_kind, registered_by) VALUES ('x', 'DOT', 'x')", "UPDATE public.job_subscription SET enabled = true, max_parallel = 1000",
		"DELETE FROM public.job_subscription", "INSERT INTO public.executor_producer VALUES ('DOT', 'x')", "UPDATE public.job_dead_letter SET triage_status = 'open'",
		"SELECT payload FROM public.job_queue", "SELECT * FROM public.v_job",
		"SELECT public.fn_job_subscription_set('w', NULL, NULL, 0, 1000, true, NULL, 'eve', 'mine')", "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')",
		"SELECT public.fn_job_cancel(ARRAY[gen_random_uuid()], 'eve', 'x')", "SELECT public.fn_job_dead_letter_replay(ARRAY[gen_random_uuid()], 'eve', 'x')",
		"SELECT public.fn_job_reap(NULL)", "SELECT public.fn_job_bury(NULL, NULL, NULL, NULL, 1)", "SELECT public.fn_job_lease_less(NULL)",
	} {
		fails(t, dot, "42501", sql)
	}
}

func TestJobRolesOfTheOthers(t *testing.T) {
	j := newJobs(t)
	writer := j.as("event_ingest_writer")
	call(t, writer, "public.fn_job_enqueue('k', 'iu', 'external_worker')")
	for _, sql := range []string{"SELECT 1 FROM public.job_queue", "INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('k', 'iu', 'external_worker')",
		"SELECT 1 FROM public.v_job", "SELECT 1 FROM public.job_lease", "SELECT public.fn_job_claim('w')", "SELECT public.fn_job_tick()", "SELECT public.fn_job_cancel(ARRAY[gen_random_uuid()], 'x', 'x')"} {
		fails(t, writer, "42501", sql)
	}
	for role, may := range map[string][]string{
		"workflow_admin": {"INSERT INTO public.job_subscription (executor_id, executor_kind, registered_by) VALUES ('x', 'DOT', 'x')", "SELECT job_id FROM public.v_job"},
		"dead_letter_operator": {"SELECT public.fn_job_cancel(ARRAY[gen_random_uuid()], 'x', 'x')", "SELECT dead_letter_id, last_error FROM public.job_dead_letter",
			"SELECT public.fn_job_refusal('w')"},
		"queue_viewer": {"SELECT job_id, last_error, from_status FROM public.v_job", "SELECT * FROM public.v_job_lease", "SELECT * FROM public.job_subscription", "SELECT * FROM public.v_executor_subscription_health",
			"SELECT * FROM public.job_lane", "SELECT public.fn_job_refusal('w')"},
	} {
		pool := j.as(role)
		for _, sql := range may {
			_, err := pool.Exec(context.Background(), sql)
			require.NoError(t, err, role)
		}
		for _, sql := range []string{"DELETE FROM public.job_queue", "UPDATE public.job_queue SET priority = 1", "UPDATE public.job_history SET priority = 1", "DELETE FROM public.job_subscription",
			"UPDATE public.job_dead_letter SET triage_note = 'x'", "SELECT public.fn_job_claim('w')", "SELECT public.fn_job_reap_expired()", "TRUNCATE public.job_dead_letter"} {
			fails(t, pool, "42501", sql)
		}
		if role != "workflow_admin" {
			fails(t, pool, "42501", "UPDATE public.job_subscription SET enabled = true")
			fails(t, pool, "42501", "SELECT public.fn_job_subscription_set('w', NULL, NULL, 0, 1, true, NULL, 'x', 'x')")
		}
		if role != "dead_letter_operator" {
			fails(t, pool, "42501", "SELECT public.fn_job_cancel(ARRAY[gen_random_uuid()], 'x', 'x')")
			fails(t, pool, "42501", "SELECT public.fn_job_lease_release(ARRAY[gen_random_uuid()], 'x', 'x')")
		}
	}
}

// A viewer cannot read a payload in any way: by column, whole row, copy, leaf, filter or
// statistics.
func TestJobViewerSeesNoPayload(t *testing.T) {
	j := newJobs(t)
	deadLetter := j.deadLetter("k", "iu", "TIMEOUT")
	queued := call(t, j.work, `public.fn_job_enqueue('k', 'iu', 'external_worker', '{"n": 1, "api_key": "hidden-key"}')`)["job_id"]
	j.exec("ANALYZE")
	leaf := get[string](j.core, "SELECT tableoid::regclass::text FROM public.job_history")
	for _, role := range []string{"queue_viewer", "workflow_admin", "dead_letter_operator", "dot_executor"} {
		viewer := j.as(role)
		for _, table := range []string{"public.job_queue", "public.job_history", "public.v_job", "public.job_dead_letter", leaf, "public.job_history_default"} {
			for _, sql := range []string{"SELECT payload FROM %s", "SELECT * FROM %s", "SELECT x FROM %s x", "SELECT x::text FROM %s x", "SELECT to_jsonb(x) FROM %s x",
				"SELECT count(*) FROM %s WHERE payload IS NOT NULL", "SELECT 1 FROM %s ORDER BY payload", "SELECT hashtext(x::text) FROM %s x",
				"CREATE TEMP TABLE mine AS TABLE %s", "SELECT (x).payload FROM %s x", "SELECT count(x) FROM %s x"} {
				fails(t, viewer, "42501", fmt.Sprintf(sql, table))
			}
			if table != "public.v_job" {
				fails(t, viewer, "42501", "COPY "+table+" TO STDOUT")
				fails(t, viewer, "42501", "COPY "+table+" (payload) TO STDOUT")
			}
		}
		var stats string
		require.NoError(t, viewer.QueryRow(context.Background(), "SELECT COALESCE(string_agg(s::text, ' '), '') FROM pg_stats s").Scan(&stats))
		require.NotContains(t, stats, "hidden")
	}
	viewer := j.as("queue_viewer")
	dead := get[string](j.core, "SELECT job_id::text FROM public.job_dead_letter")
	for id, kind := range map[any]string{queued: "job", dead: "job", deadLetter: "job_dead_letter"} {
		var masked string
		require.NoError(t, viewer.QueryRow(context.Background(), "SELECT public.fn_payload_masked($1, $2)::text", kind, id).Scan(&masked))
		require.Contains(t, masked, `"n": 1`)
		require.NotContains(t, masked, "hidden")
	}
	var all string
	require.NoError(t, viewer.QueryRow(context.Background(), `SELECT public.fn_queue_snapshot('0')::text || (SELECT string_agg(a::text, ' ') FROM public.queue_operator_action a)
		|| (SELECT string_agg(h::text, ' ') FROM public.v_queue_health h)`).Scan(&all))
	require.NotContains(t, all, "hidden")
	require.Nil(t, get[*string](j.core, "SELECT public.fn_payload_masked('job', gen_random_uuid()::text)::text"))
	fails(t, viewer, "22023", "SELECT public.fn_payload_masked('job', '1')")
	fails(t, viewer, "22023", "SELECT public.fn_payload_masked('job_dead_letter', 'x')")
}
