// Looks: a wake signal that finds nothing writes nothing, and misses nothing.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// looking is a tick worker that has a look, with a statement that gives it one piece of work, and a
// query of how many pieces are done.
type looking struct{ worker, write, done string }

var lookers = []looking{
	{"webhook_router", "INSERT INTO public.events (event_type, payload) VALUES ('order', '1')",
		"SELECT count(*) FROM public.webhook_delivery_sagas"},
	{"iu_outbound_default", "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)",
		"SELECT count(DISTINCT event_id) FROM public.iu_route_attempt WHERE event_domain = 'iu'"},
	{"staging_outbound", "SELECT public.fn_iu_emit_event('staging', 'made', 's', 'immediate', 'info', NULL, NULL)",
		"SELECT count(DISTINCT event_id) FROM public.iu_route_attempt WHERE event_domain = 'staging'"},
	{"saga_orchestrator", `WITH e AS (INSERT INTO public.events (event_type, payload) VALUES ('no subscription', '1') RETURNING id)
		INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT e.id, (SELECT min(s.id) FROM public.subscriptions s) FROM e`,
		"SELECT count(*) FROM public.webhook_delivery_jobs"},
	{"job_queue_default", `INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after)
		VALUES ('k', 'iu', 'external_worker', false, now() - interval '1 minute')`,
		"SELECT count(*) FROM public.job_queue WHERE ready"},
}

// newLooking returns a database in which each of the tick workers has made a full run and has
// nothing more to do.
func newLooking(t *testing.T) *hooks {
	h := newHooks(t)
	h.subscribe("order")
	h.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate'), ('staging', 'made', 's', 'immediate')")
	h.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
	h.exec("UPDATE public.iu_outbound_route SET enabled = true WHERE event_domain IN ('iu', 'staging')")
	for _, l := range lookers {
		h.exec(l.write)
	}
	for _, l := range lookers {
		eventually(t, l.worker+" has done its work", func() bool {
			h.justRan(l.worker, "2 seconds")
			quick, _ := h.woken(l.worker)
			require.False(t, quick)
			return one[int](h, l.done) > 0
		})
	}
	return h
}

// in runs a tick in a transaction. It returns its answer, and whether the transaction got an id:
// then it has written something.
func in(t *testing.T, tx pgx.Tx, worker, source string) (answer map[string]any, wrote bool) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_queue_tick_request($1, $2)", worker, source).Scan(&answer))
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&wrote))
	return answer, wrote
}

// alone runs a tick in a new transaction.
func (h *hooks) alone(worker, source string) (answer map[string]any, wrote bool) {
	h.t.Helper()
	require.NoError(h.t, pgx.BeginFunc(h.t.Context(), h.root, func(tx pgx.Tx) error {
		answer, wrote = in(h.t, tx, worker, source)
		return nil
	}))
	return answer, wrote
}

// quickRun prepares something and wakes a worker, until that is a quick run: on a busy machine more
// than a second may pass since the full run that justRan pretends.
func (h *hooks) quickRun(worker string, prepare func()) (answer map[string]any, wrote bool) {
	h.t.Helper()
	eventually(h.t, worker+" makes a quick run", func() bool {
		prepare()
		h.justRan(worker, "0 seconds")
		answer, wrote = h.alone(worker, "wake")
		return answer["quick"] == true
	})
	return answer, wrote
}

func TestUselessWakesWriteNothing(t *testing.T) {
	h := newLooking(t)
	for _, l := range lookers {
		h.justRan(l.worker, "2 seconds")
		_, _ = h.woken(l.worker)
		got, wrote := h.quickRun(l.worker, func() {})
		require.Equal(t, []any{true, false}, []any{got["ran"], wrote}, l.worker)
		result, _ := got["result"].(map[string]any)
		for key, n := range result {
			if key != "next_due" && key != "at" {
				require.Zero(t, n, "%s: %s", l.worker, key)
			}
		}
		_, wrote = h.quickRun(l.worker, func() { h.exec(l.write) })
		require.True(t, wrote, "%s has work", l.worker)
	}
	// a worker that is switched off records that once in 20 s
	h.exec("UPDATE public.dot_config SET value = 'false' WHERE key = 'queue.job_substrate.enabled'")
	_, _ = h.alone("job_queue_default", "wake")
	for _, source := range []string{"wake", "external"} {
		got, wrote := h.alone("job_queue_default", source)
		require.Equal(t, []any{"off", false}, []any{got["skipped"], wrote}, got)
	}
	h.exec("UPDATE public.queue_heartbeat SET last_beat_at = last_beat_at - interval '30 seconds' WHERE executor_id = 'job_queue_default'")
	got, wrote := h.alone("job_queue_default", "wake")
	require.Equal(t, []any{"off", true}, []any{got["skipped"], wrote}, got)
}

// A claim that finds nothing writes nothing either.
func TestUselessClaimsWriteNothing(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	h.claim(1)
	var wrote bool
	require.NoError(t, pgx.BeginFunc(t.Context(), h.root, func(tx pgx.Tx) error {
		var n int
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM public.fn_webhook_job_claim('test', 10)").Scan(&n))
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&wrote))
		require.Equal(t, []any{0, false}, []any{n, wrote})
		return nil
	}))
}

func TestUselessJobClaimsWriteNothing(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("a", "", "", 0, 10)
	j.exec("INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('k', 'd', 'external_worker')")
	for _, want := range []int{1, 0} {
		require.NoError(t, pgx.BeginFunc(t.Context(), j.root, func(tx pgx.Tx) error {
			var n int
			var wrote bool
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM public.fn_job_claim('a', NULL, 10)").Scan(&n))
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned() IS NOT NULL").Scan(&wrote))
			require.Equal(t, []any{want, want > 0}, []any{n, wrote})
			return nil
		}))
	}
}

// A look finds what was committed since the last run. It also finds what another session is
// working on now, so that the caller comes again: that session may fail.
func TestLooksMissNothing(t *testing.T) {
	h := newLooking(t)
	begin := func() pgx.Tx {
		tx, err := h.root.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	for _, l := range lookers {
		h.justRan(l.worker, "2 seconds")
		_, _ = h.woken(l.worker)
		before := one[int](h, l.done)
		writer, other := begin(), begin()
		_, err := writer.Exec(t.Context(), l.write)
		require.NoError(t, err)
		for range 2 {
			_, wrote := h.quickRun(l.worker, func() {})
			require.False(t, wrote, "%s sees nothing of an open transaction", l.worker)
		}
		require.NoError(t, writer.Commit(t.Context()))
		h.justRan(l.worker, "0 seconds")
		_, wrote := in(t, other, l.worker, "wake")
		require.True(t, wrote, l.worker)
		got, _ := h.alone(l.worker, "wake")
		require.Equal(t, "lease_held", got["skipped"], "%s: %v", l.worker, got)
		require.NoError(t, other.Rollback(t.Context()))
		require.Equal(t, before, one[int](h, l.done))
		_, _ = h.quickRun(l.worker, func() {})
		require.Equal(t, before+1, one[int](h, l.done), l.worker)
		_, wrote = h.quickRun(l.worker, func() {})
		require.False(t, wrote, "%s has nothing more to do", l.worker)
	}
}

// When the next delayed job becomes due is in the result of a look as in that of a run.
func TestLooksSayWhenJobsAreDue(t *testing.T) {
	h := newLooking(t)
	const worker = "job_queue_default"
	for _, due := range []string{"", "infinity", "2035-01-01 00:00:00.25+00"} {
		if due != "" {
			h.exec("INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', false, $1::text::timestamptz)", due)
		}
		h.justRan(worker, "2 seconds")
		_, run := h.woken(worker)
		got, wrote := h.quickRun(worker, func() {})
		require.False(t, wrote)
		look, _ := got["result"].(map[string]any)
		require.NotEmpty(t, look["at"])
		delete(run, "at")
		delete(look, "at")
		require.Equal(t, fmt.Sprint(run), fmt.Sprint(look), due)
	}
}
