// Rows older than their retention are deleted, as a partition or one by one; younger, open and
// unrouted rows remain.

package schema_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func (c *core) sweep() map[string]any {
	c.t.Helper()
	got := call(c.t, c.as("dot_executor"), "public.fn_queue_retention_sweep()")
	require.NotContains(c.t, got, "skipped")
	return got
}

// ages returns the ages, in days, of the daily partitions of a table, oldest first, as negative
// numbers.
func (c *core) ages(parent string) string {
	c.t.Helper()
	return get[string](c, `SELECT COALESCE(string_agg((to_date(right(relname, 10), 'YYYY_MM_DD') - (now() AT TIME ZONE 'UTC')::date)::text, ' ' ORDER BY relname), '')
		FROM pg_class WHERE relkind = 'r' AND relname ~ ('^' || $1 || '_\d{4}_\d\d_\d\d$') AND to_date(right(relname, 10), 'YYYY_MM_DD') < (now() AT TIME ZONE 'UTC')::date`, parent)
}

func TestRetentionOfSamples(t *testing.T) {
	c := newCore(t)
	c.leaves(32, 31, 30, 29, 1)
	// If a reader locks the table, the sweep gives up after at most 2 s, and keeps the partitions
	// until the next run.
	tx := c.begin(c.root)
	_, err := tx.Exec(context.Background(), "SELECT 1 FROM public.queue_metric_sample LIMIT 1")
	require.NoError(t, err)
	kept := c.sweep()["kept"].(map[string]any)
	require.Len(t, kept, 2)
	for _, why := range kept {
		require.Contains(t, why, "busy")
	}
	require.NoError(t, tx.Rollback(context.Background()))
	require.Equal(t, "-32 -31 -30 -29 -1", c.ages("queue_metric_sample"))
	// A partition on which somebody built a view, or that another role owns, is kept alone and is in
	// quarantine until it is dropped.
	oldest := get[string](c, `SELECT to_char((now() - interval '32 days') AT TIME ZONE 'UTC', '"queue_metric_sample_"YYYY_MM_DD')`)
	c.exec("CREATE VIEW public.seen AS SELECT * FROM public." + oldest)
	got := c.sweep()
	require.Len(t, got["dropped"], 1)
	require.Len(t, got["kept"], 1)
	require.Contains(t, got["kept"].(map[string]any)[oldest], "failed: cannot drop table")
	require.Contains(t, got["kept"].(map[string]any)[oldest], "view public.seen")
	require.Equal(t, "-32 -30 -29 -1", c.ages("queue_metric_sample"))
	set := func() string {
		return get[string](c, "SELECT COALESCE(string_agg(concat_ws(' ', step, target, attempts, code), ','), '') FROM public.queue_quarantine")
	}
	require.Equal(t, "partitions "+oldest+" 1 2BP01", set())
	c.exec("DROP VIEW public.seen; ALTER TABLE public." + oldest + " OWNER TO postgres")
	require.Contains(t, c.sweep()["kept"].(map[string]any)[oldest], "failed: must be owner")
	require.Equal(t, "partitions "+oldest+" 2 42501", set())
	// So it is where a lock keeps partitions from being created in the same run.
	c.exec("ALTER TABLE public." + oldest + " OWNER TO queue_owner")
	tomorrow := get[string](c, `SELECT to_char((now() + interval '1 day') AT TIME ZONE 'UTC', '"job_history_"YYYY_MM_DD')`)
	c.exec("DROP TABLE public." + tomorrow)
	tx = c.begin(c.root)
	_, err = tx.Exec(context.Background(), "LOCK TABLE public.job_history_default IN ACCESS SHARE MODE")
	require.NoError(t, err)
	got = c.sweep()
	require.NoError(t, tx.Rollback(context.Background()))
	require.Equal(t, []any{oldest}, got["dropped"])
	require.Equal(t, map[string]any{"partitions": "busy: created in the next run"}, got["kept"])
	require.Empty(t, set())
	require.EqualValues(t, 1, c.sweep()["created"])
	require.Equal(t, "-30 -29 -1", c.ages("queue_metric_sample"), "30 days are kept whole")
	for _, value := range []string{"0", "many"} {
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'retention.samples_days'", value)
		c.sweep()
		require.Equal(t, "-30 -29 -1", c.ages("queue_metric_sample"), "%s keeps everything", value)
	}
	c.exec("UPDATE public.dot_config SET value = '5' WHERE key = 'retention.samples_days'")
	c.sweep()
	require.Equal(t, "-1", c.ages("queue_metric_sample"))
}

// A partition that somebody attached under another name, or for another time than its name has, is kept
// and does not end the sweep.
func TestRetentionKeepsPartitionsOfOtherNames(t *testing.T) {
	c := newCore(t)
	c.exec(get[string](c, `SELECT format('CREATE TABLE public.queue_metric_sample_2001_05_01 PARTITION OF public.queue_metric_sample FOR VALUES FROM (%L) TO (%L)',
		'2001-05-01 00:00Z', now() - interval '10 days')`))
	require.Empty(t, c.sweep()["dropped"])
	c.exec("DROP TABLE public.queue_metric_sample_2001_05_01")
	c.leaves(31)
	for i, name := range []string{"queue_metric_sample_old_2001_01_01", "queue_metric_sample_2001_02", "old_2001_03_01"} {
		c.exec(fmt.Sprintf("CREATE TABLE public.%s PARTITION OF public.queue_metric_sample FOR VALUES FROM ('2001-0%d-01 00:00Z') TO ('2001-0%d-01 00:00Z')", name, i+1, i+2))
	}
	c.exec("CREATE TABLE public.queue_metric_sample_2001_04_01 PARTITION OF public.queue_metric_sample FOR VALUES FROM ('2101-04-01 00:00Z') TO ('2101-04-02 00:00Z')")
	// partitions of others, whose bounds are no times, in a plan that reads all partitions of the database
	c.exec("CREATE TABLE public.theirs (k text) PARTITION BY RANGE (k); CREATE TABLE public.theirs_a PARTITION OF public.theirs FOR VALUES FROM ('a') TO ('m')")
	c.exec("ALTER DATABASE " + pgx.Identifier{c.db.Name}.Sanitize() + " SET enable_nestloop = off")
	fresh := c.db.Pool(t, "")
	got := call(t, fresh, "public.fn_queue_retention_sweep()")
	require.Len(t, got["dropped"], 1)
	require.Empty(t, got["kept"])
}

// When the retention of a job is over, its payload and error are cleared; its row is deleted with
// the partition of its day. The counters follow.
func TestRetentionOfJobs(t *testing.T) {
	j := newJobs(t)
	past := func(kind, age string) {
		j.exec(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at, payload, last_error, source_ref, idempotency_key)
			SELECT gen_random_uuid(), $1, 'iu', 'DOT', 'succeeded', 'leased', `+age+`, '{"n": 1}', 'why', 'ref', 'key' FROM generate_series(1, 3)`, kind)
	}
	const line = "now() - interval '90 days'"
	past("fresh", "now()")
	past("within", line+" + interval '1 hour'")
	past("over", "greatest(date_trunc('day', "+line+", 'UTC'), "+line+" - interval '1 second')")
	past("ancient", line+" - interval '3 days'")
	j.put("live", "iu", 2)
	got := j.sweep()
	require.EqualValues(t, 3, got["cleaned"], "those of the day that the line runs through")
	require.Len(t, got["dropped"], 1)
	require.Equal(t, "fresh succeeded {\"n\": 1} why ref key,over cleaned {} key,within succeeded {\"n\": 1} why ref key",
		get[string](j.core, `SELECT string_agg(DISTINCT concat_ws(' ', job_kind, status, payload, last_error, source_ref, idempotency_key), ',') FROM public.job_history`))
	require.Equal(t, "fresh succeeded,live queued,over cleaned,within succeeded", get[string](j.core,
		"SELECT string_agg(concat_ws(' ', k1, k3), ',' ORDER BY k1) FROM public.v_queue_counter WHERE scope = 'job' AND n > 0"))
	j.balanced()
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_history_default"))
	got = j.sweep()
	require.EqualValues(t, 0, got["cleaned"])
	require.Empty(t, got["dropped"])
}

// Only dead letters that were resolved long ago are deleted. Neither the sweep nor a direct DELETE
// can delete others.
func TestRetentionOfDeadLetters(t *testing.T) {
	j := newJobs(t)
	j.exec("ALTER TABLE public.job_dead_letter DISABLE TRIGGER trg_job_dead_letter_edge")
	deadLetter := func(code string, resolved string) {
		j.exec("UPDATE public.job_dead_letter SET resolved_at = "+resolved+", resolved_by = 'ann', resolution = 'r', triage_status = 'abandoned' WHERE dead_letter_id = $1",
			j.deadLetter("k", "iu", code))
		j.exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name, resolved_at, resolution)
			VALUES (gen_random_uuid(), '{}', $1, $1, 'x', 'iu', 'w', `+resolved+`, 'r')`, code)
	}
	deadLetter("OLD", "now() - interval '366 days'")
	deadLetter("YOUNG", "now() - interval '364 days'")
	open := j.deadLetter("k", "iu", "OPEN")
	left := func() string {
		return get[string](j.core, "SELECT string_agg(failure_code, ' ' ORDER BY failure_code) FROM (SELECT failure_code FROM public.job_dead_letter UNION ALL SELECT failure_code FROM public.iu_route_dead_letter) d")
	}
	for _, table := range []string{"job_dead_letter", "iu_route_dead_letter"} {
		for _, sql := range []string{"DELETE FROM public." + table + " WHERE failure_code <> 'OLD'", "TRUNCATE public." + table} {
			fails(t, j.root, "42501", sql)
		}
	}
	require.EqualValues(t, 2, j.sweep()["letters"])
	require.Equal(t, "OPEN YOUNG YOUNG", left())
	j.exec("UPDATE public.dot_config SET value = '0' WHERE key = 'retention.dead_letters_days'")
	require.EqualValues(t, 0, j.sweep()["letters"])
	require.Equal(t, open, get[string](j.core, "SELECT dead_letter_id::text FROM public.job_dead_letter WHERE resolved_at IS NULL"))
	require.Equal(t, 1, get[int](j.core, "SELECT sum(n)::int FROM public.v_queue_counter WHERE scope = 'dead_job'"))
}

// The history of a job is deleted when it is old enough, even if its dead letter is open, replayed
// or part of an operation. Such a dead letter remains and can still be replayed.
func TestRetentionOfJobsOverTheLine(t *testing.T) {
	j := newJobs(t)
	deadLetters := map[string]string{}
	for _, name := range []string{"open", "replayed", "done", "planned", "resolved"} {
		deadLetters[name] = j.deadLetter(name, "iu", "TIMEOUT")
	}
	replayed := func(name string) {
		require.EqualValues(t, 1, call(t, j.work, replay, []string{deadLetters[name]}, "ann")["replayed"])
	}
	replayed("replayed")
	replayed("done")
	j.jobSubscription("w", "done", "", 0, 10)
	require.Equal(t, "done", j.outcome("ack", j.one("w")))
	j.exec("SELECT public.fn_job_dead_letter_resolve(ARRAY[$1::uuid], 'abandoned', 'test', 'ann')", deadLetters["resolved"])
	call(t, j.work, "public.fn_queue_bulk_plan('replay_job', $1, 'code:TIMEOUT', 1000, 0, 0, 'ann', 'r')", []string{"job:" + deadLetters["planned"]})
	left := func() string {
		return get[string](j.core, "SELECT string_agg(job_kind, ' ' ORDER BY job_kind) FROM public.job_dead_letter")
	}
	j.exec("BEGIN; SET LOCAL session_replication_role = replica; UPDATE public.job_history SET finished_at = finished_at - interval '3 days'; COMMIT")
	days := func(n string) map[string]any {
		j.flag("retention.jobs_days", n)
		j.flag("retention.dead_letters_days", n)
		j.later("0") // the first sweep makes the partition of the day, the second may drop it
		return j.sweep()
	}
	require.Empty(t, days("0")["dropped"])
	require.Equal(t, 6, get[int](j.core, "SELECT count(*)::int FROM public.job_history"))
	days("1")
	require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_history"))
	require.Equal(t, "done open planned replayed resolved", left(), "closed today, or open")
	j.later("25 hours")
	require.Equal(t, "open planned", left(), "whose replay is in the queue was closed long ago too")
	require.Equal(t, "replayed queued", get[string](j.core, "SELECT job_kind || ' ' || status FROM public.job_queue"))
	call(t, j.work, "public.fn_queue_bulk_run(1, 'ann')")
	eventually(t, "carried out", func() bool {
		j.exec("SELECT public.fn_queue_bulk_tick()")
		return get[int](j.core, "SELECT count(*)::int FROM public.job_queue") == 2
	})
	replayed("open")
	require.Equal(t, `{"n": 1, "api_key": "hidden-key"} x 3`, get[string](j.core, "SELECT min(payload::text) || ' x ' || count(*) FROM public.job_queue"), "as they were given")
	require.Equal(t, "done", j.outcome("ack", j.take("undertaker", 10)...))
	require.Equal(t, 3, get[int](j.core, "SELECT count(*)::int FROM public.job_history WHERE status = 'succeeded'"))
}

// The partition of a month is dropped once all its events are routed, and then their attempts are
// deleted.
func TestRetentionOfEvents(t *testing.T) {
	c := newRoutes(t)
	c.emit("iu", "now")
	c.exec("ALTER TABLE public.event_outbox DISABLE TRIGGER trg_event_outbox_admit")
	c.exec(`INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, event_subject_ref, created_at)
		SELECT d, 'made', 's', 'immediate', d, now() - interval '130 days' FROM unnest('{iu,kg}'::text[]) d`)
	c.exec("ALTER TABLE public.event_outbox ENABLE TRIGGER trg_event_outbox_admit")
	leaf := get[string](c, "SELECT to_char((now() - interval '130 days') AT TIME ZONE 'UTC', '\"event_outbox_\"YYYY_MM')")
	subjects := func() string {
		return get[string](c, "SELECT string_agg(event_subject_ref, ' ' ORDER BY event_subject_ref) FROM public.event_outbox")
	}
	require.Equal(t, map[string]any{leaf: "has events that no cursor has passed"}, c.sweep()["kept"])
	require.Equal(t, "iu kg now", subjects())
	eventually(t, "routed", func() bool {
		call(t, c.root, "public.fn_iu_route_worker_run()")
		return get[int](c, "SELECT count(*) FROM public.iu_route_attempt") == 3
	})
	c.exec("UPDATE public.iu_route_attempt a SET attempted_at = e.created_at FROM public.event_outbox e WHERE e.id = a.event_id")
	c.exec("ALTER TABLE public." + leaf + " OWNER TO postgres")
	require.Contains(t, c.sweep()["kept"].(map[string]any)[leaf], "failed: permission denied")
	c.exec("ALTER TABLE public." + leaf + " OWNER TO queue_owner")
	got := c.sweep()
	require.Equal(t, []any{leaf}, got["dropped"])
	require.EqualValues(t, 0, got["attempts"], "they stay as long as their events")
	require.Equal(t, "now", subjects())
	c.exec(`INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name, attempted_at)
		SELECT gen_random_uuid(), 'user:a', 1, 'iu', 'made', 'w', now() - interval '130 days' FROM generate_series(1, 83334)`)
	require.EqualValues(t, 83336, c.sweep()["attempts"], "no fewer in an hour than come at two million events a day")
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.iu_route_attempt"))
}

// A sweep that did not run for a long time drops all old partitions. Of several sweeps at once only
// one works.
func TestRetentionAfterALongPause(t *testing.T) {
	j := newJobs(t)
	for days := 91; days < 191; days++ {
		j.exec(fmt.Sprintf(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
			SELECT gen_random_uuid(), 'k', 'iu', 'DOT', 'failed', 'leased', date_trunc('day', now(), 'UTC') - interval '%d days' FROM generate_series(1, 10)`, days))
	}
	pool := j.wide(3, "dot_executor")
	got := together(t, 3, func(int) (map[string]any, error) { return tryCall(pool, "public.fn_queue_retention_sweep()") })
	dropped := 0
	for _, g := range got {
		if d, ok := g["dropped"].([]any); ok {
			dropped += len(d)
		}
	}
	for range 100 { // a slow machine needs several runs
		if dropped < 100 {
			dropped += len(j.sweep()["dropped"].([]any))
		}
	}
	require.Equal(t, 100, dropped)
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_history"))
	j.balanced()
}

// If a partition is so large that statement_timeout ends the run while it is read, the run keeps
// what it did and creates partitions, and the next runs drop the other ones first.
func TestRetentionOfALeafTooLargeForOneRun(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: a statement_timeout of 2 s, which a busy machine reaches elsewhere")
	}
	j := newJobs(t)
	for days := 95; days < 99; days++ {
		j.exec(fmt.Sprintf(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
			SELECT gen_random_uuid(), 'k', 'iu', 'DOT', 'failed', 'leased', date_trunc('day', now(), 'UTC') - interval '%d days' FROM generate_series(1, 2)`, days))
	}
	j.flag("retention.jobs_days", "0")
	j.sweep() // makes the partitions of these days
	j.flag("retention.jobs_days", "90")
	old := func() string { return j.ages("job_history") }
	require.Equal(t, "-98 -97 -96 -95", old())
	leaf := func(days string) string {
		return get[string](j.core, "SELECT to_char(now() AT TIME ZONE 'UTC' + $1::text::interval, '\"job_history_\"YYYY_MM_DD')", days)
	}
	// slow makes reading a row of a partition take that long.
	slow := func(days, seconds string) string {
		j.exec(fmt.Sprintf(`ALTER TABLE public.%[1]s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
			DROP POLICY IF EXISTS slow ON public.%[1]s; CREATE POLICY slow ON public.%[1]s USING (pg_sleep(%[2]s) IS NOT NULL)`, leaf(days), seconds))
		return leaf(days)
	}
	// run runs the worker, again if the machine was so slow that no partition was read, until done.
	run := func(done func(result map[string]any) bool) (result map[string]any) {
		eventually(t, "the sweep gets that far", func() bool {
			j.exec("DROP TABLE IF EXISTS public." + leaf("3 days"))
			j.exec("UPDATE public.queue_tick_worker SET last_run_at = NULL, last_attempt_at = NULL WHERE worker_name = 'retention_sweep'")
			out := tick(t, j.core, "retention_sweep", "external")
			require.Equal(t, true, out["ran"], out)
			result = out["result"].(map[string]any)
			return result["kept"] != nil && done(result)
		})
		require.EqualValues(t, 1, result["created"], "the partition of a coming day")
		return result
	}
	j.balanced()
	j.exec("ALTER ROLE CURRENT_USER IN DATABASE " + j.db.Name + " SET statement_timeout = '2s'")
	j.root.Reset()
	endless, long := slow("-98 days", "60"), slow("-97 days", "0.35")
	const unread, late = "not read yet: read in a later run", "not read within statement_timeout: read again in a later run"
	got := run(func(result map[string]any) bool { return result["kept"].(map[string]any)[endless] == late })
	require.Equal(t, map[string]any{endless: late, long: unread, leaf("-96 days"): unread, leaf("-95 days"): unread}, got["kept"])
	got = run(func(result map[string]any) bool { return len(result["dropped"].([]any)) > 0 })
	require.Equal(t, []any{long}, got["dropped"], "nothing more after a third of the timeout")
	require.Equal(t, map[string]any{endless: unread, leaf("-96 days"): unread, leaf("-95 days"): unread}, got["kept"])
	slow("-98 days", "0")
	run(func(map[string]any) bool { return old() == "" })
	j.balanced()
}
