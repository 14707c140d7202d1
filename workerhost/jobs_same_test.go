// Tests of a producer in the process of the host. It needs no wake signal and no listener: the
// host claims in the producer's transaction, or later when a slot is free. A host that stops
// leaves no lease.
package workerhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// both makes a login that may enqueue and work, and returns its connection string.
func (w *world) both() string {
	w.t.Helper()
	return w.db.DSN(pgtest.Login(w.t, w.db, append(hostRoles(), "event_ingest_writer")...))
}

func jobOf(n int) enqueue.Job {
	return enqueue.Job{Kind: "step", Domain: "work", Executor: "DOT", Payload: fmt.Appendf(nil, `{"n": %d}`, n)}
}

func TestJobsOfTheSameProcess(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	require.Equal(t, "false", w.text("SELECT value FROM public.dot_config WHERE key = 'queue.notify.bridge_enabled'"), "nobody is woken")
	started := make(chan int, 1)
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{
		"step": handler.Func(func(_ context.Context, job handler.Job) error {
			var p struct{ N int }
			if err := json.Unmarshal(job.Payload, &p); err != nil {
				return err
			}
			started <- p.N
			return nil
		}),
	}})
	eventually(t, func() bool { return !h.status("job_executor").LastTick.IsZero() }, "it does not run")
	began := time.Now()
	const n = 40
	for i := range n {
		_, _, err := h.jobs.Enqueue(t.Context(), jobOf(i))
		require.NoError(t, err)
		require.Equal(t, i, <-started)
	}
	require.Less(t, time.Since(began), n*time.Second/3, "each waited for the poll")
	w.becomes(n, jobsOf, "succeeded")
	require.NoError(t, h.stop())
}

// enqueuesUntilTogether enqueues jobs, at most so many, until one is claimed in the transaction that
// enqueues it: then the times of both are the time of that transaction. It returns how many it has
// enqueued; others more are in progress beside them.
func (h *hosted) enqueuesUntilTogether(w *world, most, others int) int {
	w.t.Helper()
	for n := range most { // while a claim of the loop is under way, no claim shares a transaction
		_, _, err := h.jobs.Enqueue(w.t.Context(), jobOf(n))
		require.NoError(w.t, err)
		w.becomes(n+1+others, jobsOf, "in_progress")
		if w.int("SELECT count(*)::int FROM public.job_queue q JOIN public.job_lease l ON q.job_id = ANY (l.job_ids) WHERE l.claimed_at = q.enqueued_at") > 0 {
			return n + 1
		}
	}
	w.t.Fatalf("none of %d jobs was claimed in the transaction that enqueued it", most)
	return 0
}

// A job is claimed in the transaction that enqueues it.
func TestJobsOfTheSameProcessTogether(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	done := make(chan struct{})
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{
		"step": handler.Func(func(context.Context, handler.Job) error { <-done; return nil }),
	}})
	eventually(t, func() bool { return !h.status("job_executor").LastTick.IsZero() }, "it does not run")
	n := h.enqueuesUntilTogether(w, 90, 0)
	close(done)
	w.becomes(n, jobsOf, "succeeded")
	require.NoError(t, h.stop())
}

// Beside a job that has lost leases too, jobs are claimed in the transaction that enqueues them; others
// that have lost leases are not.
func TestJobsOfTheSameProcessBesideASuspect(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	suspect := func() {
		w.exec(`DO $$ BEGIN
			PERFORM public.fn_job_enqueue('suspect', 'work', 'DOT', p_priority => 200);
			UPDATE public.job_queue SET lost_leases = 2 WHERE job_kind = 'suspect' AND status = 'queued'; END $$`)
	}
	suspect()
	done := make(chan struct{})
	wait := handler.Func(func(context.Context, handler.Job) error { <-done; return nil })
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{"step": wait, "suspect": wait}})
	w.becomes(1, jobsOf, "in_progress")
	suspect()
	n := h.enqueuesUntilTogether(w, 60, 1)
	require.Equal(t, "queued", w.text("SELECT string_agg(status, ' ') FROM public.job_queue WHERE job_kind = 'suspect' AND status <> 'in_progress'"))
	close(done)
	w.becomes(n+2, jobsOf, "succeeded")
	require.NoError(t, h.stop())
}

func TestJobsOfTheSameProcessWaitForAPlace(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 2)
	var now, most atomic.Int64
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{
		"step": handler.Func(func(context.Context, handler.Job) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Millisecond)
			now.Add(-1)
			return nil
		}),
	}})
	eventually(t, func() bool { return !h.status("job_executor").LastTick.IsZero() }, "it does not run")
	began := time.Now()
	const n = 120
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, _, err := h.jobs.Enqueue(t.Context(), jobOf(i))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.becomes(n, jobsOf, "succeeded")
	require.Less(t, time.Since(began), n/2*time.Second/3, "each two waited for the poll")
	require.LessOrEqual(t, most.Load(), int64(2))
	require.NoError(t, h.stop())
}

func TestJobsOfTheSameProcessWhileItStops(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000)
	dsn := w.both()
	producer, err := pgclient.Open(t.Context(), pgclient.Options{DSN: dsn, WorkConns: 4})
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	var handled sync.Map
	step := handler.Func(func(_ context.Context, job handler.Job) error {
		handled.Store(job.ID, true)
		return nil
	})
	var ids []string
	for round := range 3 {
		h := runHost(t, dsn, workerhost.Options{
			ID: fmt.Sprint("host", round), Executor: "host", Loops: []string{"job_executor"}, Grace: 5 * time.Second,
			Handlers: map[string]handler.Handler{"step": step},
		})
		eventually(t, func() bool { return !h.status("job_executor").LastTick.IsZero() }, "it does not run")
		var mu sync.Mutex
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 6 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					id, _, err := h.jobs.Enqueue(t.Context(), jobOf(i))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					ids = append(ids, id)
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(100+70*round) * time.Millisecond) // stop the host while it works
		require.NoError(t, h.stop())
		close(stop)
		wg.Wait()
		require.Equal(t, 0, w.int(jobsOf, "leased")+w.int(jobsOf, "in_progress"), "it left jobs leased")
	}
	require.NotEmpty(t, ids)
	w.run(workerhost.Options{ID: "last", Executor: "host", Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{"step": step}})
	w.becomes(len(ids), jobsOf, "succeeded")
	for _, id := range ids {
		_, ok := handled.Load(id)
		require.True(t, ok)
	}
}

// Jobs whose insert waits for another open transaction delay no other job, however many wait: the host and
// jobs without a key have connections that they do not take.
func TestJobsOfTheSameProcessBehindALock(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	s := &seen{}
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{"step": s}})
	eventually(t, func() bool { return !h.status("job_executor").LastTick.IsZero() }, "it does not run")
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	job := jobOf(1)
	job.IdempotencyKey, job.Scope = "one", "event_ingest_writer"
	_, err = tx.Exec(t.Context(), "SELECT public.fn_job_enqueue($1, $2, $3, $4, p_idempotency_key => $5, p_scope => $6)",
		job.Kind, job.Domain, job.Executor, string(job.Payload), job.IdempotencyKey, job.Scope)
	require.NoError(t, err)
	const callers = 4 * hostConns
	made := make(chan error, callers)
	for i := range callers {
		go func() {
			var err error
			for again := true; again; { // after 10 s the server ends the wait
				if i%2 == 0 {
					_, _, err = h.jobs.Enqueue(t.Context(), job)
				} else {
					_, err = h.jobs.EnqueueMany(t.Context(), []enqueue.Job{job})
				}
				var pg *pgconn.PgError
				again = errors.As(err, &pg) && pg.Code == "55P03"
			}
			made <- err
		}()
	}
	w.becomes(hostConns/2, `SELECT count(*)::int FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND locktype = 'transactionid' AND datname = current_database()`)
	began := time.Now()
	w.enqueue("step", 20)
	w.becomes(20, jobsOf, "succeeded")
	_, _, err = h.jobs.Enqueue(t.Context(), jobOf(2))
	require.NoError(t, err)
	w.becomes(21, jobsOf, "succeeded")
	require.Less(t, time.Since(began), 9*time.Second, "as long as the others wait")
	require.Empty(t, made, "they must wait")
	require.NoError(t, tx.Commit(t.Context()))
	for range callers {
		require.NoError(t, <-made)
	}
	w.becomes(22, jobsOf, "succeeded")
	require.NoError(t, h.stop())
}

// If a claim commits after the host has stopped, its jobs are handed back at once.
func TestJobsOfTheSameProcessAfterItStopped(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Grace: time.Second,
		Handlers: map[string]handler.Handler{"step": &seen{}}})
	eventually(t, func() bool { return !h.status("job_executor").LastTick.IsZero() }, "it does not run")
	slow := w.db.Conn(t, "")
	for _, sql := range []string{
		"SELECT pg_advisory_lock(7)",
		`CREATE FUNCTION pg_temp.slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			WHILE NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NULL; END $$`,
		"CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON public.job_queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.slowly()",
	} {
		_, err := slow.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	made := make(chan error, 1)
	go func() {
		_, _, err := h.jobs.Enqueue(t.Context(), jobOf(1))
		made <- err
	}()
	w.becomes(1, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND wait_event = 'PgSleep'`)
	require.NoError(t, h.stop())
	require.Empty(t, made)
	_, err := slow.Exec(t.Context(), "SELECT pg_advisory_unlock(7)")
	require.NoError(t, err)
	require.NoError(t, <-made)
	eventually(t, func() bool { return h.client.Work().Stat().AcquiredConns() == 0 }, "the claim does not return")
	w.becomes(0, jobLeases) // its claim was handed back; or it made none, because the loop was claiming
	w.becomes(1, jobsOf, "queued")
}
