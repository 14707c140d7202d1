package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A recount may take hours: the server ends neither its preview nor its change, but the end of
// the caller's context ends it on the server.
func TestRecountHasNoTimeLimit(t *testing.T) {
	w := newWorld(t)
	op := w.client("queue_viewer", "workflow_admin")
	w.exec(`ALTER FUNCTION public.fn_queue_recount(text, text, boolean) RENAME TO fn_recount_within;
		CREATE TABLE public.asked (statement_timeout text, lock_timeout text);
		CREATE FUNCTION public.fn_queue_recount(p_actor text, p_reason text, p_dry_run boolean) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.asked VALUES (current_setting('statement_timeout'), current_setting('lock_timeout'));
			PERFORM pg_advisory_xact_lock_shared(4711);
			RETURN public.fn_recount_within(p_actor, p_reason, p_dry_run);
		END $$;
		GRANT EXECUTE ON FUNCTION public.fn_queue_recount(text, text, boolean) TO workflow_admin`)
	r := queue.Request{Action: queue.ActRecount, Reason: "r"}
	p := plan(t, op, r)
	require.EqualValues(t, 1, apply(t, op, p).Done)
	require.Equal(t, "0 10s, 0 10s", get[string](w, "SELECT string_agg(statement_timeout || ' ' || lock_timeout, ', ') FROM public.asked"))
	var after string
	require.NoError(t, op.Act().QueryRow(t.Context(), "SHOW statement_timeout").Scan(&after))
	require.Equal(t, "1min", after, "other actions keep their limit")

	// The comparison is made once if nobody sees the plan before it is applied.
	w.exec("INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n) SELECT 'dead_job', 'code' || i, 'kind', 'work', 1 FROM generate_series(1, 12) i")
	seen := plan(t, op, r)
	require.Equal(t, "12 differ from the tables", seen.Lines[0].Value.String())
	require.Equal(t, "2 more, not listed here", seen.Lines[11].Value.String())
	calls := get[int](w, "SELECT count(*)::int FROM public.asked")
	unseen := r
	unseen.Unseen = true
	res := apply(t, op, plan(t, op, unseen))
	require.Equal(t, seen.Lines, res.Plan)
	require.Equal(t, calls+1, get[int](w, "SELECT count(*)::int FROM public.asked"))

	conn, err := w.root.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(4711)")
	require.NoError(t, err)
	waiting := func() int {
		return get[int](w, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'fn_queue_recount'")
	}
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := op.Plan(ctx, r); return err },
		func(ctx context.Context) error { _, err := op.Apply(ctx, p); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		require.Eventually(t, func() bool { return waiting() == 1 }, time.Minute, 5*time.Millisecond)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Eventually(t, func() bool { return waiting() == 0 }, time.Minute, 5*time.Millisecond, "it goes on")
	}
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)")
	require.NoError(t, err)
	require.Equal(t, calls+1, get[int](w, "SELECT count(*)::int FROM public.asked"), "nothing of it was committed")
}
