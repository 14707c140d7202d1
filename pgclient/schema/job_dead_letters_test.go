// Dead letters of jobs: if many operators replay one, it is replayed at most once, and the others
// are refused with the name of the first; dead letters can be resolved and reopened.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const replay = "public.fn_job_dead_letter_replay($1, $2, 'receiver is back')"

func TestJobReplayOnce(t *testing.T) {
	j := newJobs(t)
	deadLetters := []string{j.deadLetter("k", "iu", "TIMEOUT"), j.deadLetter("k", "iu", "TIMEOUT")}
	j.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'")
	pool := j.wide(16, "dead_letter_operator")
	answers := together(t, 16, func(i int) (map[string]any, error) {
		order := []string{deadLetters[i%2], deadLetters[1-i%2]}
		return tryCall(pool, replay, order, fmt.Sprint("op", i))
	})
	require.Equal(t, 15, count(answers, "replayed", 0.0), answers)
	require.Equal(t, 1, count(answers, "replayed", 2.0), answers)
	winner := get[string](j.core, "SELECT DISTINCT resolved_by FROM public.job_dead_letter")
	for _, a := range answers {
		for _, r := range results(t, a) {
			if r["outcome"] == "skipped" {
				require.Regexp(t, `^already replayed by `+winner+` at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ as job [0-9a-f-]{36}$`, r["why"])
			} else {
				require.Equal(t, "replayed", r["outcome"])
				require.NotEmpty(t, r["new_id"])
			}
		}
	}
	require.Equal(t, 2, get[int](j.core, `SELECT count(*) FROM public.job_dead_letter d JOIN public.job_queue q ON q.job_id = d.replayed_job_id
		JOIN public.job_history h ON h.job_id = d.job_id WHERE q.idempotency_key = 'replay:' || q.job_id AND q.attempts = 0 AND q.status = 'queued' AND q.ready
			AND (q.job_kind, q.event_domain, q.executor, q.payload, q.priority) = (h.job_kind, h.event_domain, h.executor, d.payload, h.priority)
			AND d.triage_status = 'replayed' AND q.job_id <> d.job_id`))
	require.Equal(t, 16, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'job_dead_letter_replay'"))
	for _, fn := range []string{"public.fn_job_dead_letter_reopen($1::uuid[], 'eve', 'once more')", "public.fn_job_dead_letter_resolve($1::uuid[], 'abandoned', 'no', 'eve')"} {
		before := j.all()
		got := call(t, j.work, fn, deadLetters)
		require.EqualValues(t, 2, got["skipped"], got)
		require.Contains(t, results(t, got)[0]["why"], "replayed by "+winner)
		require.Equal(t, before, j.all(), fn)
	}
	j.balanced()

	// The replayed job may fail for good as well: that makes another dead letter.
	for _, h := range j.take("undertaker", 2) {
		require.Equal(t, "done", j.outcome("TIMEOUT", h))
	}
	require.Equal(t, 4, get[int](j.core, "SELECT count(*) FROM public.job_dead_letter"))
	j.balanced()
}

// Producers choose idempotency keys freely: no such key prevents the replay of a dead letter, or of
// others in the same call.
func TestJobReplayKeyIsItsOwn(t *testing.T) {
	j := newJobs(t)
	deadLetters := []string{j.deadLetter("k", "iu", "TIMEOUT"), j.deadLetter("k", "iu", "TIMEOUT")}
	j.exec(`SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => k) FROM unnest($1::text[]) l, public.job_dead_letter d,
		unnest(ARRAY[l, 'replay:' || l, d.job_id::text, 'replay:' || d.job_id]) k WHERE d.dead_letter_id::text = l`, deadLetters)
	require.EqualValues(t, 2, call(t, j.work, replay, deadLetters, "ann")["replayed"])
	require.Equal(t, 2, get[int](j.core, "SELECT count(DISTINCT idempotency_key) FROM public.job_queue JOIN public.job_dead_letter ON replayed_job_id = job_queue.job_id"))
	j.balanced()
}

// A dead letter may stay open for longer than the history of its job is kept: the replayed job
// still has all columns of the original job.
func TestJobReplayWithoutHistory(t *testing.T) {
	j := newJobs(t)
	const is = `SELECT concat_ws(' ', job_kind, event_domain, executor, payload, priority, max_attempts, source_ref, target_ref, payload_ref, correlation_id,
		causation_event_id) FROM public.job_queue`
	j.exec(`INSERT INTO public.job_queue (job_kind, event_domain, executor, payload, priority, max_attempts, source_ref, target_ref, payload_ref, correlation_id, causation_event_id)
		VALUES ('k', 'iu', 'external_worker', '{"n": 1}', 7, 1, 'source', 'target', 's3://payload', 'cor', gen_random_uuid())`)
	was := get[string](j.core, is)
	j.jobSubscription("undertaker", "", "", 0, 1)
	require.Equal(t, "done", j.outcome("TIMEOUT", j.one("undertaker")))
	j.exec("DO $$ BEGIN EXECUTE 'DROP TABLE ' || (SELECT tableoid::regclass FROM public.job_history); END $$")
	deadLetter := get[string](j.core, "SELECT dead_letter_id::text FROM public.job_dead_letter")
	require.EqualValues(t, 1, call(t, j.work, replay, []string{deadLetter}, "ann")["replayed"])
	require.Equal(t, was, get[string](j.core, is))
	fails(t, j.root, "42501", "UPDATE public.job_dead_letter SET payload_ref = 'elsewhere'")
}

func TestJobResolveAndReopen(t *testing.T) {
	j := newJobs(t)
	deadLetter := j.deadLetter("k", "iu", "TIMEOUT")
	resolve := func(dry bool) map[string]any {
		return call(t, j.work, "public.fn_job_dead_letter_resolve(ARRAY[$1]::uuid[], 'duplicate', 'came twice', 'ann', $2)", deadLetter, dry)
	}
	reopen := func(dry bool) map[string]any {
		return call(t, j.work, "public.fn_job_dead_letter_reopen(ARRAY[$1]::uuid[], 'bob', 'it did not', $2)", deadLetter, dry)
	}
	before := j.all()
	require.Equal(t, "open already: there is nothing to reopen", results(t, reopen(false))[0]["why"])
	require.Equal(t, "would_resolve", results(t, resolve(true))[0]["outcome"])
	require.Equal(t, "would_replay", results(t, call(t, j.work, "public.fn_job_dead_letter_replay(ARRAY[$1]::uuid[], 'ann', NULL, true)", deadLetter))[0]["outcome"])
	require.Equal(t, before, j.all())
	require.EqualValues(t, 1, resolve(false)["resolved"])
	require.Regexp(t, "resolved as duplicate by ann at ", results(t, resolve(false))[0]["why"])
	require.Regexp(t, "resolved as duplicate by ann at ", results(t, call(t, j.work, replay, []string{deadLetter}, "eve"))[0]["why"])
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
	j.balanced()
	require.Equal(t, "would_reopen", results(t, reopen(true))[0]["outcome"])
	require.EqualValues(t, 1, reopen(false)["reopened"])
	require.Equal(t, "open", get[string](j.core, "SELECT triage_status FROM public.job_dead_letter WHERE num_nonnulls(resolved_at, resolved_by, resolution, replayed_job_id) = 0"))
	j.balanced()
	require.EqualValues(t, 1, call(t, j.work, replay, []string{deadLetter}, "eve")["replayed"], "open again, so it can be replayed")
	require.Contains(t, results(t, call(t, j.work, "public.fn_job_dead_letter_replay(ARRAY[gen_random_uuid()], 'ann', 'x')"))[0]["why"], "no such dead letter")
	fails(t, j.work, "22023", "SELECT public.fn_job_dead_letter_resolve(ARRAY[gen_random_uuid()], 'replayed', 'x', 'ann')")
	for _, bad := range []string{"NULL, 'ann', 'x'", "'{}', 'ann', 'x'", "ARRAY[NULL]::uuid[], 'ann', 'x'", "ARRAY[gen_random_uuid()], '', 'x'", "ARRAY[gen_random_uuid()], 'ann', ' '"} {
		for _, fn := range []string{"cancel", "lease_release", "dead_letter_replay", "dead_letter_reopen"} {
			fails(t, j.work, "22023", "SELECT public.fn_job_"+fn+"("+bad+")")
		}
	}
}

func TestJobReplaySwitchedOff(t *testing.T) {
	j := newJobs(t)
	deadLetter := j.deadLetter("k", "iu", "TIMEOUT")
	setFlag(t, j.work, "queue.dlq.replay_enabled", "false")
	before := j.all()
	got := call(t, j.work, replay, []string{deadLetter}, "ann")
	require.Equal(t, []any{true, "disabled"}, []any{got["refused"], got["rule"]})
	require.Contains(t, got["reason"], "queue.dlq.replay_enabled")
	require.Equal(t, before, j.all())
	require.Equal(t, "refused: disabled", get[string](j.core, "SELECT outcome FROM public.queue_operator_action WHERE id = $1", got["audit_id"]))
	setFlag(t, j.work, "queue.dlq.replay_enabled", "true")
	require.EqualValues(t, 1, call(t, j.work, replay, []string{deadLetter}, "ann")["replayed"])
}
