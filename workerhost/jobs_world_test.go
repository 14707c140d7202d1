// Helpers of the job tests: an executor, its job subscription, jobs, and handlers that record the
// jobs that they receive.
package workerhost_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/handler"
)

// executor registers an executor with a job subscription for a kind ("" = all kinds).
func executor(t testing.TB, admin *pgxpool.Pool, id, kind string, parallel int) {
	t.Helper()
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{"SELECT public.fn_queue_heartbeat_register($1, 'DOT', '{}', 3, 600, 'test') ->> 'reason'", []any{id}},
		{"SELECT public.fn_job_subscription_set($1, NULLIF($2, ''), NULL, 0, $3, true, NULL, 'test', 'test') ->> 'reason'", []any{id, kind, parallel}},
	} {
		var refused *string
		require.NoError(t, admin.QueryRow(t.Context(), q.sql, q.args...).Scan(&refused))
		if refused != nil {
			require.Contains(t, *refused, "already registered")
		}
	}
}

// enqueue enqueues n jobs of a kind in the domain work.
func (w *world) enqueue(kind string, n int) {
	w.t.Helper()
	w.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', $1::text, 'event_domain', 'work',
		'executor', 'DOT', 'payload', jsonb_build_object('n', g), 'idempotency_key', $1 || g)) FROM generate_series(1, $2::int) g))`, kind, n)
}

const (
	jobsOf    = "SELECT count(*)::int FROM public.v_job WHERE status = $1"
	jobLeases = "SELECT count(*)::int FROM public.job_lease"
	jobsHeld  = "SELECT COALESCE(sum(live), 0)::int FROM public.job_lease"
)

// seen is a handler that records the jobs that it receives.
type seen struct {
	mu   sync.Mutex
	jobs []handler.Job
	then func(context.Context, handler.Job) error // called after the record; nil = the job succeeds
}

// Handle implements handler.Handler.
func (s *seen) Handle(ctx context.Context, job handler.Job) error {
	s.mu.Lock()
	s.jobs = append(s.jobs, job)
	s.mu.Unlock()
	if s.then == nil {
		return nil
	}
	return s.then(ctx, job)
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// scrape returns the metrics of a host as text.
func scrape(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}
