// Tests of a host whose database becomes unavailable: connections cut, network silent, sessions
// terminated, server restarted.
package workerhost_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// ownWorld returns a world on a separate server, over TCP.
func ownWorld(t *testing.T, flags ...string) (*world, *embedded.Server) {
	t.Helper()
	s := pgtest.OwnInstalled(t, "postgres", nil)
	poolConfig, err := pgsession.PoolConfig(s.DSN(embedded.Superuser, "postgres"))
	require.NoError(t, err)
	admin, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	w := &world{t: t, admin: admin, dsn: s.DSN("test_host", "postgres")}
	w.exec("CREATE ROLE test_host LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner")
	w.quick(flags...)
	return w, s
}

// heard counts the calls that a listener makes: signals received, and resyncs
// after a lost connection.
type heard struct {
	mu      sync.Mutex
	wakes   map[string]int
	resyncs int
}

func (h *heard) wake(w queue.Wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakes[w.Hint.String()]++
}

func (h *heard) resync() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resyncs++
}

func (h *heard) of(hint string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wakes[hint]
}

func (h *heard) refreshed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resyncs
}

// The listener notices each fault, listens again, calls resync, and receives later signals. No
// goroutine remains when it ends. Not parallel, because the test counts goroutines.
func TestListenerHeals(t *testing.T) {
	w, server := ownWorld(t)
	door := pgtest.TCP(t, server)
	p := pgtest.NewPath(t, door)
	direct := w.admin
	leaks := goleak.IgnoreCurrent()
	func() {
		client, err := pgclient.Open(t.Context(), pgclient.Options{
			DSN: pgtest.OverTCP(t, w.dsn, p.Addr()), WorkConns: 1, Program: "listener_test",
		})
		require.NoError(t, err)
		defer client.Close()
		h := &heard{wakes: map[string]int{}}
		l, err := client.NewListener("wake", h.wake, h.resync)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			l.Run(ctx)
			close(ended)
		}()
		defer func() {
			cancel()
			<-ended
			require.Equal(t, "off", l.Status().State)
		}()
		listening := func() bool { return l.Status().State == "listening" }
		hears := func(hint string) {
			t.Helper()
			eventually(t, func() bool {
				// the admin's pool breaks in a restart too, so use a direct connection
				_, err := direct.Exec(t.Context(), `SELECT pg_notify('queue_wake_webhook', json_build_object('layer', 'event', 'worker_hint', $1::text)::text)`, hint)
				return err == nil
			}, "the server is not back")
			eventually(t, func() bool { return h.of(hint) > 0 }, "%s is not heard", hint)
		}
		eventually(t, listening, "never listens")
		hears("first")

		harm := []struct {
			name string
			do   func()
			heal func()
		}{
			{"cut", func() { p.Cut(false) }, func() {}},
			{"terminated", func() {
				w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'listener_test wake %'")
			}, func() {}},
			{"restart", func() { require.NoError(t, server.Restart(t.Context())) }, func() {}},
			{"black hole", func() { p.Hole(true) }, func() { p.Hole(false) }},
		}
		for _, x := range harm {
			before, resyncs := h.refreshed(), l.Status().Resyncs
			start := time.Now()
			x.do()
			// the listener may be listening again already: then the resync count has grown
			eventually(t, func() bool { return l.Status().State != "listening" || l.Status().Resyncs > resyncs }, "%s is not noticed", x.name)
			noticed := time.Since(start)
			x.heal()
			healed := time.Now()
			eventually(t, func() bool { return listening() && l.Status().Resyncs > resyncs && h.refreshed() > before }, "not healed after %s", x.name)
			t.Logf("%s: noticed after %v, subscribed again %v later", x.name, noticed.Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
			hears("after " + x.name)
		}
	}()
	p.Close() // ends a cancel request of the driver that waits for the silent network
	// The goroutines of the restarted server run until the end of the test.
	goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction("github.com/qtop/qtop/pgclient/embedded.spawn.func1"))
}

// After a restart of the server a host resumes work without a restart, and nothing is lost.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	w, server := ownWorld(t, "queue.notify.bridge_enabled", "true")
	r := receive(t, func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Millisecond) })
	w.subscribe("order.created", r.URL, nil)
	h := runHost(t, w.dsn, workerhost.Options{Concurrency: 8, PerEndpoint: 8})
	w.events("order.created", 300)
	for _, n := range []int{50, 150} {
		eventually(t, func() bool { return r.count() >= n }, "no load")
		require.NoError(t, server.Restart(t.Context()))
	}
	resumed := time.Now()
	w.becomes(300, completed)
	t.Logf("all done %v after the second restart, %d requests", time.Since(resumed).Round(time.Millisecond), r.count())
	h.listens()
	w.events("order.created", 1)
	w.becomes(301, completed)
	w.becomes(0, unfinished)
	eventually(t, func() bool {
		return w.text("SELECT last_seen_at > now() - interval '7 seconds' AND stopped_at IS NULL FROM public.queue_host") == "true"
	}, "the host records no heartbeat")
	require.Equal(t, 301, w.int("SELECT count(DISTINCT saga_id)::int FROM public.webhook_delivery_jobs WHERE status = 'Completed'"))
}

// A response that arrives while the database is unavailable is recorded once when the database is
// available again, and no request is repeated.
func TestLateReport(t *testing.T) {
	t.Parallel()
	w, server := ownWorld(t)
	p := pgtest.NewPath(t, pgtest.TCP(t, server))
	release := make(chan struct{})
	r := receive(t, hanging(release))
	w.subscribe("order.created", r.URL, nil)
	h := runHost(t, pgtest.OverTCP(t, w.dsn, p.Addr()), workerhost.Options{Concurrency: 8})
	w.events("order.created", 3)
	eventually(t, func() bool { return r.count() == 3 }, "no request")
	p.Cut(true)
	errs := h.status("webhook_worker").Errors
	close(release)
	eventually(t, func() bool { return h.status("webhook_worker").Errors >= errs+6 }, "the result is not retried")
	require.Equal(t, 3, w.int(leased))
	p.Cut(false)
	w.becomes(3, completed)
	require.Equal(t, 3, r.count())
	require.Equal(t, "3 1 0 3", w.text("SELECT count(*) || ' ' || max(attempt_no) || ' ' || max(lease_resets) || ' ' || count(settled_at) FROM public.webhook_delivery_jobs"))
	require.EqualValues(t, 3, h.status("webhook_worker").Done)
}

// A host that starts while the database is unavailable waits for the database; a stop ends the
// wait.
func TestStartsWithoutDatabase(t *testing.T) {
	t.Parallel()
	w, server := ownWorld(t)
	p := pgtest.NewPath(t, pgtest.TCP(t, server))
	p.Cut(true)
	dsn := pgtest.OverTCP(t, w.dsn, p.Addr())
	impatient := runHost(t, dsn, workerhost.Options{ID: "impatient"})
	h := runHost(t, dsn, workerhost.Options{ID: "patient"})
	require.False(t, h.Status().Running)
	require.NoError(t, impatient.stop())
	p.Cut(false)
	h.is("webhook_worker", "running")
	require.NoError(t, h.stop())
	require.Equal(t, "patient", w.text("SELECT string_agg(host_id, ',') FROM public.queue_host"))
}

// A host that starts while its database accepts no connections waits, as for a server that is away.
func TestStartsWhileTheDatabaseAcceptsNoConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := pgtest.Empty(t).Conn(t, "")
	accept := func(yes bool) {
		_, err := admin.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %v", w.db.Name, yes))
		require.NoError(t, err)
	}
	accept(false)
	h := runHost(t, w.dsn, workerhost.Options{})
	eventually(t, func() bool { return strings.Contains(h.Ready(), "is not currently accepting connections") }, "the host does not wait")
	accept(true)
	h.is("webhook_worker", "running")
}
