// Tests of routing by a host: an event becomes a job of its consumer, an open transaction delays
// later events and is shown, and no event is skipped when a host is killed while it routes.
package workerhost_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

func routesWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate'), ('staging', 'made', 's', 'immediate')")
	for _, loop := range []string{"iu_outbound_default", "staging_outbound"} {
		w.set("queue.tick."+loop+".interval_seconds", "1")
	}
	executor(t, w.admin, "host-x", "", 100)
	w.exec("SELECT public.fn_consumer_set('indexer', 'iu', 'made', 'index', 'DOT', true, 'test', 'test')")
	return w
}

const emit = "SELECT public.fn_iu_emit_event($1, 'made', 's', 'immediate', 'info', NULL, g::text) FROM generate_series(1, $2) g"

const routedEvents = "SELECT count(DISTINCT event_id)::int FROM public.iu_route_attempt"

func TestRoutesToJobs(t *testing.T) {
	t.Parallel()
	w := routesWorld(t)
	s := &seen{}
	w.run(workerhost.Options{
		Loops: []string{"iu_outbound_default", "staging_outbound", "job_executor"}, Executor: "host-x",
		Handlers: map[string]handler.Handler{"index": s},
	})
	w.exec(emit, "iu", 50)
	w.exec(emit, "staging", 5)
	w.becomes(55, routedEvents)
	eventually(t, func() bool { return s.count() == 50 }, "the consumer's jobs are not worked on")
	s.mu.Lock()
	job := s.jobs[0]
	s.mu.Unlock()
	require.Equal(t, "iu", job.Domain)
	require.Regexp(t, "^event_outbox/[0-9a-f-]{36}$", job.SourceRef)
	require.Equal(t, job.SourceRef, job.PayloadRef)
	require.Equal(t, "staging_outbound", w.text("SELECT DISTINCT worker_name FROM public.iu_route_attempt WHERE event_domain = 'staging'"))

	// a transaction that commits later than the next events
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), emit, "iu", 1)
	require.NoError(t, err)
	w.exec(emit, "iu", 10)
	w.becomes(65, routedEvents)
	require.NoError(t, tx.Commit(t.Context()))
	w.becomes(66, routedEvents)
	eventually(t, func() bool { return s.count() == 61 }, "the late event is not worked on")
}

// With several hosts, one of which is stopped (SIGSTOP) while it routes, each event gets one
// attempt and one job.
func TestRoutesByManyHosts(t *testing.T) {
	t.Parallel()
	w := routesWorld(t)
	var hosts []*hosted
	for _, id := range []string{"a", "b", "c"} {
		hosts = append(hosts, w.run(workerhost.Options{ID: id, Loops: []string{"iu_outbound_default"}}))
	}
	for i := range 10 {
		w.exec(emit, "iu", 500)
		if i == 5 {
			require.NoError(t, hosts[0].stop())
			w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%fn_queue_tick_request%' AND pid <> pg_backend_pid()")
		}
	}
	w.becomes(5000, routedEvents)
	require.Equal(t, 5000, w.int("SELECT count(*)::int FROM public.iu_route_attempt"))
	require.Equal(t, 5000, w.int("SELECT count(DISTINCT causation_event_id)::int FROM public.job_queue"))
	require.Equal(t, 5000, w.int("SELECT count(*)::int FROM public.job_queue"))
	require.Zero(t, w.int("SELECT count(*)::int FROM public.iu_route_dead_letter"))
}
