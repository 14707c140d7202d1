// Helpers of the tests: a database with short intervals, logins with exactly the privileges of a
// host, HTTP receivers, and hosts in this process.
package workerhost_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/sender"
)

// patience bounds the wait for conditions that need only milliseconds on an idle machine.
const patience = 60 * time.Second

const hostConns = 6

func eventually(t *testing.T, f func() bool, msg string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, f, patience, 20*time.Millisecond, msg, args...)
}

func eventuallyWithin(t *testing.T, within time.Duration, f func() bool, msg string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, f, within, 100*time.Millisecond, msg, args...)
}

// hostRoles are exactly the roles of a worker host.
func hostRoles() []string {
	return []string{"dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner"}
}

type world struct {
	t     *testing.T
	db    *pgtest.DB
	admin *pgxpool.Pool
	dsn   string // the connection string of the host's login
}

// newWorld makes a database in which every loop ticks once a second and a failed webhook is
// retried at once.
func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	db := pgtest.New(t)
	w := &world{t: t, db: db, admin: db.Pool(t, ""), dsn: db.DSN(pgtest.Login(t, db, hostRoles()...))}
	w.quick(flags...)
	t.Cleanup(w.logState)
	return w
}

// logState logs the state of the database if the test has failed, to explain
// the failure.
func (w *world) logState() {
	if !w.t.Failed() {
		return
	}
	for _, sql := range []string{
		"SELECT to_jsonb(x) - 'payload' FROM public.webhook_delivery_sagas x WHERE status NOT IN ('Completed', 'DeadLettered') LIMIT 5",
		"SELECT to_jsonb(x) FROM public.webhook_delivery_jobs x WHERE status NOT IN ('Completed') LIMIT 5",
		"SELECT to_jsonb(x) FROM public.queue_tick_worker x",
		"SELECT jsonb_build_object('now', clock_timestamp(), 'events', (SELECT count(*) FROM public.events)," +
			" 'sagas', (SELECT jsonb_object_agg(status, n) FROM" +
			" (SELECT status, count(*) n FROM public.webhook_delivery_sagas GROUP BY 1) y))",
		"SELECT jsonb_build_object('pid', pid, 'db', datname, 'state', state, 'xid', backend_xid, 'xmin', backend_xmin," +
			" 'since', xact_start, 'wait', wait_event, 'query', left(query, 100)) FROM pg_stat_activity" +
			" WHERE datname = current_database() OR backend_xid IS NOT NULL",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		rows, _ := w.admin.Query(ctx, sql)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		cancel()
		w.t.Log(sql, err)
		for _, row := range found {
			w.t.Log(row)
		}
	}
}

func (w *world) quick(flags ...string) {
	w.t.Helper()
	for _, loop := range []string{"webhook_router", "saga_orchestrator", "lease_reset_cleaner"} {
		w.set("queue.tick."+loop+".interval_seconds", "1")
	}
	w.set("webhook.retry_schedule", "0s")
	w.set("webhook.circuit_failures", "0")
	for i := 0; i < len(flags); i += 2 {
		w.set(flags[i], flags[i+1])
	}
}

// set sets a flag, as an operator does.
func (w *world) set(key, value string) {
	w.t.Helper()
	var refused *string
	require.NoError(w.t, w.admin.QueryRow(w.t.Context(),
		"SELECT public.fn_dot_config_set($1, $2, 'test', 'test') ->> 'reason'", key, value).Scan(&refused))
	if refused != nil {
		require.Contains(w.t, *refused, "already", "%s = %s", key, value)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.admin.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func (w *world) int(sql string, args ...any) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.admin.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	var s string
	require.NoError(w.t, w.admin.QueryRow(w.t.Context(), "SELECT COALESCE(("+sql+")::text, '')", args...).Scan(&s))
	return s
}

// becomes waits until the statement returns the number n.
func (w *world) becomes(n int, sql string, args ...any) {
	w.t.Helper()
	got := 0
	eventually(w.t, func() bool {
		err := w.admin.QueryRow(w.t.Context(), sql, args...).Scan(&got)
		return err == nil && got == n
	}, "%s never became %d", sql, n)
}

func (w *world) subscribe(eventType, url string, secretRef *string) int {
	w.t.Helper()
	return w.int(`INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref)
		VALUES ($1, $2, true, true, $3) RETURNING id::int`, eventType, url, secretRef)
}

// events inserts n events in one statement.
func (w *world) events(eventType string, n int) {
	w.t.Helper()
	w.exec(`INSERT INTO public.events (event_type, payload)
		SELECT $1, jsonb_build_object('n', g, 'text', 'ü 日本 "quoted"', 'amount', 12.50) FROM generate_series(1, $2) g`, eventType, n)
}

const (
	completed  = "SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE status = 'Completed'"
	unfinished = "SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE status NOT IN ('Completed', 'DeadLettered')"
	leased     = "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Leased'"
	jobs       = "SELECT count(*)::int FROM public.webhook_delivery_jobs"
)

// got is one request that a receiver received.
type got struct {
	id      string
	body    []byte
	header  http.Header
	at      time.Time
	arrived time.Time // at the machine; at is later while this process is busy
}

// receiver records every request before it responds.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []got

	open atomic.Int64 // connections
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// receive starts a receiver; answer runs after the request was recorded.
func receive(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, got{req.Header.Get("Webhook-Id"), body, req.Header.Clone(), time.Now(), arrived(req)})
		r.mu.Unlock()
		answer(rw, req)
	}))
	r.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.open.Add(1)
		} else if s == http.StateClosed || s == http.StateHijacked {
			r.open.Add(-1)
		}
	}
	r.Start()
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func ok(http.ResponseWriter, *http.Request) {}

// hanging returns a handler that responds when release is closed. If the client disconnects
// before, it does not respond.
func hanging(release <-chan struct{}) func(http.ResponseWriter, *http.Request) {
	return func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}
}

func (r *receiver) all() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// hosted is a host that runs in the process of the test.
type hosted struct {
	*workerhost.Host
	client *pgclient.Client
	jobs   *enqueue.Producer
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// run starts a host with test defaults for unset options. The host is stopped at cleanup.
func (w *world) run(o workerhost.Options) *hosted {
	w.t.Helper()
	return runHost(w.t, w.dsn, o)
}

func runHost(t *testing.T, dsn string, o workerhost.Options) *hosted {
	t.Helper()
	return runHostOn(t, pgclient.Options{DSN: dsn, WorkConns: hostConns, Actor: "test"}, o)
}

// roomy returns the options of a client whose loops do not wait for each other's connections: with
// few of them, a loop that begins together with all others may run out of time on a busy machine.
func roomy(dsn string) pgclient.Options {
	return pgclient.Options{DSN: dsn, WorkConns: 20, Actor: "test"}
}

func runHostOn(t *testing.T, c pgclient.Options, o workerhost.Options) *hosted {
	t.Helper()
	if o.ID == "" {
		o.ID = "host"
	}
	if o.Sender == nil {
		o.Sender = sender.New(sender.Config{Version: "test", Allow: loopback(), PlainHTTP: loopback(), Concurrency: 16})
		t.Cleanup(o.Sender.Close)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(newTestLog(t), nil))
	}
	client, err := pgclient.Open(t.Context(), c)
	require.NoError(t, err)
	o.Producer = enqueue.New(client)
	host, err := workerhost.New(client, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	h := &hosted{Host: host, client: client, jobs: o.Producer, t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		h.err = host.Run(ctx)
		close(h.done)
	}()
	t.Cleanup(func() {
		_ = h.stop()
		client.Close()
	})
	return h
}

// stop ends the context of the host, as a signal does, and returns the error of Run.
func (h *hosted) stop() error {
	h.cancel()
	select {
	case <-h.done:
	case <-time.After(patience):
		h.t.Error("Run does not return")
	}
	return h.err
}

func (h *hosted) status(loop string) queue.LoopStatus {
	for _, l := range h.Status().Loops {
		if l.Name == loop {
			return l
		}
	}
	h.t.Errorf("no loop %s", loop)
	return queue.LoopStatus{}
}

// is waits until a loop is in the given state.
func (h *hosted) is(loop, state string) {
	h.t.Helper()
	eventually(h.t, func() bool { return h.status(loop).State == state }, "%s is never %s", loop, state)
}

// listens waits until the host's listener listens.
func (h *hosted) listens() {
	h.t.Helper()
	eventually(h.t, func() bool { return h.Status().Listener.State == "listening" }, "the listener never listens")
}

// extraRuns returns how many runs each tick worker may have made in addition because the listener began
// to listen again: every time a run, and if that was a quick one, a full run after it.
func (h *hosted) extraRuns() int { return 2 * (int(h.Status().Listener.Resyncs) - 1) }

// polls waits until the loop has ticked n more times.
func (h *hosted) polls(loop string, n int) {
	h.t.Helper()
	for range n {
		last := h.status(loop).LastTick
		eventually(h.t, func() bool { return h.status(loop).LastTick.After(last) }, "%s does not tick", loop)
	}
}

// testLog writes a host's log to the output of the test until the test ends. After that an
// abandoned handler may still return, and a line written then would end all tests.
type testLog struct {
	mu sync.Mutex
	t  *testing.T // nil: the test has ended
}

func newTestLog(t *testing.T) *testLog {
	l := &testLog{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.t = nil
	})
	return l
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Logf("%s", p)
	}
	return len(p), nil
}
