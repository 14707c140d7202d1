package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A server with plpgsql.extra_errors, which also holds in qtop's functions, refuses no statement of several
// jobs and fails no tick worker.
func TestWorkUnderExtraErrors(t *testing.T) {
	j := newJobs(t)
	j.exec("ALTER DATABASE " + pgx.Identifier{j.db.Name}.Sanitize() + " SET plpgsql.extra_errors = 'all'")
	j.root.Reset()
	j.work.Reset()
	j.jobSubscription("w", "a", "iu", 0, 10)
	j.put("a", "iu", 3)
	j.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg('{"job_kind": "a", "event_domain": "iu", "executor": "external_worker"}'::jsonb) FROM generate_series(1, 3)))`)
	hs := j.take("w", 10)
	require.Len(t, hs, 6)
	require.Equal(t, "done", j.outcome("ack", hs[:2]...))
	require.Equal(t, "done", j.outcome("BROKEN", hs[2:4]...))
	j.expire(hs[4:]...)
	require.EqualValues(t, 2, j.reap()["reaped"])
	j.exec("INSERT INTO public.events (event_type, payload) SELECT 'order', '{}' FROM generate_series(1, 3)")
	rows, err := j.root.Query(t.Context(), "SELECT worker_name FROM public.queue_tick_worker")
	require.NoError(t, err)
	workers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, worker := range workers {
		require.NotContains(t, get[string](j.core, "SELECT public.fn_queue_tick_run($1, 'wake')::text", worker), `"error"`)
	}
	j.exec("SELECT public.fn_queue_picture('1 second'::interval)")
	j.balanced()
}
