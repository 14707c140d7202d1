// The reporter and the quick second look, beside what delivery shows of them.
package workerhost

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// One result that the database does not accept costs none of the others, and a
// repeated report changes nothing.
func TestReportBadResult(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Pool(t, "")
	for _, sql := range []string{
		"INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('x', 'http://h.example/', true, true)",
		"INSERT INTO public.events (event_type, payload) SELECT 'x', '{}' FROM generate_series(1, 3)",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // an event is held while its neighbours' transactions end
		var n int
		_, err := admin.Exec(t.Context(), "SELECT public.fn_webhook_router_run()")
		if err == nil {
			_, err = admin.Exec(t.Context(), "SELECT public.fn_saga_orchestrator_run()")
		}
		if err == nil {
			err = admin.QueryRow(t.Context(), "SELECT count(*)::int FROM public.webhook_delivery_jobs").Scan(&n)
		}
		return err == nil && n == 3
	}, time.Minute, 10*time.Millisecond)
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "webhook_worker")), WorkConns: 2})
	require.NoError(t, err)
	defer client.Close()
	h, err := New(client, Options{ID: "x", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	claimed, err := client.ClaimWebhooks(t.Context(), "x", 3, nil, 3)
	require.NoError(t, err)
	require.Len(t, claimed, 3)
	r := newReporter(h, h.loop(loopWebhook))
	defer r.close()
	status, code := 204, "NO_SUCH_CODE"
	ended := make(chan struct{}, 3)
	xs := make([]*delivery, 3)
	for i, j := range claimed {
		xs[i] = &delivery{WebhookJob: j}
		rep := pgclient.WebhookReport{JobID: j.JobID, LeaseToken: j.LeaseToken, Delivered: true, Status: &status}
		if i == 1 {
			rep.Delivered, rep.Status, rep.Code = false, nil, &code
		}
		until := time.Now().Add(time.Minute)
		r.add(pending{WebhookReport: rep, x: xs[i], until: func() time.Time { return until }, done: func() { ended <- struct{}{} }})
	}
	r.finish(time.Minute)
	for range 3 {
		<-ended
	}
	require.True(t, xs[0].settled.Load())
	require.False(t, xs[1].settled.Load(), "left to be handed back")
	require.True(t, xs[2].settled.Load())
	out, err := client.ReportWebhooks(context.Background(), []pgclient.WebhookReport{{
		JobID: claimed[0].JobID, LeaseToken: claimed[0].LeaseToken, Delivered: true, Status: &status,
	}})
	require.NoError(t, err)
	require.Equal(t, "repeated", out[0].Outcome)
}

func TestSoonAgain(t *testing.T) {
	t.Parallel()
	require.Zero(t, soonAgain(pgclient.TickResult{}, "wake", time.Second))
	require.Zero(t, soonAgain(pgclient.TickResult{Skipped: "lease_held"}, "external", 0))
	require.NotZero(t, soonAgain(pgclient.TickResult{Skipped: "lease_held"}, "wake", 0))
	held := pgclient.TickResult{Result: map[string]int64{"held": 3}}
	require.Equal(t, 20*time.Millisecond, soonAgain(held, "external", 0))
	require.Equal(t, 40*time.Millisecond, soonAgain(held, "wake", 20*time.Millisecond))
}
