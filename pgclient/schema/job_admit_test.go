// What may be enqueued: executor kinds, payloads, producers named for a kind, and jobs that are due
// later.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// MOT, which DP6 §3.4 excludes, is refused as an executor kind of a job subscription, however it
// is spelt.
func TestJobExecutorKinds(t *testing.T) {
	j := newJobs(t)
	const insert = "INSERT INTO public.job_subscription (executor_id, executor_kind, registered_by) VALUES (gen_random_uuid()::text, $1, 'x')"
	const job = "INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('k', 'iu', $1)"
	for _, kind := range []string{"DOT", "Agent", "Hermes", "Codex", "PG_worker", "external_worker", "future_Kestra_adapter"} {
		require.Empty(t, j.byHand("", insert, kind), kind)
		require.Empty(t, j.byHand("", job, kind), kind)
		require.Equal(t, true, call(t, j.work, "public.fn_job_enqueue('k', 'iu', $1)", kind)["created"])
	}
	for _, kind := range []any{"MOT", "mot", "DOT ", " DOT", "dot", "future_MOT_executor", "", nil, "DOT\n", "ＤＯＴ"} {
		state := "23514"
		if kind == nil {
			state = "23502"
		}
		require.Equal(t, state, j.byHand("queue_owner", insert, kind), "subscription %v", kind)
		require.Equal(t, state, j.byHand("queue_owner", job, kind), "job %v", kind)
		require.Equal(t, "23514", j.byHand("queue_owner", "INSERT INTO public.executor_producer VALUES (COALESCE($1, ''), 'x')", kind))
		_, err := tryCall(j.work, "public.fn_job_enqueue('k', 'iu', $1)", kind)
		require.Error(t, err, kind)
		_, err = tryCall(j.work, "public.fn_job_enqueue_many(jsonb_build_array(jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', $1::text)))", kind)
		require.Error(t, err, kind)
		require.NotEmpty(t, j.byHand("", "UPDATE public.job_queue SET executor = $1", kind), "job %v", kind)
	}
	require.Equal(t, 7, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
}

func TestJobPayloads(t *testing.T) {
	j := newJobs(t)
	for _, key := range []string{"body", "content", "raw", "vector", "embedding", "secret", "token", "password", "ssn", "personal_data"} {
		payload := map[string]any{"n": 1, key: 1}
		_, err := tryCall(j.work, "public.fn_job_enqueue('k', 'iu', 'DOT', $1)", payload)
		refused(t, "22023", err, key)
		_, err = tryCall(j.work, "public.fn_job_enqueue_many($1)", []any{map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "DOT", "payload": payload}})
		refused(t, "22023", err, key)
	}
	for _, payload := range []string{"[]", "1", `"x"`, "null"} {
		_, err := tryCall(j.work, "public.fn_job_enqueue('k', 'iu', 'DOT', $1::text::jsonb)", payload)
		refused(t, "22023", err, payload)
	}
	_, err := tryCall(j.work, "public.fn_job_enqueue('k', 'iu', 'DOT', NULL, NULL, NULL)")
	require.NoError(t, err)
	require.Equal(t, "{} 100 20 true", get[string](j.core, "SELECT concat_ws(' ', payload, priority, max_attempts, CASE WHEN ready AND process_after = enqueued_at THEN 'true' END) FROM public.job_queue"))
	for _, bad := range []string{"NULL, 'iu', 'DOT'", "'k', NULL, 'DOT'", "'k', 'iu', NULL"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_enqueue("+bad+")")
	}
	for _, bad := range []string{"'', 'iu', 'DOT'", "'1k', 'iu', 'DOT'", "'k', 'Iu', 'DOT'", "'k', 'a-b', 'DOT'", "'k', '', 'DOT'", "'k', 'd" + longDomain + "', 'DOT'",
		"repeat('k', 101), 'iu', 'DOT'", "'k', 'iu', 'DOT', p_max_attempts => 0", "'k', 'iu', 'DOT', p_max_attempts => 1001"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_enqueue("+bad+")")
	}
	require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
}

func TestJobProducers(t *testing.T) {
	j := newJobs(t)
	j.exec("INSERT INTO public.executor_producer VALUES ('Agent', 'workflow_admin'), ('Codex', 'router_worker'), ('Codex', 'no_such_role')")
	plain, admin := j.as("event_ingest_writer"), j.as("event_ingest_writer", "workflow_admin")
	one := func(executor string) string { return "public.fn_job_enqueue('k', 'iu', '" + executor + "')" }
	many := func(executor string) string {
		return `public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "DOT"}, {"job_kind": "k", "event_domain": "iu", "executor": "` + executor + `"}]')`
	}
	for _, fn := range []func(string) string{one, many} {
		for executor, may := range map[string][2]bool{"DOT": {true, true}, "Agent": {false, true}, "Codex": {false, false}} {
			for i, pool := range []*pgxpool.Pool{plain, admin} {
				_, err := tryCall(pool, fn(executor))
				if may[i] {
					require.NoError(t, err, executor)
					continue
				}
				refused(t, "42501", err, executor)
				require.ErrorContains(t, err, executor)
			}
		}
	}
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_queue WHERE executor = 'Codex'"), "all or nothing")
	require.Equal(t, 2+1+4+2, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
}

// Jobs that are due later are outside the claim index until the tick worker finds them due.
func TestJobLateWork(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	late := func(when any) string {
		return call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => $1::timestamptz)", when)["job_id"].(string)
	}
	soon, later, never := late(at), late(at.Add(time.Hour)), late(at.Add(2*time.Hour))
	j.exec("UPDATE public.job_queue SET process_after = 'infinity' WHERE job_id = $1", never) // as an earlier release accepted it
	require.Empty(t, j.take("w", 10))
	require.Equal(t, "scheduled 3", get[string](j.core, "SELECT k3 || ' ' || n FROM public.v_queue_counter WHERE scope = 'job'"))
	next := func() any {
		t.Helper()
		got := call(t, j.work, "public.fn_job_tick()")
		require.Contains(t, got, "promoted")
		return got["next_due"]
	}
	due, err := time.Parse(time.RFC3339, fmt.Sprint(next()))
	require.NoError(t, err, "RFC 3339")
	require.True(t, due.Equal(at), "%v is not %v", due, at)
	require.Empty(t, j.take("w", 10))
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '1 ms' WHERE job_id = $1", soon)
	require.Empty(t, j.take("w", 10), "not before the tick")
	pool := j.wide(8, "dot_executor")
	answers := together(t, 8, func(int) (map[string]any, error) { return tryCall(pool, "public.fn_job_tick()") })
	require.Equal(t, 1, count(answers, "promoted", 1.0), answers)
	require.Equal(t, 7, count(answers, "promoted", 0.0), answers)
	require.Equal(t, []string{soon}, j.takeOf("w", nil, 10, nil))
	j.exec("UPDATE public.job_queue SET process_after = now() WHERE job_id = $1", later)
	require.Nil(t, next(), "what is never due is not next")
	require.Equal(t, "queued 0 0", j.state(later))
	require.Equal(t, "leased 1,queued 1,scheduled 1", get[string](j.core, "SELECT string_agg(k3 || ' ' || n, ',' ORDER BY k3) FROM public.v_queue_counter WHERE scope = 'job' AND n > 0"))
	call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'never')", never)
	j.balanced()

	// A direct INSERT cannot make a job claimable before it is due by writing the column ready.
	j.exec("INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after) VALUES ('k', 'iu', 'external_worker', now() + interval '1 hour')")
	require.Equal(t, []string{later}, j.takeOf("w", nil, 10, nil))
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() - '1 s'::interval * i) FROM generate_series(1, 5) i")
	j.exec("UPDATE public.job_queue SET ready = false, process_after = now() - interval '1 s' WHERE status = 'queued'")
	require.EqualValues(t, 4, call(t, j.work, "public.fn_job_tick(4)")["promoted"])
	require.EqualValues(t, 2, call(t, j.work, "public.fn_job_tick(4)")["promoted"])
	for _, bad := range []string{"0", "100001", "NULL"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_tick("+bad+")")
	}
	j.balanced()

	// A queue lane that two producers opened at once is listed once.
	j.exec("INSERT INTO public.job_lane (event_domain, job_kind) VALUES ('iu', 'k'), ('iu', 'k')")
	j.put("k", "iu", 4)
	require.Len(t, ids(j.take("w", 100)), 10)
	_, err = j.work.Exec(context.Background(), "SELECT public.fn_job_tick()")
	require.NoError(t, err)
	require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.job_lane"))
}

// A job subscription that is written directly must have valid names of kind and domain, and makes
// an audit row; the functions that write one make one audit row each.
func TestJobSubscriptionsByHand(t *testing.T) {
	j := newJobs(t)
	admin := j.as("workflow_admin")
	const insert = "INSERT INTO public.job_subscription (executor_id, executor_kind, job_kind, event_domain, registered_by) VALUES ('ghost', 'DOT', $1, $2, 'x')"
	for _, bad := range [][2]string{{"", "iu"}, {"9x", "iu"}, {"k", ""}, {"k", "IU"}, {"k\n", "iu"}} {
		_, err := admin.Exec(t.Context(), insert, bad[0], bad[1])
		refused(t, "23514", err, strings.Join(bad[:], " "))
	}
	_, err := admin.Exec(t.Context(), insert, "k", "iu")
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "UPDATE public.job_subscription SET max_parallel = 50000")
	require.NoError(t, err)
	const audited = `SELECT string_agg(concat_ws(' ', action, target, before ->> 'max_parallel', after ->> 'max_parallel'), ', ' ORDER BY id)
		FROM public.queue_operator_action WHERE action LIKE 'job_subscription%'`
	require.Equal(t, "job_subscription_write ghost 1, job_subscription_write ghost 1 50000", get[string](j.core, audited))
	j.jobSubscription("w", "k", "", 0, 1)
	require.Equal(t, "job_subscription_write ghost 1, job_subscription_write ghost 1 50000, job_subscription_set w 1", get[string](j.core, audited))
}
