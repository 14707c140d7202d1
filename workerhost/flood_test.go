// Tests of a flood of wake signals, which any session can send: if there is no work, the signals
// cause few checks.
package workerhost_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// checks returns how often hosts have checked for work so far, by the
// statistics of the server.
func (w *world) checks() int {
	w.t.Helper()
	return w.int("SELECT COALESCE(sum(calls), 0)::int FROM pg_stat_user_functions WHERE funcname IN ('fn_queue_tick_request', 'fn_webhook_job_claim', 'fn_job_claim')")
}

func TestForgedWakesAreCheap(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	w.exec("ALTER DATABASE " + pgx.Identifier{w.db.Name}.Sanitize() + " SET track_functions = 'all'")
	r := receive(t, ok)
	w.subscribe("t", r.URL, nil)
	s := &seen{}
	h := w.run(workerhost.Options{Handlers: map[string]handler.Handler{"resize": s}})
	h.listens()
	h.polls("webhook_router", 1)

	// First the checks without signals are counted, over the same time,
	// because hosts make them anyway.
	const span = 3 * time.Second
	h.polls("webhook_router", 3)
	quietly := w.checks()
	quiet := time.NewTimer(span)
	<-quiet.C
	h.polls("webhook_router", 3) // by then the server has counted the statements of its sessions
	quietly = w.checks() - quietly

	// Signals arrive faster than loops may check, and slowly enough not to overload the server.
	flood := w.db.Conn(t, "")
	before, heard, sent := w.checks(), h.Status().Listener.Heard, 0
	began := time.Now()
	for pace := time.NewTicker(5 * time.Millisecond); time.Since(began) < span; <-pace.C {
		channels := []string{"queue_wake_webhook", "queue_wake_work", "queue_wake_system", "queue_wake_staging"}
		layers := []string{"event", "saga", "job", "config", "doorbell", "", "subscription"}
		_, err := flood.Exec(context.Background(), `SELECT pg_notify(c, json_build_object('layer', l, 'worker_hint', 'x', 'n', $3::int)::text)
			FROM unnest($1::text[]) c, unnest($2::text[]) l`, channels, layers, sent)
		require.NoError(t, err)
		sent += len(channels) * len(layers)
	}
	most := int(time.Since(began)/(250*time.Millisecond)) + 8
	h.polls("webhook_router", 3)
	took := w.checks() - before
	t.Logf("%d signals, %d looks, %d without them", sent, took, quietly)
	require.Positive(t, h.Status().Listener.Heard-heard, "the host received the flood")
	require.Positive(t, took, "the server counts")
	// Seven loops check at most four times a second, and a few times more at first; allow twice
	// that.
	require.Less(t, took, 2*7*most+quietly, "%d signals", sent)

	// Real work is still done, and the wake signals of one loop do not delay another loop.
	w.enqueue("resize", 3)
	w.events("t", 3)
	eventually(t, func() bool { return s.count() == 3 && r.count() == 3 }, "work waits behind a flood")
}
