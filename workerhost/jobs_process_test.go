// Tests of worker processes that are killed and signalled while they run jobs: the files that
// their handlers wrote are compared with the database.
package workerhost_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// ledger reads all files whose names begin with path, which the handlers of
// worker processes wrote. It returns for each job how often the word what
// was written.
func ledger(path, what string) map[string]int {
	files, _ := filepath.Glob(path + "*")
	n := map[string]int{}
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if event, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok && event == what {
				n[id]++
			}
		}
	}
	return n
}

// TestJobsKilled kills random hosts of one executor under load: no job is lost or has two
// outcomes.
func TestJobsKilled(t *testing.T) {
	t.Parallel()
	n, kills := 300, 2
	if os.Getenv("QTOP_TEST_FULL") != "" {
		n, kills = 3000, 5
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := jobWorld(t, 1000, "queue.lease.duration_seconds", "4", "queue.tick.lease_reaper.interval_seconds", "1", "queue.retry.max_attempts_default", "100")
	path := filepath.Join(t.TempDir(), "ledger")
	w.enqueue("work", n)
	own := func(i int) string { return fmt.Sprintf("%s.%d", path, i) }
	spawn := func(i int) *child {
		return w.spawn(childSpec{
			ID: fmt.Sprintf("w%d", i), Executor: "host", Concurrency: 8, Grace: 5 * time.Second, Ledger: own(i), Took: 20 * time.Millisecond,
			Loops: []string{"job_executor", "job_queue_default", "lease_reaper"},
		})
	}
	workers, numbers := []*child{spawn(0), spawn(1)}, []int{0, 1}
	for k := range kills {
		at := n * (k + 1) / (kills + 2)
		eventually(t, func() bool { return len(ledger(path, "end")) >= at }, "no load")
		i := rnd.IntN(len(workers))
		eventually(t, func() bool {
			return len(ledger(own(numbers[i]), "begin")) > len(ledger(own(numbers[i]), "end")) || w.int("SELECT count(*)::int FROM public.job_queue") == 0
		}, "the host that must be killed never works")
		workers[i].kill()
		workers[i], numbers[i] = spawn(k+2), k+2
	}
	w.becomes(0, "SELECT count(*)::int FROM public.job_queue")

	require.Equal(t, n, w.int("SELECT count(DISTINCT job_id)::int FROM public.job_history"), "a job is lost")
	require.Equal(t, n, w.int("SELECT count(*)::int FROM public.job_history"), "a job has two outcomes")
	require.Equal(t, n, w.int(jobsOf, "succeeded"))
	require.Equal(t, 0, w.int(jobLeases))
	require.Len(t, ledger(path, "end"), n, "a job succeeded without being worked on")
	again := 0
	for _, times := range ledger(path, "begin") {
		again += times - 1
	}
	lost := w.int("SELECT sum(lost_leases)::int FROM public.job_history")
	t.Logf("%d jobs, %d kills: %d begun again, %d leases lost", n, kills, again, lost)
	require.Positive(t, lost, "no lease was lost: nothing was tested")
	require.LessOrEqual(t, again, lost, "more jobs began again than leases were lost")
	for i, c := range workers { // the last host may have just begun: wait for its host row
		w.becomes(1, "SELECT count(*)::int FROM public.queue_host WHERE host_id = $1", fmt.Sprintf("w%d", numbers[i]))
		c.signal(syscall.SIGTERM)
		require.Equal(t, 0, c.exit())
	}
}

// A job that kills its host is a dead letter after three hosts. No other job becomes one with it: short
// jobs lose no attempt, and jobs that run for longer than a suspect is isolated lose at most two
// leases. Beside a suspect at its last lease, new jobs are worked on.
func TestJobThatKillsItsHost(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000, "queue.tick.lease_reaper.interval_seconds", "1")
	w.exec("SELECT public.fn_job_enqueue('long', 'work', 'DOT', p_priority => 300) FROM generate_series(1, 2)")
	w.exec("SELECT public.fn_job_enqueue('kill', 'work', 'DOT', p_priority => 200, p_max_attempts => 10)")
	w.enqueue("work", 40)
	const (
		lastLong = "SELECT count(*)::int FROM public.job_queue WHERE job_kind = 'long' AND status = 'in_progress' AND lost_leases = 2"
		newDone  = "SELECT count(*)::int FROM public.job_history WHERE priority = 150 AND status = 'succeeded'"
	)
	path := filepath.Join(t.TempDir(), "ledger")
	deaths, beside := 0, false
	for left := 43; left > 0; {
		c := w.spawn(childSpec{
			ID: fmt.Sprintf("w%d", deaths), Executor: "host", Concurrency: 8, Ledger: path, Took: 50 * time.Millisecond,
			Loops: []string{"job_executor", "job_queue_default", "lease_reaper"},
		})
		eventually(t, func() bool {
			left = w.int("SELECT count(*)::int FROM public.job_queue")
			if !beside && w.int(lastLong) == 1 {
				beside = true
				w.exec("SELECT public.fn_job_enqueue('work', 'work', 'DOT', p_priority => 150) FROM generate_series(1, 10)")
			}
			select {
			case <-c.done:
				return true
			default:
				return left == 0
			}
		}, "nothing is done")
		if left > 0 {
			deaths++
			require.True(t, !beside || w.int(newDone) > 0, "no job was worked on beside a suspect")
			w.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 second'")
			w.exec("UPDATE public.job_queue SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL")
		}
	}
	require.Equal(t, 3, deaths)
	require.Equal(t, "dead_letter LEASE_LOST_LIMIT 3", w.text("SELECT concat_ws(' ', status, failure_code, lost_leases) FROM public.job_history WHERE job_kind = 'kill'"))
	require.True(t, beside, "no long job lost two leases: nothing was tested")
	require.Equal(t, 52, w.int(jobsOf, "succeeded"))
	require.Equal(t, "0 1", w.text("SELECT max(attempts) || ' ' || max(lost_leases) FROM public.job_history WHERE job_kind = 'work'"), "neighbours")
	require.Equal(t, 2, w.int("SELECT max(lost_leases)::int FROM public.job_history WHERE job_kind = 'long'"))
}

// Beside a job at its last lease, jobs that have lost leases are passed over without being written:
// they keep their place and run in it when the job has ended.
func TestSuspectsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	suspects := func(kind string, priority, n int) {
		w.exec(fmt.Sprintf(`DO $$ BEGIN
			PERFORM public.fn_job_enqueue('%s', 'work', 'DOT', p_priority => %d) FROM generate_series(1, %d);
			UPDATE public.job_queue SET lost_leases = 2 WHERE job_kind = '%[1]s'; END $$`, kind, priority, n))
	}
	suspects("long", 300, 1)
	var mu sync.Mutex
	var order []string
	end := make(chan struct{})
	h := runHost(t, w.both(), workerhost.Options{Loops: []string{"job_executor"}, Handlers: map[string]handler.Handler{
		"long": handler.Func(func(context.Context, handler.Job) error { <-end; return nil }),
		"step": handler.Func(func(context.Context, handler.Job) error { return nil }),
		"suspect": handler.Func(func(_ context.Context, job handler.Job) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, job.ID)
			return nil
		}),
	}})
	w.becomes(1, jobsOf, "in_progress")
	suspects("suspect", 200, 8)
	place := func() string {
		return w.text("SELECT string_agg(concat_ws(' ', job_id, xmin), ',' ORDER BY process_after, job_id) FROM public.job_queue WHERE job_kind = 'suspect'")
	}
	want := w.text("SELECT string_agg(job_id::text, ',' ORDER BY process_after, job_id) FROM public.job_queue WHERE job_kind = 'suspect'")
	before := place()
	for range 3 { // each after the poll
		w.exec("SELECT public.fn_job_enqueue('step', 'work', 'DOT') FROM generate_series(1, 20)")
		w.becomes(0, "SELECT count(*)::int FROM public.job_queue WHERE job_kind = 'step'")
	}
	require.Equal(t, before, place(), "they were written")
	close(end)
	w.becomes(0, "SELECT count(*)::int FROM public.job_queue")
	require.NoError(t, h.stop())
	require.Equal(t, want, strings.Join(order, ","))
	require.Equal(t, "0 2", w.text("SELECT max(attempts) || ' ' || max(lost_leases) FROM public.job_history"))
}

// After SIGTERM under load, jobs that can finish in time do so. All other jobs, including the
// buffered ones, are handed back at once.
func TestJobsTerminate(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000)
	path := filepath.Join(t.TempDir(), "ledger")
	w.exec("SELECT public.fn_job_enqueue('stuck', 'work', 'DOT', p_priority => 200) FROM generate_series(1, 3)")
	w.enqueue("work", 5000)
	const grace = 4 * time.Second
	a := w.spawn(childSpec{
		ID: "a", Executor: "host", Concurrency: 8, Grace: grace, Ledger: path, Took: 2 * time.Millisecond, Loops: []string{"job_executor"},
	})
	eventually(t, func() bool {
		return len(ledger(path, "end")) >= 300 && w.int("SELECT COALESCE(sum(live), 0)::int FROM public.job_lease") > 30
	}, "no load, or no job is buffered")
	start := time.Now()
	a.signal(syscall.SIGTERM)
	eventually(t, func() bool { return w.int("SELECT COALESCE(sum(live), 0)::int FROM public.job_lease") == 3 }, "what was claimed ahead stays")
	ahead := time.Since(start)
	require.Equal(t, 0, a.exit())
	t.Logf("buffered jobs were handed back after %v; exit 0 after %v of %v grace", ahead.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), grace)
	require.Equal(t, 0, w.int(jobLeases))
	done := ledger(path, "end")
	require.Equal(t, len(done), w.int(jobsOf, "succeeded"), "the finished jobs are recorded")
	require.Equal(t, 5003-len(done), w.int("SELECT count(*)::int FROM public.job_queue WHERE status = 'queued' AND attempts = 0 AND lost_leases = 0"))
	require.Len(t, ledger(path, "begin"), len(done)+3)
	require.Equal(t, "stopped", w.text("SELECT last_beat_payload ->> 'state' FROM public.queue_heartbeat WHERE executor_id = 'host'"))

	w.jobs(workerhost.Options{ID: "b", Executor: "host", Concurrency: 8}, map[string]handler.Handler{"work": &seen{}, "stuck": &seen{}})
	w.becomes(5003, jobsOf, "succeeded")
}

// A worker process is stopped (SIGSTOP) for longer than its leases last. When it continues, its
// results change nothing.
func TestJobsStale(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000, "queue.lease.duration_seconds", "2", "queue.tick.lease_reaper.interval_seconds", "1")
	path := filepath.Join(t.TempDir(), "ledger")
	w.enqueue("work", 3)
	a := w.spawn(childSpec{
		ID: "a", Executor: "host", Concurrency: 8, Grace: 5 * time.Second, Ledger: path, Took: 4 * time.Second, Loops: []string{"job_executor"},
	})
	eventually(t, func() bool { return len(ledger(path, "begin")) == 3 }, "nothing begins")
	a.signal(syscall.SIGSTOP)
	s := &seen{}
	b := w.jobs(workerhost.Options{ID: "b", Executor: "host"}, map[string]handler.Handler{"work": s})
	w.becomes(3, jobsOf, "succeeded")
	require.NoError(t, b.stop())
	const rows = "SELECT string_agg(to_jsonb(x)::text || x.xmin, E'\n' ORDER BY x.job_id) FROM public.job_history x"
	before := w.text(rows)
	a.signal(syscall.SIGCONT)
	eventually(t, func() bool { return strings.Count(a.text(), "lease lost: the result was dropped") == 3 }, "the stale results are not dropped")
	a.signal(syscall.SIGTERM)
	require.Equal(t, 0, a.exit())
	require.Equal(t, before, w.text(rows))
	require.Equal(t, 3, s.count())
}
