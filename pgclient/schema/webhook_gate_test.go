// The conditions that block deliveries: suspensions, circuits, rates. Also: the router skips no
// event and routes none twice.

package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestWebhookSuspensionSpendsNoAttempt(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 3)
	h.step()
	held := h.claim(1)
	got := h.call("public.fn_endpoint_suspend($1, 'ann', 'receiver down')", sub)
	require.Nil(t, got["refused"], got)
	h.emit("order", 2)
	require.Zero(t, num(h.step(), "jobs_created"), "no job is made")
	require.Empty(t, h.claim(10), "no job is claimed")
	require.Equal(t, "done", one[string](h, "SELECT outcome FROM public.fn_webhook_job_release($1, $2)",
		[]int64{held[0].Job}, []string{held[0].Token}))
	require.Empty(t, h.claim(10), "what came back waits too")
	require.Equal(t, 5, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE attempt_count = 0"))
	require.Equal(t, "operator ann suspended 5", one[string](h, `SELECT concat_ws(' ', suspended_reason, suspended_by, gate, waiting)
		FROM public.v_webhook_endpoint`))

	again := h.call("public.fn_endpoint_suspend($1, 'ben', 'me too')", sub)
	require.Equal(t, true, again["refused"])
	require.Contains(t, again["reason"], "by ann since 20")
	require.Nil(t, h.call("public.fn_endpoint_resume($1, 'ben', 'it is back')", sub)["refused"])
	require.Equal(t, true, h.call("public.fn_endpoint_resume($1, 'ben', 'again')", sub)["refused"])
	require.Equal(t, 2, num(h.step(), "jobs_created"))
	require.Len(t, h.claim(10), 5)
	require.Equal(t, []string{"done", "refused: suspended", "done", "refused: not_suspended"}, one[[]string](h,
		"SELECT array_agg(outcome ORDER BY id) FROM public.queue_operator_action WHERE target = (SELECT format('webhook subscription 1 (%s)', endpoint) FROM public.subscriptions WHERE id = 1)"))
	_, err := tryCall(h.work, "public.fn_endpoint_suspend(99, 'ann', 'no such')")
	refused(t, "22023", err, "no such subscription")
	_, err = tryCall(h.work, "public.fn_endpoint_suspend(1, 'ann', 'x', '-1 hour')")
	refused(t, "22023", err, "a time behind")
	_, err = tryCall(h.work, "public.fn_endpoint_suspend(1, 'ann', 'x', '3654 days')")
	refused(t, "22023", err, "more than ten years")
	require.Nil(t, h.call("public.fn_endpoint_suspend($1, 'ann', 'long', '3650 days')", sub)["refused"])
}

func TestWebhookTimedSuspensionEnds(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 1)
	h.step()
	h.call("public.fn_endpoint_suspend($1, 'ann', 'short', '1 hour')", sub)
	require.Empty(t, h.claim(1))
	h.exec("UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'")
	require.Len(t, h.claim(1), 1, "over is over, also before a sweep")
	h.step()
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"))
}

// A suspension also ends where the subscription was loaded without triggers, so that it has no
// endpoint state before qtop recount.
func TestWebhookSuspensionEndsWithoutState(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 101)
	h.step()
	h.call("public.fn_endpoint_suspend($1, 'ann', 'r', '1 hour')", sub)
	h.load("DELETE FROM public.webhook_endpoint_state")
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'"))
	h.claim(1)
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"))
	require.Equal(t, "127.0.0.1:1 its suspension ended 10", h.slowStart())
}

// Failures before a pause are no evidence after it: neither a suspension that ended by its time, nor a
// new URL, nor a time without any attempt makes the next failure suspend the endpoint for good.
func TestWebhookFailuresBeforeAPause(t *testing.T) {
	for name, c := range map[string]struct{ pause, end string }{
		"suspension": {
			"INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'operator', now() + interval '6 days', 'ann')",
			"UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second' WHERE subscription_id = $1",
		},
		"switched off": {"UPDATE public.subscriptions SET active = false WHERE id = $1", "UPDATE public.subscriptions SET active = true WHERE id = $1"},
		"another URL":  {"", "UPDATE public.subscriptions SET callback_url = 'http://127.0.0.1:2/new' WHERE id = $1"},
		"no host":      {"UPDATE public.webhook_endpoint_state SET last_failure_at = now() - interval '6 days' WHERE subscription_id = $1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHooks(t)
			h.flag("webhook.circuit_failures", "10")
			sub := h.subscribe("order")
			h.emit("order", 2)
			h.step()
			require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET consecutive_failures = 9, last_failure_at = now(), failing_since = now() - interval '6 days' WHERE subscription_id = $1", sub))
			for _, sql := range []string{c.pause, c.end} {
				if sql != "" {
					require.NoError(t, h.asOwner(sql, sub))
				}
			}
			h.call("public.fn_saga_orchestrator_run()")
			leases := h.claim(1)
			require.Len(t, leases, 1)
			h.finish("HTTP_503", leases...)
			require.Equal(t, "0", one[string](h, "SELECT count(*)::text FROM public.webhook_endpoint_suspensions WHERE reason = 'failing'"))
			require.True(t, one[bool](h, "SELECT failing_since = last_failure_at FROM public.webhook_endpoint_state WHERE subscription_id = $1", sub))
			if name != "no host" {
				require.Equal(t, 1, one[int](h, "SELECT consecutive_failures FROM public.webhook_endpoint_state WHERE subscription_id = $1", sub))
			}
		})
	}
}

// Without a pause, an endpoint that only fails is suspended.
func TestWebhookFailingEndpoint(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 1)
	h.step()
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET consecutive_failures = 9, last_failure_at = now() - interval '2 days', failing_since = now() - interval '6 days' WHERE subscription_id = $1", sub))
	h.finish("HTTP_503", h.claim(1)...)
	require.Equal(t, "failing", one[string](h, "SELECT reason FROM public.webhook_endpoint_suspensions WHERE until IS NULL"))
}

// The orchestrator returns when it has to run next: when a saga behind an open gate becomes due, or a
// suspension ends.
func TestWebhookNextDue(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	next := func() any {
		got := h.step()
		if got["next_due"] != nil {
			return one[string](h, "SELECT CASE $1::timestamptz WHEN s.next_attempt_at THEN 'saga' WHEN x.until THEN 'suspension' END FROM public.webhook_delivery_sagas s LEFT JOIN public.webhook_endpoint_suspensions x ON true",
				got["next_due"])
		}
		return nil
	}
	require.Nil(t, next())
	h.flag("webhook.retry_schedule", "1h")
	h.emit("order", 1)
	require.Nil(t, next(), "its job is made")
	h.finish("HTTP_503", h.claim(1)...)
	require.Equal(t, "saga", next())
	h.call("public.fn_endpoint_suspend($1, 'ann', 'r', '3 hours')", sub)
	require.Equal(t, "suspension", next())
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_suspensions SET until = NULL"))
	require.Nil(t, next(), "no gate opens by itself")
	h.call("public.fn_endpoint_resume($1, 'ann', 'r')", sub)
	require.Equal(t, "saga", next())
	h.exec("UPDATE public.subscriptions SET active = false")
	require.Nil(t, next())
}

func TestWebhookInactiveOrUnverifiedWaits(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	for _, column := range []string{"active", "verified"} {
		h.exec("UPDATE public.subscriptions SET " + column + " = false")
		require.Empty(t, h.claim(1), column)
		h.exec("UPDATE public.subscriptions SET " + column + " = true")
	}
	require.Len(t, h.claim(1), 1)
	h.exec("UPDATE public.subscriptions SET verified = false")
	h.emit("order", 1)
	h.route()
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas"), "only verified ones get sagas")
}

func TestWebhookCircuit(t *testing.T) {
	h := newHooks(t)
	h.flag("webhook.circuit_failures", "3")
	h.flag("webhook.max_attempts", "100")
	h.subscribe("order")
	h.emit("order", 10)
	h.step()
	leases := h.claim(6)
	h.finish("TIMEOUT", leases[0], leases[1])
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"))
	h.finish("", leases[2])
	h.finish("TIMEOUT", leases[3], leases[4])
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"), "a success starts the count again")
	h.finish("TIMEOUT", leases[5])
	require.Equal(t, "circuit", one[string](h, "SELECT reason FROM public.webhook_endpoint_suspensions WHERE until > now()"))
	require.Empty(t, h.claim(10))
	require.Zero(t, num(h.step(), "jobs_created"))
	over := func() {
		h.exec("UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'")
	}

	over()
	require.Equal(t, "half_open", one[string](h, "SELECT gate FROM public.v_webhook_gate"))
	require.Zero(t, num(h.step(), "jobs_created"), "a job to probe with is there")
	probe := h.claim(10)
	require.Len(t, probe, 1, "one probe at a time")
	require.Empty(t, h.claim(10))
	h.finish("TIMEOUT", probe...)
	require.True(t, one[bool](h, "SELECT until > now() AND probe_job_id IS NULL FROM public.webhook_endpoint_suspensions"), "open again")
	require.Empty(t, h.claim(10))

	over()
	probe = h.claim(10)
	require.Len(t, probe, 1)
	require.Equal(t, "done", one[string](h, "SELECT outcome FROM public.fn_webhook_job_release($1, $2)",
		[]int64{probe[0].Job}, []string{probe[0].Token}))
	probe = h.claim(10)
	require.Len(t, probe, 1, "a probe handed back makes room for another")
	h.expireLeases()
	h.call("public.fn_lease_reset_cleaner_run()")
	probe = h.claim(10)
	require.Len(t, probe, 1, "and so does a lost one")
	h.finish("", probe...)
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"), "a success closes it")
	h.step()
	require.Len(t, h.claim(20), 8)
}

// While a circuit is open, a higher threshold leaves the pause between its probes, and without a
// threshold the next result closes it.
func TestWebhookCircuitWithAnotherThreshold(t *testing.T) {
	for _, threshold := range []string{"50", "0"} {
		t.Run(threshold, func(t *testing.T) {
			h := newHooks(t)
			h.flag("webhook.circuit_failures", "3")
			h.subscribe("order")
			h.emit("order", 10)
			h.step()
			h.finish("TIMEOUT", h.claim(3)...)
			require.Empty(t, h.claim(10), "open")
			h.step()
			h.flag("webhook.circuit_failures", threshold)
			for range 2 {
				h.exec("UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'")
				probe := h.claim(1)
				require.Len(t, probe, 1)
				h.finish("TIMEOUT", probe...)
				if threshold == "0" {
					require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"))
					continue
				}
				require.Equal(t, "circuit 3 failures in a row", one[string](h, "SELECT reason || ' ' || note FROM public.webhook_endpoint_suspensions WHERE until > now()"))
				require.Empty(t, h.claim(10), "the pause after a failed probe")
			}
			if threshold == "50" {
				require.Equal(t, 2, one[int](h, "SELECT failed_probes FROM public.webhook_endpoint_suspensions"))
			}
		})
	}
}

func TestWebhookRateLimit(t *testing.T) {
	h := newHooks(t)
	limited, free := h.subscribe("slow"), h.subscribe("fast")
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = 5 WHERE id = $1", limited)
	h.emit("slow", 50)
	h.emit("fast", 3)
	h.step()
	first := map[int64]int{}
	for _, l := range append(h.claim(100), h.claim(100)...) {
		first[l.Subscribed]++
	}
	require.Equal(t, 3, first[free], "the others are not slowed")
	require.Positive(t, first[limited])
	require.LessOrEqual(t, first[limited], 2, "a slice of the rate, not a second of it")

	// over a longer time the rate is kept, however many claimers there are and however much is due
	started := time.Now()
	n := first[limited]
	chances, last := 0, started // claims that find a token, because the one before was 0.2 s earlier
	for time.Since(started) < 2*time.Second {
		began := time.Now()
		n += len(h.claim(1))
		n += len(h.claim(100))
		if began.Sub(last) >= time.Second/5 {
			chances, last = chances+1, time.Now()
		}
	}
	took := time.Since(one[time.Time](h, "SELECT min(started_at) FROM public.webhook_delivery_jobs WHERE subscription_id = $1", limited))
	require.LessOrEqual(t, float64(n), 5*took.Seconds()+2)
	require.GreaterOrEqual(t, n, min(8, chances))
}

// fn_webhook_rate_limit_set sets and lifts a rate limit, which the next claim applies, also to
// deliveries that were waiting. It refuses other values than numbers within the bounds, and audits
// changes and refusals.
func TestWebhookRateLimitIsSet(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("slow")
	admin := h.db.Pool(t, pgtest.Login(t, h.db, "subscription_admin"))
	set := func(perSecond, more string) map[string]any {
		t.Helper()
		return call(t, admin, "public.fn_webhook_rate_limit_set($1, "+perSecond+", 'ann', 'overloaded'"+more+")", sub)
	}
	h.emit("slow", 20)
	h.step()
	require.EqualValues(t, 20, set("0.00001", ", true")["waiting"])
	require.Len(t, h.claim(2), 2, "a dry run changes nothing")

	got := set("0.00001", ", false, 0")
	require.Nil(t, got["before"])
	require.InDelta(t, 0.00001, got["after"], 0)
	h.step() // from now on the limit applies to the jobs that were made before
	require.Len(t, h.claim(100), 1)
	require.Empty(t, h.claim(100), "the next token comes tomorrow")
	set("1000000", ", false, 0.00001")
	require.Len(t, h.claim(5), 5, "a greater limit applies at once")
	set("0.00001", "")
	kept := len(h.claim(100)) + len(h.claim(100)) + len(h.claim(100))
	require.LessOrEqual(t, kept, 2, "and so does a smaller one: a bucket in use keeps up to one token more for 250 ms")
	require.Nil(t, set("NULL", "")["after"])
	require.Len(t, h.claim(100), 12-kept, "and none")

	require.Equal(t, "unchanged", set("NULL", "")["rule"])
	require.Equal(t, "changed", set("5", ", false, 20")["rule"])
	require.Equal(t, "changed", set("5", ", true, 20")["rule"])
	set("5", "")
	require.Equal(t, "changed", set("7", ", false, 0")["rule"], "0 expects no limit")
	require.Equal(t, "not_found", call(t, admin, "public.fn_webhook_rate_limit_set(99, 5, 'ann', 'r')")["rule"])
	for _, bad := range []string{"'NaN'", "'infinity'", "'-infinity'", "-1", "0", "1e-300", "0.000009", "1000001"} {
		for _, sql := range []string{"SELECT public.fn_webhook_rate_limit_set($1, (%s)::double precision, 'ann', 'r')", "UPDATE public.subscriptions SET rate_limit_per_second = %s WHERE id = $1"} {
			fails(t, admin, "22023", fmt.Sprintf(sql, bad), sub)
		}
	}
	fails(t, admin, "22023", "SELECT public.fn_webhook_rate_limit_set(NULL, 5, 'ann', 'r')")
	fails(t, admin, "22023", "SELECT public.fn_webhook_rate_limit_set($1, 6, 'ann', '')", sub)
	fails(t, h.db.Pool(t, pgtest.Login(t, h.db, "dead_letter_operator", "queue_viewer")), "42501", "SELECT public.fn_webhook_rate_limit_set($1, 6, 'eve', 'r')", sub)
	require.InDelta(t, 5, one[float64](h, "SELECT rate_limit_per_second FROM public.subscriptions"), 0)
	require.Equal(t, []string{
		"done → 0.00001", "done 0.00001 → 1000000", "done 1000000 → 0.00001", "done 0.00001 →", "refused: unchanged →", "refused: changed →", "done → 5", "refused: changed →", "refused: not_found →",
	}, one[[]string](h, `SELECT array_agg(concat_ws(' ', outcome, before ->> 'rate_limit_per_second', '→', after ->> 'rate_limit_per_second') ORDER BY id)
		FROM public.queue_operator_action WHERE action = 'webhook_rate_limit_set'`))
}

// Hosts that claim at least every 250 ms get a rate in full. A bucket that nobody used holds a slice of
// 250 ms, at least one request, and the fraction of a request that the last claim left.
func TestWebhookBucket(t *testing.T) {
	h := newHooks(t)
	require.Empty(t, one[string](h, `WITH RECURSIVE claim AS (
			SELECT rate, every, 0 AS n, 0::float8 AS tokens, 0::float8 AS sent, timestamptz '2026-01-01Z' AS at, timestamptz '2026-01-01Z' AS refilled_at
			FROM unnest('{0.5,1,2.5,3,3.9,4,5,7,9,50.5,400}'::float8[]) rate, unnest('{0.05,0.15,0.25}'::float8[]) every
			UNION ALL
			SELECT c.rate, c.every, c.n + 1, CASE WHEN b.tokens < 1 THEN c.tokens ELSE b.tokens - floor(b.tokens) END, c.sent + floor(b.tokens),
				b.at, CASE WHEN b.tokens < 1 THEN c.refilled_at ELSE b.at END
			FROM claim c, LATERAL (SELECT x.at, public.fn_webhook_tokens(c.tokens, c.refilled_at, c.rate, x.at) AS tokens
				FROM (VALUES (c.at + make_interval(secs => c.every))) x (at)) b
			WHERE c.n < 60 / c.every)
		SELECT COALESCE(string_agg(format('%s at a rate of %s, claimed every %s s', sent, rate, every), '; '), '') FROM claim
		WHERE n >= 60 / every AND sent NOT BETWEEN 60 * rate - 2 AND 60 * rate + 1`))
	for _, c := range []struct {
		rate string
		idle string
		want int
	}{{"0.00001", "10 days", 1}, {"3", "10 seconds", 1}, {"5", "10 seconds", 1}, {"10", "10 seconds", 2}, {"40", "10 seconds", 10}} {
		name := "rate " + c.rate
		sub := h.subscribe(name)
		h.exec("UPDATE public.subscriptions SET rate_limit_per_second = $1::float8 WHERE id = $2", c.rate, sub)
		h.emit(name, 20)
		h.step()
		require.NoError(t, h.asOwner("UPDATE public.webhook_rate_bucket SET tokens = 0, refilled_at = now() - $1::interval WHERE subscription_id = $2", c.idle, sub))
		require.Len(t, h.claim(100), c.want, name)
		if c.rate == "0.00001" {
			require.NoError(t, h.asOwner("UPDATE public.webhook_rate_bucket SET refilled_at = refilled_at - interval '100 seconds'"))
			require.Empty(t, h.claim(100), "the next one is due after a day")
		}
		h.exec("UPDATE public.subscriptions SET active = false WHERE id = $1", sub)
	}
}

func TestWebhookFractionalRate(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("slow")
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = 0.1 WHERE id = $1", sub)
	h.emit("slow", 3)
	h.step()
	require.Len(t, h.claim(10), 1)
	require.Empty(t, h.claim(10))
	h.exec("UPDATE public.webhook_rate_bucket SET refilled_at = refilled_at - interval '10 seconds'")
	require.Len(t, h.claim(10), 1)
}

func TestWebhookLateCommitIsNotSkipped(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	ctx := context.Background()
	late, err := h.root.Begin(ctx)
	require.NoError(t, err)
	defer late.Rollback(ctx)
	_, err = late.Exec(ctx, `INSERT INTO public.events (event_type, payload) VALUES ('order', '"late"')`)
	require.NoError(t, err)
	h.emit("order", 5)
	got := h.call("public.fn_webhook_router_run()")
	require.Equal(t, 5, num(got, "events"), "an open transaction delays its own events alone")
	require.NoError(t, late.Commit(ctx))
	require.Equal(t, 1, h.route())
	require.Zero(t, h.route())
	require.Equal(t, 6, one[int](h, "SELECT events_seen FROM public.router_offsets"))
}

func TestWebhookRoutingTwiceMakesNoSecondSaga(t *testing.T) {
	h := newHooks(t)
	h.die("dead", 1)
	h.subscribe("order")
	h.emit("order", 3)
	h.route()
	h.exec("DELETE FROM public.queue_cursor")
	h.exec("UPDATE public.router_offsets SET last_xid = '0', last_event_id = 0")
	require.Zero(t, h.route())
	_, err := h.work.Exec(context.Background(), `INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id)
		SELECT event_id, subscription_id FROM public.dead_letters`)
	refused(t, "42501", err, "a second saga beside a dead letter")
}

func TestWebhookOnlyOneRouterAtATime(t *testing.T) {
	h := newHooks(t)
	ctx := context.Background()
	tx, err := h.work.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, "SELECT public.fn_webhook_router_run()")
	require.NoError(t, err)
	require.Equal(t, "busy", h.call("public.fn_webhook_router_run()")["skipped"])
}

func TestWebhookOlderEventsAreNotForNewSubscriptions(t *testing.T) {
	h := newHooks(t)
	h.emit("order", 2)
	h.subscribe("order")
	_, err := h.work.Exec(context.Background(), `INSERT INTO public.subscriptions (event_type, callback_url, verified, created_at)
		VALUES ('order', 'http://b', true, '2000-01-01')`)
	require.NoError(t, err)
	h.emit("order", 1)
	require.Equal(t, 2, h.route(), "one event for two subscriptions")
	require.Equal(t, 1, one[int](h, "SELECT count(DISTINCT event_id) FROM public.webhook_delivery_sagas"))
}

func TestWebhookRestoredIntoAnotherCluster(t *testing.T) {
	for _, limit := range []string{"1000", "2"} {
		t.Run("limit "+limit, func(t *testing.T) {
			h := newHooks(t)
			h.subscribe("order")
			h.emit("order", 5)
			h.route()
			h.emit("order", 3)
			// as after a restore: another system identifier, and transaction ids far ahead, with
			// the position of the router between them
			_, err := h.root.Exec(context.Background(), `BEGIN; SET LOCAL session_replication_role = replica;
				UPDATE public.events SET created_xid = (9000000000 + id)::text::xid8;
				UPDATE public.queue_cursor SET routed = '9000000001:9000000006:9000000003', batch = '9000000001:9000000006:',
					batch_xid = '9000000003', batch_id = '3';
				UPDATE public.router_offsets SET system_identifier = 1; COMMIT`)
			require.NoError(t, err)
			h.emit("order", 2)
			drain := func() (sagas int) {
				for deadline := time.Now().Add(30 * time.Second); ; {
					got := h.call("public.fn_webhook_router_run(" + limit + ")")
					sagas += num(got, "sagas")
					if num(got, "events") == 0 && got["skipped"] == nil &&
						one[bool](h, "SELECT restored_after_id IS NULL FROM public.router_offsets") {
						return sagas
					}
					require.True(t, time.Now().Before(deadline), "%v", got)
				}
			}
			require.Equal(t, 5, drain())
			require.Equal(t, 10, one[int](h, "SELECT events_seen FROM public.router_offsets"), "what the old offset had passed is left out")
			h.emit("order", 4)
			require.Equal(t, 4, drain())
			require.Equal(t, 14, one[int](h, "SELECT count(DISTINCT event_id) FROM public.webhook_delivery_sagas"))
		})
	}
}
