// Tests of rows that somebody has locked, as with BEGIN; SELECT … FOR UPDATE in psql: they hold up
// their own jobs only.
package workerhost_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

const (
	perLease = 20
	// unlocked is how many of the jobs of locked have neither a locked row nor a locked lease.
	unlocked = 2*perLease - 1
)

// locked starts a host that works on the jobs of three leases, perLease each, until release is closed or
// the host stops; then they succeed. A job of the first lease and the second lease are locked until unlock
// is called.
func (w *world) locked(o workerhost.Options) (h *hosted, s *seen, release chan struct{}, unlock func()) {
	w.t.Helper()
	release = make(chan struct{})
	s = &seen{then: func(ctx context.Context, _ handler.Job) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}}
	o.Concurrency = 10 * perLease
	h = w.jobs(o, map[string]handler.Handler{"work": s})
	for n := 1; n <= 3; n++ {
		w.exec("SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'work', 'event_domain', 'work', 'executor', 'DOT')) FROM generate_series(1, $1::int)))", perLease)
		eventually(w.t, func() bool { return s.count() == n*perLease }, "the jobs do not begin")
	}
	tx, err := w.admin.Begin(w.t.Context())
	require.NoError(w.t, err)
	unlock = func() { require.NoError(w.t, tx.Rollback(context.Background())) }
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	rows, err := tx.Query(w.t.Context(), "SELECT lease_token::text FROM public.job_lease ORDER BY claimed_at")
	require.NoError(w.t, err)
	leases, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	require.Len(w.t, leases, 3, "one claim per statement")
	for _, sql := range []string{
		"SELECT FROM public.job_queue WHERE job_id = (SELECT min(job_id::text)::uuid FROM public.job_queue WHERE lease_token = '" + leases[0] + "') FOR UPDATE",
		"SELECT FROM public.job_lease WHERE lease_token = '" + leases[1] + "' FOR UPDATE",
	} {
		tag, err := tx.Exec(w.t.Context(), sql)
		require.NoError(w.t, err)
		require.EqualValues(w.t, 1, tag.RowsAffected())
	}
	return h, s, release, unlock
}

const succeeded = "SELECT count(*)::int FROM public.job_history WHERE status = 'succeeded'"

// The results of other jobs are recorded at once, also those of the same claim and statement, and the
// locked ones when they are free.
func TestLockedRowsHoldUpNoOtherResult(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000)
	_, s, release, unlock := w.locked(workerhost.Options{})
	began := time.Now()
	close(release)
	w.becomes(unlocked, succeeded)
	took := time.Since(began)
	require.Less(t, took, 20*time.Second) // one after the other, with 10 s for each, it would be a minute
	w.enqueue("work", perLease)
	w.becomes(unlocked+perLease, succeeded)
	unlock()
	w.becomes(4*perLease, succeeded)
	require.Equal(t, 4*perLease, s.count(), "a job ran twice")
	require.Equal(t, "0 0", w.text("SELECT max(attempts) || ' ' || max(lost_leases) FROM public.job_history"))
}

// The same of handlers that return when the grace time of a stop has passed: the host then has about a
// second to record their results.
func TestLockedRowsAtAStop(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000)
	h, _, _, _ := w.locked(workerhost.Options{Grace: 5 * time.Second})
	require.NoError(t, h.stop())
	require.Equal(t, unlocked, w.int(succeeded))
}

// The leases of other jobs are renewed, and so is the lease of a locked job by its other jobs.
func TestLockedRowsHoldUpNoOtherRenewal(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000, "queue.lease.duration_seconds", "6")
	_, s, release, _ := w.locked(workerhost.Options{})
	time.Sleep(10 * time.Second) // longer than a lease
	require.Equal(t, 2, w.int("SELECT count(*)::int FROM public.job_lease WHERE lease_until > clock_timestamp()"))
	close(release)
	w.becomes(unlocked, succeeded)
	require.Equal(t, 3*perLease, s.count())
}

// A heartbeat of the executor that waits for a locked row keeps one connection of the host, and each that is due
// meanwhile no other.
func TestLockedHeartbeatKeepsOneConnection(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10) // the executor's heartbeat is due each second
	s := &seen{}
	w.jobs(workerhost.Options{}, map[string]handler.Handler{"work": s})
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "SELECT FROM public.queue_heartbeat WHERE executor_id = 'host' FOR UPDATE")
	require.NoError(t, err)
	const waiting = `SELECT count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%fn_queue_heartbeat_write%'`
	w.becomes(1, waiting)
	for began := time.Now(); time.Since(began) < 3500*time.Millisecond; time.Sleep(50 * time.Millisecond) {
		require.LessOrEqual(t, w.int(waiting), 1)
	}
	w.enqueue("work", 3)
	w.becomes(3, jobsOf, "succeeded")
	require.NoError(t, tx.Rollback(t.Context()))
	w.becomes(0, waiting)
}
