// The watermark of the counters: readers and folds skip deltas that are folded, and miss no other.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// oldSnapshot holds a snapshot to the end of the test, so that PostgreSQL keeps all dead rows.
func (c *core) oldSnapshot() {
	c.t.Helper()
	tx, err := c.root.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(c.t.Context(), "SELECT count(*) FROM public.job_queue")
	require.NoError(c.t, err)
}

// pages runs the statement and returns how many pages of tables and indexes of the queue it reads. Those of the
// catalogue do not count: a session reads it again whenever others have changed much of theirs.
func pages(t *testing.T, tx pgx.Tx, sql string) int {
	t.Helper()
	fetched := func() (n int) {
		require.NoError(t, tx.QueryRow(context.Background(), "SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::int FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&n))
		return n
	}
	before := fetched()
	_, err := tx.Exec(context.Background(), sql)
	require.NoError(t, err, sql)
	return fetched() - before
}

// buffers returns how many pages of the queue the statement reads the second time; it changes nothing.
func (c *core) buffers(sql string) (n int) {
	c.t.Helper()
	probe := c.begin(c.root)
	defer func() { _ = probe.Rollback(context.Background()) }()
	_, err := probe.Exec(c.t.Context(), "SAVEPOINT again")
	require.NoError(c.t, err)
	for range 2 { // the first one also looks at dead rows and marks them
		_, err := probe.Exec(c.t.Context(), "ROLLBACK TO again")
		require.NoError(c.t, err)
		n = pages(c.t, probe, sql)
	}
	return n
}

const compact = "SELECT public.fn_queue_counter_compact()"

// unfolded returns the number of deltas that readers add to the folded counts, and requires that
// readers see every delta there is.
func (c *core) unfolded() int {
	c.t.Helper()
	n := get[int](c, "SELECT count(*)::int FROM public.fn_queue_counter_unfolded(NULL)")
	require.Equal(c.t, get[int](c, "SELECT (SELECT count(*) FROM public.queue_counter_recent)::int + (SELECT count(*) FROM public.queue_counter_delta)::int"), n)
	return n
}

// With an old snapshot, the counters, a fold and the snapshot of the consoles read about as many
// pages after 10,000 folded deltas as after a few.
func TestFoldedDeltasAreNotRead(t *testing.T) {
	j := newJobs(t)
	j.oldSnapshot()
	queries := []string{"SELECT * FROM public.v_queue_counter", compact, "SELECT public.fn_queue_snapshot_parts()"}
	fold := func(n int) (read []int) {
		t.Helper()
		j.exec("INSERT INTO public.queue_counter_recent (scope, k1, n) SELECT 'job_done_1m', '', 1 FROM generate_series(1, $1)", n)
		j.exec(compact)
		j.put("k", "iu", 1)
		for _, q := range queries {
			read = append(read, j.buffers(q))
		}
		return read
	}
	before := fold(10)
	for range 9 {
		fold(10)
	}
	after := fold(10_000)
	for i, q := range queries {
		t.Logf("%s: %d pages, then %d", q, before[i], after[i])
		// queue_counter keeps its old versions too; 10,000 deltas are over 75 pages for each section that counts
		require.Less(t, after[i], 2*before[i]+50, q)
	}
	require.Equal(t, 2, j.unfolded())
	j.balanced()
}

// A delta is read and folded whenever its transaction commits: after later folds, from a
// subtransaction, and from the transaction that folded.
func TestLateDeltasAreRead(t *testing.T) {
	j := newJobs(t)
	early := j.begin(j.root)
	put := func(tx pgx.Tx, sql ...string) {
		t.Helper()
		for _, s := range append(sql, "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')") {
			_, err := tx.Exec(t.Context(), s)
			require.NoError(t, err)
		}
	}
	put(early)
	silent := j.begin(j.root)
	_, err := silent.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	for range 3 {
		j.put("k", "iu", 2)
		j.exec(compact)
		require.Zero(t, j.unfolded())
	}
	put(early, "SAVEPOINT s")
	put(early, "RELEASE s")
	require.NoError(t, early.Commit(t.Context()))
	require.Equal(t, 6, j.unfolded())
	j.balanced()
	put(silent, compact) // one transaction folds its own deltas, and then counts again
	require.NoError(t, silent.Commit(t.Context()))
	require.Equal(t, 2, j.unfolded())
	j.balanced()
	j.exec(compact)
	require.Zero(t, j.unfolded())
	j.balanced()
	require.Equal(t, 1, get[int](j.core, "SELECT count(*)::int FROM public.queue_counter_watermark"))

	late := j.begin(j.root)
	put(late)
	require.NoError(t, late.Rollback(t.Context()))
	version := "SELECT max(version) FROM public.queue_counter_watermark"
	was := get[int64](j.core, version)
	j.exec(compact)
	require.Equal(t, was, get[int64](j.core, version), "a fold without deltas writes nothing")
}

// A watermark that a dump brought from another server, that nobody has renewed for ten minutes or
// whose time is in the future is not used; rows with transaction ids of another server are folded.
func TestCounterWatermarkEnds(t *testing.T) {
	j := newJobs(t)
	j.put("k", "iu", 1)
	j.exec(compact)
	for _, set := range []string{"below = '9000000000000000000'", "at = at - interval '11 minutes'", "at = at + interval '1 minute'"} {
		// the deltas of this job are below the watermark
		j.put("k", "iu", 1)
		j.exec("UPDATE public.queue_counter_watermark SET below = pg_snapshot_xmax(pg_current_snapshot()), late = '{}'")
		require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.fn_queue_counter_unfolded(NULL)"))
		j.exec("UPDATE public.queue_counter_watermark SET " + set)
		require.Equal(t, 2, j.unfolded(), set)
		j.balanced()
		j.exec(compact)
		require.Zero(t, j.unfolded(), set)
	}
	j.exec("INSERT INTO public.queue_counter_recent (scope, n, xid) VALUES ('x', 1, '3')")
	j.exec(compact)
	require.Equal(t, 1, get[int](j.core, "SELECT count(*)::int FROM public.queue_counter_recent"))
	j.exec("UPDATE public.queue_counter_watermark SET swept_at = swept_at - interval '61 minutes'")
	j.exec(compact)
	require.Zero(t, j.unfolded())
	j.exec("INSERT INTO public.queue_counter_delta (scope, n) VALUES ('x', 1)") // as a transaction of the release before
	require.Equal(t, 2, get[int](j.core, "SELECT n::int FROM public.v_queue_counter WHERE scope = 'x'"))
	j.exec(compact)
	require.Zero(t, j.unfolded())
	require.Equal(t, 2, get[int](j.core, "SELECT n::int FROM public.v_queue_counter WHERE scope = 'x'"))

	// Time buckets that were counted before the clock was set back are deleted; the bucket that a
	// transaction began a moment ago is kept.
	j.exec(`INSERT INTO public.queue_counter (scope, k1, k3, n) SELECT 'test_5m', s::text, (extract(epoch FROM now())::bigint + s)::text, 1
		FROM unnest('{-86400,-7100,0,60,3600,86400}'::int[]) s`)
	require.Equal(t, 3, len(get[[]string](j.core, "SELECT public.fn_step_counter_prune_targets(100, '{}')")))
	j.exec(compact)
	require.Equal(t, "-7100 0 60", get[string](j.core, "SELECT string_agg(k1, ' ' ORDER BY k1::int) FROM public.queue_counter WHERE scope = 'test_5m'"))
}

// Folds, producers and readers at once: every reading equals the tables.
func TestCounterWatermarkStorm(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	pool, viewer := j.wide(6, "event_ingest_writer", "dot_executor"), j.as("queue_viewer")
	together(t, 8, func(i int) (map[string]any, error) {
		for range 25 {
			var err error
			switch i {
			case 0, 1:
				_, err = pool.Exec(t.Context(), compact)
			case 2, 3:
				var n int
				err = viewer.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.v_job WHERE status <> 'cleaned')::int
					- COALESCE((SELECT sum(n) FROM public.v_queue_counter WHERE scope = 'job'), 0)::int`).Scan(&n)
				if err == nil && n != 0 {
					err = fmt.Errorf("%d jobs are not counted", n)
				}
			default:
				err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					for range 3 {
						if _, err := tx.Exec(t.Context(), "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')"); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err != nil {
				return nil, err
			}
		}
		return map[string]any{}, nil
	})
	j.unfolded()
	j.balanced()
	j.exec(compact)
	require.Zero(t, j.unfolded())
	require.LessOrEqual(t, get[int](j.core, "SELECT count(*)::int FROM public.queue_counter_watermark"), 2)
	j.balanced()
}
