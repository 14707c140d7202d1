// The state machine of sagas: every legal transition, the illegal ones, and how a saga is retried,
// completed, or becomes a dead letter.

package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWebhookThreeFailuresThenDead(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.exec("UPDATE public.subscriptions SET max_attempts = 3 WHERE id = $1", sub)
	h.exec(`INSERT INTO public.events (event_type, payload) VALUES ('order', '{"n": 12345678901234567890.10, "ü": [1, null]}')`)

	ids := map[string]bool{}
	for attempt := 1; attempt <= 3; attempt++ {
		require.Equal(t, 1, num(h.step(), "jobs_created"))
		leases := h.claim(10)
		require.Len(t, leases, 1)
		require.Equal(t, attempt, leases[0].Attempt)
		ids[leases[0].WebhookID] = true
		h.finish("HTTP_503", leases...)
	}
	last := h.call("public.fn_saga_orchestrator_run()")
	require.Equal(t, 1, num(last, "dead_lettered"))
	require.Zero(t, num(last, "jobs_created"))
	require.Len(t, ids, 1, "webhook_id is the same for every attempt")

	require.Equal(t, "DeadLettered 3 HTTP_503", one[string](h,
		"SELECT concat_ws(' ', status, attempt_count, final_error_code) FROM public.webhook_delivery_sagas"))
	require.Equal(t, 3, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs"))
	require.True(t, one[bool](h, `SELECT d.payload_snapshot = e.payload AND d.payload_snapshot::text = e.payload::text
		AND d.final_error_code = 'HTTP_503' FROM public.dead_letters d JOIN public.events e ON e.id = d.event_id`))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	require.Zero(t, num(h.step(), "jobs_created"), "a dead saga gets no job")
}

func TestWebhookDelivered(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 3)
	h.step()
	leases := h.claim(10)
	require.Len(t, leases, 3)
	require.Less(t, leases[0].Job, leases[1].Job, "oldest first")
	require.Equal(t, `{"n": 1}`, leases[0].Payload)
	h.finish("", leases...)
	require.Equal(t, 3, num(h.step(), "completed"))
	require.Equal(t, 3, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE status = 'Completed' AND attempt_count = 0"))
	require.Equal(t, 0, num(h.step(), "settled"), "each result counts once")
	require.Empty(t, h.claim(10))
}

func TestWebhookGoneDiesAtOnceAndSuspends(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 2)
	h.step()
	h.finish("HTTP_410", h.claim(1)...)
	require.Equal(t, 1, num(h.step(), "dead_lettered"))
	require.Equal(t, "410", one[string](h, "SELECT reason FROM public.webhook_endpoint_suspensions WHERE subscription_id = $1", sub))
	require.Empty(t, h.claim(10), "nothing is claimed while suspended")
	require.Equal(t, 1, one[int](h, "SELECT attempt_count FROM public.webhook_delivery_sagas WHERE status = 'DeadLettered'"))
}

func TestWebhookRetrySchedule(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.flag("webhook.max_attempts", "100")
	h.flag("webhook.retry_schedule", "30s 1m 100s")
	h.emit("order", 40)
	for attempt := range 5 {
		h.step()
		leases := h.claim(100)
		require.Len(t, leases, 40)
		h.finish("TIMEOUT", leases...)
		require.Equal(t, 40, num(h.call("public.fn_saga_orchestrator_run()"), "retried"))
		var low, high float64
		require.NoError(t, h.root.QueryRow(context.Background(), `SELECT min(w), max(w) FROM (
			SELECT extract(epoch FROM next_attempt_at - updated_at)::float8 AS w FROM public.webhook_delivery_sagas) x`).Scan(&low, &high))
		wait := []float64{30, 60, 100}[min(attempt, 2)]
		require.GreaterOrEqual(t, low, 0.8*wait)
		require.LessOrEqual(t, high, 1.2*wait+0.001)
		require.NotEqual(t, low, high, "jittered")
		h.makeDue()
	}
}

// makeDue makes waiting sagas due now, without triggers, since no role may do this.
func (h *hooks) makeDue() {
	h.t.Helper()
	conn, err := h.root.Acquire(context.Background())
	require.NoError(h.t, err)
	defer conn.Release()
	_, err = conn.Exec(context.Background(), `BEGIN; SET LOCAL session_replication_role = replica;
		UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() - interval '1 second' WHERE next_attempt_at > now(); COMMIT`)
	require.NoError(h.t, err)
}

func TestWebhookRetryAfterWithinBounds(t *testing.T) {
	for _, c := range []struct {
		code        string
		after, want time.Duration
	}{
		{"HTTP_429", 60 * time.Second, 60 * time.Second},
		{"HTTP_503", time.Second, 30 * time.Second},
		{"HTTP_429", time.Second, 30 * time.Second},
		{"HTTP_503", 24 * time.Hour, 500 * time.Second},
	} {
		t.Run(fmt.Sprint(c.code, c.after), func(t *testing.T) {
			h := newHooks(t)
			h.subscribe("order")
			h.flag("webhook.retry_schedule", "30s 1m 100s")
			h.flag("webhook.retry_after_cap_seconds", "500")
			h.emit("order", 1)
			h.step()
			leases := h.claim(1)
			r := result(leases[0], c.code)
			r["retry_after"] = one[time.Time](h, "SELECT now()").Add(c.after)
			require.Equal(t, []string{"done"}, h.report(r))
			require.Equal(t, 1, num(h.step(), "retried"))
			got := one[float64](h, "SELECT extract(epoch FROM next_attempt_at - updated_at)::float8 FROM public.webhook_delivery_sagas")
			require.InDelta(t, c.want.Seconds(), got, 10, "the clock ran a little between report and settling")
		})
	}
}

func TestWebhookIllegalSagaEdges(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	states := []string{"Pending", "InProgress", "PendingRetry", "Completed", "DeadLettered"}
	legal := map[string]bool{"Pending>InProgress": true, "PendingRetry>InProgress": true,
		"InProgress>Completed": true, "InProgress>PendingRetry": true, "InProgress>DeadLettered": true}
	const set = `UPDATE public.webhook_delivery_sagas SET status = $1::public.webhook_saga_status,
		attempt_count = attempt_count + ($1 IN ('PendingRetry', 'DeadLettered'))::int,
		next_attempt_at = CASE WHEN $1 IN ('Pending', 'PendingRetry') THEN now() END,
		final_error_code = CASE WHEN $1 = 'DeadLettered' THEN 'TIMEOUT' END WHERE status = $2::public.webhook_saga_status`
	for _, from := range states {
		for _, to := range states {
			h.emit("order", 1)
			h.route()
			h.exec("ALTER TABLE public.webhook_delivery_sagas DISABLE TRIGGER USER")
			h.exec(`UPDATE public.webhook_delivery_sagas SET status = $1::public.webhook_saga_status,
				next_attempt_at = CASE WHEN $1 IN ('Pending', 'PendingRetry') THEN now() END,
				final_error_code = CASE WHEN $1 = 'DeadLettered' THEN 'TIMEOUT' END WHERE status = 'Pending'`, from)
			h.exec("ALTER TABLE public.webhook_delivery_sagas ENABLE TRIGGER USER")
			h.exec("ALTER TABLE public.webhook_delivery_sagas DISABLE TRIGGER trg_saga_needs_letter")
			err := h.asOwner(set, to, from)
			if legal[from+">"+to] {
				require.NoError(t, err, from+">"+to)
			} else {
				refused(t, "42501", err, from+">"+to)
			}
			h.exec("ALTER TABLE public.webhook_delivery_sagas DISABLE TRIGGER USER")
			h.exec("DELETE FROM public.webhook_delivery_sagas")
			h.exec("ALTER TABLE public.webhook_delivery_sagas ENABLE TRIGGER USER")
		}
	}

	h.emit("order", 1)
	h.route()
	for _, change := range []string{"event_id = event_id + 1", "subscription_id = 99", "created_at = now()",
		"requeue_generation = 1", "attempt_count = 1", "updated_at = now()", "id = DEFAULT"} {
		refused(t, "42501", h.asOwner("UPDATE public.webhook_delivery_sagas SET "+change), change)
	}
	refused(t, "42501", h.asOwner("UPDATE public.webhook_delivery_sagas SET status = 'InProgress', next_attempt_at = NULL, attempt_count = 1"), "attempt at start")
	for _, born := range []string{"'Completed', 0, NULL", "'Pending', 1, now()", "'InProgress', 0, NULL"} {
		refused(t, "42501", h.asOwner(fmt.Sprintf(`INSERT INTO public.webhook_delivery_sagas
			(event_id, subscription_id, status, attempt_count, next_attempt_at) SELECT max(id), %d, %s FROM public.events`, sub, born)), born)
	}
}

func TestWebhookDeadWithoutDeadLetterFails(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	refused(t, "42501", h.asOwner(`UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', attempt_count = 1,
		final_error_code = 'TIMEOUT'`), "dead without a dead letter")
}

func TestWebhookJobsOfEndedSagas(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 1)
	require.Len(t, deadLetters, 1)
	h.subscribe("other")
	h.emit("other", 1)
	h.step()
	h.finish("", h.claim(1)...)
	h.step()
	for _, status := range []string{"DeadLettered", "Completed"} {
		refused(t, "42501", h.asOwner(`INSERT INTO public.webhook_delivery_jobs (saga_id, attempt_no)
			SELECT id, 9 FROM public.webhook_delivery_sagas WHERE status = $1::public.webhook_saga_status`, status), status)
	}
	h.emit("other", 1)
	h.step()
	err := h.asOwner(`INSERT INTO public.webhook_delivery_jobs (saga_id, attempt_no)
		SELECT id, 9 FROM public.webhook_delivery_sagas WHERE status = 'InProgress'`)
	refused(t, "23505", err, "a second active job")

	h.finish("", h.claim(1)...)
	ending, err := h.work.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = ending.Rollback(context.Background()) }()
	_, err = ending.Exec(t.Context(), "SELECT public.fn_saga_orchestrator_run()")
	require.NoError(t, err)
	err = h.asOwner(`SET LOCAL lock_timeout = '50ms'; INSERT INTO public.webhook_delivery_jobs (saga_id, attempt_no)
		SELECT id, 9 FROM public.webhook_delivery_sagas WHERE status = 'InProgress'`)
	refused(t, "55P03", err, "it waits for the end of a saga that is ending")
}

func TestWebhookSettledJobsNeverChange(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	h.finish("HTTP_500", h.claim(1)...)
	refused(t, "42501", h.asOwner("UPDATE public.webhook_delivery_jobs SET error_code = 'TIMEOUT'"), "a finished result")
	refused(t, "42501", h.asOwner("UPDATE public.webhook_delivery_jobs SET error_code = 'TIMEOUT', settled_at = now()"), "a result while settling")
	h.call("public.fn_saga_orchestrator_run()")
	for _, change := range []string{"settled_at = NULL", "settled_at = now()", "status = 'Completed'", "took_ms = 1"} {
		refused(t, "42501", h.asOwner("UPDATE public.webhook_delivery_jobs SET "+change+" WHERE settled_at IS NOT NULL"), change)
	}
}

// A receiver that answers 429 costs its sagas no attempt, up to a hundred times each; from the
// 101st on, the answer counts as a failure.
func TestWebhookTooManyRequestsCostNothing(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.flag("webhook.max_attempts", "2")
	h.flag("webhook.circuit_failures", "0")
	h.emit("order", 1)
	h.flag("webhook.retry_schedule", "1s")
	answer := func(code string, after time.Duration) {
		h.makeDue()
		h.step()
		leases := h.claim(1)
		require.Len(t, leases, 1)
		r := result(leases[0], code)
		if after > 0 {
			r["retry_after"] = one[time.Time](h, "SELECT now()").Add(after)
		}
		require.Equal(t, []string{"done"}, h.report(r))
		h.call("public.fn_saga_orchestrator_run()")
	}
	for range 100 {
		answer("HTTP_429", 0)
	}
	stands := func() string {
		return one[string](h, `SELECT concat_ws(' ', s.status, s.attempt_count, count(*), max(j.attempt_no))
			FROM public.webhook_delivery_sagas s JOIN public.webhook_delivery_jobs j ON j.saga_id = s.id GROUP BY s.id`)
	}
	require.Equal(t, "PendingRetry 0 100 100", stands())
	answer("HTTP_429", time.Second)
	require.Equal(t, "PendingRetry 1 101 101", stands())
	answer("HTTP_500", 0)
	require.Equal(t, "DeadLettered 2 102 102", stands())
}

// After a 429 without Retry-After the delivery waits by the schedule, but never longer than a
// circuit does; after one with Retry-After it waits as long as that says, up to a separate cap.
func TestWebhookTooManyRequestsWait(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.flag("webhook.retry_schedule", "10s 1d")
	h.flag("webhook.circuit_failures", "0")
	for _, c := range []struct{ after, low, high time.Duration }{
		{0, 8 * time.Second, 12 * time.Second},
		{0, 900 * time.Second, 900 * time.Second},
		{time.Hour, time.Hour - time.Minute, time.Hour},
		{48 * time.Hour, 6 * time.Hour, 6 * time.Hour},
	} {
		if num(h.call("jsonb_build_object('n', (SELECT count(*) FROM public.events))"), "n") == 0 {
			h.emit("order", 1)
		}
		h.step()
		leases := h.claim(1)
		require.Len(t, leases, 1)
		r := result(leases[0], "HTTP_429")
		if c.after > 0 {
			r["retry_after"] = one[time.Time](h, "SELECT now()").Add(c.after)
		}
		require.Equal(t, []string{"done"}, h.report(r))
		h.call("public.fn_saga_orchestrator_run()")
		waits := one[float64](h, "SELECT extract(epoch FROM next_attempt_at - updated_at)::float8 FROM public.webhook_delivery_sagas")
		require.GreaterOrEqual(t, waits, c.low.Seconds())
		require.LessOrEqual(t, waits, c.high.Seconds()+0.001)
		h.makeDue()
	}
}

// A saga whose lease is lost for the third time becomes a dead letter, however many attempts are
// left.
func TestWebhookLostLeasesEndASaga(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	h.claim(1)
	for range 3 {
		h.expireLeases()
		h.call("public.fn_lease_reset_cleaner_run()")
		h.claim(1)
	}
	require.Equal(t, 1, num(h.call("public.fn_saga_orchestrator_run()"), "dead_lettered"))
	require.Equal(t, "LEASE_LOST_LIMIT 1", one[string](h, "SELECT final_error_code || ' ' || attempt_count FROM public.webhook_delivery_sagas"))
}

// Each failed probe doubles the time for which a circuit is open, up to the flag's limit.
func TestCircuitGrows(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.flag("webhook.max_attempts", "100")
	h.flag("webhook.circuit_failures", "1")
	h.flag("webhook.circuit_open_seconds", "30")
	h.flag("webhook.circuit_max_seconds", "200")
	h.emit("order", 1)
	for _, want := range []float64{30, 60, 120, 200, 200} {
		h.step()
		h.finish("TIMEOUT", h.claim(1)...)
		require.InDelta(t, want, one[float64](h, "SELECT extract(epoch FROM until - now())::float8 FROM public.webhook_endpoint_suspensions WHERE reason = 'circuit'"), 5)
		h.exec("UPDATE public.webhook_endpoint_suspensions SET since = now() - interval '1 hour', until = now() - interval '1 second'")
		h.makeDue()
	}
	h.step()
	h.finish("", h.claim(1)...)
	require.Zero(t, one[int](h, "SELECT count(*)::int FROM public.webhook_endpoint_suspensions"), "a success closes it")
	h.emit("order", 1)
	h.step()
	h.finish("TIMEOUT", h.claim(1)...)
	require.InDelta(t, 30, one[float64](h, "SELECT extract(epoch FROM until - now())::float8 FROM public.webhook_endpoint_suspensions WHERE subscription_id = $1", sub), 5, "the next one begins anew")
}

// An endpoint that has only failed for days is suspended, and an alert is raised.
func TestFailingEndpointIsSuspended(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.flag("webhook.max_attempts", "100")
	h.flag("webhook.circuit_failures", "3")
	h.flag("webhook.circuit_open_seconds", "0")
	h.emit("order", 2)
	fail := func() {
		h.step()
		h.finish("TIMEOUT", h.claim(1)...)
		h.makeDue()
	}
	older := func(days int) {
		require.NoError(t, h.asOwner(fmt.Sprintf("UPDATE public.webhook_endpoint_state SET failing_since = now() - interval '%d days'", days)))
	}
	fail()
	older(4)
	fail()
	require.Zero(t, one[int](h, "SELECT count(*)::int FROM public.v_queue_alert WHERE kind = 'failing'"))
	older(5)
	fail()
	require.Equal(t, "failing t", one[string](h, "SELECT concat_ws(' ', reason, until IS NULL) FROM public.webhook_endpoint_suspensions WHERE subscription_id = $1", sub))
	h.step()
	require.Empty(t, h.claim(10), "nothing is sent")
	require.Equal(t, fmt.Sprintf("failing:%d critical open", sub), one[string](h, "SELECT concat_ws(' ', subject, severity, state) FROM public.v_queue_alert WHERE kind = 'failing'"))
	h.call("public.fn_queue_alert_ack($1, 'ann', 'the vendor knows', '1 hour')", fmt.Sprintf("failing:%d", sub))
	require.Equal(t, "acked ann", one[string](h, "SELECT concat_ws(' ', state, acked_by) FROM public.v_queue_alert WHERE kind = 'failing'"))
	over := func() string {
		return one[string](h, "SELECT public.fn_queue_alert_acks_end(NULL, '{}') || ' ' || (SELECT count(*) FROM public.v_queue_alert WHERE kind = 'failing')")
	}
	require.Equal(t, "0 1", over())
	h.exec("UPDATE public.subscriptions SET active = false WHERE id = $1", sub)
	require.Equal(t, "1 0", over(), "no alert about a subscription that is disabled")
	require.Equal(t, "ended", one[string](h, "SELECT cleared_reason FROM public.queue_alert_ack"))
	h.exec("UPDATE public.subscriptions SET active = true WHERE id = $1", sub)
	require.Equal(t, "0 1", over(), "it is suspended as before")
	h.call("public.fn_queue_alert_ack($1, 'ann', 'the vendor knows', '1 hour')", fmt.Sprintf("failing:%d", sub))
	h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'it answers')", sub)
	require.Equal(t, "resumed", one[string](h, "SELECT cleared_reason FROM public.queue_alert_ack ORDER BY ack_id DESC LIMIT 1"))
	require.Zero(t, one[int](h, "SELECT count(*)::int FROM public.v_queue_alert WHERE kind = 'failing'"))
	fail()
	require.Zero(t, one[int](h, "SELECT count(*)::int FROM public.webhook_endpoint_suspensions WHERE reason = 'failing'"), "its days begin anew")
}

// A receiver that is down for half an hour, or answers 429 for an hour, loses no webhook. The test
// does not wait, but sets all times back and adds up the waits.
func TestReceiverComesBack(t *testing.T) {
	for _, c := range []struct {
		code   string
		down   time.Duration
		events int
	}{
		{"HTTP_503", 30 * time.Minute, 1}, {"HTTP_503", 30 * time.Minute, 20}, {"CONNECTION_REFUSED", 30 * time.Minute, 20},
		{"HTTP_429", time.Hour, 1}, {"HTTP_429", time.Hour, 20},
	} {
		t.Run(fmt.Sprint(c.code, " ", c.events), func(t *testing.T) {
			h := newHooks(t)
			h.subscribe("order")
			h.exec("UPDATE public.dot_config c SET value = r.default_value FROM public.dot_config_rule r WHERE r.key = c.key AND c.key LIKE 'webhook.%'")
			h.emit("order", c.events)
			passed := time.Duration(0)
			for passed < c.down {
				h.step()
				h.finish(c.code, h.claim(100)...)
				h.call("public.fn_saga_orchestrator_run()")
				next := one[float64](h, `SELECT greatest(0, extract(epoch FROM least((SELECT min(next_attempt_at) FROM public.webhook_delivery_sagas WHERE status = 'PendingRetry'),
					'infinity'::timestamptz) - now()), (SELECT extract(epoch FROM until - now()) FROM public.webhook_endpoint_suspensions))::float8`)
				passed += time.Duration(next * float64(time.Second))
				ago := fmt.Sprintf("interval '%f seconds'", next+0.01)
				require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_suspensions SET since = since - "+ago+", until = until - "+ago))
				h.unguarded("webhook_delivery_sagas", "UPDATE public.webhook_delivery_sagas SET next_attempt_at = next_attempt_at - "+ago+" WHERE next_attempt_at IS NOT NULL")
			}
			require.Zero(t, one[int](h, "SELECT count(*) FROM public.dead_letters"))
			t.Logf("%s for %v: at most %d attempts of 10 were spent, in %d requests", c.code, passed.Round(time.Second),
				one[int](h, "SELECT max(attempt_count) FROM public.webhook_delivery_sagas"), one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Failed'"))
			for range 30 {
				h.makeDue()
				h.step()
				h.finish("", h.claim(100)...)
			}
			h.step()
			require.Equal(t, c.events, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE status = 'Completed'"))
		})
	}
}
