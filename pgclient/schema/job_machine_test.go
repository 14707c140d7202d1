// The state machine of jobs through its functions: every legal edge is accepted, all others are
// refused, and a token whose lease is lost changes nothing.

package schema_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var reports = []string{"start", "renew", "ack", "release", "TIMEOUT", "BROKEN!"}

// standing makes one job of kind "k" with this status. It returns the job with the token of its
// last claim, or with an unknown token if the job was never claimed.
func (j *jobs) standing(status string) held {
	j.t.Helper()
	if get[int](j.core, "SELECT count(*) FROM public.job_subscription WHERE executor_id = 'w'") == 0 {
		j.jobSubscription("w", "k", "", 0, 1000)
	}
	max := 5
	if status == "dead_letter" {
		max = 1
	}
	job := call(j.t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', '{\"n\": 1}', p_max_attempts => $1)", max)["job_id"].(string)
	h := held{Job: job, Token: "00000000-0000-0000-0000-000000000001"}
	cancel := func() { call(j.t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'test')", job) }
	if status == "queued" {
		return h
	}
	if status != "cancelled" {
		h = j.one("w")
		require.Equal(j.t, job, h.Job)
	}
	switch status {
	case "leased":
	case "in_progress":
		require.Equal(j.t, "done", j.outcome("start", h))
	case "retry_waiting", "dead_letter":
		require.Equal(j.t, "done", j.outcome("TIMEOUT", h))
	case "succeeded", "cleaned":
		require.Equal(j.t, "done", j.outcome("ack", h))
	case "failed":
		require.Equal(j.t, "done", j.outcome("BROKEN!", h))
	case "cancelled":
		cancel()
	}
	if status == "cleaned" {
		j.exec("UPDATE public.job_history SET status = 'cleaned', from_status = status, payload = '{}' WHERE job_id = $1", job)
	}
	require.Equal(j.t, status, strings.Fields(j.state(job))[0])
	return h
}

func TestJobEdgesByFunction(t *testing.T) {
	j := newJobs(t)
	for _, from := range []string{"leased", "in_progress"} {
		for what, want := range map[string]string{"start": "in_progress 0 0", "renew": from + " 0 0", "ack": "succeeded 0 0", "release": "queued 0 0",
			"TIMEOUT": "retry_waiting 1 0", "BROKEN!": "failed 1 0"} {
			h := j.standing(from)
			require.Equal(t, "done", j.outcome(what, h), from+" "+what)
			require.Equal(t, want, j.state(h.Job), from+" "+what)
			call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'out of the way')", h.Job)
		}
	}
	h := j.standing("retry_waiting")
	again := j.one("w")
	require.Equal(t, h.Job, again.Job, "retry_waiting to leased")
	require.NotEqual(t, h.Token, again.Token)
	require.Equal(t, "leased 1 0", j.state(h.Job))
	for _, from := range []string{"queued", "leased", "in_progress", "retry_waiting"} {
		j.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue HAVING count(*) > 0")
		h := j.standing(from)
		got := call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'test')", h.Job)
		require.EqualValues(t, 1, got["cancelled"], got)
		require.Equal(t, from, get[string](j.core, "SELECT from_status FROM public.job_history WHERE job_id = $1 AND status = 'cancelled'", h.Job))
		require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE id = $1 AND actor = 'ann'", got["audit_id"]))
	}
	j.balanced()
}

// A token that belongs to no lease changes no job, whatever the status of the job. A job that is
// not leased can only be claimed or cancelled, and a finished job cannot.
func TestJobForeignTokenChangesNothing(t *testing.T) {
	j := newJobs(t)
	for _, status := range []string{"leased", "in_progress", "queued", "retry_waiting", "succeeded", "failed", "dead_letter", "cancelled", "cleaned"} {
		h := j.standing(status)
		h.Token = "00000000-0000-0000-0000-000000000002"
		before := j.all()
		for _, what := range reports {
			require.Equal(t, "lease_lost", j.outcome(what, h), status+" "+what)
		}
		require.Equal(t, before, j.all(), status)
		call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'out of the way')", h.Job)
	}
	for _, status := range []string{"succeeded", "failed", "dead_letter", "cancelled", "cleaned"} {
		h := j.standing(status)
		got := call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'test')", h.Job)
		require.EqualValues(t, 0, got["cancelled"])
		require.Contains(t, results(t, got)[0]["why"], "finished already: "+status)
		require.Empty(t, j.take("w", 10), "a final job is not claimed")
	}
	require.Contains(t, results(t, call(t, j.work, "public.fn_job_cancel(ARRAY[gen_random_uuid()], 'ann', 'test')"))[0]["why"], "no such job")
}

// The token of a lost lease changes nothing, also after another worker claimed the job.
func TestJobStaleToken(t *testing.T) {
	j := newJobs(t)
	old := j.standing("leased")
	j.expire(old)
	require.EqualValues(t, 1, j.reap()["returned"])
	stale := func(when string) {
		before := j.all()
		for _, what := range reports {
			require.Equal(t, "lease_lost", j.outcome(what, old), what+" "+when)
		}
		require.Equal(t, before, j.all(), when)
	}
	stale("between two leases")
	fresh := j.one("w")
	stale("under another's lease")
	require.Equal(t, "done", j.outcome("start", fresh))
	stale("under another's work")
	require.Equal(t, "done", j.outcome("ack", fresh))
	stale("after another's success")
	require.Equal(t, "succeeded 0 1", j.state(old.Job))

	// A batch may contain the same job twice, with the old and the new token.
	old = j.standing("leased")
	j.expire(old)
	j.reap()
	fresh = j.one("w")
	for _, what := range []string{"renew($1, $2)", "fail($1, $2, '{A,A}', '{b,b}', '{f,f}')"} {
		rows, err := j.work.Query(context.Background(), "SELECT outcome FROM public.fn_job_"+what, ids([]held{fresh, old}), tokens([]held{fresh, old}))
		require.NoError(t, err)
		require.Equal(t, []string{"done", "lease_lost"}, texts(t, rows), what)
	}
	fresh, old = j.one("w"), fresh
	rows, err := j.work.Query(context.Background(), "SELECT outcome FROM public.fn_job_ack($1, $2)", ids([]held{fresh, old}), tokens([]held{fresh, old}))
	require.NoError(t, err)
	require.Equal(t, []string{"done", "lease_lost"}, texts(t, rows), "ack")
}

// Repeating the same result is answered "done" and changes nothing; a different result is answered
// "lease_lost".
func TestJobRepeatedResult(t *testing.T) {
	j := newJobs(t)
	same := func(when, what string, h held) {
		t.Helper()
		before := j.all()
		require.Equal(t, "done", j.outcome(what, h), what+" repeated "+when)
		for _, other := range reports {
			if other != what && !(strings.ToUpper(other) == other && strings.ToUpper(what) == what) {
				require.Equal(t, "lease_lost", j.outcome(other, h), other+" after "+what+" "+when)
			}
		}
		require.Equal(t, before, j.all(), what+" "+when)
	}
	for what, status := range map[string]string{"ack": "succeeded", "BROKEN!": "failed", "TIMEOUT": "dead_letter"} {
		h := j.standing(status)
		same("after the end", what, h)
		j.exec("UPDATE public.job_history SET status = 'cleaned', from_status = status, payload = '{}', last_error = NULL WHERE job_id = $1", h.Job)
		same("after the cleaning", what, h)
	}
	for what, status := range map[string]string{"TIMEOUT": "retry_waiting", "release": "queued"} {
		h := j.standing("in_progress")
		require.Equal(t, "done", j.outcome(what, h))
		require.Equal(t, status, strings.Fields(j.state(h.Job))[0])
		same("while it waits", what, h)
		next := j.one("w")
		require.Equal(t, h.Job, next.Job)
		same("under the next lease", what, h)
		require.Equal(t, "done", j.outcome("ack", next))
		same("after the next one's success", what, h)
	}
	h := j.standing("in_progress")
	before := j.all()
	require.Equal(t, "done", j.outcome("start", h))
	require.Equal(t, before, j.all())
	require.Equal(t, "done,lease_lost", j.outcome("ack", h, j.standing("succeeded"), held{Job: "00000000-0000-4000-8000-000000000000", Token: h.Token}))
}

// A job that is twice in one batch counts once, and the other jobs of the batch are processed as
// well.
func TestJobMixedBatch(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 6)
	a, b := j.take("w", 3), j.take("w", 3)
	batch := []held{b[2], a[0], a[0], a[1], {Job: a[2].Job, Token: b[0].Token}}
	got, err := tell(context.Background(), j.work, "ack", batch...)
	require.NoError(t, err)
	require.Equal(t, map[string]string{b[2].Job: "done", a[0].Job: "done", a[1].Job: "done", a[2].Job: "lease_lost"}, got)
	require.Equal(t, 3, get[int](j.core, "SELECT count(*) FROM public.job_history"))
	require.Equal(t, "done", j.outcome("TIMEOUT", a[2], b[0], b[0]))
	require.Equal(t, "retry_waiting 1 0", j.state(b[0].Job))
	j.balanced()
	for _, bad := range []string{"ack(NULL, NULL)", "ack('{}', '{}')", "ack(ARRAY[gen_random_uuid()], '{}')", "renew(NULL, '{}')",
		"fail(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], '{}', '{x}', '{f}')", "fail(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], NULL, NULL, NULL)"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_"+bad)
	}
}

// A lease ends with its last job, however the results of its jobs are divided among calls: a call about one lease, with
// a job of another; one about several, of which some end; one about more jobs than are compared with each other.
func TestJobLeaseEndsWithItsLastJob(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 10_000)
	leases := func(want ...int) {
		t.Helper()
		require.ElementsMatch(t, want, get[[]int](j.core, "SELECT COALESCE(array_agg(live::int), '{}') FROM public.job_lease"))
		j.balanced()
	}
	j.put("k", "iu", 5)
	a, b := j.take("w", 3), j.take("w", 2)
	require.Equal(t, "done", j.outcome("ack", a[0]))
	leases(2, 2)
	require.Equal(t, "done,lease_lost", j.outcome("ack", a[1], held{Job: b[0].Job, Token: a[1].Token}))
	leases(1, 2)
	require.Equal(t, "done", j.outcome("ack", a[2], b[0]))
	leases(1)
	require.Equal(t, "done", j.outcome("TIMEOUT!", b[1]))
	leases()

	j.put("k", "iu", 1003)
	a, b = j.take("w", 1001), j.take("w", 2)
	require.Equal(t, "done", j.outcome("ack", append(a[1:], b[0])...))
	leases(1, 1)
	require.Equal(t, "done", j.outcome("ack", a[0], b[1]))
	leases()
}

// The count of a lease is lowered with few look-ups of it, whether jobs are left or not.
func TestJobLeaseIsLookedUpTwice(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	j.put("k", "iu", 3)
	leased := j.take("w", 3)
	for _, n := range []int{1, 3} {
		tx := j.begin(j.root)
		read := func(sql string) (n int) {
			require.NoError(t, tx.QueryRow(t.Context(), sql).Scan(&n))
			return n
		}
		const scans = "SELECT seq_scan + idx_scan FROM pg_stat_xact_user_tables WHERE relid = 'public.job_lease'::regclass"
		before := read(scans)
		_, err := tx.Exec(t.Context(), "SELECT public.fn_job_lease_less($1::text[]::uuid[])", tokens(leased[:n]))
		require.NoError(t, err)
		require.LessOrEqual(t, read(scans)-before, 2, "%d of 3", n)
		require.Equal(t, 3-n, read("SELECT COALESCE(sum(live), 0) FROM public.job_lease"))
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestJobFailRecordsWhy(t *testing.T) {
	j := newJobs(t)
	j.flag("queue.retry.schedule", "100s 200s")
	j.jobSubscription("w", "", "", 0, 1000)
	job := call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_max_attempts => 4)")["job_id"].(string)
	for try := 1; try <= 4; try++ {
		h := j.one("w")
		require.Equal(t, "done", j.outcome([]string{"", "TIMEOUT", "NO CODE", "HTTP_500", "LAST"}[try], h))
		if try == 4 {
			break
		}
		wait := min(200, 100*try)
		require.True(t, get[bool](j.core, `SELECT NOT ready AND status = 'retry_waiting' AND attempts = $2 AND process_after - updated_at BETWEEN make_interval(secs => 0.8 * $3) AND make_interval(secs => 1.2 * $3 + 1)
			FROM public.job_queue WHERE job_id = $1`, job, try, wait), "try %d waits about %d s", try, wait)
		require.Empty(t, j.take("w", 10), "not before it is due")
		j.exec("UPDATE public.job_queue SET process_after = now()")
		require.EqualValues(t, 1, call(t, j.work, "public.fn_job_tick()")["promoted"])
	}
	require.Equal(t, "dead_letter 4 0", j.state(job))
	require.Equal(t, "LAST LAST it broke 4 t open", get[string](j.core, `SELECT concat_ws(' ', h.failure_code, d.failure_code, d.last_error, d.attempts,
		d.first_failed_at < d.last_failed_at, d.triage_status) FROM public.job_history h JOIN public.job_dead_letter d USING (job_id)`))
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')")
	h := j.one("w")
	_, err := j.work.Exec(context.Background(), "SELECT public.fn_job_fail(ARRAY[$1]::uuid[], ARRAY[$2]::uuid[], '{x y}', ARRAY[repeat('汉', 5000)], '{NULL}')", h.Job, h.Token)
	require.NoError(t, err)
	require.Equal(t, "HANDLER_ERROR 1003", get[string](j.core, "SELECT failure_code || ' ' || length(last_error) FROM public.job_queue"))

	// If an error text is too long, its beginning and its end are kept, since the cause is often at
	// the end. A cut never leaves a part of a secret.
	for text, kept := range map[string]string{
		strings.Repeat("step\n", 700) + "FATAL: the cause":                                                                                                                  strings.Repeat("step\n", 700) + "FATAL: the cause",
		"exit 7: " + strings.Repeat("汉", 3000) + " password=hunter2 FATAL: the cause":                                                                                       "exit 7: " + strings.Repeat("汉", 192) + " … ",
		strings.Repeat("x", 4000) + " password=hunter2 " + strings.Repeat("y", 60) + " FATAL: the cause":                                                                    strings.Repeat("x", 200) + " … " + strings.Repeat("x", 3000),
		strings.Repeat("x", 4480) + " postgres://u:hunter2@db " + strings.Repeat("y", 5000) + " FATAL: the cause":                                                           strings.Repeat("x", 200) + " … y",
		strings.Repeat("x", 1490) + " postgres://u:hunter2@db FATAL: the cause":                                                                                             strings.Repeat("x", 1490) + " ",
		strings.Repeat("x", 1490) + " postgres://u:hunter2@db " + strings.Repeat("y", 2480) + " postgres://u:hunter2@db " + strings.Repeat("z", 2480) + " FATAL: the cause": strings.Repeat("x", 200) + " … z",
	} {
		j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')")
		h := j.one("w")
		_, err := j.work.Exec(context.Background(), "SELECT public.fn_job_fail(ARRAY[$1]::uuid[], ARRAY[$2]::uuid[], '{X}', ARRAY[$3]::text[], '{NULL}')", h.Job, h.Token, text)
		require.NoError(t, err)
		said := get[string](j.core, "SELECT last_error FROM public.job_queue WHERE job_id = $1", h.Job)
		require.True(t, strings.HasPrefix(said, kept), said)
		require.True(t, strings.HasSuffix(said, "FATAL: the cause"), said)
		require.NotContains(t, said, "hunte")
	}
}
