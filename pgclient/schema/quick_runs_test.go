// Quick runs: a worker that gets many wake signals a second reads only new rows, and stores its
// position once a second.

package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// justRan sets the start of the worker's last full run to an interval ago.
func (h *hooks) justRan(worker, ago string) {
	h.t.Helper()
	h.exec("UPDATE public.queue_tick_worker SET last_run_at = clock_timestamp() - $2::interval, last_attempt_at = NULL WHERE worker_name = $1", worker, ago)
}

// woken runs a worker as after a wake signal. It returns whether that was a quick run, and the
// result of the run.
func (h *hooks) woken(worker string) (bool, map[string]any) {
	h.t.Helper()
	got, err := tryCall(h.root, "public.fn_queue_tick_request($1, 'wake')", worker)
	require.NoError(h.t, err)
	require.Equal(h.t, true, got["ran"], got)
	quick, _ := got["quick"].(bool)
	result, _ := got["result"].(map[string]any)
	return quick, result
}

// A wake signal within a second of a full run makes a quick run, which does the work and writes
// none of the rows about the worker itself. The next full run counts this work too.
func TestQuickRunsWriteOnceASecond(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	h.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
	h.exec("UPDATE public.iu_outbound_route SET enabled = true WHERE event_domain = 'iu'")
	stood := func(worker string) string {
		return one[string](h, `SELECT concat_ws(' ', w.ctid, l.ctid, b.ctid, (SELECT ctid FROM public.router_offsets),
			(SELECT string_agg(ctid::text, ' ') FROM public.iu_route_worker_cursor))
			FROM public.queue_tick_worker w JOIN public.dot_iu_runtime_lease l ON l.lease_name = w.worker_name
			JOIN public.queue_heartbeat b ON b.executor_id = w.worker_name WHERE w.worker_name = $1`, worker)
	}
	for _, c := range []struct{ worker, write, done, seen string }{
		{"webhook_router", "INSERT INTO public.events (event_type, payload) VALUES ('order', '1')",
			"SELECT count(*) FROM public.webhook_delivery_sagas", "SELECT events_seen FROM public.router_offsets"},
		{"iu_outbound_default", "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)",
			"SELECT count(DISTINCT event_id) FROM public.iu_route_attempt", "SELECT events_seen FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'"},
	} {
		total := func() int64 {
			return one[int64](h, "SELECT done_total FROM public.v_queue_scheduler_status WHERE worker_name = $1", c.worker)
		}
		_, _ = h.woken(c.worker)
		before := total()
		h.exec(c.write)
		eventually(t, "a full run has routed it", func() bool {
			h.justRan(c.worker, "2 seconds")
			quick, _ := h.woken(c.worker)
			require.False(t, quick)
			return one[int](h, c.done) == 1
		})
		each := total() - before
		require.Positive(t, each)
		require.Equal(t, 1, one[int](h, c.seen), c.worker)
		for i := 2; i <= 4; i++ {
			h.exec(c.write)
			eventually(t, "a quick run has routed it", func() bool {
				h.justRan(c.worker, "0 seconds")
				was := stood(c.worker)
				quick, _ := h.woken(c.worker)
				require.True(t, quick)
				require.Equal(t, was, stood(c.worker), "nothing that tells of it is written")
				return one[int](h, c.done) == i
			})
			require.Equal(t, before+int64(i)*each, total(), "its work is counted")
		}
		require.Equal(t, 1, one[int](h, c.seen), c.worker)
		h.justRan(c.worker, "2 seconds")
		quick, _ := h.woken(c.worker)
		require.False(t, quick)
		require.Equal(t, 4, one[int](h, c.seen), c.worker)
		require.Equal(t, fmt.Sprint(before+4*each), one[string](h, "SELECT last_beat_payload ->> 'done_total' FROM public.queue_heartbeat WHERE executor_id = $1", c.worker))
		require.Equal(t, "{}", one[string](h, "SELECT string_agg(DISTINCT uncounted::text, ' ') FROM public.queue_cursor"))
	}
}

// However often a tick worker is woken, the rows about it are written at most once a second, and
// the next full run writes them. No worker is left out: a new one without an argument p_quick runs
// in full and writes as seldom.
func TestWokenWorkersWriteOnceASecond(t *testing.T) {
	h := newHooks(t)
	h.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
	rows := func(worker string) string {
		return one[string](h, `SELECT concat_ws(' ', w.ctid, l.ctid, b.ctid) FROM public.queue_tick_worker w JOIN public.dot_iu_runtime_lease l ON l.lease_name = w.worker_name
			JOIN public.queue_heartbeat b ON b.executor_id = w.worker_name WHERE w.worker_name = $1`, worker)
	}
	for _, worker := range one[[]string](h, "SELECT array_agg(worker_name ORDER BY worker_name) FROM public.queue_tick_worker") {
		if worker == "retention_sweep" || worker == "metrics_sampler" {
			continue // a run takes long, and no wake signal makes one
		}
		_, _ = h.woken(worker)
		h.justRan(worker, "0 seconds")
		was := rows(worker)
		quick, _ := h.woken(worker)
		require.True(t, quick, worker)
		require.Equal(t, was, rows(worker), worker)
		h.justRan(worker, "2 seconds")
		was = rows(worker)
		quick, _ = h.woken(worker)
		require.False(t, quick, worker)
		require.NotEqual(t, was, rows(worker), worker)
	}
	// the work of quick runs counts
	h.exec("INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', false, now() - interval '1 minute')")
	done := "SELECT done_total::int FROM public.v_queue_scheduler_status WHERE worker_name = 'job_queue_default'"
	before := one[int](h, done)
	h.justRan("job_queue_default", "0 seconds")
	quick, result := h.woken("job_queue_default")
	require.True(t, quick)
	require.EqualValues(t, 1, result["promoted"])
	require.Equal(t, before+1, one[int](h, done))
}

// Work that only quick runs do is work: the worker is shown as working, not as idle.
func TestQuickRunsThatWorkAreShown(t *testing.T) {
	h := newHooks(t)
	const worker = "job_queue_default"
	_, _ = h.woken(worker)
	h.exec("UPDATE public.queue_tick_worker SET last_work_at = now() - interval '1 hour' WHERE worker_name = $1", worker)
	shown := func() string {
		return one[string](h, `SELECT concat_ws(' ', b.last_beat_payload ->> 'state', v.last_work_at > now() - interval '1 minute',
			(b.last_beat_payload ->> 'last_work_at')::timestamptz > now() - interval '1 minute')
			FROM public.v_queue_scheduler_status v JOIN public.queue_heartbeat b ON b.executor_id = v.worker_name WHERE v.worker_name = $1`, worker)
	}
	run := func(ago string, wantQuick bool, promoted int) {
		t.Helper()
		h.justRan(worker, ago)
		quick, result := h.woken(worker)
		require.Equal(t, wantQuick, quick)
		require.EqualValues(t, promoted, result["promoted"])
	}
	run("2 seconds", false, 0)
	require.Equal(t, "idle f f", shown())
	h.exec("INSERT INTO public.job_queue (job_kind, event_domain, executor, ready, process_after) VALUES ('k', 'iu', 'external_worker', false, now() - interval '1 minute')")
	run("0 seconds", true, 1)
	require.Equal(t, "idle t f", shown(), "the list of workers shows it at once")
	run("2 seconds", false, 0)
	require.Equal(t, "working t t", shown(), "the beat with the next full run")
	worked := one[time.Time](h, "SELECT last_work_at FROM public.queue_tick_worker WHERE worker_name = $1", worker)
	run("2 seconds", false, 0)
	require.Equal(t, "idle t t", shown())
	require.Equal(t, worked, one[time.Time](h, "SELECT last_work_at FROM public.queue_tick_worker WHERE worker_name = $1", worker), "once")
}

// An attempt is counted once in done_total of webhook_worker, however often the worker is woken before its
// next full run.
func TestQuickRunsCountDeliveriesOnce(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	const worker = "webhook_worker"
	_, _ = h.woken(worker)
	done := func() int {
		return one[int](h, "SELECT done_total::int FROM public.v_queue_scheduler_status WHERE worker_name = $1", worker)
	}
	before := done()
	h.emit("order", 3)
	h.step()
	h.finish("", h.claim(3)...)
	for range 3 {
		h.justRan(worker, "0 seconds")
		quick, _ := h.woken(worker)
		require.True(t, quick)
	}
	h.justRan(worker, "2 seconds")
	quick, _ := h.woken(worker)
	require.False(t, quick)
	require.Equal(t, before+3, done())
}

// A run is a full run if new rows may not be all there is to do: after two seconds, after a
// failure, after a run that reached its limit, or after the clock was set back.
func TestFullRuns(t *testing.T) {
	h := newHooks(t)
	_, _ = h.woken("saga_orchestrator")
	for name, c := range map[string]struct {
		set   string
		quick bool
	}{
		"just now":         {"last_run_at = clock_timestamp()", true},
		"two seconds ago":  {"last_run_at = clock_timestamp() - interval '2 seconds'", false},
		"ahead":            {"last_run_at = clock_timestamp() + interval '1 hour'", false},
		"never":            {"last_run_at = NULL", false},
		"failed":           {"last_run_at = clock_timestamp(), last_result = '{\"error\": \"x\"}'", false},
		"more than it did": {"last_run_at = clock_timestamp(), last_result = '{\"more\": true}'", false},
		"nothing known":    {"last_run_at = clock_timestamp(), last_result = NULL", false},
	} {
		h.exec("UPDATE public.queue_tick_worker SET " + c.set + " WHERE worker_name = 'saga_orchestrator'")
		quick, _ := h.woken("saga_orchestrator")
		require.Equal(t, c.quick, quick, name)
	}
	h.subscribe("order")
	h.emit("order", 1000)
	h.route()
	h.justRan("saga_orchestrator", "2 seconds")
	quick, result := h.woken("saga_orchestrator")
	require.Equal(t, []any{false, float64(1000)}, []any{quick, result["jobs_created"]})
	quick, _ = h.woken("saga_orchestrator")
	require.False(t, quick, "there may be more")
	quick, _ = h.woken("saga_orchestrator")
	require.True(t, quick, "there is no more")
}

// A quick run of the orchestrator does not see rows older than the last full run: a retry, a job
// that ended late, a saga whose transaction was open. The next full run processes them. New rows
// are processed at once.
func TestQuickOrchestrator(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 3)
	h.step()
	first := h.claim(3)
	h.finish("", first[1])
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var late int64
	_, err = tx.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) VALUES ('late', '1')")
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id)
		SELECT max(id), $1 FROM public.events RETURNING id`, sub).Scan(&late))
	h.emit("order", 1)
	h.route()
	h.justRan("saga_orchestrator", "2 seconds")
	quick, result := h.woken("saga_orchestrator")
	require.Equal(t, []any{false, float64(1), float64(1), fmt.Sprint(first[1].Job)}, []any{quick, result["settled"], result["jobs_created"], result["settled_from"]})

	require.NoError(t, tx.Commit(t.Context()))
	h.finish("HTTP_500", first[0]) // older than settled_from, so a quick run does not see it
	h.finish("", first[2])
	h.emit("order", 1)
	h.route()
	h.justRan("saga_orchestrator", "0 seconds")
	quick, result = h.woken("saga_orchestrator")
	require.Equal(t, []any{true, float64(1), float64(1)}, []any{quick, result["settled"], result["jobs_created"]}, "what is new")
	_, again := h.woken("saga_orchestrator")
	require.Equal(t, []any{float64(0), float64(0)}, []any{again["settled"], again["jobs_created"]})
	h.justRan("saga_orchestrator", "2 seconds")
	quick, result = h.woken("saga_orchestrator")
	require.Equal(t, []any{false, float64(1), float64(2)}, []any{quick, result["settled"], result["jobs_created"]}, "the late saga and the retry")
	require.Equal(t, "InProgress", one[string](h, "SELECT status FROM public.webhook_delivery_sagas WHERE id = $1", late))
}

// A saga that is committed after the transaction of the run began is processed by this run, full or
// quick: no later wake signal would come for it.
func TestOrchestratorSeesWhatCameSinceItBegan(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	_, _ = h.woken("saga_orchestrator")
	for _, run := range []struct {
		ago   string
		quick bool
	}{{"2 seconds", false}, {"0 seconds", true}} {
		tx, err := h.root.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT now()")
		require.NoError(t, err)
		h.emit("order", 1)
		h.route()
		h.justRan("saga_orchestrator", run.ago)
		var quick, made string
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT COALESCE(r ->> 'quick', 'false'), r #>> '{result,jobs_created}'
			FROM public.fn_queue_tick_request('saga_orchestrator', 'wake') r`).Scan(&quick, &made))
		require.Equal(t, []string{fmt.Sprint(run.quick), "1"}, []string{quick, made})
		require.NoError(t, tx.Commit(t.Context()))
	}
}

// If the share of a subscription stopped a run before all its sagas had jobs, the run stores no
// position behind which later runs would begin.
func TestQuickOrchestratorBehindAQuota(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.subscribe("order")
	h.emit("order", 700)
	h.subscribe("rare")
	h.emit("rare", 1)
	h.route()
	var got []any
	for range 3 {
		_, result := h.woken("saga_orchestrator")
		got = append(got, result["jobs_created"])
	}
	require.Equal(t, []any{float64(669), float64(732), float64(0)}, got, "each subscription its share")
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE status = 'Pending'"))
}

// A claim with p_after takes no older job, even a returned one; a claim without it takes them.
func TestClaimBehindAJob(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 4)
	h.step()
	all := h.claim(3)
	h.exec("SELECT public.fn_webhook_job_release(ARRAY[$1::bigint], ARRAY[$2::uuid])", all[0].Job, all[0].Token)
	behind := func(after int64) []int64 {
		return one[[]int64](h, "SELECT COALESCE(array_agg(job_id), '{}') FROM public.fn_webhook_job_claim('test', 10, NULL, 10, $1)", after)
	}
	require.Equal(t, []int64{all[2].Job + 1}, behind(all[2].Job))
	require.Empty(t, behind(all[2].Job))
	require.Equal(t, []int64{all[0].Job}, behind(0))
}

// While a transaction stays open, vacuum removes no row version. Even then, the number of rows that
// quick runs and continued claims read does not grow with the work that has been done.
func TestQuickRunsReadOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []string{"never", "all-claimed", "all-finished", "at-the-end"} { // plans must not depend on when the tables were analyzed
		t.Run(analyzed, func(t *testing.T) { readOnlyWhatIsNew(t, analyzed) })
	}
}

func readOnlyWhatIsNew(t *testing.T, analyzed string) {
	h := newHooks(t)
	analyze := func(when string) {
		if when == analyzed {
			h.exec("ANALYZE public.webhook_delivery_jobs, public.webhook_delivery_sagas, public.events, public.queue_cursor, public.router_offsets")
		}
	}
	h.subscribe("order")
	open, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = open.Rollback(context.Background()) }()
	_, err = open.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	for range 3 {
		h.emit("order", 900)
		h.step()
		claimed := h.claim(900)
		analyze("all-claimed")
		h.finish("", claimed...)
		analyze("all-finished")
	}
	for _, worker := range []string{"webhook_router", "saga_orchestrator"} {
		h.justRan(worker, "2 seconds")
		quick, _ := h.woken(worker)
		require.False(t, quick)
	}
	for range 300 {
		h.emit("order", 1)
		h.justRan("webhook_router", "0 seconds")
		quick, _ := h.woken("webhook_router")
		require.True(t, quick)
	}
	h.justRan("saga_orchestrator", "2 seconds")
	_, _ = h.woken("saga_orchestrator")
	claimed := h.claim(900)
	h.emit("order", 1)
	h.justRan("webhook_router", "0 seconds")
	h.justRan("saga_orchestrator", "0 seconds")
	analyze("at-the-end")
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	read := func() (n int64) {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::bigint FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
			WHERE c.relname IN ('queue_cursor', 'router_offsets', 'events', 'webhook_delivery_sagas', 'webhook_delivery_jobs')`).Scan(&n))
		return n
	}
	for _, step := range []string{
		"SELECT public.fn_queue_tick_request('webhook_router', 'wake') ->> 'quick' = 'true'",
		"SELECT public.fn_queue_tick_request('saga_orchestrator', 'wake') ->> 'quick' = 'true'",
		fmt.Sprintf("SELECT count(*) = 1 FROM public.fn_webhook_job_claim('test', 10, NULL, 10, %d)", claimed[len(claimed)-1].Job),
	} {
		var yes bool
		was := read()
		require.NoError(t, tx.QueryRow(t.Context(), step).Scan(&yes))
		require.True(t, yes, step)
		require.Less(t, read()-was, int64(60), step)
	}
}
