// Expired leases: each is returned once and counted as lost, and no lease is taken from a worker
// that renews it, reports or is cancelled at the same moment.

package schema_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJobReapOnce(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100000)
	j.put("k", "iu", 1000)
	var leases int
	for len(j.take("w", 9)) > 0 {
		leases++
	}
	require.Greater(t, leases, 100)
	j.expire()
	pool := j.wide(8, "dot_executor")
	answers := together(t, 8, func(int) (map[string]any, error) {
		sum := map[string]any{"reaped": 0.0, "returned": 0.0, "dead_lettered": 0.0}
		for {
			got, err := tryCall(pool, "public.fn_job_reap_expired(40)")
			if err != nil || num(got, "reaped") == 0 {
				return sum, err
			}
			for key := range sum {
				sum[key] = sum[key].(float64) + got[key].(float64)
			}
		}
	})
	reaped, returned := 0, 0
	for _, a := range answers {
		reaped, returned = reaped+num(a, "reaped"), returned+num(a, "returned")
	}
	require.Equal(t, []int{1000, 1000}, []int{reaped, returned})
	require.Equal(t, "queued 0 1", get[string](j.core, "SELECT DISTINCT concat_ws(' ', status, attempts, lost_leases) FROM public.job_queue"))
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_lease"))
	j.balanced()
	require.Len(t, j.take("w", 1000), 1000, "claimable at once")
}

// A failure that is reported after the reaper has made the job a dead letter was not recorded: the
// first result of a lease counts. A repeat of a failure that was recorded is still answered "done".
func TestJobFailAfterTheReaper(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	for what, lost := range map[string]int{"LEASE_LOST 1 1": 0, "LEASE_LOST_LIMIT 1 3": 2} {
		j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_max_attempts => 1)")
		h := j.one("w")
		j.exec("UPDATE public.job_queue SET lost_leases = $2 WHERE job_id = $1", h.Job, lost)
		require.Equal(t, "done", j.outcome("start", h))
		j.expire(h)
		require.EqualValues(t, 1, j.reap()["dead_lettered"], what)
		require.Equal(t, "lease_lost", j.outcome("TIMEOUT", h), what)
		require.Equal(t, "lease_lost", j.outcome("BROKEN!", h), what)
		require.Equal(t, what, get[string](j.core, "SELECT concat_ws(' ', failure_code, attempts, lost_leases) FROM public.job_history WHERE job_id = $1", h.Job))
	}
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_max_attempts => 1)")
	h := j.one("w")
	require.Equal(t, "done", j.outcome("TIMEOUT", h))
	require.Equal(t, "done", j.outcome("TIMEOUT", h))
}

func TestJobReapCounts(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.exec("SELECT public.fn_job_enqueue('three', 'iu', 'external_worker'), public.fn_job_enqueue('last', 'iu', 'external_worker', p_max_attempts => 1)")
	lose := func(kind string) map[string]any {
		hs, err := tryTake(j.work, "w", []string{kind}, 1, nil)
		require.NoError(t, err)
		require.Len(t, hs, 1)
		j.expire(hs...)
		got := j.reap()
		delete(got, "log")
		return got
	}
	require.Equal(t, map[string]any{"reaped": 1.0, "returned": 1.0, "dead_lettered": 0.0}, lose("last"))
	require.Equal(t, map[string]any{"reaped": 1.0, "returned": 0.0, "dead_lettered": 1.0}, lose("last"))
	for range 2 {
		require.Equal(t, map[string]any{"reaped": 1.0, "returned": 1.0, "dead_lettered": 0.0}, lose("three"))
	}
	require.Equal(t, map[string]any{"reaped": 1.0, "returned": 0.0, "dead_lettered": 1.0}, lose("three"))
	require.Equal(t, "last LEASE_LOST 1 2,three LEASE_LOST_LIMIT 2 3", get[string](j.core, `SELECT string_agg(concat_ws(' ', h.job_kind, d.failure_code, d.attempts,
		h.lost_leases), ',' ORDER BY h.job_kind) FROM public.job_dead_letter d JOIN public.job_history h USING (job_id) WHERE h.status = 'dead_letter' AND h.from_status = 'leased'`))
	j.balanced()
	require.Equal(t, map[string]any{"reaped": 0.0, "returned": 0.0, "dead_lettered": 0.0}, j.reap())
	for _, bad := range []string{"0", "100001", "NULL"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_reap_expired("+bad+")")
	}
	j.flag("queue.lease.reaper_enabled", "false")
	require.Equal(t, "off", call(t, j.work, "public.fn_queue_tick_request('lease_reaper', 'operator')")["skipped"])
}

// If several jobs lose a lease together, only one of them may have killed the host. So the first
// loss costs no job an attempt, except a job whose last attempt was running.
func TestJobReapChargesNoNeighbours(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 5)
	j.exec("SELECT public.fn_job_enqueue('last', 'iu', 'external_worker', p_max_attempts => 1) FROM generate_series(1, 2)")
	hs := j.take("w", 7)
	var last []held
	for _, h := range hs {
		if get[string](j.core, "SELECT job_kind FROM public.job_queue WHERE job_id = $1", h.Job) == "last" {
			last = append(last, h)
		}
	}
	require.Len(t, last, 2)
	require.Equal(t, "done", j.outcome("start", last[0]))
	j.expire(hs...)
	got := j.reap()
	require.Len(t, got["log"], 7)
	delete(got, "log")
	require.Equal(t, map[string]any{"reaped": 7.0, "returned": 6.0, "dead_lettered": 1.0}, got)
	require.Equal(t, "dead_letter 1 1", j.state(last[0].Job))
	require.Equal(t, "queued 0 1", get[string](j.core, "SELECT DISTINCT concat_ws(' ', status, attempts, lost_leases) FROM public.job_queue"))
	one := j.one("w")
	j.expire(one)
	j.reap()
	require.Equal(t, "queued 1 2", j.state(one.Job), "the second is its own")
	j.balanced()
}

// Renewing one job renews the whole claim, and a lease that has not expired is not reaped.
func TestJobReapSparesTheLiving(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 4)
	hs := j.take("w", 4)
	require.EqualValues(t, 0, j.reap()["reaped"])
	j.expire()
	require.Equal(t, "done", j.outcome("renew", hs[1]))
	require.EqualValues(t, 0, j.reap()["reaped"])
	require.Equal(t, "done", j.outcome("ack", hs[0], hs[1], hs[2]))
	j.expire()
	require.EqualValues(t, 1, j.reap()["reaped"], "only what is left of the claim")
	j.balanced()
}

func TestJobLeaseRelease(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 2)
	old, live := j.one("w"), j.one("w")
	j.expire(old)
	release := func(dry bool) map[string]any {
		return call(t, j.work, "public.fn_job_lease_release(ARRAY[$1, $2, '00000000-0000-0000-0000-000000000009']::uuid[], 'ann', 'worker is gone', $3)", old.Token, live.Token, dry)
	}
	before := j.all()
	got := release(true)
	require.Equal(t, []any{"release", true, 1.0, 2.0, nil}, []any{got["action"], got["dry_run"], got["released"], got["skipped"], got["audit_id"]})
	require.Equal(t, before, j.all(), "a dry run changes nothing")
	got = release(false)
	require.Equal(t, []any{1.0, 2.0}, []any{got["released"], got["skipped"]})
	for _, r := range results(t, got) {
		switch r["id"] {
		case old.Token:
			require.Equal(t, "released", r["outcome"])
		case live.Token:
			require.Contains(t, r["why"], "the lease runs until")
		default:
			require.Contains(t, r["why"], "no such lease")
		}
	}
	require.Equal(t, "queued 0 1", j.state(old.Job))
	require.Equal(t, "leased 0 0", j.state(live.Job))
	require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'job_lease_release' AND reason = 'worker is gone'"))
	j.balanced()
}

// Reports, renewals and cancels at the same time as the reaper never deadlock, and each job ends in
// one way only.
func TestJobRaces(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100000)
	pool := j.wide(8, "dot_executor", "dead_letter_operator")
	tell := func(what string, hs []held) error {
		_, err := tell(context.Background(), pool, what, hs...)
		return err
	}
	reap := func([]held) error { _, err := tryCall(pool, "public.fn_job_reap_expired()"); return err }
	cancel := func(hs []held) error {
		_, err := tryCall(pool, "public.fn_job_cancel($1, 'ann', 'race')", ids(hs))
		return err
	}
	claim := func([]held) error { _, err := tryTake(pool, "w", nil, 7, nil); return err }
	release := func(hs []held) error {
		_, err := tryCall(pool, "public.fn_job_lease_release($1, 'ann', 'race')", tokens(hs))
		return err
	}
	for name, racers := range map[string][]func([]held) error{
		"renew and reap":   {func(hs []held) error { return tell("renew", hs) }, reap, reap},
		"ack and reap":     {func(hs []held) error { return tell("ack", hs) }, reap, release},
		"cancel and claim": {cancel, claim, claim, cancel},
		"cancel and ack":   {cancel, func(hs []held) error { return tell("ack", hs) }, func(hs []held) error { return tell("TIMEOUT", hs) }},
		"everything": {cancel, claim, reap, func(hs []held) error { return tell("ack", hs) }, func(hs []held) error { return tell("release", hs) },
			func(hs []held) error { return tell("BROKEN!", hs) }, release, func(hs []held) error { return tell("start", hs) }},
	} {
		for range 20 {
			j.put("k", "iu", 20)
			var hs []held
			for range 3 {
				hs = append(hs, j.take("w", 5)...)
			}
			if name != "cancel and ack" {
				j.expire()
			}
			if name == "cancel and claim" {
				j.reap()
			}
			var wg sync.WaitGroup
			errs := make([]error, len(racers))
			for i, race := range racers {
				wg.Go(func() { errs[i] = race(hs) })
			}
			wg.Wait()
			for _, err := range errs {
				require.NoError(t, err, name)
			}
			j.balanced()
			j.exec("UPDATE public.job_lease SET lease_until = now() + interval '1 hour'")
			j.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'next round') FROM public.job_queue HAVING count(*) > 0")
			require.Zero(t, get[int](j.core, "SELECT (SELECT count(*) FROM public.job_queue) + (SELECT count(*) FROM public.job_lease)"))
		}
	}
}
