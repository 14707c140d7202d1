package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// lastWords returns a text for the failure of a condition; it is computed only
// if the condition has not come true in time.
type lastWords func() string

func (w lastWords) String() string { return w() }

// clocked is a database on a server whose clock the test sets, with a receiver
// for webhooks and one for jobs.
type clocked struct {
	t                *testing.T
	dsn              func(role string) string
	conn             *pgx.Conn
	hooks, jobs      *ledger
	gate             gate
	jobURL           string
	logs             map[string]*bytes.Buffer
	hosts            map[string]*exec.Cmd
	events, enqueued int
	twice            map[string]bool // the webhook-ids and job ids that were seen twice, with reason
}

// gate holds the responses of the receivers while it is closed.
type gate struct {
	mu      sync.Mutex
	closed  chan struct{}  // nil: it is open
	waiting map[string]int // requests that wait, by webhook-id; of a job, that is its id
}

// before records each request in the ledger at once, and lets the response wait.
func (g *gate) before(l *ledger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client has gone
		l.ServeHTTP(httptest.NewRecorder(), r)
		id := r.Header.Get("webhook-id")
		g.mu.Lock()
		closed := g.closed
		g.waiting[id]++
		g.mu.Unlock()
		if closed != nil {
			select {
			case <-closed:
			case <-r.Context().Done():
			}
		}
		g.mu.Lock()
		if g.waiting[id]--; g.waiting[id] == 0 {
			delete(g.waiting, id)
		}
		g.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
}

// close closes the gate; open lets all requests pass.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.closed = closed
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = nil
		close(closed)
	}
}

func (g *gate) held() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.waiting)
}

// newClocked returns a clocked, and a function that sets the clock of its
// server. by is the difference from the true time, such as -1d.
func newClocked(t *testing.T, by string) (c *clocked, set func(by string)) {
	t.Helper()
	s, set := pgtest.ClockedServer(t, nil)
	set(by)
	dsn := func(role string) string { return s.DSN(role, "postgres") }
	require.NoError(t, schema.Up(t.Context(), dsn("postgres"), nil))
	conn, err := pgsession.Connect(t.Context(), dsn("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	c = &clocked{
		t: t, dsn: dsn, conn: conn, hooks: &ledger{got: map[string]int{}}, jobs: &ledger{got: map[string]int{}},
		gate: gate{waiting: map[string]int{}}, logs: map[string]*bytes.Buffer{}, hosts: map[string]*exec.Cmd{}, twice: map[string]bool{},
	}
	hookServer, jobServer := httptest.NewServer(c.gate.before(c.hooks)), httptest.NewServer(c.gate.before(c.jobs))
	t.Cleanup(hookServer.Close)
	t.Cleanup(jobServer.Close)
	c.jobURL = jobServer.URL
	c.must("INSERT INTO public.subscriptions (event_type, callback_url, active, verified, rate_limit_per_second) VALUES ('t', $1, true, true, 200)", hookServer.URL+"/hook")
	c.must("SELECT public.fn_queue_executor_register('a', 'Agent', '{kg}', 60, 3600, 'dot_executor', 'ann')")
	c.must("SELECT public.fn_job_subscription_set('a', NULL, NULL, 0, 100, true, '', 'ann', 'test')")
	c.must("CREATE ROLE worker LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner, queue_viewer")
	return c, set
}

func (c *clocked) must(sql string, args ...any) {
	c.t.Helper()
	_, err := c.conn.Exec(c.t.Context(), sql, args...)
	require.NoError(c.t, err, sql)
}

func (c *clocked) number(sql string) (n int) {
	c.t.Helper()
	require.NoError(c.t, c.conn.QueryRow(c.t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&n), sql)
	return n
}

// work starts a host. kinds has further handlers as JSON, besides that of kind
// k.
func (c *clocked) work(id, kinds string) {
	c.t.Helper()
	cmd := qtop(c.t, c.dsn("worker"), "worker", "--host-id", id, "--executor", "a")
	cmd.Env = append(cmd.Env, "QTOP_DELIVERY_ALLOW_NETWORKS=127.0.0.0/8", "QTOP_DELIVERY_ALLOW_PLAIN_HTTP=127.0.0.0/8", fmt.Sprintf(`QTOP_HANDLERS=[{"kind":"k","url":%q}%s]`, c.jobURL, kinds))
	c.logs[id] = &bytes.Buffer{}
	cmd.Stderr = c.logs[id]
	require.NoError(c.t, cmd.Start())
	c.hosts[id] = cmd
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

func (c *clocked) produce(n int) {
	c.t.Helper()
	for range n {
		c.must("INSERT INTO public.events (event_type, payload) VALUES ('t', $1)", fmt.Sprintf(`{"n": %d}`, c.events))
		c.must("SELECT public.fn_job_enqueue('k', 'kg', 'Agent', $1)", fmt.Sprintf(`{"n": %d}`, c.enqueued))
		c.events, c.enqueued = c.events+1, c.enqueued+1
	}
}

func (c *clocked) settled(what string) {
	c.t.Helper()
	done := func() int { return c.number("SELECT count(*) FROM public.job_history WHERE status = 'succeeded'") }
	began := time.Now()
	completed := func() int {
		return c.number("SELECT count(*) FROM public.webhook_delivery_sagas WHERE status = 'Completed'")
	}
	require.Eventually(c.t, func() bool {
		return c.hooks.distinct() == c.events && completed() == c.events && done() == c.enqueued
	}, patience, 50*time.Millisecond, "%s", lastWords(func() string {
		return fmt.Sprintf("%s: %d of %d webhooks, %d of %d jobs\n%s\n%s", what, c.hooks.distinct(), c.events, done(), c.enqueued, c.logs["one"], c.logs["two"])
	}))
	c.t.Logf("%s: all done after %s", what, time.Since(began).Round(100*time.Millisecond))
}

// inFlight closes the gate and makes work. It returns the ids of the requests that wait for a
// response, once there are as many as the hosts send at once.
func (c *clocked) inFlight() (ids map[string]int, open func()) {
	c.t.Helper()
	open = c.gate.close()
	c.produce(20)
	same := 0
	require.Eventually(c.t, func() bool {
		now := c.gate.held()
		if same++; len(now) != len(ids) || len(now) <= 20 { // all jobs, and some webhooks
			same = 0
		}
		ids = now
		return same == 20
	}, patience, 50*time.Millisecond, "work in flight")
	return ids, open
}

// doneTwice returns how many of the requests that were in flight were sent a second time since the
// last call. It fails if others were, or one a third time.
func (c *clocked) doneTwice(inFlight map[string]int) (jobs, webhooks int) {
	c.t.Helper()
	count := func(l *ledger) (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id, times := range l.got {
			require.LessOrEqual(c.t, times, 2, id)
			if times > 1 && !c.twice[id] {
				require.NotZero(c.t, inFlight[id], "%s was done twice and was not in flight at the step", id)
				c.twice[id] = true
				n++
			}
		}
		return n
	}
	return count(c.jobs), count(c.hooks)
}

// The server's clock differs by a day from that of the hosts, from the start.
// Hosts claim, renew leases, retry, work on jobs that become due, stay alive
// and stop as usual, and no host reports a step of the clock.
func TestClockSkew(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: a server under libfaketime; TestClockThatGoesBack is the small form")
	}
	t.Parallel()
	for _, by := range []string{"-1d", "+1d"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			c, _ := newClocked(t, by)
			require.InDelta(t, 86400, c.number("SELECT abs(extract(epoch FROM clock_timestamp()) - "+fmt.Sprint(time.Now().Unix())+")::int"), 60)
			c.must("UPDATE public.dot_config SET value = '9' WHERE key = 'queue.lease.duration_seconds'")
			c.must("UPDATE public.dot_config SET value = '1s' WHERE key = 'queue.retry.schedule'")
			flag := filepath.Join(t.TempDir(), "once")
			c.work("one", fmt.Sprintf(`,{"kind":"long","command":["sleep","12"]},{"kind":"twice","command":["sh","-c","test -e %[1]s || { touch %[1]s; exit 1; }"]}`, flag))
			c.produce(20)
			c.must("SELECT public.fn_job_enqueue('long', 'kg', 'Agent'), public.fn_job_enqueue('twice', 'kg', 'Agent', p_max_attempts => 2), public.fn_job_enqueue('k', 'kg', 'Agent', p_process_after => now() + interval '3 seconds')")
			c.enqueued += 3
			c.settled(by)
			require.Zero(t, c.number("SELECT max(lost_leases) FROM public.job_history"), "the lease of the long one was renewed")
			require.Equal(t, 1, c.number("SELECT attempts FROM public.job_history WHERE job_kind = 'twice'"))
			require.Equal(t, 1, c.number("SELECT count(*) FROM public.job_history WHERE picked_at - process_after BETWEEN '0' AND '2 seconds' AND process_after > enqueued_at + interval '2 seconds' AND job_kind = 'k'"), "what becomes due begins then")
			require.Equal(t, c.events, c.number("SELECT count(*) FROM public.webhook_delivery_jobs"), "sent once")
			require.Positive(t, c.number("SELECT count(*) FROM public.v_live_loop"))
			require.NoError(t, c.hosts["one"].Process.Signal(syscall.SIGTERM))
			require.NoError(t, c.hosts["one"].Wait(), "%s", c.logs["one"])
			require.Equal(t, 1, c.number("SELECT count(*) FROM public.queue_host WHERE stopped_at IS NOT NULL"))
			require.Zero(t, c.number("SELECT count(*) FROM public.queue_mark"))
		})
	}
}

// The clock of the server steps by a day and by a second, back and forth, while
// two hosts work. New work is still done at once, and a killed host restarts
// under its id. Only work that was in flight when the clock went forward by a
// day may be done again, once.
func TestClockSteps(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: steps the clock of a server under libfaketime for some minutes; TestClockThatGoesBack is its small form")
	}
	t.Parallel()
	c, set := newClocked(t, "+0")
	c.must("UPDATE public.dot_config SET value = '300' WHERE key = 'webhook.timeout_seconds'")
	c.must("UPDATE public.dot_config SET value = '310' WHERE key = 'webhook.lease_seconds'")
	c.work("one", "")
	c.work("two", "")
	produce, settled, number, hosts, logs := c.produce, c.settled, c.number, c.hosts, c.logs
	produce(20)
	settled("before")
	for i, by := range []string{"-1d", "+0", "+1d", "+0", "-1s", "+0", "+1s", "+0"} {
		inFlight, open := c.inFlight()
		set(by)
		maps.Copy(inFlight, c.gate.held()) // some may have been sent meanwhile
		require.Eventually(t, func() bool {
			return number("SELECT count(*) FROM public.queue_mark WHERE created_by = 'system:clock' AND at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()") > 0
		}, patience, 50*time.Millisecond, "a mark says that the clock stepped to "+by)
		require.Eventually(t, func() bool {
			return number("SELECT count(DISTINCT host_id) FROM public.queue_host WHERE stopped_at IS NULL AND last_seen_at BETWEEN clock_timestamp() - interval '15 seconds' AND clock_timestamp() + interval '1 second'") == 2
		}, patience, 50*time.Millisecond, "both hosts are alive after "+by)
		open()
		produce(20)
		settled(by)
		if by == "-1d" {
			require.Equal(t, 1, number("SELECT count(*) FROM public.queue_mark WHERE created_by = 'system:clock'"), "it is marked once")
		}
		if by == "+1d" {
			require.Equal(t, 1, number("SELECT count(*) FROM public.queue_mark WHERE label LIKE '% forward by 1 day (noticed by host %' AND at > clock_timestamp() - interval '1 minute'"))
		}
		jobs, webhooks := c.doneTwice(inFlight)
		t.Logf("%s: of %d jobs and webhooks in flight, %d jobs and %d webhooks were done twice", by, len(inFlight), jobs, webhooks)
		if forward := i == 1 || i == 2; !forward { // by a day: every lease expires
			require.Zero(t, jobs+webhooks, "done twice after a step to "+by)
		}
	}
	// The host was killed while the clock was a day ahead; when the clock is
	// right again, it restarts under the same id.
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
	c.work("two", "")
	require.Eventually(t, func() bool {
		return number("SELECT count(*) FROM public.queue_host WHERE host_id = 'two' AND last_seen_at > clock_timestamp() - interval '15 seconds' AND stopped_at IS NULL") == 1
	}, patience, 50*time.Millisecond, "%s", logs["two"])
	jobs, webhooks := c.doneTwice(nil)
	require.Zero(t, jobs+webhooks)
	t.Logf("%d events, %d jobs, %d of them done twice, %d marks", c.events, c.enqueued, len(c.twice), number("SELECT count(*) FROM public.queue_mark"))
	require.Zero(t, number("SELECT count(*) FROM public.job_dead_letter"))
	require.Zero(t, number("SELECT count(*) FROM public.dead_letters"))
}
