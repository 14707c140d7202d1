// Tests of a host under the control of the console: loops are started, drained and stopped, one
// by one and together, in any order, during work.
package workerhost_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// Each tick worker of the schema has a loop of a host, so that hosts can run
// all of them without pg_cron.
func TestEveryTickWorkerHasALoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows, err := w.admin.Query(t.Context(), "SELECT worker_name FROM public.queue_tick_worker")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, names)
	require.Subset(t, workerhost.LoopNames(), names)
}

func TestLoopsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := runHostOn(t, roomy(w.dsn), workerhost.Options{Loops: []string{}})
	require.False(t, h.Status().Running)
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.queue_host"), "a host that runs nothing is not announced")
	own := func(err error, kind queue.Kind, text string) {
		t.Helper()
		var e *queue.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, kind, e.Kind)
		require.ErrorContains(t, err, text)
	}
	own(h.Start("nonsense"), queue.KindUsage, "there is no loop nonsense: use one of ")
	own(h.Drain("nonsense"), queue.KindUsage, "no loop nonsense: use one of ")
	own(h.Stop("nonsense"), queue.KindUsage, "no loop nonsense: use one of ")
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.queue_host"))
	own(h.Drain("webhook_worker"), queue.KindFailed, "is not running in this host")
	own(h.Stop("webhook_worker"), queue.KindFailed, "is not running in this host")
	_, err := h.ServeMetrics(t.Context(), "127.0.0.1:no")
	own(err, queue.KindUsage, "(metrics_addr 127.0.0.1:no): choose a free address")
	require.NoError(t, h.Drain(""))
	require.NoError(t, h.Stop(""))

	eventually(t, func() bool { return h.Start("webhook_router") == nil }, "Run does not begin")
	own(h.Start("webhook_router"), queue.KindFailed, "running already")
	require.Equal(t, "running", h.status("webhook_router").State)
	require.Equal(t, "stopped", h.status("webhook_worker").State)
	require.NoError(t, h.Start(""))
	for _, l := range h.Status().Loops {
		require.Equal(t, "running", l.State, l.Name)
	}
	require.NoError(t, h.Start(""), "what runs is left alone")
	for _, name := range workerhost.LoopNames() {
		eventually(t, func() bool { return !h.status(name).LastTick.IsZero() }, "%s does not tick", name)
		require.Zero(t, h.status(name).Errors, "%s: %s", name, h.status(name).LastErr)
	}
	require.NoError(t, h.Drain("webhook_worker"))
	h.is("webhook_worker", "stopped")
	require.NoError(t, h.Stop("webhook_router"))
	h.is("webhook_router", "stopped")
	require.Equal(t, "running", h.status("saga_orchestrator").State)
	require.NoError(t, h.Shutdown(t.Context()))
	require.NoError(t, h.Shutdown(t.Context()))
	require.False(t, h.Status().Running)
	require.Equal(t, "true", w.text("SELECT stopped_at IS NOT NULL FROM public.queue_host"))
	require.NoError(t, h.Start("webhook_worker"), "a console may start it again")
	require.Equal(t, "true", w.text("SELECT stopped_at IS NULL FROM public.queue_host"))
	require.NoError(t, h.stop())
	own(h.Start("webhook_worker"), queue.KindFailed, "not running")
	require.Equal(t, "true", w.text("SELECT stopped_at IS NOT NULL FROM public.queue_host"), "nothing revives a host that ended")
	require.Equal(t, "off", h.Status().Listener.State)
}

func TestUnknownLoop(t *testing.T) {
	t.Parallel()
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: "postgres://u@127.0.0.1:1/d", WorkConns: 1})
	require.NoError(t, err)
	defer client.Close()
	_, err = workerhost.New(client, workerhost.Options{ID: "x", Loops: []string{"webhook_routre"}})
	require.ErrorContains(t, err, "there is no loop webhook_routre")
	require.Equal(t, queue.KindConfig, queue.KindOf(err))
	_, err = workerhost.New(client, workerhost.Options{ID: strings.Repeat("x", 191), Producer: enqueue.New(client)})
	require.NoError(t, err)
	_, err = workerhost.New(client, workerhost.Options{ID: strings.Repeat("x", 192)})
	require.ErrorContains(t, err, "the host id has 192 characters", "its worker id would be refused in every claim")
	idle, err := pgclient.Open(t.Context(), pgclient.Options{DSN: "postgres://u@127.0.0.1:1/d"})
	require.NoError(t, err)
	defer idle.Close()
	_, err = workerhost.New(client, workerhost.Options{ID: "x", Producer: enqueue.New(idle)})
	require.EqualError(t, err, "the producer has another pgclient.Client (host x): make it with enqueue.New of the host's client, or leave Options.Producer out")
	require.Equal(t, queue.KindConfig, queue.KindOf(err))
	_, err = workerhost.New(idle, workerhost.Options{ID: "x"})
	require.EqualError(t, err, "the client has no work pool (host x): set pgclient.Options.WorkConns, such as 4")
	require.Equal(t, queue.KindConfig, queue.KindOf(err))
}

// 200 random orders of starts, drains and stops while events arrive: no loop stays in an
// intermediate state, no event is lost, and a stop uses up no attempt.
func TestRandomOrders(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{Loops: []string{}, Concurrency: 8})
	eventually(t, func() bool { return h.Start("webhook_router") == nil }, "Run does not begin")
	names := append(workerhost.LoopNames(), "", "webhook_worker", "webhook_worker", "saga_orchestrator")
	for i := range 200 {
		if i%10 == 0 {
			w.events("order.created", 5)
		}
		name := names[rnd.IntN(len(names))]
		switch rnd.IntN(5) {
		case 0, 1:
			_ = h.Start(name) // an error is expected when the loop runs already or drains
		case 2, 3:
			_ = h.Drain(name)
		case 4:
			_ = h.Stop(name)
		}
		if rnd.IntN(40) == 0 {
			require.NoError(t, h.Shutdown(context.Background()))
			require.False(t, h.Status().Running)
		}
	}
	// a loop may not have ended yet, and then Start fails
	eventually(t, func() bool {
		_ = h.Start("")
		for _, l := range h.Status().Loops {
			if l.State != "running" {
				return false
			}
		}
		return true
	}, "a loop sticks")
	w.becomes(100, completed)
	require.Equal(t, 100, w.int(jobs), "a stop spends no attempt")
	require.Equal(t, 0, w.int("SELECT COALESCE(max(lease_resets), 0)::int FROM public.webhook_delivery_jobs"))
	require.NoError(t, h.stop())
	require.False(t, h.Status().Running)
}
