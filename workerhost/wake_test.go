// Tests that a wake signal wakes only the loops that have work.
package workerhost_test

import (
	"context"
	"testing"
	"time"

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
	w.recordTicks()
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
	for _, router := range []string{"iu_outbound_default", "webhook_router"} {
		ticks := w.ticks(router)
		t.Logf("%s: %d ticks in %v, %d jobs", router, ticks, took, n)
		require.LessOrEqual(t, ticks, int(took.Seconds())+5+extra, router) // one tick per second, and a few at the start
	}
}

// An open transaction has written events, so the routers find nothing to route. Signals that keep
// arriving make each router tick only a few times a second.
func TestSignalsBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "true", "iu_core.routes_master_enabled", "true", "iu_core.route_worker_enabled", "true")
	w.recordTicks()
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
	for _, router := range []string{"iu_outbound_default", "webhook_router"} {
		ticks := w.ticks(router)
		t.Logf("%s: %d ticks in %v", router, ticks, took)
		require.LessOrEqual(t, ticks, int(10*took.Seconds())+extra, router)
	}
}
