// The watermarks beside prepared transactions, and in a restored database whose transaction ids are
// those of another server.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// burn uses up n transaction ids.
func (j *jobs) burn(n int) {
	j.t.Helper()
	j.exec("CREATE OR REPLACE PROCEDURE public.burn(n int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..n LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
	j.exec("CALL public.burn($1)", n)
}

// Both tests share a server, as starting one takes seconds.
func TestWatermarksOnAnotherServer(t *testing.T) {
	old := newJobs(t)
	server := newOwn(t, map[string]string{"max_prepared_transactions": "2"}) // off by default
	j := &jobs{core: server, work: server.root}
	t.Run("prepared claim", j.besideAPreparedClaim)
	t.Run("restored dump", func(t *testing.T) { ofARestoredDump(t, old, j) })
}

// A claim in a prepared transaction holds the watermarks of its job and of its lease, however long
// nobody ends it.
func (j *jobs) besideAPreparedClaim(t *testing.T) {
	j.jobSubscription("w", "", "", 0, 2)
	j.watermarksWanted()
	first, second := j.old(100), j.old(1)
	conn, err := j.root.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for _, end := range []string{"ROLLBACK PREPARED", "COMMIT PREPARED"} {
		exec("BEGIN")
		var job string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT job_id::text FROM public.fn_job_claim('w')").Scan(&job))
		require.Equal(t, first, job)
		exec("PREPARE TRANSACTION 'claim'")
		j.burn(10)
		for range 3 { // the watermarks move, and wait for the transaction no longer
			j.exec("UPDATE public.job_watermark_state SET seen_at = seen_at - interval '11 seconds'")
			j.advance()
		}
		require.True(t, get[bool](j.core, "SELECT public.fn_job_watermark_valid()"))
		require.True(t, j.leasesFrom())
		require.Zero(t, j.leases())
		require.Zero(t, get[int](j.core, belowWatermarks))
		exec(end + " 'claim'")
		if end == "ROLLBACK PREPARED" {
			require.Zero(t, j.leases())
			require.False(t, get[bool](j.core, "SELECT public.fn_job_watermark_valid()"), "found again from the head")
			j.watermarked()
		}
	}
	require.Equal(t, 1, j.leases())
	require.Equal(t, second, j.one("w").Job)
	require.Empty(t, j.take("w", 5), "max_parallel 2")
	require.Equal(t, 2, j.leases())
	j.expire()
	require.EqualValues(t, 2, j.reap()["reaped"])
	require.Zero(t, j.leases())
}

// A dump is restored into a server whose transaction ids are lower than those in the dump. Nothing is
// invisible there: neither jobs nor leases nor delayed jobs nor counts of the dump, nor those written
// since.
func ofARestoredDump(t *testing.T, old, target *jobs) {
	needsDump(t)
	old.jobSubscription("w", "", "", 0, 5)
	old.watermarksWanted()
	old.put("k", "iu", 5)
	delayed := "INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', false, now() - interval '1 hour')"
	old.exec(delayed)
	old.burn(30_000)
	old.one("w") // below the watermark
	old.watermarked()
	old.one("w") // above it
	require.True(t, old.leasesFrom())
	old.exec(compact)

	restored := target.beside(t, "restored", "template0")
	restored.restore(old.dump(), "--exit-on-error")
	root := restored.root
	j := &jobs{core: restored, work: root}
	if get[*string](j.core, "SELECT public.fn_queue_clone_of()") != nil { // the servers of tests are copies, so that it may count as the original
		require.NotContains(t, call(t, root, "public.fn_queue_adopt('keep'::text, 'restored', 'ann'::text, 'staging'::text, false)"), "refused")
	}

	require.True(t, get[bool](j.core, "SELECT lease_below > pg_snapshot_xmax(pg_current_snapshot()) FROM public.job_watermark_state"), "its ids are those of another server")
	j.exec("UPDATE public.job_watermark_state SET at = clock_timestamp()") // as if restoring took no time
	require.Equal(t, 2, j.leases())
	require.EqualValues(t, 1, call(t, root, "public.fn_job_tick()")["promoted"])
	got := j.take("w", 1)
	require.Len(t, got, 1)
	require.Equal(t, 3, j.leases())
	for range 3 {
		j.advance()
		require.Equal(t, 3, j.leases())
		require.Zero(t, get[int](j.core, belowWatermarks))
		j.balanced()
	}
	require.Len(t, j.take("w", 10), 2, "max_parallel 5")
	j.exec(delayed)
	require.EqualValues(t, 1, call(t, root, "public.fn_job_tick()")["promoted"])
	j.watermarked()
	require.Equal(t, 4, j.leases())
	j.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 second'")
	require.EqualValues(t, 5, j.reap()["reaped"], "those of the dump and those since")
	require.Zero(t, j.leases())
	require.Len(t, j.take("w", 10), 5)
	j.exec(compact)
	j.balanced()
}
