package workerhost_test

// Tests of rates: a receiver gets the requests of a bulk operation at most at its rate, whatever
// happens between the requeue and the request; and deliveries that were blocked start slowly.

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// makeDead makes n dead letters of one webhook subscription, whose receiver
// answers with an error.
func (w *world) makeDead(eventType string, n int) {
	w.t.Helper()
	w.exec("UPDATE public.subscriptions SET max_attempts = 1 WHERE event_type = $1", eventType)
	w.events(eventType, n)
	w.exec("SELECT public.fn_webhook_router_run(100000)")
	w.exec("SELECT public.fn_saga_orchestrator_run(100000)")
	w.exec(`SELECT count(*) FROM public.fn_webhook_job_report((SELECT jsonb_agg(jsonb_build_object('job_id', c.job_id, 'lease_token', c.lease_token,
		'delivered', false, 'code', 'HTTP_503')) FROM public.fn_webhook_job_claim('test', 10000) c))`)
	w.exec("SELECT public.fn_saga_orchestrator_run(100000)")
	w.exec("UPDATE public.subscriptions SET max_attempts = NULL WHERE event_type = $1", eventType)
	require.Equal(w.t, n, w.int("SELECT count(*)::int FROM public.dead_letter_open"))
}

// operation starts a bulk operation over all open dead letters, without canary or brake.
func (w *world) operation(rate int) (id int) {
	w.t.Helper()
	id = w.int(`SELECT (public.fn_queue_bulk_plan('requeue_webhook', (SELECT array_agg(dead_letter_id::text) FROM public.dead_letter_open), 'all', $1, 0, 0, 'ann', 'r')
		->> 'operation_id')::int`, rate)
	w.exec("SELECT public.fn_queue_bulk_run($1::bigint, 'ann')", id)
	return id
}

// arrivals returns when the requests arrived, in order. Those after until are left out, unless
// until is zero.
func (r *receiver) arrivals(until time.Time) (all []time.Time) {
	for _, g := range r.all() {
		if until.IsZero() || g.arrived.Before(until) {
			all = append(all, g.arrived)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// densest returns the greatest number of times in any period of the length within. all is in order.
func densest(all []time.Time, within time.Duration) int {
	most := 0
	for from, to := 0, 0; to < len(all); to++ {
		for all[to].Sub(all[from]) >= within {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// A bulk operation runs at 20 requests a second with three hosts, one of which is killed; its
// endpoint is suspended, then fails and recovers, first without a circuit, so that retries come beside
// the first attempts. In any 5 s the endpoint gets at most 1.2 × 5 × 20 + 1 requests, including
// retries, and all deliveries arrive.
func TestRateHoldsAtTheReceiver(t *testing.T) {
	t.Parallel()
	deadLetters, spells, spell := 120, 1, 2*time.Second
	if os.Getenv("QTOP_TEST_FULL") != "" {
		deadLetters, spells, spell = 4000, 3, 20*time.Second
	}
	const rate = 20
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1", "webhook.retry_schedule", "1s 2s 5s", "webhook.max_attempts", "1000",
		"webhook.circuit_open_seconds", "1", "webhook.circuit_max_seconds", "2")
	var bad atomic.Bool
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if bad.Load() {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	sub := w.subscribe("e", r.URL, nil)
	w.makeDead("e", deadLetters)
	w.exec("SELECT public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", sub)
	var hosts []*child
	for _, id := range []string{"a", "b", "c"} {
		hosts = append(hosts, w.spawn(childSpec{ID: id, Concurrency: 16, Grace: time.Second}))
	}
	id := w.operation(rate)
	w.becomes(1, "SELECT count(*)::int FROM public.queue_bulk_operation WHERE waits LIKE '%suspended (operator)%' AND requeued = 0")
	w.becomes(3, "SELECT count(*)::int FROM public.queue_host")
	require.Zero(t, r.count())
	began := time.Now()
	bad.Store(true)
	w.exec("SELECT public.fn_endpoint_resume($1::bigint, 'ann', 'r')", sub)
	eventually(t, func() bool { return r.count() > 0 }, "nothing comes")
	time.Sleep(6 * time.Second) // the receiver fails for this long
	bad.Store(false)
	w.set("webhook.circuit_failures", "5")

	for i := range spells {
		want := deadLetters * (i + 1) / (spells + 2)
		eventuallyWithin(t, 10*time.Minute, func() bool { return w.int(completed) >= want }, "not %d delivered", want)
		bad.Store(true)
		eventually(t, func() bool {
			return w.int("SELECT count(*)::int FROM public.webhook_endpoint_suspensions WHERE reason = 'circuit'") == 1
		}, "the circuit never opened")
		if i == 0 {
			hosts[0].kill()
		}
		time.Sleep(spell) // the receiver fails for this long
		bad.Store(false)
	}
	eventuallyWithin(t, 10*time.Minute, func() bool { return w.int(completed) == deadLetters }, "not all are delivered")
	took := time.Since(began)
	w.becomes(1, "SELECT count(*)::int FROM public.queue_bulk_operation WHERE state = 'completed' AND requeued = frozen_count AND done = frozen_count AND operation_id = $1", id)

	const most = 12*5*rate/10 + 1
	n := densest(r.arrivals(time.Time{}), 5*time.Second)
	t.Logf("at most %d requests in any 5 s, %d allowed", n, most)
	require.LessOrEqual(t, n, most)
	t.Logf("%d requests for %d deliveries in %v, %.1f a second", r.count(), deadLetters, took.Round(time.Second), float64(r.count())/took.Seconds())
	ids := map[string]bool{}
	for _, g := range r.all() {
		ids[g.id] = true
	}
	require.Len(t, ids, deadLetters)
}

// After a suspension, deliveries to a receiver that never got a request start at ten a second;
// with the flag off they are sent at once.
func TestSuspensionEndsSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1")
	r := receive(t, ok)
	sub := w.subscribe("e", r.URL, nil)
	w.exec("SELECT public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", sub)
	w.events("e", 400)
	h := w.run(workerhost.Options{Concurrency: 32})
	w.becomes(400, "SELECT count(*)::int FROM public.webhook_delivery_sagas")
	h.polls("saga_orchestrator", 1)
	require.Zero(t, r.count())
	began := time.Now()
	w.exec("SELECT public.fn_endpoint_resume($1::bigint, 'ann', 'r')", sub)
	eventually(t, func() bool { return r.count() >= 70 }, "nothing comes")
	require.LessOrEqual(t, densest(r.arrivals(began.Add(9*time.Second)), 5*time.Second), 12*5*10/10+1, "the rate doubles after 10 s")
	w.set("webhook.slow_start.enabled", "false")
	w.becomes(400, completed)
	require.Equal(t, 400, r.count())
}

// A host that has no token for a day sends waiting deliveries as soon as an operator raises the rate
// limit, and follows each further change, without a restart.
func TestHostFollowsTheRateLimit(t *testing.T) {
	t.Parallel()
	const events = 30
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1", "webhook.slow_start.enabled", "false")
	r := receive(t, ok)
	sub := w.subscribe("e", r.URL, nil)
	limit := func(perSecond string) {
		t.Helper()
		require.Empty(t, w.text("SELECT public.fn_webhook_rate_limit_set($1::bigint, "+perSecond+", 'ann', 'r') ->> 'reason'", sub))
	}
	limit("0.00001")
	h := w.run(workerhost.Options{})
	w.events("e", events)
	w.becomes(events, jobs)
	w.becomes(1, "SELECT count(*)::int FROM public.webhook_rate_bucket WHERE isfinite(refilled_at)") // the first token is spent; a host that is late loses it
	w.becomes(0, leased)
	h.polls("webhook_worker", 3)
	require.LessOrEqual(t, r.count(), 1, "the second token comes after a day")
	limit("1000")
	w.becomes(events, completed)

	limit("0.00001")
	w.events("e", events)
	w.becomes(2*events, jobs)
	h.polls("webhook_worker", 3)
	require.LessOrEqual(t, r.count(), events+1, "the bucket holds one token at most")
	limit("NULL")
	w.becomes(2*events, completed)
	require.Equal(t, 2*events, r.count())
}

// A host uses a rate in full, also one that is no whole number of requests per slice of 250 ms, and
// never more of it. A slice for which the host is late is lost, so on a busy machine the rate is used
// in full for some time only; no claim ever takes more.
func TestRateIsUsedInFull(t *testing.T) {
	t.Parallel()
	const within = 6 * time.Second
	w := newWorld(t)
	receivers, subs := map[int]*receiver{3: receive(t, ok), 5: receive(t, ok), 7: receive(t, ok)}, map[int]int{}
	for rate, r := range receivers {
		name := fmt.Sprintf("rate %d", rate)
		subs[rate] = w.subscribe(name, r.URL, nil)
		w.exec("UPDATE public.subscriptions SET rate_limit_per_second = $1 WHERE id = $2", rate, subs[rate])
		w.events(name, 40*rate)
	}
	w.run(workerhost.Options{})
	for rate, r := range receivers {
		full := float64(rate) * within.Seconds()
		most := full + max(float64(rate)/4, 1) + 1
		n := 0
		eventually(t, func() bool {
			all := r.arrivals(time.Time{})
			return slices.ContainsFunc(all, func(first time.Time) bool {
				if time.Since(first) < within+time.Second {
					return false
				}
				n = 0
				for _, at := range all {
					if !at.Before(first) && at.Sub(first) < within {
						n++
					}
				}
				return float64(n) >= 0.9*full && float64(n) <= most
			})
		}, "never %.1f to %.1f requests in %v", 0.9*full, most, within)
		rows, err := w.admin.Query(t.Context(), "SELECT started_at FROM public.webhook_delivery_jobs WHERE subscription_id = $1 AND started_at IS NOT NULL ORDER BY started_at", subs[rate])
		require.NoError(t, err)
		claims, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		require.NoError(t, err)
		claimed := densest(claims, within)
		t.Logf("at a rate of %d, %d requests in %v, and at most %d claims", rate, n, within, claimed)
		require.LessOrEqual(t, float64(claimed), most)
	}
}
