package workerhost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// A search for watermarks, which may take minutes, has a separate time limit, and a loop that
// drains ends it.
func TestDrainEndsTheSearchForWatermarks(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	w.exec(`CREATE OR REPLACE FUNCTION public.fn_job_watermark_advance() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			PERFORM set_config('application_name', 'searches within ' || current_setting('statement_timeout'), false);
			PERFORM pg_sleep(600);
			RETURN true;
		END $$`)
	h := w.jobs(workerhost.Options{Grace: 5 * time.Minute}, map[string]handler.Handler{})
	searches := "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND application_name = 'searches within 5min'"
	w.becomes(1, searches)
	began := time.Now()
	require.NoError(t, h.Drain("job_executor"))
	h.is("job_executor", "stopped")
	require.Less(t, time.Since(began), patience)
	w.becomes(0, searches)
}

// A host that may not claim moves the watermarks too: the jobs are claimed by other workers.
func TestWatermarksWithoutAnExecutor(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // without an executor
	w.exec("CREATE TABLE public.advanced (n int); GRANT ALL ON public.advanced TO PUBLIC")
	w.exec(`CREATE OR REPLACE FUNCTION public.fn_job_watermark_advance() RETURNS boolean LANGUAGE sql AS 'INSERT INTO public.advanced VALUES (1) RETURNING true'`)
	w.jobs(workerhost.Options{}, map[string]handler.Handler{})
	w.becomes(1, "SELECT (count(*) > 1)::int FROM public.advanced")
}
