// Benchmark: how many empty jobs per second one host runs.
package workerhost_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// BenchmarkJobExecutor runs 100,000 jobs per iteration: each job is claimed, run, acknowledged
// and moved to job_history.
func BenchmarkJobExecutor(b *testing.B) {
	const n = 100_000
	noop := handler.Func(func(context.Context, handler.Job) error { return nil })
	worked := time.Duration(0)
	claims, acks := 0, 0
	for b.Loop() {
		b.StopTimer()
		db := pgtest.New(b)
		admin := db.Pool(b, "")
		executor(b, admin, "bench", "noop", 1_000_000)
		for range n / 10_000 {
			_, err := admin.Exec(b.Context(), `SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'noop',
				'event_domain', 'bench', 'executor', 'DOT', 'payload', jsonb_build_object('n', g))) FROM generate_series(1, 10000) g))`)
			require.NoError(b, err)
		}
		_, err := admin.Exec(b.Context(), "VACUUM ANALYZE public.job_queue")
		require.NoError(b, err)
		client, err := pgclient.Open(b.Context(), pgclient.Options{
			DSN: db.DSN(pgtest.Login(b, db, hostRoles()...)), WorkConns: hostConns, Actor: "bench",
		})
		require.NoError(b, err)
		h, err := workerhost.New(client, workerhost.Options{
			ID: "bench", Loops: []string{"job_executor", "counter_compactor"}, Log: slog.New(slog.DiscardHandler), Concurrency: 100,
			Handlers: map[string]handler.Handler{"noop": noop},
		})
		require.NoError(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		b.StartTimer()
		began := time.Now()
		go func() { done <- h.Run(ctx) }()
		for finished := int64(0); finished < n; time.Sleep(time.Millisecond) {
			for _, l := range h.Status().Loops {
				if l.Name == "job_executor" {
					finished = l.Done
				}
			}
		}
		worked += time.Since(began)
		b.StopTimer()
		cancel()
		require.NoError(b, <-done)
		client.Close()
		var claimed, acked int
		require.NoError(b, admin.QueryRow(b.Context(),
			"SELECT count(DISTINCT lease_token)::int, count(DISTINCT finished_at)::int FROM public.job_history").Scan(&claimed, &acked))
		claims, acks = claims+claimed, acks+acked
		b.StartTimer()
	}
	b.ReportMetric(float64(n)*float64(b.N)/float64(claims), "jobs/claim")
	b.ReportMetric(float64(n)*float64(b.N)/float64(acks), "jobs/ack")
	b.ReportMetric(float64(n)*float64(b.N)/worked.Seconds(), "jobs/s")
}
