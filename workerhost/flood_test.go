// Signals come from anybody: a flood of them that tells of no work costs few looks.
package workerhost_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// commits is how many transactions the server has counted in the database.
func (w *world) commits() int {
	w.t.Helper()
	return w.int("SELECT xact_commit::int FROM pg_stat_database WHERE datname = current_database()")
}

func TestForgedWakesAreCheap(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	r := receive(t, ok)
	w.subscribe("t", r.URL, nil)
	s := &seen{}
	h := w.run(workerhost.Options{Handlers: map[string]handler.Handler{"resize": s}})
	h.listens()
	h.polls("webhook_router", 1)

	// As many seconds without the flood as with it: what the polls cost.
	const span = 2 * time.Second
	h.polls("webhook_router", 3)
	quietly := w.commits()
	quiet := time.NewTimer(span)
	<-quiet.C
	h.polls("webhook_router", 3) // by then the server has counted what its sessions did
	quietly = w.commits() - quietly

	flood := w.db.Conn(t, "")
	before, heard, sent, commits := w.commits(), h.Status().Listener.Heard, 0, 0
	began := time.Now()
	for ; time.Since(began) < span; commits++ {
		channels := []string{"queue_wake_webhook", "queue_wake_work", "queue_wake_system", "queue_wake_staging"}
		layers := []string{"event", "saga", "job", "config", "doorbell", "", "subscription"}
		_, err := flood.Exec(context.Background(), `SELECT pg_notify($1, json_build_object('layer', $2::text, 'worker_hint', 'x' || g, 'n', $3::int)::text)
			FROM generate_series(1, 2000) g`, channels[commits%len(channels)], layers[commits%len(layers)], commits)
		require.NoError(t, err)
		sent += 2000
	}
	h.polls("webhook_router", 3)
	took := w.commits() - before - commits
	t.Logf("%d signals, %d transactions because of them and %d without", sent, took-quietly, quietly)
	require.Positive(t, h.Status().Listener.Heard-heard, "the host heard the flood")
	// Seven loops and the intervals, each at most four times a second, and a few times more at first.
	looks := int(time.Since(began)/(250*time.Millisecond)) + 8
	require.Less(t, took-quietly, 8*2*looks, "%d signals", sent)

	// What there is to do is done all the same, and the wakes of one loop do not hold up another.
	w.enqueue("resize", 3)
	w.events("t", 3)
	eventually(t, func() bool { return s.count() == 3 && r.count() == 3 }, "work waits behind a flood")
}
