// Slow starts: after any block, the backlog of an endpoint is sent at a rate that rises step by
// step. The rate is shared by all subscriptions of the endpoint, and other endpoints are not
// delayed.

package schema_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// slowStart returns endpoint, reason and rate of the only slow start; "" = there is none.
func (h *hooks) slowStart() string {
	h.t.Helper()
	return one[string](h, "SELECT COALESCE((SELECT concat_ws(' ', endpoint, why, rate) FROM public.webhook_slow_start), '')")
}

// slice refills the token bucket of the slow start and claims: it returns at most one slice, a
// quarter of a second of the rate.
func (h *hooks) slice() []lease {
	h.t.Helper()
	require.NoError(h.t, h.asOwner("UPDATE public.webhook_slow_start SET refilled_at = '-infinity'"))
	return h.claim(1000)
}

// stepped makes the current step 10 s older and runs the orchestrator.
func (h *hooks) stepped() {
	h.t.Helper()
	require.NoError(h.t, h.asOwner("UPDATE public.webhook_slow_start SET step_at = step_at - interval '10 seconds'"))
	h.call("public.fn_saga_orchestrator_run()")
}

func TestSlowStartAfterEveryBlockade(t *testing.T) {
	const suspended = "INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES "
	for _, c := range []struct {
		name, block, release, why string
		owner                     bool // true: run release as the owner
	}{
		{"resume", suspended + "(1, 'operator', NULL, 'eve')", "SELECT public.fn_endpoint_resume(1::bigint, 'ann', 'mended')", "its suspension ended", false},
		{"the time of a suspension is over", suspended + "(1, 'operator', now() + interval '1 hour', 'eve')", "UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'", "its suspension ended", true},
		{"subscription is switched on", "UPDATE public.subscriptions SET active = false", "UPDATE public.subscriptions SET active = true", "its subscription was changed", true},
		{"another receiver", "UPDATE public.subscriptions SET active = false", "UPDATE public.subscriptions SET active = true, callback_url = 'http://127.0.0.1:1/new'", "its subscription was changed", true},
		{"rate limit lifted", "UPDATE public.subscriptions SET rate_limit_per_second = 1", "UPDATE public.subscriptions SET rate_limit_per_second = NULL", "its subscription was changed", true},
		{"flag", "UPDATE public.dot_config SET value = 'false' WHERE key = 'webhook.worker.enabled'", "SELECT public.fn_dot_config_set('webhook.worker.enabled', 'true', 'ann', 'mended')", "webhook.worker.enabled was switched on", false},
		{"flag by hand", "UPDATE public.dot_config SET value = 'off ' WHERE key = 'webhook.worker.enabled'", "UPDATE public.dot_config SET value = 'true' WHERE key = 'webhook.worker.enabled'", "webhook.worker.enabled was switched on", true},
		{
			"paused orchestrator", "UPDATE public.dot_config SET value = '0' WHERE key = 'queue.tick.saga_orchestrator.interval_seconds'",
			"SELECT public.fn_dot_config_set('queue.tick.saga_orchestrator.interval_seconds', '5', 'ann', 'mended')", "queue.tick.saga_orchestrator.interval_seconds was switched on", false,
		},
		{"hosts come back", "UPDATE public.queue_tick_worker SET last_run_at = now() - interval '2 minutes' WHERE worker_name = 'webhook_worker'", "SELECT public.fn_webhook_worker_tick()", "no host sent webhooks for a minute", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHooks(t)
			h.subscribe("e")
			h.emit("e", 101)
			h.route()
			require.NoError(t, h.asOwner(c.block))
			require.Empty(t, h.slowStart())
			if c.owner {
				require.NoError(t, h.asOwner(c.release))
			} else {
				h.exec(c.release)
			}
			ls := h.claim(1000) // the claim alone may detect it
			if c.name != "the time of a suspension is over" {
				require.Equal(t, "127.0.0.1:1 "+c.why+" 10", h.slowStart())
			}
			require.LessOrEqual(t, len(ls), 2)
			h.call("public.fn_saga_orchestrator_run()")
			require.Equal(t, "127.0.0.1:1 "+c.why+" 10", h.slowStart())
			require.Len(t, h.slice(), 2, "a quarter of a second of ten")
			require.NoError(t, h.asOwner("UPDATE public.webhook_slow_start SET refilled_at = now() + interval '1 hour'"))
			require.Empty(t, h.claim(1000), "spent, and not refilled before its time")
		})
	}
}

// Hosts with a long interval of webhook_worker tick seldom; hosts that have sent within a minute were
// not absent.
func TestNoSlowStartWhileHostsSend(t *testing.T) {
	h := newHooks(t)
	h.subscribe("e")
	h.emit("e", 101)
	h.step()
	ticked := func(interval, ago string) string {
		t.Helper()
		h.flag("queue.tick.webhook_worker.interval_seconds", interval)
		require.NoError(t, h.asOwner("UPDATE public.queue_tick_worker SET last_run_at = now() - $1::interval WHERE worker_name = 'webhook_worker'", ago))
		h.call("public.fn_webhook_worker_tick()")
		return h.slowStart()
	}
	require.Empty(t, ticked("120", "2 minutes"), "the interval is longer than a minute")
	h.finish("", h.claim(1)...)
	require.Empty(t, ticked("1", "2 minutes"), "the interval was longer")
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET last_success_at = now() - interval '2 minutes'"))
	require.Empty(t, ticked("120", "3 minutes"))
	require.Equal(t, "127.0.0.1:1 no host sent webhooks for a minute 10", ticked("120", "5 minutes"))
}

// An UPDATE of several subscriptions locks their endpoint states in the order of their ids, as reports
// of results do, so that the two never deadlock.
func TestSubscriptionsAreReleasedInOrder(t *testing.T) {
	h := newHooks(t)
	ctx := context.Background()
	first, last := h.subscribe("a"), h.subscribe("b")
	h.exec("UPDATE public.subscriptions SET active = false WHERE id = $1", last) // the UPDATE below reads it first
	h.exec("UPDATE public.subscriptions SET active = false WHERE id = $1", first)
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET consecutive_failures = 3"))
	report, err := h.root.Begin(ctx)
	require.NoError(t, err)
	defer report.Rollback(ctx)
	_, err = report.Exec(ctx, "SELECT FROM public.webhook_endpoint_state WHERE subscription_id = $1 FOR UPDATE", first)
	require.NoError(t, err)
	released := make(chan error, 1)
	go func() {
		_, err := h.root.Exec(ctx, "UPDATE public.subscriptions SET active = true")
		released <- err
	}()
	require.Eventually(t, func() bool {
		return one[bool](h, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	}, time.Minute, 10*time.Millisecond)
	_, err = report.Exec(ctx, "SELECT FROM public.webhook_endpoint_state WHERE subscription_id = $1 FOR UPDATE NOWAIT", last)
	require.NoError(t, err)
	require.NoError(t, report.Rollback(ctx))
	require.NoError(t, <-released)
	require.Zero(t, one[int](h, "SELECT sum(consecutive_failures) FROM public.webhook_endpoint_state"))
}

// After a minute without hosts a slow start begins when one is registered, or records a heartbeat again,
// however long the interval of webhook_worker is.
func TestSlowStartWhenAHostComesBack(t *testing.T) {
	h := newHooks(t)
	h.subscribe("e")
	h.emit("e", 101)
	h.step()
	h.flag("queue.tick.webhook_worker.interval_seconds", "3600")
	login := h.db.Pool(t, pgtest.Login(t, h.db, "dot_executor"))
	register := func(id string) string {
		t.Helper()
		require.NotContains(t, call(t, login, "public.fn_queue_host_register($1, gen_random_uuid(), 'v', '{webhook_worker}')", id), "refused")
		return h.slowStart()
	}
	seen := func(ago string) {
		t.Helper()
		require.NoError(t, h.asOwner("UPDATE public.queue_host SET last_seen_at = now() - $1::interval, stopped_at = CASE WHEN stopped_at IS NOT NULL THEN now() - $1::interval END", ago))
	}
	require.Empty(t, register("h"), "no host has ever sent")
	require.NoError(t, h.asOwner("UPDATE public.queue_tick_worker SET last_run_at = now() - interval '10 minutes' WHERE worker_name = 'webhook_worker'"))
	seen("40 seconds")
	require.Empty(t, register("h"), "it was away for 40 s")
	seen("40 seconds")
	require.Empty(t, register("other"))
	seen("40 seconds")
	require.NoError(t, h.asOwner("UPDATE public.queue_host SET stopped_at = last_seen_at, loops = '{}'"))
	require.Empty(t, register("h"), "they stopped 40 s ago")
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET last_success_at = now() - interval '40 seconds'"))
	seen("2 minutes")
	require.Empty(t, register("h"), "somebody else sent")
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET last_success_at = now() - interval '2 minutes'"))
	seen("2 minutes")
	require.Equal(t, "127.0.0.1:1 no host sent webhooks for a minute 10", register("h"))

	// a host that could not reach the database for so long records a heartbeat
	beat := func() string {
		t.Helper()
		require.NotContains(t, call(t, login, "public.fn_queue_host_beat('h', $1, '{webhook_worker}', 0, '{}')",
			one[string](h, "SELECT instance::text FROM public.queue_host WHERE host_id = 'h'")), "refused")
		return h.slowStart()
	}
	require.NoError(t, h.asOwner("DELETE FROM public.webhook_slow_start"))
	seen("40 seconds")
	require.Empty(t, beat())
	seen("2 minutes")
	require.Equal(t, "127.0.0.1:1 no host sent webhooks for a minute 10", beat())
}

// However many endpoints have deliveries waiting, a host is registered and claims within the 5 s for
// which it waits for an answer, also while another session has locked a slow start.
func TestHostIsBackInTimeForManyEndpoints(t *testing.T) {
	h := newHooks(t)
	endpoints, attempts := 3000, 40
	if full() {
		endpoints = 12000
	}
	for _, sql := range []string{
		`INSERT INTO public.subscriptions (id, event_type, callback_url, verified) OVERRIDING SYSTEM VALUE
			SELECT i, 'e', 'http://host-' || i || '.example/', true FROM generate_series(1, %d) i`,
		`INSERT INTO public.queue_counter (scope, k1, k2, n) SELECT 'saga', i, 'Pending', 1000 FROM generate_series(1, %d) i`,
		`INSERT INTO public.webhook_delivery_jobs (saga_id, attempt_no, subscription_id, controlled)
			SELECT i, 1, i, true FROM generate_series(1, %d) i`,
	} {
		h.exec("BEGIN; SET LOCAL session_replication_role = replica; " + fmt.Sprintf(sql, endpoints) + "; COMMIT")
	}
	h.exec(fmt.Sprintf(`BEGIN; SET LOCAL session_replication_role = replica;
		INSERT INTO public.webhook_delivery_jobs (saga_id, status, attempt_no, subscription_id, finished_at, response_status, settled_at)
		SELECT -s * 100 - i, 'Completed', 1, s, now() - interval '2 hours' + i * interval '1 second', 200, now()
		FROM generate_series(1, %d) i, generate_series(1, %d) s; COMMIT`, attempts, endpoints))
	h.exec("ANALYZE")
	h.exec("UPDATE public.queue_tick_worker SET last_run_at = now() - interval '10 minutes' WHERE worker_name = 'webhook_worker'")
	host := h.db.Pool(t, pgtest.Login(t, h.db, "dot_executor", "webhook_worker"))
	ask := func(sql string) (answer string) {
		t.Helper()
		var err error
		for range 5 { // a host tries again too, and this machine may be busy
			began := time.Now()
			err = pgx.BeginFunc(t.Context(), host, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET LOCAL statement_timeout = '5s'"); err != nil {
					return err
				}
				return tx.QueryRow(t.Context(), sql).Scan(&answer)
			})
			t.Log(sql, time.Since(began).Round(time.Millisecond), err)
			if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "57014" {
				break
			}
		}
		require.NoError(t, err)
		return answer
	}
	const register = "SELECT public.fn_queue_host_register('h', gen_random_uuid(), 'v', '{webhook_worker}')::text"
	const running, begun = "host-7.example", "host-9.example"
	// begin calls it until it has begun as many slow starts: on a busy machine its time may be over before
	begin := func(call string, want int) {
		t.Helper()
		require.NoError(t, h.asOwner("DELETE FROM public.webhook_slow_start WHERE endpoint <> '"+running+"'"))
		for n := 1; ; n++ {
			require.NoError(t, h.asOwner("UPDATE public.queue_host SET last_seen_at = now() - interval '2 minutes'"))
			require.NotContains(t, ask(call), "refused")
			if got := one[int](h, "SELECT count(*) FROM public.webhook_slow_start WHERE rate = 1"); got == want || n == 50 {
				require.Equal(t, want, got)
				return
			}
		}
	}
	begin(register, endpoints)
	ask("SELECT count(*)::text FROM public.fn_webhook_job_claim('test', 100)")
	require.Equal(t, 100, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Leased'"))

	// another session has locked one that runs, and has just begun another: the others begin
	require.NoError(t, h.asOwner("DELETE FROM public.webhook_slow_start WHERE endpoint <> '"+running+"'"))
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	tag, err := tx.Exec(t.Context(), "SELECT FROM public.webhook_slow_start WHERE endpoint = $1 FOR UPDATE", running)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	_, err = tx.Exec(t.Context(), "INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at) VALUES ($1, now(), 'w', 1, now(), now())", begun)
	require.NoError(t, err)
	for _, call := range []string{
		"SELECT public.fn_queue_host_beat('h', (SELECT q.instance FROM public.queue_host q WHERE q.host_id = 'h'), '{webhook_worker}', 0, '{}')::text",
		register,
	} {
		begin(call, endpoints-1) // a lock delays it no longer
	}
}

// Where reading the last attempts takes long, as after the server was restarted, a heartbeat is recorded in
// time, and the endpoints that were not read begin at 10 requests a second.
func TestHeartbeatIsShortOnAColdCache(t *testing.T) {
	h := newHooks(t)
	const endpoints = 200
	h.load(fmt.Sprintf(`INSERT INTO public.subscriptions (id, event_type, callback_url, verified) OVERRIDING SYSTEM VALUE
			SELECT i, 'e', 'http://host-' || i || '.example/', true FROM generate_series(1, %d) i`, endpoints),
		fmt.Sprintf(`INSERT INTO public.queue_counter (scope, k1, k2, n) SELECT 'saga', i, 'Pending', 1000 FROM generate_series(1, %d) i`, endpoints),
		fmt.Sprintf(`INSERT INTO public.webhook_delivery_jobs (saga_id, status, attempt_no, subscription_id, finished_at, response_status, settled_at)
			SELECT -s * 100 - i, 'Completed', 1, s, now() - interval '2 hours' + i * interval '1 second', 200, now()
			FROM generate_series(1, 20) i, generate_series(1, %d) s`, endpoints),
		`CREATE POLICY slow ON public.webhook_delivery_jobs FOR SELECT USING (pg_sleep(0.005) IS NOT NULL)`,
		`ALTER TABLE public.webhook_delivery_jobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`)
	h.exec("UPDATE public.queue_tick_worker SET last_run_at = now() - interval '10 minutes' WHERE worker_name = 'webhook_worker'")
	login := h.db.Pool(t, pgtest.Login(t, h.db, "dot_executor"))
	require.NotContains(t, call(t, login, "public.fn_queue_host_register('h', gen_random_uuid(), 'v', '{}')"), "refused")
	require.NoError(t, h.asOwner("UPDATE public.queue_host SET last_seen_at = now() - interval '2 minutes'"))
	began := time.Now()
	require.NotContains(t, call(t, login, "public.fn_queue_host_beat('h', $1, '{webhook_worker}', 0, '{}')",
		one[string](h, "SELECT instance::text FROM public.queue_host")), "refused")
	require.Less(t, time.Since(began), 5*time.Second, "the host gives up then")
	require.Equal(t, endpoints, one[int](h, "SELECT count(*) FROM public.webhook_slow_start"))
	require.NotZero(t, one[int](h, "SELECT count(*) FROM public.webhook_slow_start WHERE rate = 10"))
	require.NotZero(t, one[int](h, "SELECT count(*) FROM public.webhook_slow_start WHERE rate = 1"))
}

// A report whose results close a circuit, and a slow start that begins again, lock slow starts in one
// order: first those that run, by endpoint. So neither deadlocks with another that locks them so.
func TestSlowStartsAreLockedInOrder(t *testing.T) {
	const first, second = "127.0.0.1:1", "127.0.0.1:2"
	prepare := func(t *testing.T) (h *hooks, other pgx.Tx, waits func(), ls []lease) {
		h = newHooks(t)
		a, b := h.subscribe("a"), h.subscribe("b")
		h.exec("ALTER FUNCTION public.fn_webhook_job_report SET lock_timeout = '1min'")
		h.exec("UPDATE public.subscriptions SET callback_url = 'http://127.0.0.1:2/hook' WHERE id = $1", b)
		require.NoError(t, h.asOwner("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) SELECT $1, 'circuit', now(), 'webhook_worker'", b))
		h.emit("a", 150)
		h.emit("b", 150)
		h.step()
		ls = h.claim(151)
		require.Len(t, ls, 151, "one probes")
		require.Equal(t, 150, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE subscription_id = $1 AND status = 'Leased'", a))
		other, err := h.root.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Rollback(context.Background()) })
		waits = func() {
			t.Helper()
			require.Eventually(t, func() bool {
				return one[bool](h, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
			}, time.Minute, 10*time.Millisecond)
		}
		return h, other, waits, ls
	}
	const insert = "INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at) VALUES ($1, now(), 'w', 1, now(), now())"
	lock := func(t *testing.T, tx pgx.Tx, endpoint, nowait string) {
		t.Helper()
		tag, err := tx.Exec(t.Context(), "SELECT FROM public.webhook_slow_start WHERE endpoint = $1 FOR UPDATE "+nowait, endpoint)
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
	}
	t.Run("report", func(t *testing.T) {
		h, other, waits, ls := prepare(t)
		require.NoError(t, h.asOwner(insert, first))
		require.NoError(t, h.asOwner(insert, second))
		lock(t, other, first, "")
		reported := make(chan error, 1)
		go func() {
			_, err := tryReport(h.work, result(ls[0], ""), result(ls[150], ""))
			reported <- err
		}()
		waits()
		lock(t, other, second, "NOWAIT")
		require.NoError(t, other.Rollback(t.Context()))
		require.NoError(t, <-reported)
		require.Equal(t, "its circuit closed", one[string](h, "SELECT why FROM public.webhook_slow_start WHERE endpoint = $1", second))
	})
	t.Run("begin", func(t *testing.T) {
		h, other, waits, _ := prepare(t)
		require.NoError(t, h.asOwner(insert, second))
		lock(t, other, second, "")
		began := make(chan error, 1)
		go func() {
			_, err := h.root.Exec(context.Background(), "SELECT public.fn_webhook_slow_start_begin(NULL, 'test', true)")
			began <- err
		}()
		waits()
		_, err := other.Exec(t.Context(), insert+" ON CONFLICT (endpoint) DO NOTHING", first)
		require.NoError(t, err)
		require.NoError(t, other.Commit(t.Context()))
		require.NoError(t, <-began)
		require.Equal(t, "test", one[string](h, "SELECT why FROM public.webhook_slow_start WHERE endpoint = $1", second))
	})
}

// A slow start begins when a probe closes the circuit.
func TestSlowStartAfterProbe(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("e")
	require.NoError(t, h.asOwner("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'circuit', now(), 'webhook_worker')", sub))
	h.emit("e", 150)
	h.step()
	probe := h.claim(1000)
	require.Len(t, probe, 1)
	require.Empty(t, h.slowStart())
	h.finish("", probe...)
	require.Equal(t, "127.0.0.1:1 its circuit closed 10", h.slowStart())
	h.step()
	require.Len(t, h.slice(), 2)
}

// A slow start begins when events had to wait for the router.
func TestSlowStartAfterRouter(t *testing.T) {
	h := newHooks(t)
	h.subscribe("e")
	h.emit("e", 150)
	require.NoError(t, h.asOwner("ALTER TABLE public.events DISABLE TRIGGER trg_events_immutable"))
	require.NoError(t, h.asOwner("ALTER TABLE public.subscriptions DISABLE TRIGGER trg_subscriptions_stamp"))
	require.NoError(t, h.asOwner("UPDATE public.subscriptions SET created_at = now() - interval '1 day'"))
	require.NoError(t, h.asOwner("UPDATE public.events SET created_at = now() - interval '2 minutes'"))
	h.route()
	require.Equal(t, "127.0.0.1:1 its events could not be routed 10", h.slowStart())
}

// No slow start begins if the backlog is small, if the endpoint is used to a higher rate, or if the
// flag is off.
func TestSlowStartIsNotNeeded(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("e")
	suspend := func() {
		h.call("public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", sub)
		h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'r')", sub)
	}
	h.emit("e", 100)
	h.step()
	suspend()
	require.Empty(t, h.slowStart(), "ten seconds of ten")
	h.finish("", h.claim(1000)...) // a hundred in one second: the endpoint's usual rate from now on
	h.emit("e", 900)
	h.step()
	suspend()
	require.Empty(t, h.slowStart())
	h.emit("e", 200)
	h.step()
	suspend()
	require.Equal(t, "127.0.0.1:1 its suspension ended 100", h.slowStart())
	const shown = `SELECT (SELECT count(*) FROM public.v_webhook_gate WHERE slow_start_rate IS NOT NULL) || ' ' || (SELECT l ->> 'state'
		FROM jsonb_array_elements(public.fn_queue_why('webhook 127.0.0.1:1') -> 'links') l WHERE l ->> 'link' = 'slow start')`
	require.Equal(t, "1 slows", one[string](h, shown))
	h.flag("webhook.slow_start.enabled", "false")
	require.Equal(t, "0 clear", one[string](h, shown))
	require.Len(t, h.claim(200), 200, "off is off, for those that run too")
	suspend()
}

// The rate counts for all subscriptions of the endpoint together. Deliveries to another endpoint
// are not delayed, whether they come before or after.
func TestSlowStartIsOfTheEndpoint(t *testing.T) {
	h := newHooks(t)
	a, b := h.subscribe("a"), h.subscribe("b")
	other := h.subscribe("other")
	require.NoError(t, h.asOwner("UPDATE public.subscriptions SET callback_url = 'http://127.0.0.1:2/x' WHERE id = $1", other))
	for _, e := range []string{"a", "other", "b"} {
		h.emit(e, 80)
	}
	h.step()
	h.call("public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", b)
	h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'r')", b)
	require.Equal(t, "127.0.0.1:1 its suspension ended 10", h.slowStart(), "160 wait, of two subscriptions")
	ls := h.slice()
	h.call("public.fn_saga_orchestrator_run()") // existing jobs are now claimed at the rate, too
	ls = append(ls, h.slice()...)
	n := map[int64]int{}
	for _, l := range ls {
		n[l.Subscribed]++
	}
	require.Equal(t, 80, n[other])
	require.LessOrEqual(t, n[a]+n[b], 4)
	require.Positive(t, n[a]+n[b])
}

func TestSlowStartSteps(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("e")
	h.emit("e", 1000)
	h.step()
	h.call("public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", sub)
	h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'r')", sub)
	h.call("public.fn_saga_orchestrator_run()")
	send := func(code string, n int) {
		for n > 0 {
			ls := h.slice()
			require.NotEmpty(t, ls)
			h.finish(code, ls...)
			n -= len(ls)
		}
	}
	rate := func() float64 { return one[float64](h, "SELECT rate FROM public.webhook_slow_start") }
	send("", 90)
	require.Equal(t, 10., rate(), "a step is ten seconds")
	h.stepped()
	require.Equal(t, 20., rate(), "it delivered what it was allowed")
	send("", 20)
	h.stepped()
	require.Equal(t, 20., rate(), "it did not use its rate: more would say nothing")
	h.flag("webhook.circuit_failures", "0")
	send("", 100)
	send("HTTP_503", 60)
	h.stepped()
	require.Equal(t, 20., rate(), "too many failed")
	send("", 180)
	h.stepped()
	require.Equal(t, 40., rate())
	send("", 390)
	h.stepped()
	require.Equal(t, 80., rate())
	h.flag("webhook.slow_start.max_seconds", "60")
	h.stepped()
	require.Equal(t, 80., rate())
	left := one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Pending'")
	require.Greater(t, left, 80)
	send("", left-80)
	h.stepped()
	require.Empty(t, h.slowStart(), "the rest is a second's worth")
	require.Len(t, h.claim(1000), 80)

	h.emit("e", 6000) // more than ten seconds of the rate that it has just reached
	h.step()
	h.call("public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", sub)
	h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'r')", sub)
	require.NotEmpty(t, h.slowStart())
	require.NoError(t, h.asOwner("UPDATE public.webhook_slow_start SET began_at = began_at - interval '1 minute'"))
	h.call("public.fn_saga_orchestrator_run()")
	require.Empty(t, h.slowStart(), "it has a longest time")

	h.call("public.fn_endpoint_suspend($1::bigint, 'ann', 'r')", sub)
	h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'r')", sub)
	require.NotEmpty(t, h.slowStart())
	h.flag("webhook.slow_start.enabled", "false") // so that no slow start begins at the new URL
	require.NoError(t, h.asOwner("UPDATE public.subscriptions SET callback_url = 'http://127.0.0.1:2/hook'"))
	h.stepped()
	require.Empty(t, h.slowStart(), "it ends with the last subscription of its endpoint")
}
