package workerhost_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/sender"
)

// When a claim was committed but its answer did not arrive, its deliveries are sent soon and not
// only after their lease. A delivery under way keeps its lease.
func TestWebhooksClaimedWithoutAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "webhook.lease_seconds", "600", "webhook.timeout_seconds", "300", "queue.notify.bridge_enabled", "true")
	p := pgtest.NewPath(t, pgtest.TCP(t, w.db.Server))
	release := make(chan struct{})
	long, short := receive(t, hanging(release)), receive(t, ok)
	w.subscribe("long", long.URL, nil)
	w.subscribe("short", short.URL, nil)
	patient := sender.New(sender.Config{Version: "test", Allow: loopback(), PlainHTTP: loopback(), Concurrency: 8, Headers: 5 * time.Minute})
	t.Cleanup(patient.Close)
	log := &lines{}
	runHost(t, pgtest.OverTCP(t, w.dsn, p.Addr()), workerhost.Options{
		Loops: []string{"webhook_worker"}, Concurrency: 8, Sender: patient, Log: slog.New(slog.NewJSONHandler(log, nil)),
	})
	due := func(eventType string) {
		t.Helper()
		w.events(eventType, 1)
		w.exec("SELECT public.fn_webhook_router_run(100)")
		w.exec("SELECT public.fn_saga_orchestrator_run(100)")
	}
	due("long")
	eventually(t, func() bool { return long.count() == 1 }, "the long request does not begin")
	p.DropReplyWith(short.URL)
	due("short")
	w.becomes(1, reported)
	require.Len(t, p.Dropped(), 1)
	require.Len(t, log.of(t, "handed back deliveries of a claim whose answer did not arrive"), 1)
	require.Equal(t, 1, w.int(leased), "the request under way keeps its lease")

	// Another claim without an answer is committed only now, after its deliveries were to be handed back.
	w.events("short", 1)
	w.exec("SELECT public.fn_webhook_router_run(100)")
	w.set("webhook.worker.enabled", "false") // the host claims nothing meanwhile
	w.exec("SELECT public.fn_saga_orchestrator_run(100)")
	require.NoError(t, pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT public.fn_dot_config_set('webhook.worker.enabled', 'true', 'test', 'test');
			SELECT 1 / count(*) FROM public.fn_webhook_job_claim((SELECT j.worker_id FROM public.webhook_delivery_jobs j WHERE j.status = 'Leased'), 10)`)
		return err
	}))
	w.becomes(2, reported)
	require.Len(t, log.of(t, "handed back deliveries of a claim whose answer did not arrive"), 2)
	close(release)
	w.becomes(3, reported)
	require.Equal(t, 2, short.count(), "a delivery was sent twice")
	require.Equal(t, 1, long.count())
	require.Zero(t, w.int("SELECT sum(lease_resets)::int FROM public.webhook_delivery_jobs"), "a lease expired")
}

const reported = "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Completed'"
