package workerhost_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// When the server's clock is set back, the host ends a tick that goes on waiting, which no timeout of
// the server would end in time. The worker ticks again.
func TestTickEndsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE TABLE public.behind (back interval);
		INSERT INTO public.behind VALUES ('0');
		GRANT SELECT ON public.behind TO PUBLIC;
		ALTER FUNCTION public.fn_queue_host_beat(text, uuid, text[], int, jsonb) RENAME TO fn_queue_host_beat_now;
		CREATE FUNCTION public.fn_queue_host_beat(p_host_id text, p_instance uuid, p_loops text[], p_in_flight int, p_progress jsonb)
			RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS 'SELECT public.fn_queue_host_beat_now($1, $2, $3, $4, $5)
				|| jsonb_build_object(''at'', clock_timestamp() - (SELECT back FROM public.behind))';
		CREATE OR REPLACE FUNCTION public.fn_queue_tick_request(p_worker_name text, p_source text DEFAULT 'external') RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS
			'BEGIN PERFORM pg_sleep(3600); END'`)
	h := w.run(workerhost.Options{Loops: []string{"lease_reaper"}, Grace: time.Second})
	slow := func() bool {
		return w.int("SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()") == 1
	}
	eventually(t, slow, "no tick waits")
	before := w.text("SELECT last_seen_at::text FROM public.queue_host")
	eventually(t, func() bool { return w.text("SELECT last_seen_at::text FROM public.queue_host") != before }, "no heartbeat")
	w.exec("UPDATE public.behind SET back = '1 day'")
	eventually(t, func() bool {
		return strings.Contains(h.status("lease_reaper").LastErr.String(), "the server's clock was set back")
	}, "the tick goes on waiting")
	eventually(t, slow, "no tick follows")
}

// While more ticks than a host has connections wait for a lock, the host goes on with its jobs.
func TestTicksThatWaitLeaveConnections(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	w.exec(`CREATE OR REPLACE FUNCTION public.fn_queue_tick_request(p_worker_name text, p_source text DEFAULT 'external') RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS
		'BEGIN PERFORM pg_sleep(3600); END'`)
	runHostOn(t, pgclient.Options{DSN: w.dsn, WorkConns: 4, Actor: "test"}, workerhost.Options{
		Loops:    []string{"job_executor", "lease_reaper", "job_queue_default", "counter_compactor", "retention_sweep"},
		Grace:    time.Second,
		Handlers: map[string]handler.Handler{"work": handler.Func(func(context.Context, handler.Job) error { return nil })},
	})
	const waiting = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
	eventually(t, func() bool { return len(strings.Fields(w.text(waiting))) == 3 }, "the ticks do not take 3 of 4 connections")
	before := w.text(waiting)
	for n := 1; n <= 5; n++ {
		w.enqueue("work", n) // one more: the others have the keys of those before
		w.becomes(n, jobsOf, "succeeded")
	}
	require.Equal(t, before, w.text(waiting), "the jobs waited until a tick ended")
}
