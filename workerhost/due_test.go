// Tests of how soon due work starts.
package workerhost_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// Of jobs with random due times, none starts early and all start, and the host sleeps until the
// next due time. It learns the due times from its tick, if the jobs were enqueued long before, from a
// wake signal, or from its looks between two ticks. The short form of the test only logs times,
// because they depend on the machine.
func TestJobsStartWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		wake, soon bool
	}{{"enqueued long before", false, false}, {"with a wake", true, false}, {"enqueued soon before", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wake := c.wake
			full := os.Getenv("QTOP_TEST_FULL") != ""
			n, from, span := 500, 2, 3 // seconds
			if full {
				n, from, span = 10_000, 31, 20
			}
			switch {
			case wake: // some jobs of a batch are usually due at once
				from = 0
			case c.soon: // before the next tick
				from, span = 1, 4
			}
			w := jobWorld(t, 1000, "queue.notify.bridge_enabled", strconv.FormatBool(wake))
			w.exec("SELECT public.fn_job_enqueue('first', 'work', 'DOT')") // hosts listen only for domains that exist
			put := func() {
				w.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'due', 'event_domain', 'work', 'executor', 'DOT',
					'process_after', now() + make_interval(secs => $2 + random() * $3))) FROM generate_series(1, $1) i))`, n, from, span)
			}
			var committed time.Time // a job that was due before can only start after it
			if !full && !wake && !c.soon {
				put() // before the start of the host, which ticks when it starts and so finds them
			}
			var mu sync.Mutex
			began := map[string]time.Time{}
			h := w.jobs(workerhost.Options{}, map[string]handler.Handler{
				"due": handler.Func(func(_ context.Context, j handler.Job) error {
					mu.Lock()
					defer mu.Unlock()
					began[j.ID] = time.Now()
					return nil
				}),
			})
			h.listens()
			eventually(t, func() bool {
				return w.int("SELECT count(*)::int FROM public.queue_tick_worker WHERE worker_name = 'job_queue_default' AND last_run_at IS NOT NULL") == 1
			}, "the host does not tick")
			if full || wake || c.soon {
				put()
				committed = time.Now()
			}
			w.becomes(n, jobsOf, "succeeded")
			rows, err := w.admin.Query(t.Context(), "SELECT job_id::text, process_after FROM public.job_history")
			require.NoError(t, err)
			defer rows.Close()
			var late []time.Duration
			for rows.Next() {
				var id string
				var due time.Time
				require.NoError(t, rows.Scan(&id, &due))
				wait := began[id].Sub(due)
				if due.Before(committed) && began[id].After(committed) {
					wait = began[id].Sub(committed)
				}
				late = append(late, wait)
			}
			require.NoError(t, rows.Err())
			require.Len(t, late, n)
			slices.Sort(late)
			p99 := late[n*99/100]
			t.Logf("due to start of %d jobs: p50 %v, p99 %v, longest %v", n, late[n/2].Round(time.Millisecond), p99.Round(time.Millisecond), late[n-1].Round(time.Millisecond))
			require.GreaterOrEqual(t, late[0], -time.Millisecond, "none before it is due")
			require.Less(t, late[n-1], 25*time.Second, "the tick was waited for")
		})
	}
}

// A due job that somebody has locked does not delay a job that becomes due later.
func TestALockedJobDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "false")
	due := func(kind string, in time.Duration) (id string, at time.Time) {
		require.NoError(t, w.admin.QueryRow(t.Context(), "SELECT public.fn_job_enqueue($1, 'work', 'DOT', p_process_after => now() + $2::interval) ->> 'job_id', now() + $2::interval", kind, in).Scan(&id, &at))
		return id, at
	}
	locked, _ := due("locked", time.Second)
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.job_queue WHERE job_id = $1 FOR UPDATE", locked)
	require.NoError(t, err)
	// The host looks for the locked job after pauses that double: 5.1 s after it became due, the pause is 5.1 s.
	_, at := due("other", 7*time.Second)
	began := make(chan time.Time, 1)
	w.jobs(workerhost.Options{}, map[string]handler.Handler{
		"other":  handler.Func(func(context.Context, handler.Job) error { began <- time.Now(); return nil }),
		"locked": handler.Func(func(context.Context, handler.Job) error { return nil }),
	})
	w.becomes(1, jobsOf, "succeeded")
	require.Less(t, (<-began).Sub(at), 3500*time.Millisecond, "the end of the pause was waited for")
	require.NoError(t, tx.Rollback(t.Context()))
	w.becomes(2, jobsOf, "succeeded")
}

// Nor does it delay a job that is enqueued later, without a wake signal, while the pauses between the
// ticks for the locked job have become long.
func TestALockedJobDelaysNoLaterJob(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "false")
	due := func(kind string, in time.Duration) (id string, at time.Time) {
		require.NoError(t, w.admin.QueryRow(t.Context(), "SELECT public.fn_job_enqueue($1, 'work', 'DOT', p_process_after => now() + $2::interval) ->> 'job_id', now() + $2::interval", kind, in).Scan(&id, &at))
		return id, at
	}
	id, dueAt := due("locked", time.Second)
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.job_queue WHERE job_id = $1 FOR UPDATE", id)
	require.NoError(t, err)
	began := make(chan time.Time, 1)
	w.jobs(workerhost.Options{}, map[string]handler.Handler{
		"later":  handler.Func(func(context.Context, handler.Job) error { began <- time.Now(); return nil }),
		"locked": handler.Func(func(context.Context, handler.Job) error { return nil }),
	})
	time.Sleep(time.Until(dueAt.Add(5500 * time.Millisecond))) // the pause is then 5 s
	_, at := due("later", time.Second)
	w.becomes(1, jobsOf, "succeeded")
	require.Less(t, (<-began).Sub(at), 3*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	w.becomes(2, jobsOf, "succeeded")
}
