// Tests of endpoints to which nothing is sent, because they are suspended or their circuit is
// open: deliveries wait, and no attempt is counted.
package workerhost_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// behindTheGate counts requests that began while their endpoint was suspended or its circuit
// open.
const behindTheGate = `SELECT count(*)::int FROM public.webhook_delivery_jobs j
	JOIN public.webhook_endpoint_suspensions x ON x.subscription_id = j.subscription_id
	WHERE j.started_at > x.since AND (x.until IS NULL OR j.started_at < x.until)`

// unspent fails unless n deliveries have counted no attempt, lost no lease and
// have only one row in webhook_delivery_jobs.
func (w *world) unspent(n int) {
	w.t.Helper()
	require.Equal(w.t, n, w.int("SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE attempt_count = 0"))
	require.Equal(w.t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE lease_resets > 0 OR attempt_no > 1 OR status = 'Failed'"))
	require.Equal(w.t, 0, w.int("SELECT count(*)::int FROM (SELECT 1 FROM public.webhook_delivery_jobs GROUP BY saga_id HAVING count(*) > 1) x"))
}

// An operator suspends an endpoint while one request is in flight, other jobs are leased and more
// jobs wait: only the request in flight counts as an attempt.
func TestSuspendedByOperator(t *testing.T) {
	t.Parallel()
	const events = 40
	w := newWorld(t, "queue.notify.bridge_enabled", "true", "queue.tick.webhook_worker.interval_seconds", "1")
	stuck := make(chan struct{})
	var heard atomic.Int64
	r := receive(t, func(rw http.ResponseWriter, req *http.Request) {
		if heard.Add(1) > 5 { // the first requests succeed, because a host buffers deliveries only after successes
			hanging(stuck)(rw, req)
		}
	})
	sub := w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{PerEndpoint: 1})
	h.listens()
	w.events("order.created", events)
	mostLeased := 0
	eventually(t, func() bool {
		mostLeased = max(mostLeased, w.int(leased))
		return r.count() == 6
	}, "it does not hang")
	h.polls("webhook_worker", 2) // by then the buffered deliveries are leased
	eventually(t, func() bool {
		n := w.int(leased)
		mostLeased = max(mostLeased, n)
		return n == 1
	}, "the buffered deliveries are not handed back")
	t.Logf("at most %d leased", mostLeased)
	w.unspent(events)

	require.Equal(t, "", w.text("SELECT public.fn_endpoint_suspend($1, 'ann', 'maintenance', '1 hour') ->> 'refused'", sub))
	w.events("order.created", 10)
	h.polls("webhook_router", 2)
	close(stuck)
	w.becomes(6, completed) // including the request that was in flight
	h.polls("saga_orchestrator", 2)
	h.polls("webhook_worker", 2)
	require.Equal(t, 6, r.count(), "requests to a suspended endpoint")
	require.Equal(t, 0, w.int(leased))
	require.Equal(t, events, w.int(jobs), "jobs were made behind the suspension")
	require.Equal(t, 0, w.int(behindTheGate))
	w.unspent(events + 10)

	w.exec("UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'") // as if its hour had passed
	w.becomes(events+10, completed)
	require.Equal(t, events+10, r.count(), "each was sent once")
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_endpoint_suspensions"))
	w.unspent(events + 10)
}

// A 410 response ends its saga and suspends the endpoint for the other deliveries.
func TestGoneSuspends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1")
	var back atomic.Bool
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			rw.WriteHeader(http.StatusGone)
		}
	})
	sub := w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{PerEndpoint: 1})
	w.events("order.created", 20)
	w.becomes(1, "SELECT count(*)::int FROM public.webhook_endpoint_suspensions WHERE reason = '410' AND until IS NULL")
	h.polls("webhook_worker", 2)
	h.polls("saga_orchestrator", 2)
	dead := w.int("SELECT count(*)::int FROM public.dead_letters WHERE final_error_code = 'HTTP_410'")
	require.Equal(t, r.count(), dead, "each 410 is a dead letter at once")
	require.Less(t, dead, 20)
	require.Equal(t, 0, w.int(behindTheGate))
	require.Equal(t, 20-dead, w.int("SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE attempt_count = 0 AND status IN ('Pending', 'InProgress')"))
	t.Logf("%d of 20 got the 410 before the suspension was recorded", dead)

	back.Store(true)
	require.Equal(t, "", w.text("SELECT public.fn_endpoint_resume($1, 'ann', 'it is back') ->> 'refused'", sub))
	w.becomes(20-dead, completed)
	require.Equal(t, 20, r.count())
}

// While a circuit is open, no attempt is counted. After its time one probe at a time is sent; the
// probe opens the circuit again or closes it.
func TestCircuitCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1", "webhook.circuit_failures", "3", "webhook.circuit_open_seconds", "600", "webhook.max_attempts", "1000")
	var healed atomic.Bool
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !healed.Load() {
			rw.WriteHeader(http.StatusBadGateway)
		}
	})
	w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{PerEndpoint: 2})
	w.events("order.created", 20)
	shut := "SELECT count(*)::int FROM public.webhook_endpoint_suspensions WHERE reason = 'circuit' AND until > now() AND probe_job_id IS NULL"
	halfOpen := "UPDATE public.webhook_endpoint_suspensions SET since = now() - interval '1 hour', until = now() - interval '1 second'"
	w.becomes(1, shut)
	still := func() {
		t.Helper()
		h.polls("saga_orchestrator", 2)
		h.polls("webhook_worker", 2)
		require.Equal(t, 0, w.int(leased))
		require.Equal(t, r.count(), w.int("SELECT sum(attempt_count)::int FROM public.webhook_delivery_sagas"), "each attempt is one request")
		require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE lease_resets > 0"))
	}
	still()
	first := r.count()
	t.Logf("%d requests until the circuit of 3 opened, 2 at a time", first)
	require.LessOrEqual(t, first, 3+2)
	for probe := range 3 {
		w.exec(halfOpen)
		eventually(t, func() bool { return r.count() > first+probe }, "no probe")
		w.becomes(1, shut)
		still()
		require.Equal(t, first+probe+1, r.count(), "one probe")
	}
	healed.Store(true)
	w.exec(halfOpen)
	w.becomes(20, completed)
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_endpoint_suspensions"))
	require.Equal(t, first+3+20, r.count(), "no request more than the failures and one success each")
	require.Empty(t, strings.TrimSpace(w.text("SELECT string_agg(error_code, ' ') FROM public.webhook_delivery_jobs WHERE error_code <> 'HTTP_502'")))
}
