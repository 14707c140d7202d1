package workerhost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// A tick that fails is repeated soon, long before its interval ends: the cause may be gone, and a
// job is due.
func TestFailedTickIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]string{
		"the worker fails":  "RAISE EXCEPTION 'broken'",
		"somebody stops it": "RAISE EXCEPTION 'stopped' USING ERRCODE = 'query_canceled'", // which the database does not catch
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := jobWorld(t, 10, "queue.notify.bridge_enabled", "true", "queue.tick.job_queue_default.interval_seconds", "600")
			s := &seen{}
			w.enqueue("first", 1) // hosts listen only for existing domains
			h := w.jobs(workerhost.Options{}, map[string]handler.Handler{"first": s, "later": s})
			h.listens()
			w.becomes(1, jobsOf, "succeeded")
			var tick string
			require.NoError(t, w.admin.QueryRow(t.Context(), "SELECT pg_get_functiondef('public.fn_job_tick(int)'::regprocedure)").Scan(&tick))
			w.exec("CREATE OR REPLACE FUNCTION public.fn_job_tick(p_limit int DEFAULT 10000) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN " + fault + "; RETURN '{}'; END $$")
			w.exec("SELECT public.fn_job_enqueue('later', 'work', 'DOT', p_process_after => now() + interval '100 ms')")
			eventually(t, func() bool { return h.status("job_queue_default").Errors > 0 }, "no tick failed")
			w.exec(tick)
			restored := time.Now()
			w.becomes(2, jobsOf, "succeeded")
			require.Less(t, time.Since(restored), 30*time.Second)
		})
	}
}
