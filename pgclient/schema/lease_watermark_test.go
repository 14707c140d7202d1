// The watermark of the leases: while an old snapshot keeps the dead rows of ended leases, claims,
// the reaper and the snapshot read only the others, and miss none.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// leases returns the live leases that readers see, and requires that these are all leases of the
// table, and that claims count the leased jobs of each subscription correctly.
func (j *jobs) leases() int {
	j.t.Helper()
	require.Zero(j.t, get[int](j.core, `SELECT count(*)::int FROM (SELECT lease_token FROM public.job_lease EXCEPT ALL SELECT lease_token FROM public.fn_job_leases()) x`), "leases that readers miss")
	require.Zero(j.t, get[int](j.core, `SELECT count(*)::int FROM (SELECT lease_token FROM public.fn_job_leases() EXCEPT ALL SELECT lease_token FROM public.job_lease) x`), "leases that readers read twice")
	require.Zero(j.t, get[int](j.core, `SELECT count(*)::int FROM (SELECT subscription_id, sum(live)::bigint AS n FROM public.job_lease GROUP BY 1 UNION ALL SELECT gen_random_uuid(), 0) l
		WHERE public.fn_job_leased(subscription_id, -1) <> n OR public.fn_job_leased(subscription_id, 1000000) NOT BETWEEN n AND 1000000`), "subscriptions whose leased jobs a claim miscounts")
	return get[int](j.core, "SELECT count(*)::int FROM public.fn_job_leases()")
}

// leasesFrom returns whether readers look for leases from the watermark.
func (j *jobs) leasesFrom() bool {
	j.t.Helper()
	return get[bool](j.core, "SELECT below > '0' FROM public.fn_job_lease_watermark()")
}

// With an old snapshot, a claim, the reaper and the sections of the snapshot that count leases read
// about as many pages after 4,000 ended leases as after a few.
func TestEndedLeasesAreNotRead(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 10000)
	j.watermarksWanted()
	j.exec("ALTER TABLE public.job_lease SET (autovacuum_enabled = off)")
	j.oldSnapshot()
	j.put("k", "iu", 3)
	h := j.one("w") // a lease that lives on, from before the others
	sections := []string{
		"SELECT public.fn_snapshot_job_subscriptions()", "SELECT public.fn_snapshot_job_leases()", "SELECT public.fn_snapshot_job_table()",
		"SELECT * FROM public.fn_queue_due_work('{}', '{}', '{}', 0, NULL)", "SELECT public.fn_snapshot_lanes(ARRAY(SELECT b FROM public.v_job_backlog b), ARRAY(SELECT w FROM public.v_queue_watch w), '{}')",
		"SELECT public.fn_step_job_reap(1000, NULL, '{}')", "SELECT public.fn_step_job_reap_targets(1000, '{}')", "SELECT * FROM public.fn_job_claim('w')",
		"SELECT public.fn_job_leased(s.subscription_id, 0) FROM public.job_subscription s",
	}
	read := func() (pages []int) {
		t.Helper()
		for _, q := range sections {
			j.watermarked() // valid for 10 s
			pages = append(pages, j.buffers(q))
		}
		return pages
	}
	before := read()
	j.exec(`WITH s AS (SELECT subscription_id FROM public.job_subscription LIMIT 1) INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
		SELECT gen_random_uuid(), 'gone', s.subscription_id, now(), '{}', 0 FROM s, generate_series(1, 4000)`)
	j.exec("DELETE FROM public.job_lease WHERE lease_owner = 'gone'")
	after := read()
	for i, q := range sections {
		t.Logf("%s: %d pages, then %d", q, before[i], after[i])
		require.Less(t, after[i], before[i]+40, q) // the table has 150 pages of dead rows
	}
	require.Equal(t, 1, j.leases())
	j.exec("DELETE FROM public.job_watermark_state")
	require.Greater(t, j.buffers(sections[0]), before[0]+100, "without the watermark the dead rows are read")
	j.outcome("ack", h)
}

// A lease is seen whenever its transaction commits, and as long as it lives: claimed before the
// watermark, in a transaction that was open then, in a subtransaction, and in the transaction that
// moved the watermark.
func TestLateLeasesAreRead(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 6)
	j.watermarksWanted()
	j.put("k", "iu", 10)
	claim := func(tx pgx.Tx) {
		t.Helper()
		tag, err := tx.Exec(t.Context(), "SELECT public.fn_job_claim('w')")
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
	}
	old := j.one("w")
	early := j.begin(j.root)
	claim(early)
	j.exec("SELECT pg_current_xact_id()") // so that its id is below the watermark
	j.exec("UPDATE public.job_watermark_state SET seen_at = seen_at - interval '11 seconds'")
	j.advance()
	require.True(t, j.leasesFrom())
	require.Equal(t, 1, j.leases())
	_, err := early.Exec(t.Context(), "SAVEPOINT s")
	require.NoError(t, err)
	require.NoError(t, early.Commit(t.Context()))
	require.Equal(t, 2, j.leases())
	own := j.begin(j.root)
	_, err = own.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	j.exec("SELECT pg_current_xact_id()")
	j.exec("UPDATE public.job_watermark_state SET at = at - interval '1 second'")
	_, err = own.Exec(t.Context(), "SELECT public.fn_job_watermark_advance()")
	require.NoError(t, err)
	_, err = own.Exec(t.Context(), "SAVEPOINT s")
	require.NoError(t, err)
	claim(own)
	require.NoError(t, own.Commit(t.Context()))
	require.Equal(t, 3, j.leases())
	for range 3 {
		j.advance()
		require.Equal(t, 3, j.leases(), "they live on")
	}
	require.Len(t, j.take("w", 10), 3, "max_parallel 6: three are leased")
	require.Equal(t, 4, j.leases())
	j.advance()
	j.outcome("ack", old)
	require.Equal(t, 3, j.leases())
	j.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 second'")
	j.exec("UPDATE public.job_queue SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL")
	require.EqualValues(t, 5, j.reap()["reaped"])
	require.Zero(t, j.leases())
}

// A claim reads about as many pages beside 1,500 other live leases as beside a few: far from
// max_parallel, where their number is enough, and near it, where it reads the leases of its
// subscription.
func TestLiveLeasesAreNotRead(t *testing.T) {
	j := newJobs(t)
	far := j.jobSubscription("far", "far", "", 0, 1_000_000)
	j.jobSubscription("near", "near", "", 0, 4)
	j.watermarksWanted()
	j.put("far", "iu", 3)
	j.put("near", "iu", 5)
	for range 3 {
		j.one("near")
	}
	j.one("far")
	read := func() (pages []int) {
		t.Helper()
		for _, q := range []string{"SELECT * FROM public.fn_job_claim('far')", "SELECT * FROM public.fn_job_claim('near', NULL, 2)"} {
			j.watermarked()
			pages = append(pages, j.buffers(q))
		}
		return pages
	}
	before := read()
	j.exec(`CREATE PROCEDURE public.crowd(n int, sub uuid) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..n LOOP
		INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live) VALUES (gen_random_uuid(), 'far', sub, now() + interval '1 hour', '{}', 1);
		COMMIT; END LOOP; END $$`)
	j.exec("CALL public.crowd(1500, $1::uuid)", far)
	after := read()
	t.Logf("%d pages, then %d", before, after)
	for i := range before {
		require.Less(t, after[i], before[i]+40)
	}
	require.Equal(t, 1504, j.leases())
	require.Len(t, j.take("near", 10), 1, "max_parallel 4")
	require.Len(t, j.take("far", 10), 2)
	require.Equal(t, 1506, j.leases())
}

// More live leases than the watermark can name hold it back. A watermark that is old, from the
// future or of another server is not used.
func TestLeaseWatermarkEnds(t *testing.T) {
	j := newJobs(t)
	j.watermarksWanted()
	lease := "INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live) VALUES (gen_random_uuid(), 'w', gen_random_uuid(), now() + interval '1 hour', '{}', 0)"
	j.exec("CREATE PROCEDURE public.crowd() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..1010 LOOP " + lease + "; COMMIT; END LOOP; END $$")
	j.exec("CALL public.crowd()")
	j.advance()
	require.True(t, j.leasesFrom())
	require.Equal(t, 1000, get[int](j.core, "SELECT cardinality(lease_late) FROM public.job_watermark_state"))
	require.Equal(t, 1010, j.leases())
	j.advance()
	require.Equal(t, 1010, j.leases())
	j.exec("DELETE FROM public.job_lease")
	for _, set := range []string{"lease_below = '9000000000000000000'", "at = at - interval '11 seconds'", "at = at + interval '1 minute'", "lease_below = NULL"} {
		j.exec(lease)
		j.advance()
		require.True(t, j.leasesFrom(), set)
		// as if the lease had ended
		j.exec("UPDATE public.job_watermark_state SET lease_below = pg_snapshot_xmax(pg_current_snapshot()), lease_late = '{}'")
		require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.fn_job_leases()"), set)
		j.exec("UPDATE public.job_watermark_state SET " + set)
		require.False(t, j.leasesFrom(), set)
		require.Equal(t, 1, j.leases(), set)
		j.exec("DELETE FROM public.job_lease; DELETE FROM public.job_watermark_state")
	}
}

// Claims, results, readers and the watermark at once: every reading equals the table, and no
// subscription exceeds max_parallel.
func TestLeaseWatermarkStorm(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 3)
	j.watermarksWanted()
	j.put("k", "iu", 200)
	j.advance()
	pool := j.wide(8, "event_ingest_writer", "dot_executor", "queue_viewer")
	together(t, 8, func(i int) (map[string]any, error) {
		for range 20 {
			var err error
			switch i {
			case 0, 1:
				_, err = j.root.Exec(t.Context(), "UPDATE public.job_watermark_state SET at = at - interval '1 second'")
				if err == nil {
					_, err = j.root.Exec(t.Context(), "SELECT public.fn_job_watermark_advance()")
				}
			case 2, 3:
				var differ, live int
				err = j.root.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM public.job_lease)::int - (SELECT count(*) FROM public.fn_job_leases())::int,
					(SELECT COALESCE(sum(live), 0) FROM public.job_lease)::int`).Scan(&differ, &live)
				if err == nil && (differ != 0 || live > 3) {
					err = fmt.Errorf("%d leases are not seen, %d jobs are leased", differ, live)
				}
			default:
				var ids, tokens []string
				err = pool.QueryRow(t.Context(), "SELECT pg_catalog.array_agg(c.job_id), pg_catalog.array_agg(c.lease_token) FROM public.fn_job_claim('w', NULL, 2) c").Scan(&ids, &tokens)
				if err == nil && len(ids) > 0 {
					_, err = pool.Exec(t.Context(), "SELECT public.fn_job_ack($1::pg_catalog.uuid[], $2::pg_catalog.uuid[])", ids, tokens)
				}
			}
			if err != nil {
				return nil, err
			}
		}
		return map[string]any{}, nil
	})
	j.leases()
	j.balanced()
}
