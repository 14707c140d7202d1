package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// lastWords are asked for when a condition has not come true.
type lastWords func() string

func (w lastWords) String() string { return w() }

// The clock of the server steps by a day and by a second, back and forth, under two hosts
// at work: new work is still done at once, a killed host restarts under
// its id, and what was in flight when the clock went forward is done again at most.
func TestClockSteps(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: steps the clock of a server under libfaketime for some minutes; TestClockThatGoesBack is its small form")
	}
	t.Parallel()
	s, set := pgtest.ClockedServer(t, nil)
	const db = "postgres"
	dsn := s.DSN("postgres", db)
	require.NoError(t, schema.Up(t.Context(), dsn, nil))
	conn, err := pgsession.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	must := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql, args...)
		require.NoError(t, err, sql)
	}
	number := func(sql string) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&n), sql)
		return n
	}
	hooks, jobs := &ledger{got: map[string]int{}}, &jobLedger{got: map[string]int{}}
	hookServer, jobServer := httptest.NewServer(hooks), httptest.NewServer(jobs)
	t.Cleanup(hookServer.Close)
	t.Cleanup(jobServer.Close)
	must("INSERT INTO public.subscriptions (event_type, callback_url, active, verified, rate_limit_per_second) VALUES ('t', $1, true, true, 200)", hookServer.URL+"/hook")
	must("SELECT public.fn_queue_executor_register('a', 'Agent', '{kg}', 60, 3600, 'dot_executor', 'ann')")
	must("SELECT public.fn_job_subscription_set('a', NULL, NULL, 0, 100, true, '', 'ann', 'test')")
	must("CREATE ROLE worker LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner, queue_viewer")
	logs := map[string]*bytes.Buffer{}
	hosts := map[string]*exec.Cmd{}
	work := func(id string) {
		cmd := qtop(t, s.DSN("worker", db), "worker", "--host-id", id, "--executor", "a")
		cmd.Env = append(cmd.Env, "QTOP_DELIVERY_ALLOW_NETWORKS=127.0.0.0/8", "QTOP_DELIVERY_ALLOW_PLAIN_HTTP=127.0.0.0/8", fmt.Sprintf(`QTOP_HANDLERS=[{"kind":"k","url":%q}]`, jobServer.URL))
		logs[id] = &bytes.Buffer{}
		cmd.Stderr = logs[id]
		require.NoError(t, cmd.Start())
		hosts[id] = cmd
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
		})
	}
	work("one")
	work("two")
	events, enqueued := 0, 0
	produce := func(n int) {
		t.Helper()
		for range n {
			must("INSERT INTO public.events (event_type, payload) VALUES ('t', $1)", fmt.Sprintf(`{"n": %d}`, events))
			must("SELECT public.fn_job_enqueue('k', 'kg', 'Agent', $1)", fmt.Sprintf(`{"n": %d}`, enqueued))
			events, enqueued = events+1, enqueued+1
		}
	}
	done := func() int { return number("SELECT count(*) FROM public.job_history WHERE status = 'succeeded'") }
	settled := func(what string) {
		t.Helper()
		began := time.Now()
		require.Eventually(t, func() bool { return hooks.distinct() == events && done() == enqueued }, patience, 50*time.Millisecond, "%s", lastWords(func() string {
			return fmt.Sprintf("%s: %d of %d webhooks, %d of %d jobs\n%s\n%s", what, hooks.distinct(), events, done(), enqueued, logs["one"], logs["two"])
		}))
		t.Logf("%s: all done after %s", what, time.Since(began).Round(100*time.Millisecond))
	}
	produce(20)
	settled("before")
	for _, by := range []string{"-1d", "+0", "+1d", "+0", "-1s", "+0", "+1s", "+0"} {
		produce(20)
		set(by)
		produce(20)
		settled(by)
		if by == "-1d" {
			require.Equal(t, 1, number("SELECT count(*) FROM public.queue_mark WHERE created_by = 'system:clock'"), "it is marked")
		}
		require.Eventually(t, func() bool {
			return number("SELECT count(DISTINCT host_id) FROM public.queue_host WHERE stopped_at IS NULL AND last_seen_at BETWEEN clock_timestamp() - interval '15 seconds' AND clock_timestamp() + interval '1 second'") == 2
		}, patience, 50*time.Millisecond, "both hosts are alive after "+by)
	}
	// A host that was killed before the clock went back restarts under its id.
	set("+1d")
	produce(5)
	settled("+1d again")
	require.Eventually(t, func() bool {
		return number("SELECT count(*) FROM public.queue_host WHERE host_id = 'two' AND last_seen_at > clock_timestamp() - interval '10 seconds'") == 1
	}, patience, 50*time.Millisecond)
	require.NoError(t, hosts["two"].Process.Kill())
	_ = hosts["two"].Wait()
	set("+0")
	produce(20)
	settled("one alone")
	require.Eventually(t, func() bool {
		return number("SELECT count(*) FROM public.queue_host WHERE host_id = 'two' AND last_seen_at < clock_timestamp() - interval '15 seconds'") == 1
	}, patience, 200*time.Millisecond, "it is not held for alive until tomorrow")
	work("two")
	require.Eventually(t, func() bool {
		return number("SELECT count(*) FROM public.queue_host WHERE host_id = 'two' AND last_seen_at > clock_timestamp() - interval '15 seconds' AND stopped_at IS NULL") == 1
	}, patience, 50*time.Millisecond, "%s", logs["two"])
	double := 0
	hooks.mu.Lock()
	for _, n := range hooks.got {
		double += n - 1
	}
	hooks.mu.Unlock()
	t.Logf("%d events, %d jobs, %d webhooks sent again, %d marks", events, enqueued, double, number("SELECT count(*) FROM public.queue_mark"))
	require.Zero(t, number("SELECT count(*) FROM public.job_dead_letter"))
	require.Zero(t, number("SELECT count(*) FROM public.dead_letters"))
}
