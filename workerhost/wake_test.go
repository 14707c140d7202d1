// Tests that a wake signal wakes only the loops that have work.
package workerhost_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// While another program enqueues jobs all the time and writes no event, the jobs run at once
// (delayed jobs when they are due), and the routers tick only at their intervals.
func TestJobSignalsWakeNoRouter(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "true", "iu_core.routes_master_enabled", "true", "iu_core.route_worker_enabled", "true")
	w.exec("ALTER DATABASE " + pgx.Identifier{w.db.Name}.Sanitize() + " SET track_functions = 'all'")
	s := &seen{}
	w.enqueue("first", 1) // hosts listen only for existing domains
	h := w.run(workerhost.Options{Handlers: map[string]handler.Handler{"first": s, "now": s, "later": s}})
	h.listens()
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: w.db.DSN(""), WorkConns: 2})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	producer := enqueue.New(client)
	began, n := time.Now(), 1
	for pace := time.NewTicker(10 * time.Millisecond); time.Since(began) < 3*time.Second; <-pace.C {
		_, _, err := producer.Enqueue(t.Context(), enqueue.Job{Kind: "now", Domain: "work", Executor: "DOT"})
		require.NoError(t, err)
		n++
	}
	soon := time.Now().Add(time.Second)
	_, _, err = producer.Enqueue(t.Context(), enqueue.Job{Kind: "later", Domain: "work", Executor: "DOT", ProcessAfter: &soon})
	require.NoError(t, err)
	w.becomes(n+1, jobsOf, "succeeded")
	require.Less(t, time.Since(soon), 10*time.Second, "long before the next tick")
	took, extra := time.Since(began), h.extraRuns()
	require.NoError(t, h.stop()) // by then the server has counted the statements of its sessions
	eventually(t, func() bool { return w.checks() > 0 }, "the server counts")
	for _, run := range []string{"fn_iu_route_worker_run", "fn_webhook_router_run"} {
		calls := w.int("SELECT COALESCE(sum(calls), 0)::int FROM pg_stat_user_functions WHERE funcname = $1", run)
		t.Logf("%s: %d runs in %v, %d jobs", run, calls, took, n)
		require.LessOrEqual(t, calls, int(took.Seconds())+5+extra, run) // one run per second, and a few at the start
	}
}

// An open transaction has written events, so the routers find nothing to route. Signals that keep
// arriving make each router run only a few times a second.
func TestSignalsBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "true", "iu_core.routes_master_enabled", "true", "iu_core.route_worker_enabled", "true")
	w.exec("ALTER DATABASE " + pgx.Identifier{w.db.Name}.Sanitize() + " SET track_functions = 'all'")
	w.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	w.enqueue("first", 1) // hosts listen only for existing domains
	s := &seen{}
	h := w.run(workerhost.Options{Handlers: map[string]handler.Handler{"first": s}})
	h.listens()
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, sql := range []string{
		"INSERT INTO public.events (event_type, payload) VALUES ('order', '1')",
		"SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)",
	} {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	began := time.Now()
	for pace := time.NewTicker(5 * time.Millisecond); time.Since(began) < 3*time.Second; <-pace.C {
		w.exec("SELECT public.fn_queue_wake_signal('webhook', 'event'), public.fn_queue_doorbell('work')")
	}
	took, extra := time.Since(began), h.extraRuns()
	require.NoError(t, h.stop()) // by then the server has counted the statements of its sessions
	eventually(t, func() bool { return w.checks() > 0 }, "the server counts")
	for _, run := range []string{"fn_iu_route_worker_run", "fn_webhook_router_run"} {
		calls := w.int("SELECT COALESCE(sum(calls), 0)::int FROM pg_stat_user_functions WHERE funcname = $1", run)
		t.Logf("%s: %d runs in %v", run, calls, took)
		require.LessOrEqual(t, calls, int(10*took.Seconds())+extra, run)
	}
}
