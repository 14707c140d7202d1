// Tests of the job executor in this process: the job that a handler receives, the record of its
// outcome, which jobs the executor may claim, and its status.
package workerhost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// jobWorld returns a world whose executor "host" may run up to parallel jobs at once.
func jobWorld(t *testing.T, parallel int, flags ...string) *world {
	t.Helper()
	w := newWorld(t, append([]string{"queue.retry.schedule", "0s"}, flags...)...)
	executor(t, w.admin, "host", "", parallel)
	return w
}

// jobs starts a host with handlers.
func (w *world) jobs(o workerhost.Options, handlers map[string]handler.Handler) *hosted {
	o.Handlers = handlers
	if o.Loops == nil {
		o.Loops = []string{"job_executor", "job_queue_default", "lease_reaper"}
	}
	return w.run(o)
}

func TestJobsRun(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	s := &seen{}
	w.exec(`SELECT public.fn_job_enqueue('resize', 'media', 'DOT', '{"n": 12345678901234567890.10, "t": "ü \"q\""}', 150, p_max_attempts => 7,
		p_idempotency_key => 'k')`)
	w.enqueue("resize", 250)
	w.enqueue("nobodys", 3)
	w.exec("SELECT public.fn_job_enqueue('counter_compactor', 'system', 'DOT')")
	h := w.jobs(workerhost.Options{}, map[string]handler.Handler{"resize": s})
	w.becomes(252, jobsOf, "succeeded")
	addr, err := h.ServeMetrics(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	eventually(t, func() bool { return h.status("job_executor").InFlight == 0 }, "it never settles")
	metrics := scrape(t, addr.String())
	require.Contains(t, metrics, `qtop_jobs_done_total{outcome="succeeded"} 252`)
	require.Contains(t, metrics, `qtop_jobs_done_total{outcome="lease_lost"} 0`)
	require.Contains(t, metrics, "qtop_jobs_in_flight 0")
	require.EqualValues(t, 252, h.status("job_executor").Done)
	require.NoError(t, h.stop())

	require.Equal(t, 3, w.int(jobsOf, "queued"), "jobs of a kind without a handler are not claimed")
	require.Equal(t, 0, w.int("SELECT sum(attempts)::int FROM public.v_job"))
	require.Equal(t, 0, w.int(jobLeases))
	require.Equal(t, 251, s.count())
	i := slices.IndexFunc(s.jobs, func(j handler.Job) bool { return j.Domain == "media" })
	j := s.jobs[i]
	require.JSONEq(t, `{"n": 12345678901234567890.10, "t": "ü \"q\""}`, string(j.Payload))
	require.Contains(t, string(j.Payload), "12345678901234567890.10")
	require.Equal(t, w.text("SELECT job_id FROM public.job_history WHERE event_domain = 'media'"), j.ID)
	require.Equal(t, []any{"resize", "DOT", 1, 7, 150, "k"}, []any{j.Kind, j.Executor, j.Attempt, j.MaxAttempts, j.Priority, j.IdempotencyKey})
	require.WithinDuration(t, time.Now(), j.EnqueuedAt, time.Hour)
	require.Greater(t, j.LeaseUntil, j.EnqueuedAt)

	beat := "SELECT last_beat_payload ->> '%s' FROM public.queue_heartbeat WHERE executor_id = 'host'"
	require.Equal(t, "stopped", w.text(fmt.Sprintf(beat, "state")))
	require.Equal(t, "252", w.text(fmt.Sprintf(beat, "done_total")))
	require.Equal(t, "0", w.text(fmt.Sprintf(beat, "in_flight")))
}

// Whatever a handler does, its attempt is recorded and the host continues to work.
func TestJobsOutcomes(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	var first atomic.Bool
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	do := func(f func(context.Context, handler.Job) error) handler.Handler { return handler.Func(f) }
	handlers := map[string]handler.Handler{
		"fine": &seen{},
		"permanent": do(func(context.Context, handler.Job) error {
			return handler.Permanent(handler.Coded("BAD_INPUT", errors.New("no such picture")))
		}),
		"panics": do(func(context.Context, handler.Job) error { panic("boom") }),
		"exits":  do(func(context.Context, handler.Job) error { runtime.Goexit(); return nil }),
		"hangs":  do(func(context.Context, handler.Job) error { <-never; return nil }),
		"floods": do(func(context.Context, handler.Job) error { return errors.New(strings.Repeat("ü\x00", 1<<14)) }),
		"slow":   do(func(ctx context.Context, _ handler.Job) error { <-ctx.Done(); return ctx.Err() }),
		"second": do(func(context.Context, handler.Job) error {
			if first.CompareAndSwap(false, true) {
				return errors.New("not yet")
			}
			return nil
		}),
	}
	for kind := range handlers {
		n := 1
		if kind == "second" {
			n = 3
		}
		w.exec("SELECT public.fn_job_enqueue($1, 'work', 'DOT', p_max_attempts => $2)", kind, n)
	}
	h := w.jobs(workerhost.Options{JobTimeout: 3 * time.Second}, handlers)
	w.becomes(0, "SELECT count(*)::int FROM public.job_queue")
	w.enqueue("fine", 5) // the host continues
	w.becomes(0, "SELECT count(*)::int FROM public.job_queue")
	for kind, want := range map[string]string{
		"fine": "succeeded 0 -", "second": "succeeded 1 HANDLER_ERROR", "permanent": "failed 1 BAD_INPUT",
		"panics": "dead_letter 1 HANDLER_PANIC", "exits": "dead_letter 1 HANDLER_EXIT", "hangs": "dead_letter 1 HANDLER_HUNG",
		"floods": "dead_letter 1 HANDLER_ERROR", "slow": "dead_letter 1 TIMEOUT",
	} {
		require.Equal(t, want, w.text(`SELECT status || ' ' || attempts || ' ' || COALESCE(failure_code, '-') FROM public.job_history
			WHERE job_kind = $1 LIMIT 1`, kind), kind)
	}
	require.Equal(t, "panic: boom", w.text("SELECT last_error FROM public.job_dead_letter WHERE job_kind = 'panics'"))
	require.Equal(t, "no such picture", w.text("SELECT last_error FROM public.job_history WHERE job_kind = 'permanent'"))
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.job_dead_letter WHERE job_kind = 'permanent'"))
	require.Positive(t, h.status("job_executor").Done)
	require.Equal(t, "running", h.status("job_executor").State)
}

// A command gets the job on its standard input, and its exit code is the outcome. A failed job is
// retried and, when its attempts are used up, becomes a dead letter.
func TestJobsCommand(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	got := filepath.Join(t.TempDir(), "got")
	handlers, err := handler.Parse([]handler.Spec{
		{Kind: "fails", Command: []string{"/bin/sh", "-c", `cat >> "$0"; echo "disk full" >&2; exit 3`, got}},
		{Kind: "works", Command: []string{"/bin/sh", "-c", "cat > /dev/null"}},
	}, nil)
	require.NoError(t, err)
	w.exec(`SELECT public.fn_job_enqueue('fails', 'work', 'DOT', '{"picture": "p.png"}', p_max_attempts => 2)`)
	w.exec(`SELECT public.fn_job_enqueue('works', 'work', 'DOT')`)
	w.jobs(workerhost.Options{}, handlers)
	w.becomes(1, jobsOf, "dead_letter")
	w.becomes(1, jobsOf, "succeeded")
	input, err := os.ReadFile(got)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(input)), "\n")
	require.Len(t, lines, 2)
	for i, line := range lines {
		require.Contains(t, line, fmt.Sprintf(`"attempt":%d,"max_attempts":2`, i+1))
		require.Contains(t, line, `"payload":{"picture": "p.png"}`)
	}
	require.Equal(t, "2 EXIT_3 exit code 3: disk full",
		w.text("SELECT attempts || ' ' || failure_code || ' ' || last_error FROM public.job_dead_letter"))
}

// When a job is cancelled or its lease lost, its handler is stopped and its result ignored.
func TestJobsLeaseLost(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10, "queue.lease.duration_seconds", "3")
	stopped := make(chan error, 1)
	s := &seen{then: func(ctx context.Context, _ handler.Job) error {
		<-ctx.Done()
		stopped <- ctx.Err()
		return nil
	}}
	w.exec("SELECT public.fn_job_enqueue('long', 'work', 'DOT')")
	h := w.jobs(workerhost.Options{}, map[string]handler.Handler{"long": s})
	w.becomes(1, jobsOf, "in_progress") // the start of a job is recorded only when it has run for a while
	until := w.text("SELECT lease_until FROM public.job_lease")
	eventually(t, func() bool { return w.text("SELECT lease_until FROM public.job_lease") > until }, "the lease is never renewed")
	w.exec("SELECT public.fn_job_cancel(ARRAY(SELECT job_id FROM public.job_queue), 'test', 'not wanted')")
	select {
	case err := <-stopped:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		require.FailNow(t, "the handler is not cancelled")
	}
	require.NoError(t, h.stop())
	require.Equal(t, 1, w.int(jobsOf, "cancelled"))
	require.Equal(t, 1, w.int("SELECT count(*)::int FROM public.v_job"))
	require.Equal(t, 1, s.count())
}

// If a lease cannot be renewed because the database is unavailable, the host
// cancels the handler when the lease ends, because another host may then run
// the job.
func TestJobsAway(t *testing.T) {
	t.Parallel()
	w, server := ownWorld(t)
	w.set("queue.lease.duration_seconds", "2")
	executor(t, w.admin, "host", "", 10)
	w.enqueue("long", 1)
	p := pgtest.NewPath(t, pgtest.TCP(t, server))
	began, stopped := make(chan struct{}, 1), make(chan struct{}, 1)
	runHost(t, pgtest.OverTCP(t, w.dsn, p.Addr()), workerhost.Options{
		Loops: []string{"job_executor"},
		Handlers: map[string]handler.Handler{"long": handler.Func(func(ctx context.Context, _ handler.Job) error {
			began <- struct{}{}
			<-ctx.Done()
			stopped <- struct{}{}
			return nil
		})},
	})
	<-began
	p.Cut(true)
	select {
	case <-stopped:
	case <-time.After(patience):
		require.FailNow(t, "the handler is not cancelled")
	}
	require.Equal(t, 0, w.int(jobsOf, "succeeded"))
}

// max_parallel of a job subscription limits the running jobs of all hosts of
// an executor together. The test also checks that this many do run.
func TestJobsMaxParallel(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 3)
	var now, most atomic.Int64
	work := handler.Func(func(context.Context, handler.Job) error {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		now.Add(-1)
		return nil
	})
	w.enqueue("work", 450) // in the given time, two hosts could claim fewer by their polls alone
	for _, id := range []string{"a", "b"} {
		w.jobs(workerhost.Options{ID: id, Executor: "host"}, map[string]handler.Handler{"work": work})
	}
	w.becomes(450, jobsOf, "succeeded")
	require.EqualValues(t, 3, most.Load())
}

// Delayed jobs and retries start when they are due, not only with the tick every 30 s.
func TestJobsLate(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10, "queue.retry.schedule", "1s", "queue.notify.bridge_enabled", "true")
	at := make(chan time.Time, 10)
	late := handler.Func(func(context.Context, handler.Job) error { at <- time.Now(); return nil })
	var tries atomic.Int64
	again := handler.Func(func(context.Context, handler.Job) error {
		if tries.Add(1) < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	before := time.Now().Add(time.Second)
	w.exec("SELECT public.fn_job_enqueue('late', 'work', 'DOT', p_process_after => now() + interval '1 second')")
	w.exec("SELECT public.fn_job_enqueue('again', 'work', 'DOT')")
	h := w.jobs(workerhost.Options{}, map[string]handler.Handler{"late": late, "again": again})
	w.becomes(2, jobsOf, "succeeded")
	delay := (<-at).Sub(before)
	t.Logf("ran %v after it was due", delay.Round(time.Millisecond))
	require.GreaterOrEqual(t, delay, time.Duration(0))
	require.Less(t, time.Since(before), 25*time.Second, "the tick was waited for")

	// The jobs are enqueued while the host listens. The trigger's signal contains the time at
	// which the job is due; the signal of fn_queue_doorbell does not.
	h.listens()
	before = time.Now()
	w.exec("SELECT public.fn_job_enqueue('late', 'work', 'DOT', p_process_after => now() + interval '1 second')")
	w.becomes(3, jobsOf, "succeeded")
	_, err := h.jobs.EnqueueMany(t.Context(), nil)
	require.Error(t, err, "a host may not enqueue")
	w.exec("SELECT set_config('qtop.doorbell', 'on', true), public.fn_job_enqueue('late', 'work', 'DOT', p_process_after => now() + interval '1 second')")
	h.jobs.Notify("work")
	w.becomes(4, jobsOf, "succeeded")
	require.Less(t, time.Since(before), 25*time.Second, "the tick was waited for")
}

// Measures the time from the insert of a job to the start of its handler, with
// wake signals switched on. The time depends on the machine, so it is only
// logged.
func TestJobsWake(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10, "queue.notify.bridge_enabled", "true")
	began := make(chan time.Time, 1)
	w.exec("SELECT public.fn_job_enqueue('quick', 'work', 'DOT')")
	h := w.jobs(workerhost.Options{}, map[string]handler.Handler{
		"quick": handler.Func(func(context.Context, handler.Job) error { began <- time.Now(); return nil }),
	})
	<-began
	h.listens()
	var took []time.Duration
	for range 20 {
		at := time.Now()
		w.exec("SELECT public.fn_job_enqueue('quick', 'work', 'DOT')")
		took = append(took, (<-began).Sub(at))
	}
	slices.Sort(took)
	t.Logf("insert to start: median %v, longest %v", took[10], took[19])
	require.Less(t, took[10], 900*time.Millisecond, "the poll was waited for")
}

// A drain hands back buffered jobs at once, starts no job, and waits for running jobs.
func TestJobsDrain(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10_000)
	release := make(chan struct{})
	var once sync.Once
	open := func() { once.Do(func() { close(release) }) }
	t.Cleanup(open)
	var begun, blocked atomic.Int64
	h := w.jobs(workerhost.Options{Concurrency: 4, Grace: 10 * time.Minute}, map[string]handler.Handler{
		"work": handler.Func(func(context.Context, handler.Job) error {
			if begun.Add(1) > 500 {
				blocked.Add(1)
				<-release
			}
			return nil
		}),
	})
	w.enqueue("work", 3000)
	eventually(t, func() bool { return blocked.Load() == 4 && w.int(jobsOf, "succeeded") == 500 }, "no load")
	require.NoError(t, h.Drain("job_executor"))
	w.becomes(4, jobsHeld)
	require.EqualValues(t, 504, begun.Load())
	require.Equal(t, "draining", h.status("job_executor").State)
	open()
	h.is("job_executor", "stopped")
	require.EqualValues(t, 504, begun.Load())
	require.Equal(t, 504, w.int(jobsOf, "succeeded"))
	require.Equal(t, 2496, w.int("SELECT count(*)::int FROM public.job_queue WHERE status = 'queued' AND attempts = 0"))
	require.Equal(t, 0, w.int(jobLeases))
}

// A drain ends within the grace time whatever a handler does; its job returns to the queue.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10_000)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	h := w.jobs(workerhost.Options{Concurrency: 1, Grace: 2 * time.Second}, map[string]handler.Handler{
		"work": handler.Func(func(context.Context, handler.Job) error { <-release; return nil }),
	})
	w.enqueue("work", 1)
	w.becomes(1, jobsOf, "in_progress")
	require.NoError(t, h.Drain("job_executor"))
	h.is("job_executor", "stopped") // without the bound, never
}

// A job that has waited in the buffer for too long is handed back: another host may have a free
// slot, and more urgent jobs may have arrived.
func TestJobsThatWaitGoBack(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10_000)
	release, began := make(chan struct{}), make(chan string, 5000)
	var n atomic.Int64
	slow := func(kind string) handler.Handler {
		return handler.Func(func(ctx context.Context, _ handler.Job) error {
			if n.Add(1) <= 500 {
				return nil
			}
			began <- kind
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		})
	}
	o := workerhost.Options{ID: "a", Executor: "host", Concurrency: 4, Grace: time.Millisecond}
	handlers := map[string]handler.Handler{"work": slow("work"), "urgent": slow("urgent")}
	w.enqueue("work", 3000)
	w.jobs(o, handlers)
	eventually(t, func() bool { return len(began) == 4 && w.int(jobsOf, "succeeded") == 500 }, "no load")
	w.becomes(4, jobsHeld)
	for range 4 {
		require.Equal(t, "work", <-began)
	}
	w.exec("SELECT public.fn_job_enqueue('urgent', 'work', 'DOT', '{}', 1000)")
	release <- struct{}{}
	require.Equal(t, "urgent", <-began)
	o.ID = "b"
	w.jobs(o, handlers)
	for range 4 {
		require.Equal(t, "work", <-began)
	}
	w.becomes(8, jobsHeld)
	require.Equal(t, 501, w.int(jobsOf, "succeeded"))
	require.Zero(t, w.int("SELECT count(*)::int FROM public.job_queue WHERE attempts > 0"))
}

// A handler that hangs is abandoned after an hour, or after the time that the options of the host
// set.
func TestJobsDeadline(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	left := make(chan time.Duration, 1)
	work := handler.Func(func(ctx context.Context, _ handler.Job) error {
		at, _ := ctx.Deadline()
		left <- time.Until(at)
		return nil
	})
	for kind, limit := range map[string]time.Duration{"default": 0, "longer": 3 * time.Hour, "none": -1} {
		w.jobs(workerhost.Options{ID: kind, Executor: "host", JobTimeout: limit}, map[string]handler.Handler{kind: work})
		w.enqueue(kind, 1)
		switch got := <-left; kind {
		case "none":
			require.Negative(t, got, "no deadline")
		case "longer":
			require.InDelta(t, 3*time.Hour, got, float64(time.Minute))
		default:
			require.InDelta(t, time.Hour, got, float64(time.Minute))
		}
	}
}

// The off switch stops claims within one poll, and the status of the loop has the reason. Other
// reasons why an executor may not claim are reported in the same way.
func TestJobsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	release := make(chan struct{})
	s := &seen{then: func(context.Context, handler.Job) error { <-release; return nil }}
	var once sync.Once
	open := func() { once.Do(func() { close(release) }) }
	t.Cleanup(open)
	w.enqueue("work", 4)
	h := w.jobs(workerhost.Options{Executor: "mine", Concurrency: 1}, map[string]handler.Handler{"work": s})
	says := func(text string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(h.status("job_executor").LastErr.String(), text) }, "it never reports %s", text)
	}
	h.listens()
	says("no executor mine is registered: qtop executor register mine")
	require.Equal(t, "running", h.status("job_executor").State)
	require.Zero(t, h.status("job_executor").Errors)
	w.exec("SELECT public.fn_queue_heartbeat_register('mine', 'DOT', '{}', 3, 600, 'test')")
	says("executor mine has no enabled job subscription: qtop executor subscribe mine")
	executor(t, w.admin, "mine", "work", 10)
	eventually(t, func() bool { return s.count() == 1 }, "it never begins")
	w.set("queue.job_substrate.enabled", "false")
	open()
	w.becomes(1, jobsOf, "succeeded")
	says("qtop flag set queue.job_substrate.enabled true")
	require.Equal(t, 3, w.int(jobsOf, "queued"))
	require.Equal(t, 1, s.count())
	require.Equal(t, 0, w.int(jobLeases))
	w.set("queue.job_substrate.enabled", "true")
	w.becomes(4, jobsOf, "succeeded")
}

// New refuses a nil handler and a handler for a built-in kind.
func TestJobsHandlersRefused(t *testing.T) {
	t.Parallel()
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: "host=/nowhere", WorkConns: 1})
	require.NoError(t, err)
	defer client.Close()
	for kind, h := range map[string]handler.Handler{"lease_reaper": &seen{}, "mine": nil} {
		_, err = workerhost.New(client, workerhost.Options{ID: "h", Handlers: map[string]handler.Handler{kind: h}})
		require.Equal(t, queue.KindConfig, queue.KindOf(err), kind)
		require.ErrorContains(t, err, kind)
	}
}
