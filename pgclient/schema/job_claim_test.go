// Claims: in which order jobs are claimed, at which job of a queue lane the next claim begins, which
// job subscription applies, and which executors are refused, with which reason.

package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// job enqueues one job and returns its id.
func (j *jobs) job(kind, domain string, priority int) string {
	j.t.Helper()
	return call(j.t, j.work, "public.fn_job_enqueue($1, $2, 'external_worker', p_priority => $3)", kind, domain, priority)["job_id"].(string)
}

func (j *jobs) takeOf(executor string, kinds []string, limit int, after any) []string {
	j.t.Helper()
	got, err := tryTake(j.work, executor, kinds, limit, after)
	require.NoError(j.t, err)
	return ids(got)
}

func TestJobClaimOrder(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", -100, 1000)
	low, mid, high := j.job("k", "iu", 5), j.job("k", "iu", 100), j.job("k", "kg", 1000)
	early := call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => '2020-01-01')")["job_id"].(string)
	require.Equal(t, []string{high, early}, j.takeOf("w", nil, 2, nil), "higher priority first, then older")
	oldest := call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => '2019-01-01')")["job_id"].(string)
	require.Equal(t, []string{oldest, mid, low}, j.takeOf("w", nil, 10, nil), "in one call as in many")
	require.Empty(t, j.take("w", 10))
	fails(t, j.work, "22023", "SELECT public.fn_job_claim('w', NULL, 0)")
	fails(t, j.work, "22023", "SELECT public.fn_job_claim('w', NULL, 10001)")
	fails(t, j.work, "22023", "SELECT public.fn_job_claim('w', NULL, NULL)")
	fails(t, j.work, "22023", "SELECT public.fn_job_claim('w', NULL, 1, '[]')")

	// Queue lanes whose next jobs have the same priority share the number of jobs that a claim asks
	// for.
	j.put("k", "iu", 100)
	j.put("k", "kg", 10)
	j.put("l", "kg", 100)
	lanes := map[string]int{}
	for _, h := range j.take("w", 60) {
		lanes[h.Domain+"/"+h.Kind]++
	}
	require.Equal(t, 60, lanes["iu/k"]+lanes["kg/k"]+lanes["kg/l"])
	require.Equal(t, 10, lanes["kg/k"])
	for _, lane := range []string{"iu/k", "kg/l"} {
		require.GreaterOrEqual(t, lanes[lane], 20, lanes)
	}
	j.balanced()
}

// A claim with keys continues behind the last job that was claimed from each lane, and also takes
// jobs of higher priority. Older jobs that were returned are left to a claim without keys.
func TestJobClaimAfter(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	list := j.put("k", "iu", 10)
	five := j.take("w", 5)
	require.Equal(t, list[:5], ids(five))
	last := five[4]
	after := map[string]any{"iu/k": []any{last.Priority, last.After, last.Job}}
	require.Equal(t, "done", j.outcome("release", five[1], five[3]))
	require.Equal(t, list[5:7], j.takeOf("w", nil, 2, after), "what was handed back lies before the key")
	other, urgent, idle := j.job("k", "kg", 100), j.job("k", "iu", 101), j.job("k", "iu", 99)
	require.Equal(t, []string{urgent}, j.takeOf("w", nil, 1, after), "more urgent than the key")
	require.ElementsMatch(t, append([]string{other, idle}, list[7:]...), j.takeOf("w", nil, 10, after), "other lanes, and less urgent")
	require.Empty(t, j.takeOf("w", nil, 10, after))
	require.Equal(t, []string{list[1], list[3]}, j.takeOf("w", nil, 10, nil), "a sweep finds all")
	for _, bad := range []any{map[string]any{"iu/k": []any{"x", last.After, last.Job}}, map[string]any{"iu/k": []any{1, "x", last.Job}}, map[string]any{"iu/k": []any{1, last.After, "x"}}} {
		_, err := tryTake(j.work, "w", nil, 1, bad)
		require.Error(t, err)
	}
	require.Empty(t, j.takeOf("w", nil, 10, map[string]any{"no/lane": 7, "iu": nil}))
	late := j.put("k", "iu", 4)
	for i, short := range [][]any{{100}, {100, nil, nil}, {}, {nil}} {
		require.Equal(t, late[i:i+1], j.takeOf("w", nil, 1, map[string]any{"iu/k": short}), "what a key leaves out is the start")
	}
}

// A claim that refuses jobs that have lost leases passes over them without writing, however many
// priorities they have: they keep their place.
func TestJobClaimRefuses(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	const passed = 70 // more than the priorities that one claim takes jobs of
	for i := range passed {
		j.job("last", "iu", 200+i)
	}
	j.exec("UPDATE public.job_queue SET lost_leases = 2 WHERE job_kind = 'last'")
	call(t, j.work, "public.fn_job_enqueue('last', 'iu', 'external_worker', p_priority => 190, p_max_attempts => 1)")
	lost, plain := j.job("last", "iu", 120), j.job("last", "iu", 110)
	j.exec("UPDATE public.job_queue SET lost_leases = 1 WHERE priority IN (120, 190)")
	place := func() string {
		return get[string](j.core, "SELECT string_agg(concat_ws(' ', job_id, xmin, process_after), ',' ORDER BY job_id) FROM public.job_queue WHERE priority >= 190")
	}
	before := place()
	claim := func(after map[string]any) []string {
		got, err := tryTake(j.work, "w", nil, 100, after)
		require.NoError(t, err)
		require.Equal(t, "done", j.outcome("release", got...))
		return ids(got)
	}
	require.Equal(t, []string{plain}, claim(map[string]any{"refuse": "lost_lease"}))
	require.Equal(t, []string{lost, plain}, claim(map[string]any{"refuse": "last_lease"}))
	from := []any{120, "-infinity", lost}
	require.Equal(t, []string{plain}, claim(map[string]any{"refuse": "lost_lease", "iu/last": from}))
	require.Equal(t, []string{lost, plain}, claim(map[string]any{"refuse": "last_lease", "iu/last": from}))
	require.Equal(t, before, place(), "they were written")
	_, err := tryTake(j.work, "w", nil, 1, map[string]any{"refuse": "all"})
	refused(t, "22023", err, "refuse")
	require.Len(t, j.takeOf("w", nil, passed+10, map[string]any{"iu/last": []any{1000, "-infinity", lost}}), 64, "of so many priorities one claim takes jobs")
	j.balanced()
}

func TestJobClaimGoverningSubscription(t *testing.T) {
	j := newJobs(t)
	of := func(domain, kind string) string {
		return get[string](j.core, `SELECT COALESCE(max(concat_ws(' ', s.job_kind, s.event_domain)), 'none') FROM public.job_queue q JOIN public.job_lease l USING (lease_token)
			JOIN public.job_subscription s USING (subscription_id) WHERE (q.event_domain, q.job_kind) = ($1, $2)`, domain, kind)
	}
	j.jobSubscription("w", "", "", 0, 1000)
	j.jobSubscription("w", "", "kg", 0, 1000)
	j.jobSubscription("w", "b", "", 0, 1000)
	j.jobSubscription("w", "b", "kg", 0, 1000)
	for _, domain := range []string{"iu", "kg"} {
		for _, kind := range []string{"a", "b"} {
			j.put(kind, domain, 1)
		}
	}
	require.Len(t, j.take("w", 10), 4)
	require.Equal(t, []string{"", "kg", "b", "b kg"}, []string{of("iu", "a"), of("kg", "a"), of("iu", "b"), of("kg", "b")})

	// A subscription to a kind takes precedence over one to a domain; a disabled subscription does
	// not count.
	reset := func() {
		j.exec("SELECT public.fn_job_release(array_agg(job_id), array_agg(lease_token)) FROM public.job_queue WHERE lease_token IS NOT NULL")
	}
	for _, step := range []struct{ off, want string }{{"b kg", "b"}, {"b", "kg"}, {"kg", ""}} {
		reset()
		j.exec("UPDATE public.job_subscription SET enabled = false WHERE concat_ws(' ', job_kind, event_domain) = $1", step.off)
		j.take("w", 10)
		require.Equal(t, step.want, of("kg", "b"))
	}
	reset()
	j.exec("UPDATE public.job_subscription SET enabled = false")
	require.Empty(t, j.take("w", 10))
}

// An entry of p_after that cannot be read is refused with its lane and what it must be.
func TestJobClaimRefusesAnUnreadableKey(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 10)
	job := j.job("k", "iu", 100)
	const id = "00000000-0000-0000-0000-000000000001"
	for _, bad := range []string{`5`, `"x"`, `{"priority": 1}`, `["high"]`, `[99999999999]`, `[1, "yesterday noon"]`, `[1, "2026-13-40"]`, `[1, "2026-01-01", "7"]`} {
		_, err := j.work.Exec(t.Context(), "SELECT public.fn_job_claim('w', NULL, 1, jsonb_build_object('iu/k', $1::jsonb))", bad)
		refused(t, "22023", err, bad)
		require.ErrorContains(t, err, `p_after: the entry "iu/k" must be [priority, process_after, job_id] of the last job that was claimed there, not `, bad)
	}
	require.Equal(t, []string{job}, j.takeOf("w", nil, 1, map[string]any{"iu/k": []any{100, "2020-01-01T00:00:00Z", id}, "other/lane": 5}))
	next := j.job("k", "iu", 100)
	require.Equal(t, []string{next}, j.takeOf("w", nil, 1, map[string]any{"iu/k": nil}), "null is no entry")
}

func TestJobClaimFloorAndLimit(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 100, 3)
	j.jobSubscription("w", "free", "", 0, 1000)
	below := j.job("k", "iu", 99)
	at := []string{j.job("k", "iu", 100), j.job("k", "kg", 100), j.job("l", "iu", 200), j.job("k", "iu", 101)}
	free := j.job("free", "iu", 1)
	first := j.take("w", 10)
	require.ElementsMatch(t, []string{at[2], at[3], at[0], free}, ids(first), "three of the limited subscription, whatever the lanes")
	require.Empty(t, j.take("w", 10))
	require.Equal(t, "done", j.outcome("start", first...))
	require.Empty(t, j.take("w", 10), "in progress counts")
	require.Equal(t, "done", j.outcome("ack", first[0]))
	require.Equal(t, []string{at[1]}, j.takeOf("w", nil, 10, nil), "one more for each that is finished")
	j.exec("UPDATE public.job_subscription SET priority_floor = 99, max_parallel = 1000")
	require.Equal(t, []string{below}, j.takeOf("w", nil, 10, nil))
	// Only the priority floor keeps these jobs from being claimed.
	j.jobSubscription("f", "f", "", 100, 1000)
	j.job("f", "iu", 99)
	require.Equal(t, []string{j.job("f", "iu", 100)}, j.takeOf("f", nil, 10, nil))
	require.Empty(t, j.take("f", 10))
	j.job("f", "iu", 98)
	require.Empty(t, j.take("f", 10))
	// Each executor has a separate limit.
	j.jobSubscription("w1", "z", "", 0, 2)
	j.jobSubscription("w2", "z", "", 0, 2)
	j.put("z", "iu", 10)
	require.Len(t, j.takeOf("w1", nil, 10, nil), 2)
	require.Len(t, j.takeOf("w2", nil, 10, nil), 2)
	j.balanced()
}

// A claim that waited for the lock of a job subscription uses the values that the subscription has
// after the wait.
func TestJobClaimWaitsForSubscription(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 3)
	for _, c := range []struct {
		change string
		want   int
	}{{"enabled = false", 0}, {"priority_floor = 200", 0}, {"max_parallel = 2", 2}} {
		tx, err := j.root.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "UPDATE public.job_subscription SET "+c.change)
		require.NoError(t, err)
		type claim struct {
			ids []string
			err error
		}
		claimed := make(chan claim, 1)
		go func() {
			var got claim
			got.err = j.work.QueryRow(context.Background(), "SELECT COALESCE(array_agg(job_id::text), '{}') FROM public.fn_job_claim('w', NULL, 10)").Scan(&got.ids)
			claimed <- got
		}()
		eventually(t, "the claim waits", func() bool {
			return get[bool](j.core, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
		})
		require.NoError(t, tx.Commit(t.Context()))
		got := <-claimed
		require.NoError(t, got.err)
		require.Len(t, got.ids, c.want, c.change)
		j.exec("UPDATE public.job_subscription SET enabled = true, priority_floor = 0")
	}
}

// A job subscription cannot be changed while a claim that uses it is not committed.
func TestJobSubscriptionWaitsForClaim(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 3)
	tx, err := j.work.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.fn_job_claim('w', NULL, 1)")
	require.NoError(t, err)
	for _, change := range []string{"UPDATE public.job_subscription SET max_parallel = 1", "DELETE FROM public.job_subscription"} {
		_, err := j.root.Exec(t.Context(), "BEGIN; SET LOCAL lock_timeout = 20; "+change+"; COMMIT")
		require.ErrorContains(t, err, "lock timeout", change)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	j.exec("UPDATE public.job_subscription SET max_parallel = 1")
	require.Len(t, j.take("w", 10), 1)
}

func TestJobClaimKindsAndExecutors(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	a, b, c := j.job("a", "iu", 1), j.job("b", "iu", 1), j.job("c", "iu", 1)
	agent := call(t, j.work, "public.fn_job_enqueue('a', 'iu', 'Agent', p_priority => 500)")["job_id"].(string)
	require.Equal(t, []string{b}, j.takeOf("w", []string{"b", "nothing"}, 10, nil))
	require.Empty(t, j.takeOf("w", []string{}, 10, nil), "no kind is none")
	require.ElementsMatch(t, []string{a, c}, j.takeOf("w", nil, 10, nil), "a job of another executor kind is not seen")
	j.jobSubscription("ag", "", "", 0, 1000)
	j.exec("UPDATE public.queue_heartbeat SET executor_kind = 'Agent' WHERE executor_id = 'ag'")
	require.Empty(t, j.take("ag", 10), "the job subscription is of another executor kind")
	j.jobSubscription("ag", "", "", 0, 1000)
	require.Equal(t, []string{agent}, j.takeOf("ag", nil, 10, nil))
}

// A job subscription of the time when the executor was registered with another executor kind neither
// hides a wider one nor counts as one.
func TestJobClaimPassesSubscriptionsOfAnotherKind(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("ag", "k", "iu", 0, 1000)
	j.exec("UPDATE public.queue_heartbeat SET executor_kind = 'Agent' WHERE executor_id = 'ag'")
	const none = "no external_worker executor subscribes to it"
	j.put("k", "iu", 1)
	require.Equal(t, none, get[string](j.core, "SELECT public.fn_queue_why('job k in iu') ->> 'why'"))
	require.Equal(t, none, j.lane("k", "iu").Why.String())
	j.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue")
	j.jobSubscription("ag", "", "", 0, 1000)
	agent := call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'Agent')")["job_id"].(string)
	require.Contains(t, get[string](j.core, "SELECT public.fn_queue_executor_waits('ag')"), "1 job waits")
	require.Empty(t, j.lane("k", "iu").Why.String())
	require.Equal(t, []string{agent}, j.takeOf("ag", nil, 10, nil))
}

func TestJobRefusal(t *testing.T) {
	j := newJobs(t)
	j.put("k", "iu", 5)
	why := func(executor any) string {
		t.Helper()
		var got *string
		require.NoError(t, j.work.QueryRow(context.Background(), "SELECT public.fn_job_refusal($1)", executor).Scan(&got))
		if got == nil {
			return ""
		}
		hs, err := tryTake(j.work, fmt.Sprint(executor), nil, 5, nil)
		require.NoError(t, err)
		require.Empty(t, hs, *got)
		return *got
	}
	require.Contains(t, why("w"), "no executor w is registered")
	require.Contains(t, why(nil), "no executor (null) is registered")
	j.executor("w", 60, 300, 0)
	require.Contains(t, why("w"), "w has no enabled job subscription")
	j.jobSubscription("w", "", "", 0, 100)
	require.Empty(t, why("w"))
	j.exec("UPDATE public.job_subscription SET enabled = false")
	require.Contains(t, why("w"), "no enabled job subscription")
	j.jobSubscription("w", "", "", 0, 100)
	j.exec("UPDATE public.queue_heartbeat SET executor_kind = 'Codex' WHERE executor_id = 'w'")
	require.Contains(t, why("w"), "w is of kind Codex, but its enabled job subscriptions are of another")
	j.exec("UPDATE public.queue_heartbeat SET executor_kind = 'external_worker', owner_role = 'webhook_worker' WHERE executor_id = 'w'")
	require.Contains(t, why("w"), "belongs to role webhook_worker")
	j.exec("UPDATE public.queue_heartbeat SET owner_role = 'no_such_role' WHERE executor_id = 'w'")
	require.Contains(t, why("w"), "belongs to role no_such_role")
	j.exec("UPDATE public.queue_heartbeat SET owner_role = 'dot_executor' WHERE executor_id = 'w'")
	require.Empty(t, why("w"))
	setFlag(t, j.work, "queue.job_substrate.enabled", "false")
	require.Contains(t, why("w"), "queue.job_substrate.enabled")
	for _, fn := range []string{"public.fn_job_enqueue('k', 'iu', 'external_worker')", `public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "external_worker"}]')`} {
		call(t, j.work, fn) // switches stop claims, but jobs are still accepted
	}
	setFlag(t, j.work, "queue.job_substrate.enabled", "true")
	require.Len(t, j.take("w", 10), 7)
	j.exec("UPDATE public.queue_heartbeat SET deregistered_at = now(), deregistered_by = 'ann' WHERE executor_id = 'w'")
	require.Contains(t, why("w"), "w was deregistered by ann")
}

func TestJobDeregisterWaits(t *testing.T) {
	j := newJobs(t)
	deregister := func() map[string]any {
		return call(t, j.work, "public.fn_queue_heartbeat_deregister('w', 'ann', 'no more of it')")
	}
	j.jobSubscription("w", "k", "", 0, 100)
	j.put("other", "iu", 3)
	job := j.put("k", "iu", 2)
	got := deregister()
	require.Equal(t, "work_waits", got["rule"])
	require.Contains(t, got["reason"], "2 jobs wait")
	h := j.one("w")
	require.Contains(t, deregister()["reason"], "w holds 1 job")
	require.Equal(t, "done", j.outcome("ack", h))
	require.Contains(t, deregister()["reason"], "1 job waits")
	call(t, j.work, "public.fn_job_cancel($1::uuid[], 'ann', 'test')", job[1:])
	require.Equal(t, true, deregister()["deregistered"])
	require.Equal(t, "gone", call(t, j.work, "public.fn_job_subscription_set('w', 'k', NULL, 0, 1, true, NULL, 'ann', 'x')")["rule"])
	require.Equal(t, "not_found", call(t, j.work, "public.fn_job_subscription_set('nobody', 'k', NULL, 0, 1, true, NULL, 'ann', 'x')")["rule"])
	require.Equal(t, "tick_worker", call(t, j.work, "public.fn_job_subscription_set('lease_reaper', 'k', NULL, 0, 1, true, NULL, 'ann', 'x')")["rule"])
}

func TestJobSubscriptionSet(t *testing.T) {
	j := newJobs(t)
	j.executor("w", 60, 300, 0)
	set := func(parallel int, dry bool) map[string]any {
		return call(t, j.work, "public.fn_job_subscription_set('w', NULL, 'iu', 5, $1, true, 'a note', 'ann', 'more hands', $2)", parallel, dry)
	}
	require.Equal(t, []any{true, nil, nil}, []any{set(2, true)["created"], set(2, true)["before"], set(2, true)["audit_id"]})
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_subscription"), "a dry run")
	first := set(2, false)
	require.Equal(t, true, first["created"])
	second := set(4, false)
	require.Equal(t, []any{false, first["subscription_id"]}, []any{second["created"], second["subscription_id"]})
	require.EqualValues(t, 2, second["before"].(map[string]any)["max_parallel"])
	require.EqualValues(t, 4, second["after"].(map[string]any)["max_parallel"])
	require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.job_subscription WHERE event_domain = 'iu' AND job_kind IS NULL AND executor_kind = 'external_worker' AND updated_by = 'ann'"))
	require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE id = $1 AND before ->> 'max_parallel' = '2' AND after ->> 'max_parallel' = '4'", second["audit_id"]))
	for _, bad := range []string{"'w', NULL, NULL, 0, 0, true", "'w', NULL, NULL, 40000, 1, true", "'w', NULL, NULL, NULL, 1, true", "'w', NULL, NULL, 0, NULL, true",
		"'w', NULL, NULL, 0, 1, NULL", "'w', '', NULL, 0, 1, true", "'w', 'k', 'No', 0, 1, true"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_subscription_set("+bad+", NULL, 'ann', 'x')")
	}
	require.Equal(t, "w 1 1,x 2 0", func() string {
		j.jobSubscription("x", "a", "", 0, 1)
		j.jobSubscription("x", "b", "", 0, 1)
		j.exec("UPDATE public.job_subscription SET enabled = false WHERE executor_id = 'x'")
		return get[string](j.core, "SELECT string_agg(concat_ws(' ', executor_id, rules, any_enabled), ',' ORDER BY executor_id) FROM public.v_executor_subscription_health")
	}())
	require.Equal(t, "w enabled,x disabled", get[string](j.core, `SELECT string_agg(subject || ' ' || status_hint, ',' ORDER BY subject) FROM public.v_queue_health
		WHERE source = 'executor_subscription'`))
}

// A transaction with an old snapshot does not see what other sessions claimed: its claim gets an
// error or nothing, never more than the limit.
func TestJobClaimOldSnapshot(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1)
	j.put("a", "iu", 1)
	j.put("b", "iu", 1)
	ctx := context.Background()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := j.work.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "SELECT job_id FROM public.job_queue")
		require.NoError(t, err)
		h, err := tryTake(j.work, "w", []string{"a"}, 1, nil)
		require.NoError(t, err)
		require.Len(t, h, 1)
		if _, err = tx.Exec(ctx, "SELECT public.fn_job_claim('w', '{b}', 1)"); err == nil {
			err = tx.Commit(ctx)
		}
		_ = tx.Rollback(ctx)
		require.LessOrEqual(t, get[int](j.core, "SELECT sum(live) FROM public.job_lease"), 1, "%s: %v", level, err)
		require.Equal(t, "done", j.outcome("release", h...))
	}
}

// If a job subscription changes its kind, domain or executor while a claim waits for it, the claim
// uses the new values.
func TestJobClaimSeesTheSubscriptionMove(t *testing.T) {
	for _, set := range []string{"job_kind = 'other'", "event_domain = 'kg'", "executor_id = 'v'"} {
		for _, domains := range [][]string{{"iu"}, {"iu", "cad"}} {
			t.Run(fmt.Sprint(set, len(domains)), func(t *testing.T) {
				j := newJobs(t)
				id := j.jobSubscription("w", "k", "", 0, 10)
				j.jobSubscription("v", "else", "", 0, 10)
				for _, domain := range domains {
					j.put("k", domain, 1)
				}
				tx := j.begin(j.root)
				_, err := tx.Exec(context.Background(), "UPDATE public.job_subscription SET "+set+" WHERE subscription_id = $1", id)
				require.NoError(t, err)
				claimed := make(chan error, 1)
				var jobs []held
				go func() {
					var err error
					jobs, err = tryTake(j.work, "w", nil, 10, nil)
					claimed <- err
				}()
				require.Eventually(t, func() bool {
					return get[bool](j.core, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
				}, patience, 20*time.Millisecond)
				require.NoError(t, tx.Commit(context.Background()))
				require.NoError(t, <-claimed)
				require.Empty(t, jobs)
			})
		}
	}
}
