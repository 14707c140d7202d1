package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An old snapshot keeps the rows of 6,000 finished jobs and of their leases, and the statistics say
// that both tables are empty, because the queue was when they were collected. Whatever a worker or
// an operator does with a few jobs reads few of those rows.
func TestEmptyStatisticsReadNoDeadRows(t *testing.T) {
	j := newJobs(t)
	j.exec("ALTER TABLE public.job_queue SET (autovacuum_enabled = off); ALTER TABLE public.job_lease SET (autovacuum_enabled = off)")
	j.jobSubscription("w", "", "", 0, 10000)
	j.watermarksWanted()
	dead := j.deadLetter("k", "iu", "BROKEN")
	replayed := j.deadLetter("k", "iu", "BROKEN")
	j.oldSnapshot()
	const n, each = 6000, 5
	j.put("k", "iu", n)
	for range n / 10 {
		j.outcome("ack", j.take("w", 10)...)
	}
	j.exec("ANALYZE public.job_queue, public.job_lease")
	require.Zero(t, get[float64](j.core, "SELECT sum(reltuples)::float8 FROM pg_class WHERE oid IN ('public.job_queue'::regclass, 'public.job_lease'::regclass)"))
	j.exec("SELECT pg_sleep(1)") // watermarks are a second behind, and the finished jobs must be before them
	j.watermarked()

	j.put("k", "iu", each)
	hs := j.take("w", each)
	require.Len(t, hs, each)
	ended := j.put("k", "iu", each)
	j.expire(j.take("w", each)...)
	waiting := j.put("k", "iu", each)
	call(t, j.root, "public.fn_job_dead_letter_replay($1::uuid[], 'ann', 'again')", []string{replayed})
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => 'known')")
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() + interval '1 second')")
	j.watermarked()
	j.exec("SELECT pg_sleep(1)")

	list := func(ids []string) string { return "'{" + strings.Join(ids, ",") + "}'::uuid[]" }
	lease := fmt.Sprintf("%s, %s", list(ids(hs)), list(tokens(hs)))
	errors := "'{A,A,A,A,A}', '{b,b,b,b,b}'"
	for what, sql := range map[string]string{
		"enqueue":            "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')",
		"enqueue with a key": "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => 'new')",
		"enqueue again":      "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => 'known')",
		"enqueue many":       `SELECT public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "external_worker"}, {"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": "known"}]')`,
		"claim":              "SELECT * FROM public.fn_job_claim('w', NULL, 3)",
		"claim of a kind":    "SELECT * FROM public.fn_job_claim('w', '{k}', 3)",
		"start":              "SELECT * FROM public.fn_job_start(" + lease + ")",
		"renew":              "SELECT * FROM public.fn_job_renew(" + lease + ")",
		"locked":             "SELECT * FROM public.fn_job_locked(" + lease + ")",
		"ack":                "SELECT * FROM public.fn_job_ack(" + lease + ")",
		"release":            "SELECT * FROM public.fn_job_release(" + lease + ")",
		"fail":               "SELECT * FROM public.fn_job_fail(" + lease + ", " + errors + ", '{f,f,f,f,f}')",
		"fail for good":      "SELECT * FROM public.fn_job_fail(" + lease + ", " + errors + ", '{t,t,t,t,t}')",
		"reap":               "SELECT public.fn_job_reap_expired()",
		"reap one by one":    "SELECT public.fn_step_job_reap(10, ARRAY['" + ended[0] + "'], '{}')",
		"targets of reap":    "SELECT public.fn_step_job_reap_targets(10, '{}')",
		"tick":               "SELECT public.fn_job_tick()",
		"cancel":             "SELECT public.fn_job_cancel(" + list(waiting) + ", 'ann', 'not needed')",
		"dry cancel":         "SELECT public.fn_job_cancel(" + list(waiting) + ", 'ann', 'not needed', true)",
		"replay":             "SELECT public.fn_job_dead_letter_replay('{" + dead + "}'::uuid[], 'ann', 'again')",
		"undo of a replay":   "SELECT public.fn_job_dead_letter_replay_undo('{" + replayed + "}'::uuid[], 'ann', 'not yet')",
		"release of a lease": "SELECT public.fn_job_lease_release((SELECT array_agg(lease_id) FROM json_to_recordset(public.fn_snapshot_job_leases()) AS x (lease_id uuid, expired boolean) WHERE expired), 'ann', 'it ended')",
		"leases":             "SELECT public.fn_snapshot_job_leases()",
		"backlog":            "SELECT * FROM public.fn_job_backlog()",
		"watermarks":         "SELECT public.fn_job_watermark_advance()",
	} {
		pages := j.buffers(sql)
		t.Logf("%s: %d pages", what, pages)
		require.Less(t, pages, 300, what)
	}
}
