// Ticks: one run per interval, no matter how many callers ask, and a run that fails leaves no rows
// or locks.

package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// worker adds a tick worker with an interval of an hour, whose function has this PL/pgSQL body.
func (c *core) worker(name, body string, cron bool) {
	c.t.Helper()
	c.exec("CREATE FUNCTION public.fn_test_" + name + "() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN " + body + " END $$")
	c.exec(`INSERT INTO public.dot_config_rule (key, kind, default_value, switch) VALUES ('queue.tick.` + name + `.interval_seconds', 'integer', '3600', true)`)
	c.exec(`INSERT INTO public.dot_config (key, value) VALUES ('queue.tick.` + name + `.interval_seconds', '3600')`)
	c.exec("SELECT public.fn_queue_tick_worker_add($1, $2, 'queue.job_substrate.enabled', $3, '{}')", name, "fn_test_"+name, cron)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_payload = '{}' WHERE executor_id = $1", name) // so that it does not count as stopped, as in newCore
}

func tick(t *testing.T, c *core, name, source string) map[string]any {
	t.Helper()
	return call(t, c.root, "public.fn_queue_tick_request($1, $2)", name, source)
}

func TestTickOncePerInterval(t *testing.T) {
	for _, n := range []int32{2, 10, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCore(t)
			c.exec("CREATE TABLE public.ran (at timestamptz); GRANT INSERT ON public.ran TO queue_owner")
			c.worker("slow", "INSERT INTO public.ran VALUES (now()); PERFORM pg_sleep(0.05); RETURN '{\"done\": 2}';", true)
			pool := c.wide(n, "dot_executor")
			race := func() []map[string]any {
				return together(t, int(n), func(int) (map[string]any, error) { return tryCall(pool, "public.fn_queue_tick_request('slow')") })
			}
			first := race()
			require.Equal(t, 1, count(first, "ran", true), first)
			require.Equal(t, int(n)-1, count(first, "skipped", "lease_held")+count(first, "skipped", "not_due"), first)
			second := race()
			require.Equal(t, int(n), count(second, "skipped", "not_due"))
			ranBefore := func(seconds int) (at time.Time) {
				return get[time.Time](c, "UPDATE public.queue_tick_worker SET last_run_at = now() - make_interval(secs => $1), last_attempt_at = NULL WHERE worker_name = 'slow' RETURNING last_run_at", seconds)
			}
			ranBefore(3241)
			require.Equal(t, 1, count(race(), "ran", true))
			require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.ran"))
			require.Equal(t, "4 working 4", get[string](c, `SELECT w.done_total || ' ' || (h.last_beat_payload ->> 'state') || ' ' ||
				(h.last_beat_payload ->> 'done_total') FROM public.queue_tick_worker w JOIN public.queue_heartbeat h ON executor_id = worker_name WHERE worker_name = 'slow'`))
			// On a busy machine the calls may take longer than the second until the run is due: then they are repeated.
			for deadline := time.Now().Add(patience); ; {
				at := ranBefore(3239)
				early := race()
				if get[bool](c, "SELECT clock_timestamp() < $1::timestamptz + interval '3240 seconds'", at) {
					require.Equal(t, int(n), count(early, "skipped", "not_due"), "not before 0.9 × interval")
					break
				}
				require.True(t, time.Now().Before(deadline), "each time the calls took longer than a second")
			}
		})
	}
}

func TestTickLeaseHeld(t *testing.T) {
	c := newCore(t)
	tx := c.begin(c.root)
	_, err := tx.Exec(context.Background(), "SELECT 1 FROM public.dot_iu_runtime_lease WHERE lease_name = 'config_expiry' FOR UPDATE")
	require.NoError(t, err)
	for _, source := range []string{"external", "wake", "operator"} {
		require.Equal(t, "lease_held", tick(t, c, "config_expiry", source)["skipped"], source)
	}
	require.NoError(t, tx.Rollback(context.Background()))
	require.Equal(t, true, tick(t, c, "config_expiry", "external")["ran"])
}

func TestTickFailure(t *testing.T) {
	c := newCore(t)
	c.exec("CREATE TABLE public.ran (at timestamptz); GRANT INSERT ON public.ran TO queue_owner")
	c.worker("broken", "INSERT INTO public.ran VALUES (now()); RETURN jsonb_build_object('x', 1 / 0);", true)
	c.worker("odd", "RETURN '[]';", true)
	c.worker("empty", "RETURN NULL;", true)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = '2020-01-01' WHERE executor_id = 'broken'")
	got := tick(t, c, "broken", "operator")
	require.Equal(t, []any{true, false}, []any{got["failed"], got["ran"]})
	require.Contains(t, got["error"], "22012 division by zero")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.ran"), "its work is undone")
	require.True(t, get[bool](c, `SELECT last_beat_at = '2020-01-01' FROM public.queue_heartbeat WHERE executor_id = 'broken'`), "no beat")
	require.True(t, get[bool](c, `SELECT last_run_at IS NULL AND last_attempt_at IS NOT NULL AND last_result ->> 'error' LIKE '22012%'
		FROM public.queue_tick_worker WHERE worker_name = 'broken'`))
	require.Equal(t, "not_due", tick(t, c, "broken", "external")["skipped"], "no storm of failures")
	c.worker("talks", "RAISE EXCEPTION 'no way to postgres://qtop:hunter2@db/app';", true)
	require.NotContains(t, fmt.Sprint(tick(t, c, "talks", "operator")["error"]), "hunter2")
	require.NotContains(t, get[string](c, "SELECT last_result::text FROM public.queue_tick_worker WHERE worker_name = 'talks'"), "hunter2")
	require.Equal(t, true, tick(t, c, "broken", "operator")["failed"], "the lease is free")
	require.Equal(t, true, tick(t, c, "odd", "operator")["failed"])
	require.Equal(t, true, tick(t, c, "empty", "operator")["ran"])
}

// A cancelled run leaves no lease, no lock and no recorded attempt.
func TestTickCancelled(t *testing.T) {
	c := newCore(t)
	c.worker("endless", "PERFORM pg_sleep(600); RETURN '{}';", true)
	login := pgtest.Login(t, c.db, "dot_executor")
	stop := map[string]func(conn *pgx.Conn) error{
		"57014 timeout": func(conn *pgx.Conn) error {
			_, err := conn.Exec(context.Background(), "SET statement_timeout = 300")
			return err
		},
		"57014 cancel": func(conn *pgx.Conn) error {
			go c.stopSleeper("pg_cancel_backend", conn.PgConn().PID())
			return nil
		},
		"57P01 terminate": func(conn *pgx.Conn) error {
			go c.stopSleeper("pg_terminate_backend", conn.PgConn().PID())
			return nil
		},
	}
	for name, prepare := range stop {
		conn := c.db.Conn(t, login)
		pid := conn.PgConn().PID()
		require.NoError(t, prepare(conn))
		_, err := conn.Exec(context.Background(), "SELECT public.fn_queue_tick_request('endless', 'operator')")
		refused(t, name[:5], err, name)
		eventually(t, "locks gone", func() bool {
			return get[int](c, "SELECT count(*) FROM pg_locks WHERE pid = $1 AND locktype IN ('advisory', 'tuple', 'transactionid', 'relation')", pid) == 0
		})
		require.True(t, get[bool](c, "SELECT last_attempt_at IS NULL FROM public.queue_tick_worker WHERE worker_name = 'endless'"))
	}
	c.exec("CREATE OR REPLACE FUNCTION public.fn_test_endless() RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$")
	require.Equal(t, true, tick(t, c, "endless", "external")["ran"])
}

// stopSleeper waits until the backend runs pg_sleep, and then calls the function named how with its
// pid.
func (c *core) stopSleeper(how string, pid uint32) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) { // between two looks
		var done bool
		err := c.root.QueryRow(context.Background(), "SELECT "+how+"(pid) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", pid).Scan(&done)
		if err == nil && done {
			return
		}
	}
}

func TestTickOff(t *testing.T) {
	c := newCore(t)
	c.worker("w", "RETURN '{}';", true)
	admin := c.as("workflow_admin")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = '2020-01-01' WHERE executor_id = 'w'")
	for key, on := range map[string]string{"queue.job_substrate.enabled": "true", "queue.tick.w.interval_seconds": "3600"} {
		off := map[string]string{"true": "false", "3600": "0"}[on]
		setFlag(t, admin, key, off)
		for _, source := range []string{"external", "wake", "operator"} {
			got := tick(t, c, "w", source)
			require.Equal(t, "off", got["skipped"])
			require.Contains(t, got["reason"], key)
		}
		require.True(t, get[bool](c, `SELECT last_beat_payload ->> 'state' = 'stopped' AND last_beat_at > now() - interval '1 minute'
			FROM public.queue_heartbeat WHERE executor_id = 'w'`))
		setFlag(t, admin, key, on)
	}
	require.Equal(t, true, tick(t, c, "w", "external")["ran"])
}

func TestTickModes(t *testing.T) {
	c := newCore(t)
	c.worker("cron", "RETURN '{}';", true)
	c.worker("ours", "RETURN '{}';", false)
	admin := c.as("workflow_admin")
	admits := func() (out string) {
		for _, w := range []string{"cron", "ours"} {
			for _, source := range []string{"external", "pg_cron", "wake", "operator"} {
				c.exec("UPDATE public.queue_tick_worker SET last_run_at = NULL, last_attempt_at = NULL")
				got := tick(t, c, w, source)
				if got["ran"] == true {
					out += "1"
				} else {
					require.Equal(t, "mode", got["skipped"])
					out += "0"
				}
			}
			out += " "
		}
		return out
	}
	require.Equal(t, "1011 1011 ", admits(), "external refuses pg_cron")
	c.exec("UPDATE public.dot_config SET value = 'pg_cron' WHERE key = 'queue.scheduler.mode'")
	require.Equal(t, "0111 1111 ", admits(), "pg_cron refuses external for the workers that have a cron job")
	setFlag(t, admin, "queue.scheduler.mode", "hybrid")
	require.Equal(t, "1111 1111 ", admits())
}

func TestTickArguments(t *testing.T) {
	c := newCore(t)
	dot := c.as("dot_executor")
	for _, bad := range []string{"'no_such', 'external'", "NULL, 'external'", "'config_expiry', 'cron'", "'config_expiry', NULL", "'', 'external'"} {
		fails(t, dot, "22023", "SELECT public.fn_queue_tick_request("+bad+")")
	}
	fails(t, c.as("queue_viewer", "router_worker"), "42501", "SELECT public.fn_queue_tick_request('config_expiry')")
	require.Equal(t, true, call(t, c.as("workflow_admin"), "public.fn_queue_tick_request('config_expiry', 'operator')")["ran"])
	require.Zero(t, get[int](c, `SELECT count(*) FROM public.queue_tick_worker w WHERE to_regprocedure('public.' || w.function || '()') IS NULL
		AND NOT EXISTS (SELECT 1 FROM pg_proc p WHERE p.proname = w.function AND p.pronargs = p.pronargdefaults)`), "each can be called without arguments")
}

// Every installed tick worker runs without an error.
func TestTickAll(t *testing.T) {
	c := newCore(t)
	for _, w := range get[[]string](c, "SELECT array_agg(worker_name::text) FROM public.queue_tick_worker") {
		got := tick(t, c, w, "external")
		require.Equal(t, true, got["ran"], got)
	}
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_scheduler_status WHERE stale OR age_seconds IS NULL"))
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day'")
	setFlag(t, c.as("workflow_admin"), "queue.tick.webhook_router.interval_seconds", "0")
	require.Equal(t, "webhook_router", get[string](c, "SELECT string_agg(worker_name, ',') FROM public.v_queue_scheduler_status WHERE NOT stale"))
}
