// Watermarks: while an old snapshot keeps dead rows, claims and screens begin to read at the
// watermarks, and miss no job.

package schema_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// belowWatermarks counts the claimable jobs that a look-up from the watermarks would miss: always
// 0.
const belowWatermarks = `SELECT count(*)::int FROM public.job_queue q
	JOIN LATERAL (SELECT f.due FROM public.job_watermark f WHERE f.event_domain = q.event_domain AND f.job_kind = q.job_kind ORDER BY f.version DESC LIMIT 1) f ON true
	WHERE q.ready AND q.status IN ('queued', 'retry_waiting') AND public.fn_job_watermark_valid()
	AND q.process_after < least(f.due, (SELECT min(b.due) FROM public.job_watermark_below b WHERE b.event_domain = q.event_domain AND b.job_kind = q.job_kind))`

// watermarksWanted makes the functions behave as if an old snapshot kept dead rows.
func (j *jobs) watermarksWanted() {
	j.t.Helper()
	j.exec("CREATE OR REPLACE FUNCTION public.fn_job_watermark_wanted() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
}

// advance advances the watermarks as if a second had passed since the last time; it returns whether
// they are valid.
func (j *jobs) advance() bool {
	j.t.Helper()
	j.exec("UPDATE public.job_watermark_state SET at = at - interval '1 second'")
	return get[bool](j.core, "SELECT public.fn_job_watermark_advance()")
}

// watermarked advances the watermarks until they are valid and past all jobs that are not
// claimable.
func (j *jobs) watermarked() {
	j.t.Helper()
	eventually(j.t, "the watermarks are valid", j.advance)
}

// old enqueues a job of lane iu/k that has been due for an hour, and returns its id.
func (j *jobs) old(priority int) string {
	j.t.Helper()
	return get[string](j.core, "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_priority => $1::int, p_process_after => now() - interval '1 hour') ->> 'job_id'", priority)
}

// For each way in which a job becomes claimable below the watermark of its lane, the next claim
// gets the job.
func TestJobWatermarkPassesNoJob(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.watermarksWanted()
	j.put("k", "iu", 1)
	j.outcome("ack", j.one("w"))
	j.watermarked()
	next := func(what, job string) held {
		t.Helper()
		require.True(t, get[bool](j.core, "SELECT public.fn_job_watermark_valid()"), what)
		require.Zero(t, get[int](j.core, belowWatermarks), what)
		require.Equal(t, 1, get[int](j.core, "SELECT count(*)::int FROM public.fn_job_backlog() WHERE oldest_at IS NOT NULL"), what)
		h := j.one("w")
		require.Equal(t, job, h.Job, what)
		return h
	}
	h := next("enqueued late", j.old(100))
	j.advance()
	j.outcome("release", h)
	h = next("returned", h.Job)
	j.advance()
	j.expire(h)
	j.reap()
	h = next("its lease ended", h.Job)
	j.outcome("ack", h)
	j.advance()
	id := get[string](j.core, "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() + interval '1 hour') ->> 'job_id'")
	j.advance()
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '1 hour' WHERE job_id = $1", id)
	require.EqualValues(t, 1, call(t, j.work, "public.fn_job_tick()")["promoted"])
	j.outcome("ack", next("due long ago", id))
	j.advance()
	ids := get[[]string](j.core, `SELECT array_agg(x) FROM jsonb_array_elements_text(public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'k',
		'event_domain', 'iu', 'executor', 'external_worker', 'process_after', now() - interval '1 hour')) FROM generate_series(1, 2))) -> 'job_ids') x`)
	got := j.take("w", 5)
	require.Len(t, got, 2, "several late ones")
	require.ElementsMatch(t, ids, []string{got[0].Job, got[1].Job})
	j.outcome("ack", got...)

	// jobs are claimed highest priority first, whatever the priority of the job at the watermark
	for _, order := range [][]int{{500, 100, 1}, {1, 100, 500}} {
		want := map[int]string{}
		for _, p := range order {
			want[p] = j.old(p)
		}
		j.advance()
		require.Zero(t, get[int](j.core, belowWatermarks))
		got = j.take("w", 10)
		require.Equal(t, []string{want[500], want[100], want[1]}, []string{got[0].Job, got[1].Job, got[2].Job})
		j.outcome("ack", got...)
	}
	j.balanced()
	eventually(t, "the next watermarks are found from the jobs below them", func() bool {
		return j.advance() && get[int](j.core, "SELECT count(*)::int FROM public.job_watermark_below") == 0
	})
}

// The first watermark of a new lane passes no job of a transaction that was still open when the
// watermarks advanced.
func TestJobWatermarkOfANewLane(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.watermarksWanted()
	j.put("k", "iu", 1)
	j.outcome("ack", j.one("w"))
	j.watermarked()
	tx := j.begin(j.root)
	_, err := tx.Exec(t.Context(), "SELECT public.fn_job_enqueue('new', 'iu', 'external_worker')")
	require.NoError(t, err)
	time.Sleep(1500 * time.Millisecond) // watermarks are 1 s before the time of their look-up
	for range 2 {
		require.True(t, j.advance())
	}
	require.NoError(t, tx.Commit(t.Context()))
	j.exec("SELECT public.fn_job_enqueue('new', 'iu', 'external_worker', p_process_after => now() - interval '600 milliseconds')")
	for range 3 {
		require.True(t, j.advance())
		require.Zero(t, get[int](j.core, belowWatermarks))
	}
	require.Len(t, j.take("w", 5), 2)
}

// Rows of job_watermark_below go also where no host moves the watermarks.
func TestTickForgetsLateJobs(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.old(100)
	below := "SELECT count(*)::int FROM public.job_watermark_below"
	require.Equal(t, 1, get[int](j.core, below))
	call(t, j.work, "public.fn_job_tick()")
	require.Zero(t, get[int](j.core, below), "no watermarks are wanted")
	j.watermarksWanted()
	j.watermarked()
	j.old(100)
	call(t, j.work, "public.fn_job_tick()")
	require.Equal(t, 1, get[int](j.core, below), "the watermarks are valid")
	j.exec("UPDATE public.job_watermark_state SET at = at - interval '1 minute'")
	call(t, j.work, "public.fn_job_tick()")
	require.Zero(t, get[int](j.core, below), "nobody has renewed the watermarks")
	j.watermarked()
	require.Zero(t, get[int](j.core, belowWatermarks))
	require.Len(t, j.take("w", 5), 2)
}

// After 10 s the watermarks no longer wait for a transaction that stays open. When it ends, no
// watermark is valid until all have been found again.
func TestJobWatermarkBesideAnOpenTransaction(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.watermarksWanted()
	j.put("k", "iu", 1)
	j.outcome("ack", j.one("w"))
	tx := j.begin(j.root)
	var id string
	// as if the job had been due when it was written, long ago, so that job_watermark_below has no
	// row for it
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() - interval '1 hour') ->> 'job_id'").Scan(&id))
	_, err := tx.Exec(t.Context(), "DELETE FROM public.job_watermark_below")
	require.NoError(t, err)
	xid := ""
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&xid))
	for range 3 {
		require.False(t, j.advance(), "its transaction is waited for")
	}
	eventually(t, "the watermarks are valid without it", func() bool {
		j.exec("UPDATE public.job_watermark_state SET seen_at = seen_at - interval '11 seconds'")
		return j.advance() && get[bool](j.core, "SELECT late @> ARRAY[$1::xid8] FROM public.job_watermark_state", xid)
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.False(t, get[bool](j.core, "SELECT public.fn_job_watermark_valid()"))
	require.Equal(t, id, j.one("w").Job)
	require.False(t, j.advance(), "found again from the head")
	j.watermarked()
	require.Zero(t, get[int](j.core, belowWatermarks))
}

// Watermarks that no host has renewed for 10 s, or whose time is in the future, are not used.
// Without an old snapshot there are no watermarks, and nothing is written.
func TestJobWatermarkEnds(t *testing.T) {
	j := newJobs(t)
	j.watermarksWanted()
	j.put("k", "iu", 1)
	for _, c := range []struct {
		at   string
		then bool
	}{{"- interval '8 seconds'", true}, {"- interval '11 seconds'", false}, {"+ interval '1 minute'", false}} {
		// On a busy machine 8 seconds may become 10 before both have answered: then they are asked again.
		for deadline := time.Now().Add(patience); ; {
			j.watermarked()
			at := get[time.Time](j.core, "UPDATE public.job_watermark_state SET at = clock_timestamp() "+c.at+" RETURNING at")
			valid, advanced := get[bool](j.core, "SELECT public.fn_job_watermark_valid()"), j.advance() // advance makes it a second older
			if c.then && get[bool](j.core, "SELECT clock_timestamp() >= $1::timestamptz + interval '9 seconds'", at) {
				require.True(t, time.Now().Before(deadline), "each time the answers took longer than a second")
				continue
			}
			require.Equal(t, c.then, valid, c.at)
			require.Equal(t, c.then, advanced, c.at)
			break
		}
	}
	j.watermarked()
	j.exec("CREATE OR REPLACE FUNCTION public.fn_job_watermark_wanted() RETURNS boolean LANGUAGE sql AS 'SELECT false'")
	require.False(t, j.advance())
	rows := "SELECT (SELECT count(*) FROM public.job_watermark) + (SELECT count(*) FROM public.job_watermark_state) + (SELECT count(*) FROM public.job_watermark_below)"
	require.Zero(t, get[int](j.core, rows))
	tx := j.begin(j.root)
	var wrote bool
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_job_watermark_advance() OR pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&wrote))
	require.False(t, wrote)
}

// sweepDue makes the next calls find all watermarks from the head.
func (j *jobs) sweepDue() {
	j.t.Helper()
	j.exec("UPDATE public.job_watermark_state SET swept_at = swept_at - interval '2 minutes', seen_at = seen_at - interval '11 seconds', late = '{}'")
}

// While the watermarks are found from the head, those that were valid stay so, for 5 minutes at most.
// If that search fails, the next call searches again.
func TestJobWatermarkDuringASweep(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.watermarksWanted()
	j.put("k", "iu", 1)
	j.watermarked()
	j.sweepDue()
	require.True(t, j.advance(), "announced")
	valid := "SELECT public.fn_job_watermark_valid() AND (SELECT below > '0' FROM public.fn_job_lease_watermark())"
	swept := "SELECT swept_at > clock_timestamp() - interval '1 minute' FROM public.job_watermark_state"
	longer := "UPDATE public.job_watermark_state SET at = at - interval '4 minutes'; UPDATE public.dot_iu_runtime_lease SET acquired_at = acquired_at - interval '4 minutes', expires_at = expires_at - interval '4 minutes' WHERE lease_name = 'job_watermark'"
	require.False(t, get[bool](j.core, swept))
	j.exec(longer) // as if the sweep had run for 4 minutes
	require.True(t, get[bool](j.core, valid), "4 minutes")
	late := j.old(100)
	require.Zero(t, get[int](j.core, belowWatermarks))
	tx := j.begin(j.root)
	var found bool
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_job_watermark_advance()").Scan(&found))
	require.NoError(t, tx.Rollback(t.Context())) // as if it had been cancelled
	require.True(t, get[bool](j.core, valid), "after a failure")
	j.exec(longer)
	require.False(t, get[bool](j.core, valid), "8 minutes")
	require.False(t, j.advance(), "found again from the head")
	j.watermarked()
	require.Equal(t, late, j.one("w").Job)

	j.sweepDue()
	require.True(t, j.advance(), "announced")
	j.exec(longer)
	require.True(t, get[bool](j.core, "SELECT public.fn_job_watermark_advance()"), "the sweep")
	require.True(t, get[bool](j.core, swept))
	j.exec("UPDATE public.job_watermark_state SET at = at - interval '11 seconds'")
	require.False(t, get[bool](j.core, valid), "the sweep has ended")
}

// However long a call takes, what it found counts from its end: the next call goes on from there, and
// the next sweep is a minute later.
func TestJobWatermarkCountsFromTheEndOfTheCall(t *testing.T) {
	j := newJobs(t)
	j.watermarksWanted()
	j.put("k", "iu", 1)
	j.watermarked()
	j.sweepDue()
	require.True(t, j.advance(), "announced")
	j.exec("UPDATE public.job_watermark_state SET at = at - interval '1 second'")
	tx := j.begin(j.root)
	_, err := tx.Exec(t.Context(), "LOCK TABLE public.job_watermark_below IN SHARE MODE") // the sweep waits for it
	require.NoError(t, err)
	sweep := meanwhile(t, j.root, j.root, tx, "to_jsonb(x) FROM (SELECT public.fn_job_watermark_advance() AS valid) x")
	during := get[time.Time](j.core, "SELECT clock_timestamp()")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, map[string]any{"valid": true}, sweep.got(t))
	require.True(t, get[bool](j.core, "SELECT at > $1 AND swept_at > $1 FROM public.job_watermark_state", during))
}

// With an old snapshot, a claim and the backlog read about as many pages after 3,000 finished jobs
// as before.
func TestJobWatermarkReadsFewDeadRows(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 10000)
	j.oldSnapshot()
	const n = 3000
	j.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', 'external_worker',
		'process_after', now() - interval '1 hour')) FROM generate_series(1, $1::int)))`, n)
	for done := 0; done < n; {
		hs := j.take("w", 1000)
		require.NotEmpty(t, hs)
		j.outcome("ack", hs...)
		done += len(hs)
	}
	j.put("k", "iu", 1)
	queries := []string{"SELECT * FROM public.fn_job_claim('w')", "SELECT * FROM public.fn_job_backlog()"}
	var before []int
	for _, q := range queries {
		before = append(before, j.buffers(q))
	}
	eventually(t, "the old snapshot is seen", func() bool {
		j.exec("SELECT pg_current_xact_id() FROM generate_series(1, 1)")
		for range 300 {
			j.exec("SELECT pg_current_xact_id()")
		}
		return get[bool](j.core, "SELECT public.fn_job_watermark_wanted()")
	})
	j.watermarked()
	for i, q := range queries {
		after := j.buffers(q)
		t.Logf("%s: %d buffers from the head, %d from the watermark", q, before[i], after)
		require.Less(t, after, before[i]/4, q)
		before[i] = after
	}
	// the watermarks have one new version a second, and the old snapshot keeps them all
	j.exec(`DO $$ BEGIN FOR i IN 1..10000 LOOP UPDATE public.job_watermark_state SET version = DEFAULT, at = clock_timestamp()
		WHERE version = (SELECT x.version FROM public.job_watermark_state x ORDER BY x.version DESC LIMIT 1); END LOOP; END $$`)
	for i, q := range queries {
		require.Less(t, j.buffers(q), before[i]+100, q)
	}
}

// With an old snapshot, the look-ups of jobs that are not claimable yet read about as many pages
// after 1,500 jobs that became due as before.
func TestDelayedJobsAreNotRead(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 10000)
	j.watermarksWanted()
	j.exec("ALTER TABLE public.job_queue SET (autovacuum_enabled = off)")
	j.oldSnapshot()
	queries := []string{"SELECT public.fn_job_tick()", "SELECT public.fn_job_due_late()", "SELECT * FROM public.fn_queue_due_work('{}', '{}', '{}', 0, NULL)", "SELECT public.fn_step_job_promote_targets(10, '{}')"}
	read := func() (pages []int) {
		t.Helper()
		for _, q := range queries {
			j.watermarked()
			pages = append(pages, j.buffers(q))
		}
		return pages
	}
	before := read()
	j.exec(`INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after)
		SELECT 'k', 'iu', 'external_worker', false, now() - interval '1 hour' FROM generate_series(1, 1500)`)
	require.EqualValues(t, 1500, call(t, j.work, "public.fn_job_tick()")["promoted"])
	j.outcome("ack", j.take("w", 1500)...)
	after := read()
	for i, q := range queries {
		t.Logf("%s: %d pages, then %d", q, before[i], after[i])
		require.Less(t, after[i], before[i]+50, q)
	}
	j.exec("DELETE FROM public.job_watermark_state")
	require.Greater(t, j.buffers(queries[1]), before[1]+50, "without the watermark the dead rows are read")
	j.balanced()
}

// A delayed job is promoted by the next tick, however late its transaction commits and however far
// back its time is set.
func TestJobWatermarkPassesNoDelayedJob(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.watermarksWanted()
	j.watermarked()
	from := "SELECT public.fn_job_unready_from() > now() - interval '1 minute'"
	require.True(t, get[bool](j.core, from))
	promoted := func(what string) {
		t.Helper()
		require.EqualValues(t, 1, call(t, j.work, "public.fn_job_tick()")["promoted"], what)
		j.outcome("ack", j.one("w"))
	}
	tx := j.begin(j.root)
	insert := "INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', false, now() - interval '1 hour')"
	_, err := tx.Exec(t.Context(), insert)
	require.NoError(t, err)
	// not at the first attempt if a transaction of another database, which was not waited for, ends just then
	eventually(t, "the watermark is valid beside the open transaction", func() bool {
		j.exec("UPDATE public.job_watermark_state SET seen_at = seen_at - interval '11 seconds'") // waits no longer
		j.advance()
		return get[bool](j.core, "SELECT public.fn_job_watermark_valid()")
	})
	require.NoError(t, tx.Commit(t.Context()))
	promoted("committed late")
	j.watermarked()
	for range 2 {
		j.exec(insert)
	}
	require.True(t, get[bool](j.core, "SELECT public.fn_job_due_late()"))
	j.advance()
	require.True(t, get[bool](j.core, "SELECT public.fn_job_due_late()"), "the next watermark is found from there")
	require.EqualValues(t, 2, call(t, j.work, "public.fn_job_tick()")["promoted"])
	j.outcome("ack", j.take("w", 5)...)
	eventually(t, "the watermark passes them", func() bool { return j.advance() && get[bool](j.core, from) })
	j.put("k", "iu", 1)
	j.flag("queue.retry.schedule", "1h")
	h := j.one("w")
	j.outcome("IT_BROKE", h)
	j.advance()
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '2 hours' WHERE job_id = $1", h.Job)
	promoted("set back")
	j.balanced()
}

// A job in quarantine does not hold back the watermark of the delayed jobs, and counts as neither late
// nor due. It is promoted when its error is gone.
func TestJobInQuarantineHoldsNoWatermark(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.watermarksWanted()
	insert := "INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', false, now() - interval '1 hour') RETURNING job_id::text"
	bad, good := get[string](j.core, insert), get[string](j.core, insert)
	j.exec(`CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '23514'; END $$;
		CREATE TRIGGER a_poison BEFORE UPDATE ON public.job_queue FOR EACH ROW WHEN (NEW.job_id = '` + bad + `') EXECUTE FUNCTION public.poison()`)
	eventually(t, "the job is set aside", func() bool {
		call(t, j.work, "public.fn_job_tick()")
		j.exec("UPDATE public.queue_quarantine SET next_try_at = now()")
		return get[bool](j.core, "SELECT EXISTS (SELECT FROM public.queue_quarantine WHERE step = 'job_promote' AND target = $1 AND set_aside_at IS NOT NULL)", bad)
	})
	require.Equal(t, good, j.one("w").Job)
	eventually(t, "it does not hold the watermark back", func() bool {
		return j.advance() && get[bool](j.core, "SELECT public.fn_job_unready_from() > now() - interval '1 minute'")
	})
	for _, state := range []string{"with", "without"} {
		require.False(t, get[bool](j.core, "SELECT public.fn_job_due_late()"), state)
		require.Nil(t, get[*string](j.core, "SELECT min(oldest_at)::text FROM public.fn_queue_due_work('{}', '{}', '{}', 0, NULL) WHERE 'job_queue_default' = ANY (loops)"), state)
		require.Nil(t, call(t, j.work, "public.fn_job_tick()")["next_due"], state)
		if state == "with" {
			j.exec("UPDATE public.job_watermark_state SET at = at - interval '1 hour'")
			require.Equal(t, "-infinity", get[string](j.core, "SELECT public.fn_job_unready_from()::text"))
		}
	}
	j.watermarked()
	j.exec("DROP TRIGGER a_poison ON public.job_queue")
	call(t, j.work, "public.fn_queue_quarantine_retry($1::bigint[], 'ann', 'fixed')", get[[]int64](j.core, "SELECT array_agg(quarantine_id) FROM public.queue_quarantine"))
	require.EqualValues(t, 1, call(t, j.work, "public.fn_job_tick()")["promoted"])
	require.Equal(t, bad, j.one("w").Job)
	require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.queue_quarantine"))
}

// The log names the queue lane of a late job that could not be noted; a delayed job has none.
func TestLateJobsInTheLog(t *testing.T) {
	j := newJobs(t)
	j.put("k", "iu", 1)
	cfg, err := pgx.ParseConfig(j.db.DSN(""))
	require.NoError(t, err)
	var said []string
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = j.begin(j.root).Exec(t.Context(), "LOCK TABLE public.job_watermark_below IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SET client_min_messages = log")
	require.NoError(t, err)
	for _, ready := range []string{"true", "false"} {
		_, err = conn.Exec(t.Context(), "INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', "+ready+", $1)", time.Now().Add(-time.Hour))
		require.NoError(t, err)
	}
	require.Len(t, said, 2)
	require.Regexp(t, `^qtop: a job of queue lane iu/k that has been due since .* may be claimed a minute late: .*job_watermark_below`, said[0])
	require.Regexp(t, `^qtop: a delayed job that has been due since .* may be claimed a minute late: `, said[1])
}
