package workerhost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/qtop/qtop/workerhost"
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
