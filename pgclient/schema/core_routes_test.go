// Routing after a restore, after failures, while it is switched off and with two routers at once;
// the jobs of consumers; and dead letters that are routed again.

package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// refuseRouting makes routing fail with this SQLSTATE for the events with these subject refs, until
// their rows in the table test_poison are deleted.
func (c *core) refuseRouting(state string, refs ...string) {
	c.t.Helper()
	c.exec("CREATE TABLE IF NOT EXISTS public.test_poison (ref text PRIMARY KEY)")
	c.exec(`CREATE OR REPLACE FUNCTION public.fn_test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT 1 FROM public.event_outbox e JOIN public.test_poison p ON p.ref = e.event_subject_ref WHERE e.id = NEW.event_id)
		THEN RAISE 'no' USING ERRCODE = '` + state + `'; END IF; RETURN NEW; END $$`)
	c.exec("CREATE OR REPLACE TRIGGER trg_test BEFORE INSERT ON public.iu_route_attempt FOR EACH ROW EXECUTE FUNCTION public.fn_test_refuse()")
	c.exec("GRANT SELECT ON public.test_poison TO queue_owner")
	c.exec("INSERT INTO public.test_poison SELECT unnest($1::text[])", refs)
}

// route runs the router until a run routes no event or is skipped.
func (c *core) route() {
	c.t.Helper()
	eventually(c.t, "routed", func() bool {
		got := call(c.t, c.root, "public.fn_iu_route_worker_run()")
		return got["skipped"] != nil || num(got, "events") == 0
	})
}

// Transaction ids of another cluster are not comparable with those of this one. After a restore
// from another cluster, events that were routed before are not routed again, the others are, and no
// new event is skipped, even if its transaction commits late.
func TestRouteRestore(t *testing.T) {
	c := newRoutes(t)
	c.exec("INSERT INTO public.consumer_registry VALUES ('c', 'iu', 'made', 'work', 'DOT', true, 't', now(), 't', now())")
	c.refuseRouting("22000", "refused")
	for _, ref := range []string{"1", "2", "refused"} {
		c.emit("iu", ref)
	}
	c.route()
	require.Equal(t, "1 user:ann,2 user:ann", c.routed())
	c.emit("iu", "3")
	c.exec("DELETE FROM public.test_poison")
	// as after a restore of a dump from a cluster whose transaction ids were much higher
	c.exec(`BEGIN; SET LOCAL session_replication_role = replica;
		UPDATE public.event_outbox SET created_xid = '900000000000'; DELETE FROM public.job_queue;
		UPDATE public.queue_cursor SET routed = '900000000001:900000000001:';
		UPDATE public.iu_route_worker_cursor SET system_identifier = 7; COMMIT`)
	late := c.begin(c.as("event_ingest_writer"))
	_, err := late.Exec(context.Background(), "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, '5')")
	require.NoError(t, err)
	c.emit("iu", "4")
	for range 10 {
		call(t, c.root, "public.fn_iu_route_worker_run('iu_outbound_default', 2)")
	}
	require.Equal(t, "1 user:ann,2 user:ann,3 user:ann,4 user:ann", c.routed(), "what is to be seen is committed")
	c.emit("iu", "6")
	require.NoError(t, late.Commit(context.Background()))
	c.route()
	require.Equal(t, "1 user:ann,2 user:ann,3 user:ann,4 user:ann,5 user:ann,6 user:ann", c.routed())
	require.Equal(t, "3 4 5 6", get[string](c, `SELECT string_agg(e.event_subject_ref, ' ' ORDER BY e.event_subject_ref) FROM public.job_queue q
		JOIN public.event_outbox e ON e.id = q.causation_event_id`), "no job is made twice")
	require.Equal(t, "refused", get[string](c, "SELECT string_agg(event_snapshot ->> 'event_subject_ref', ' ') FROM public.iu_route_dead_letter WHERE resolved_at IS NULL"))
	require.Zero(t, get[int](c, "SELECT waiting FROM public.fn_iu_route_backlog() WHERE event_domain = 'iu'"))
	require.EqualValues(t, 7, get[int](c, "SELECT events_seen FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'"), "each is counted once")
}

// A producer that guesses the idempotency key of the job that the router will make, and enqueues a
// job with it, neither prevents the router's job nor makes the router wait.
func TestRouteKeyOfAProducer(t *testing.T) {
	for name, put := range map[string]string{
		"one": "SELECT public.fn_job_enqueue('work', 'iu', 'Agent', p_idempotency_key => $1)",
		"many": `SELECT public.fn_job_enqueue_many(jsonb_build_array(jsonb_build_object('job_kind', 'work', 'event_domain', 'iu',
			'executor', 'Agent', 'payload', '{}'::jsonb, 'idempotency_key', $1::text)))`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newRoutes(t)
			c.exec("INSERT INTO public.consumer_registry VALUES ('c', 'iu', 'made', 'work', 'DOT', true, 't', now(), 't', now())")
			c.emit("iu", "1")
			key := "route:" + get[string](c, "SELECT id::text FROM public.event_outbox") + ":c"
			open := c.begin(c.as("event_ingest_writer"))
			for range 2 { // the second call finds the job of the first
				_, err := open.Exec(t.Context(), put, key)
				require.NoError(t, err)
			}
			router := c.begin(c.as("dot_executor"))
			_, err := router.Exec(t.Context(), "SET LOCAL lock_timeout = '2s'")
			require.NoError(t, err)
			_, err = router.Exec(t.Context(), "SELECT public.fn_iu_route_worker_run()")
			require.NoError(t, err)
			require.NoError(t, router.Commit(t.Context()))
			require.NoError(t, open.Commit(t.Context()))
			require.Equal(t, "DOT "+key, get[string](c, "SELECT executor || ' ' || idempotency_key FROM public.job_queue WHERE actor = 'c'"))
			require.Equal(t, 2, get[int](c, "SELECT count(*)::int FROM public.job_queue"))
			require.Equal(t, key, get[string](c, "SELECT key FROM public.producer_key"), "a producer's keys are what it gave")
		})
	}
}

// In a large batch, only the events that fail become dead letters, each with a snapshot of the
// event.
func TestRoutePoisonedBatch(t *testing.T) {
	c := newRoutes(t)
	c.refuseRouting("22000", "17", "18", "333")
	c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, g::text) FROM generate_series(1, 500) g")
	eventually(t, "all seen", func() bool {
		call(t, c.root, "public.fn_iu_route_worker_run()")
		return get[int](c, "SELECT sum(events_seen) FROM public.iu_route_worker_cursor") == 500
	})
	require.Equal(t, 497, get[int](c, "SELECT count(*) FROM public.iu_route_attempt"))
	require.Equal(t, "17 18 333", get[string](c, `SELECT string_agg(d.event_snapshot ->> 'event_subject_ref', ' ' ORDER BY (d.event_snapshot ->> 'event_subject_ref')::int)
		FROM public.iu_route_dead_letter d JOIN public.event_outbox e ON e.id = d.event_id AND to_jsonb(e) = d.event_snapshot
		WHERE failure_code = 'ROUTE_22000' AND last_error = 'no' AND idempotency_key = 'iu_outbound_default:' || e.id`))
}

// A failure that can pass by itself, such as 40001, makes no dead letter: the run fails, and the
// next run routes the event.
func TestRouteMomentaryFailure(t *testing.T) {
	c := newRoutes(t)
	c.refuseRouting("40001", "1")
	c.emit("iu", "1")
	eventually(t, "not tried", func() bool {
		call(t, c.root, "public.fn_iu_route_worker_run()")
		return get[bool](c, "SELECT EXISTS (SELECT FROM public.queue_quarantine WHERE step = 'event_route' AND code = '40001' AND set_aside_at IS NULL)")
	})
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.iu_route_dead_letter"))
	c.exec("DELETE FROM public.test_poison; UPDATE public.queue_quarantine SET next_try_at = now()")
	c.route()
	require.Equal(t, "1 user:ann", c.routed())
}

// An event subscription with a filter on the payload gets only matching events, although the router
// resolves a batch in one statement.
func TestRouteScoped(t *testing.T) {
	c := newRoutes(t)
	c.exec(`INSERT INTO public.event_subscription (recipient_ref, event_domain, scope_filter) VALUES ('user:ben', 'iu', '{"n": 2}')`)
	c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, g::text, jsonb_build_object('n', g)) FROM generate_series(1, 3) g")
	c.route()
	require.Equal(t, "1 user:ann,2 user:ann,2 user:ben,3 user:ann", get[string](c, `SELECT string_agg(e.event_subject_ref || ' ' || a.recipient_ref, ','
		ORDER BY e.event_subject_ref, a.recipient_ref) FROM public.iu_route_attempt a JOIN public.event_outbox e ON e.id = a.event_id`))
}

func TestRouteConsumers(t *testing.T) {
	c := newRoutes(t)
	admin := c.as("workflow_admin")
	set := func(id, kind string, enabled any) map[string]any {
		return call(t, admin, "public.fn_consumer_set($1, 'iu', 'made', $2, 'external_worker', $3, 'ann', 'why')", id, kind, enabled)
	}
	require.Equal(t, true, set("one", "index", nil)["created"])
	set("two", "index", true)
	set("off", "index", false)
	c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', 'units', '1', '{\"private\": 4711}', NULL, 'cor')")
	c.emit("kg", "2")
	c.route()
	require.Equal(t, "one,two", get[string](c, `SELECT string_agg(q.actor, ',' ORDER BY q.actor) FROM public.job_queue q JOIN public.event_outbox e ON e.id = q.causation_event_id
		WHERE e.event_subject_ref = '1' AND q.job_kind = 'index' AND q.executor = 'external_worker' AND q.event_domain = 'iu' AND q.correlation_id = 'cor'
		AND q.source_ref = 'event_outbox/' || e.id AND q.payload_ref = q.source_ref AND q.target_ref = 'units/1'
		AND q.payload = jsonb_build_object('event_id', e.id, 'event_type', 'made')`))
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.job_queue"), "nothing of it for the other domain")
	// A second run makes no job again, even if the jobs are deleted and their keys are free.
	c.exec("SET session_replication_role = replica; DELETE FROM public.job_queue; SET session_replication_role = origin")
	c.exec("DELETE FROM public.queue_cursor")
	c.exec("UPDATE public.iu_route_worker_cursor SET cursor_xid = '0'")
	c.route()
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.job_queue"))
	c.exec("SELECT public.fn_iu_route_events(array_agg(e), 'iu_outbound_default') FROM public.event_outbox e")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.job_queue"), "its attempts stand: whoever routes it beside the worker makes nothing")
	// Disabled consumer: its row remains; an argument that is NULL keeps its current value.
	got := call(t, admin, "public.fn_consumer_set('two', NULL, NULL, NULL, NULL, false, 'ann', 'enough')")
	require.Equal(t, "true index", fmt.Sprint(got["before"].(map[string]any)["enabled"], " ", got["after"].(map[string]any)["job_kind"]))
	c.emit("iu", "3")
	c.route()
	require.Equal(t, "one", get[string](c, "SELECT string_agg(actor, ',') FROM public.job_queue"))
	// While jobs are switched off, the router still makes them, and they wait.
	setFlag(t, admin, "queue.job_substrate.enabled", "false")
	c.emit("iu", "4")
	c.route()
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.job_queue"))

	before := get[int](c, "SELECT count(*) FROM public.queue_operator_action")
	require.Equal(t, true, call(t, admin, "public.fn_consumer_set('new', 'iu', 'made', 'k', 'DOT', true, 'ann', NULL, true)")["created"])
	require.Equal(t, "not_found", call(t, admin, "public.fn_consumer_set('new', NULL, NULL, NULL, NULL, false, 'ann', NULL, true)")["rule"])
	require.Equal(t, before, get[int](c, "SELECT count(*) FROM public.queue_operator_action"), "a dry run writes nothing")
	require.Equal(t, "not_found", call(t, admin, "public.fn_consumer_set('new', NULL, NULL, NULL, NULL, false, 'ann', 'x')")["rule"])
	require.Equal(t, "event_type", call(t, admin, "public.fn_consumer_set('new', 'iu', 'nothing', 'k', 'DOT', true, 'ann', 'x')")["rule"])
	require.Equal(t, "refused: not_found,refused: event_type", get[string](c, `SELECT string_agg(outcome, ',' ORDER BY id) FROM public.queue_operator_action
		WHERE action = 'consumer_set' AND target = 'new'`))
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.consumer_registry WHERE consumer_id = 'new'"))
	for _, bad := range []string{"'MOT'", "'mot'", "'DOT '", "'future_MOT_executor'", "''", "NULL"} {
		state := "23514"
		if bad == "NULL" {
			state = "23502"
		}
		fails(t, c.root, state, "INSERT INTO public.consumer_registry VALUES ('bad', 'iu', 'made', 'k', "+bad+", true, 't', now(), 't', now())")
		if bad != "NULL" {
			fails(t, admin, "22023", "SELECT public.fn_consumer_set('bad', 'iu', 'made', 'k', "+bad+", true, 'ann', 'x')")
		}
	}
	for _, args := range []string{"'', 'iu', 'made', 'k', 'DOT', true, 'ann', 'x'", "'x', 'iu', 'made', '1 bad', 'DOT', true, 'ann', 'x'",
		"'x', 'iu', 'made', 'k', 'DOT', true, '', 'x'", "'x', 'iu', 'made', 'k', 'DOT', true, 'ann', ' '"} {
		fails(t, admin, "22023", "SELECT public.fn_consumer_set("+args+")")
	}
	fails(t, admin, "42501", "UPDATE public.consumer_registry SET enabled = true")
	fails(t, c.as("dot_executor", "dead_letter_operator", "queue_viewer"), "42501", "SELECT public.fn_consumer_set('x', 'iu', 'made', 'k', 'DOT', true, 'ann', 'x')")
}

// Each switch stops routing without losing an event, and is shown as the reason why events wait.
// The health function reports a router that has not run recently.
func TestRouteSwitches(t *testing.T) {
	c := newRoutes(t)
	admin := c.as("workflow_admin", "dot_executor", "queue_viewer")
	tick := func() map[string]any {
		return call(t, admin, "public.fn_queue_tick_request('iu_outbound_default', 'operator')")
	}
	health := func() map[string]any { return call(t, admin, "public.fn_iu_route_worker_health()") }
	why := func() string {
		return get[string](c, `SELECT COALESCE(string_agg(l ->> 'text', ', '), '') FROM jsonb_array_elements(public.fn_queue_why('events iu') -> 'links') l
			WHERE l ->> 'state' = 'blocks' AND l ->> 'link' <> 'host'`)
	}
	require.Equal(t, "false the worker has not run all its routes yet", fmt.Sprint(health()["healthy"], " ", health()["why"]))
	n := 0
	for _, s := range []struct{ off, on, why, skipped string }{
		{"public.fn_dot_config_set('iu_core.routes_master_enabled', 'false', 'ann', 'x')", "public.fn_dot_config_set('iu_core.routes_master_enabled', 'true', 'ann', 'x')",
			"iu_core.routes_master_enabled is off", "result"},
		{"public.fn_dot_config_set('iu_core.route_worker_enabled', 'false', 'ann', 'x')", "public.fn_dot_config_set('iu_core.route_worker_enabled', 'true', 'ann', 'x')",
			"iu_core.route_worker_enabled is off", "off"},
		{"public.fn_dot_config_set('queue.tick.iu_outbound_default.interval_seconds', '0', 'ann', 'x')",
			"public.fn_dot_config_set('queue.tick.iu_outbound_default.interval_seconds', '60', 'ann', 'x')", "queue.tick.iu_outbound_default.interval_seconds is 0", "off"},
		{"public.fn_iu_outbound_route_set('iu', false, 'ann', 'x')", "public.fn_iu_outbound_route_set('iu', true, 'ann', 'x')", "the route of iu is disabled", "none"},
	} {
		c.route()
		require.Equal(t, true, health()["healthy"], s.why)
		require.Empty(t, why())
		require.NotContains(t, call(t, admin, s.off), "refused")
		n++
		c.emit("iu", fmt.Sprint(n))
		got := tick()
		switch s.skipped {
		case "off":
			require.Equal(t, "off", got["skipped"], s.why)
		case "result":
			require.Equal(t, s.why, got["result"].(map[string]any)["skipped"])
		default:
			require.EqualValues(t, 0, num(got["result"].(map[string]any), "events"))
		}
		require.Equal(t, n-1, get[int](c, "SELECT count(*) FROM public.iu_route_attempt"), s.why)
		require.Equal(t, s.why, why())
		require.Equal(t, s.why, get[string](c, `SELECT w ->> 'why' FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'waiting') w WHERE w ->> 'queue' = 'events iu'`))
		c.exec("UPDATE public.iu_route_worker_cursor SET last_run_at = now() - interval '1 day'")
		if s.skipped != "none" {
			require.Equal(t, "false "+s.why, fmt.Sprint(health()["healthy"], " ", health()["why"]))
		} else {
			require.Equal(t, "stopped", get[string](c, "SELECT status_hint FROM public.v_queue_health WHERE source = 'cursor' AND domain = 'iu'"))
		}
		require.NotContains(t, call(t, admin, s.on), "refused")
		require.Contains(t, health()["why"], "silent since", "on again, and nobody has run it")
		c.exec("UPDATE public.iu_route_worker_cursor SET last_run_at = now() + interval '1 day'")
		require.Equal(t, "false its last run lies ahead of the clock of the server", fmt.Sprint(health()["healthy"], " ", health()["why"]))
		c.exec("UPDATE public.iu_route_worker_cursor SET last_run_at = now() - interval '1 day'")
		require.Equal(t, "stale", get[string](c, "SELECT status_hint FROM public.v_queue_health WHERE source = 'cursor' AND domain = 'iu'"))
		eventually(t, "routed", func() bool { tick(); return get[int](c, "SELECT count(*) FROM public.iu_route_attempt") == n })
		require.Equal(t, "true  0", fmt.Sprint(health()["healthy"], " ", health()["why"], " ", health()["waiting"]))
	}
	require.Equal(t, "not_found", call(t, admin, "public.fn_iu_outbound_route_set('nowhere', false, 'ann', 'x')")["rule"])
	require.Equal(t, "done done refused: not_found", get[string](c, "SELECT string_agg(outcome, ' ' ORDER BY id) FROM public.queue_operator_action WHERE action = 'route_set'"))
	call(t, admin, "public.fn_iu_outbound_route_set('iu', false, 'ann', 'x', true)")
	require.True(t, get[bool](c, "SELECT enabled FROM public.iu_outbound_route WHERE event_domain = 'iu'"))
	fails(t, admin, "22023", "SELECT public.fn_iu_outbound_route_set('iu', NULL, 'ann', 'x')")
	fails(t, admin, "22023", "SELECT public.fn_iu_route_worker_health('nobody')")
	fails(t, admin, "22023", "SELECT public.fn_iu_route_worker_run('nobody')")
	fails(t, c.as("dot_executor", "dead_letter_operator"), "42501", "SELECT public.fn_iu_outbound_route_set('iu', false, 'ann', 'x')")
	// A silent router is shown as the reason, even if a live host has its loop.
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '95 hours' WHERE executor_id = 'iu_outbound_default'")
	c.exec(`SELECT public.fn_queue_host_register('h', gen_random_uuid(), 'v', '{iu_outbound_default}')`)
	c.emit("iu", "last")
	require.Equal(t, "iu_outbound_default is silent", why())
	require.Equal(t, "iu_outbound_default is silent", get[string](c, `SELECT w ->> 'why' FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'waiting') w
		WHERE w ->> 'queue' = 'events iu'`))
}

// The domain staging has a separate router, with its own tick worker and cursor.
func TestRouteStaging(t *testing.T) {
	c := newRoutes(t)
	c.emit("staging", "1")
	c.emit("iu", "2")
	exec := c.as("dot_executor")
	eventually(t, "routed", func() bool {
		return call(t, exec, "public.fn_queue_tick_request('staging_outbound', 'operator')")["ran"] == true && c.routed() == "1 broadcast"
	})
	require.Equal(t, "staging_outbound staging", get[string](c, "SELECT string_agg(worker_name || ' ' || event_domain, ',') FROM public.iu_route_worker_cursor"))
	require.Equal(t, true, call(t, exec, "public.fn_iu_route_worker_health('staging_outbound')")["healthy"])
	require.Equal(t, "no live host runs staging_outbound", get[string](c, `SELECT l ->> 'text' FROM jsonb_array_elements(public.fn_queue_why('events staging') -> 'links') l
		WHERE l ->> 'link' = 'host'`))
}

// deadLetters makes one open dead letter per reference and returns their ids in that order.
func (c *core) deadLetters(refs ...string) []string {
	c.t.Helper()
	c.refuseRouting("22000", refs...)
	for _, ref := range refs {
		c.emit("iu", ref)
	}
	eventually(c.t, "dead letters", func() bool {
		call(c.t, c.root, "public.fn_iu_route_worker_run()")
		return get[int](c, "SELECT count(*) FROM public.iu_route_dead_letter WHERE event_snapshot ->> 'event_subject_ref' = ANY ($1)", refs) == len(refs)
	})
	return get[[]string](c, `SELECT array_agg(d.dead_letter_id::text ORDER BY array_position($1::text[], d.event_snapshot ->> 'event_subject_ref'))
		FROM public.iu_route_dead_letter d WHERE d.event_snapshot ->> 'event_subject_ref' = ANY ($1)`, refs)
}

func outcomes(answer map[string]any) string {
	var out []string
	for _, r := range answer["results"].([]any) {
		m := r.(map[string]any)
		out = append(out, fmt.Sprint(m["outcome"]))
	}
	return strings.Join(out, " ")
}

func TestRouteReplay(t *testing.T) {
	c := newRoutes(t)
	ids := c.deadLetters("1", "2", "3")
	op := c.as("dead_letter_operator")
	replay := func(pool *pgxpool.Pool, ids []string, dry bool) map[string]any {
		return call(t, pool, "public.fn_iu_route_dead_letter_replay($1::text[]::uuid[], 'ann', 'cured', $2)", ids, dry)
	}
	c.exec("DELETE FROM public.test_poison WHERE ref <> '2'")
	c.exec("INSERT INTO public.consumer_registry VALUES ('c', 'iu', 'made', 'work', 'DOT', true, 't', now(), 't', now())")
	c.exec("UPDATE public.iu_route_dead_letter SET last_failed_at = now() - interval '1 day', last_error = 'old', failure_code = 'OLD'")
	audits := get[int](c, "SELECT count(*) FROM public.queue_operator_action")
	require.Equal(t, "would_replay would_replay would_replay", outcomes(replay(op, ids, true)))
	require.Equal(t, audits, get[int](c, "SELECT count(*) FROM public.queue_operator_action"))
	require.Empty(t, c.routed())

	got := replay(op, []string{ids[0], ids[1], ids[2], "00000000-0000-4000-8000-000000000000"}, false)
	require.Equal(t, "1 user:ann,3 user:ann", c.routed())
	require.EqualValues(t, 2, got["replayed"])
	require.Equal(t, map[string]int{"replayed": 2, "failed": 1, "skipped": 1}, func() map[string]int {
		n := map[string]int{}
		for _, w := range strings.Fields(outcomes(got)) {
			n[w]++
		}
		return n
	}())
	require.Equal(t, "1 replayed ann cured OLD,2    ROUTE_22000,3 replayed ann cured OLD", get[string](c, `SELECT string_agg(concat(event_snapshot ->> 'event_subject_ref',
		' ', resolution, ' ', resolved_by, ' ', note, ' ', failure_code), ',' ORDER BY event_snapshot ->> 'event_subject_ref') FROM public.iu_route_dead_letter`))
	require.True(t, get[bool](c, "SELECT last_error = 'no' AND last_failed_at > now() - interval '1 hour' FROM public.iu_route_dead_letter WHERE resolved_at IS NULL"),
		"open, with the new failure")
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.job_queue WHERE actor = 'c'"), "the consumers of now")
	require.EqualValues(t, got["audit_id"], get[float64](c, "SELECT max(id) FROM public.queue_operator_action WHERE action = 'iu_route_dead_letter_replay' AND actor = 'ann'"))
	require.EqualValues(t, 1, get[int](c, "SELECT sum(n) FROM public.v_queue_counter WHERE scope = 'dead_event' AND k1 = 'ROUTE_22000'"), "counters follow")
	require.EqualValues(t, 2, got["skipped"], "all that were not replayed")
	last := `SELECT concat_ws(' ', outcome, after ->> 'replayed', after ->> 'skipped', after ->> 'failed', jsonb_array_length(after -> 'ids'), after ->> 'failures')
		FROM public.queue_operator_action ORDER BY id DESC LIMIT 1`
	require.Equal(t, fmt.Sprintf(`done 2 1 1 2 [["%s", "ROUTE_22000"]]`, ids[1]), get[string](c, last))
	require.Equal(t, "failed", outcomes(replay(op, ids[1:2], false)))
	require.Equal(t, fmt.Sprintf(`failed 0 0 1 0 [["%s", "ROUTE_22000"]]`, ids[1]), get[string](c, last), "it has changed the dead letter")

	again := replay(op, ids[:1], false)
	require.Contains(t, again["results"].([]any)[0].(map[string]any)["why"], "closed already as replayed by ann at")
	require.Equal(t, "refused 0 1 0", get[string](c, last))
	require.Equal(t, "1 user:ann,3 user:ann", c.routed())
	require.Equal(t, "skipped", outcomes(call(t, op, "public.fn_iu_route_dead_letter_reopen($1::text[]::uuid[], 'ann', 'x')", ids[:1])), "a replay is not taken back")

	admin := c.as("workflow_admin")
	call(t, admin, "public.fn_iu_outbound_route_set('iu', false, 'ben', 'x')")
	require.Contains(t, replay(op, ids[1:2], false)["results"].([]any)[0].(map[string]any)["why"], "the route of domain iu is disabled by ben")
	call(t, admin, "public.fn_iu_outbound_route_set('iu', true, 'ben', 'x')")
	for _, flag := range []string{"queue.dlq.replay_enabled", "iu_core.routes_master_enabled"} {
		setFlag(t, admin, flag, "false")
		for _, dry := range []bool{true, false} {
			no := replay(op, ids[1:2], dry)
			require.Equal(t, "disabled", no["rule"])
			require.Contains(t, no["reason"], flag)
			require.Equal(t, dry, no["audit_id"] == nil)
		}
		setFlag(t, admin, flag, "true")
	}
	c.exec("DELETE FROM public.test_poison")
	c.exec("SET session_replication_role = replica; DELETE FROM public.event_outbox; SET session_replication_role = origin")
	require.Equal(t, "replayed", outcomes(replay(op, ids[1:2], false)), "by its snapshot, for its partition may be gone")
	require.Equal(t, 3, get[int](c, "SELECT count(*) FROM public.iu_route_attempt"))

	for _, args := range []string{"NULL, 'ann', 'x'", "'{}', 'ann', 'x'", "ARRAY[NULL]::uuid[], 'ann', 'x'", "ARRAY[gen_random_uuid()], '', 'x'", "ARRAY[gen_random_uuid()], 'ann', ''"} {
		fails(t, op, "22023", "SELECT public.fn_iu_route_dead_letter_replay("+args+")")
	}
	fails(t, c.as("workflow_admin", "dot_executor", "queue_viewer"), "42501", "SELECT public.fn_iu_route_dead_letter_replay(ARRAY[gen_random_uuid()], 'ann', 'x')")
}

// Two operators replay the same dead letters in opposite orders: each dead letter is replayed once.
func TestRouteReplayTogether(t *testing.T) {
	c := newRoutes(t)
	var refs []string
	for i := range 20 {
		refs = append(refs, fmt.Sprint(i))
	}
	ids := c.deadLetters(refs...)
	c.exec("DELETE FROM public.test_poison")
	c.exec("INSERT INTO public.consumer_registry VALUES ('c', 'iu', 'made', 'work', 'DOT', true, 't', now(), 't', now())")
	ops := c.wide(4, "dead_letter_operator")
	replayed := 0
	for _, got := range together(t, 4, func(i int) (map[string]any, error) {
		mine := append([]string{}, ids...)
		rand.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
		return tryCall(ops, "public.fn_iu_route_dead_letter_replay($1, $2, 'cured')", mine, fmt.Sprint("ann", i))
	}) {
		replayed += int(num(got, "replayed"))
	}
	require.Equal(t, 20, replayed)
	require.Equal(t, "20 20", get[string](c, "SELECT (SELECT count(*) FROM public.iu_route_attempt) || ' ' || (SELECT count(*) FROM public.job_queue)"))
}

// An operation that replays events knows the result of each item at once, for its canary and its
// brake.
func TestRouteBulkReplay(t *testing.T) {
	c := newRoutes(t)
	ids := c.deadLetters("1", "2", "3", "4")
	c.exec("UPDATE public.iu_route_dead_letter SET last_failed_at = now() - make_interval(secs => 10 - (event_snapshot ->> 'event_subject_ref')::int)")
	op := c.as("dead_letter_operator")
	for i := range ids {
		ids[i] = "event:" + ids[i]
	}
	plan := func(canary int, ids ...string) string {
		got := call(t, op, "public.fn_queue_bulk_plan('replay_event', $1, 'source:event', 1000, 20, $2, 'ann', 'cured')", ids, canary)
		require.NotContains(t, got, "refused")
		id := fmt.Sprint(got["operation_id"])
		call(t, op, "public.fn_queue_bulk_run("+id+", 'ann')")
		return id
	}
	state := func(id string) string {
		return get[string](c, `SELECT concat_ws(' ', state, done, skipped, failed, first_ok, first_failed) FROM public.queue_bulk_operation WHERE operation_id = $1`, id)
	}
	tick := func() { call(t, c.root, "public.fn_queue_bulk_tick()") }
	c.exec("DELETE FROM public.test_poison WHERE ref IN ('1', '3', '4')")
	first := plan(2, ids...)
	eventually(t, "the canary stops it", func() bool { tick(); return strings.HasPrefix(state(first), "paused") })
	require.Equal(t, "paused 1 0 1 1 1", state(first))
	require.Contains(t, get[string](c, "SELECT state_why FROM public.queue_bulk_operation WHERE operation_id = $1", first), "the canary failed: 1 of 2 first attempts (ROUTE_22000)")
	require.Equal(t, "failed failed ROUTE_22000 ROUTE_22000 no", get[string](c, `SELECT concat_ws(' ', outcome, first_result, first_code, why)
		FROM public.queue_bulk_operation_item WHERE operation_id = $1 AND item_no = 2`, first))
	c.exec("DELETE FROM public.test_poison")
	call(t, op, "public.fn_queue_bulk_resume("+first+", 'ann')")
	eventually(t, "completed", func() bool { tick(); return strings.HasPrefix(state(first), "completed") })
	require.Equal(t, "completed 3 0 1 3 1", state(first))
	require.Equal(t, "1 user:ann,3 user:ann,4 user:ann", c.routed())
	undo := call(t, op, "public.fn_queue_bulk_undo("+first+", 'ann')")
	require.Equal(t, "final", undo["rule"])
	second := plan(0, ids[0], ids[1])
	eventually(t, "completed", func() bool { tick(); return strings.HasPrefix(state(second), "completed") })
	require.Equal(t, "completed 1 1 0 1 0", state(second), "what was replayed before is skipped")

	more := c.deadLetters("5", "6")
	got := call(t, op, "public.fn_queue_bulk_plan('resolve', ARRAY['event:' || $1, 'event:' || $2], 'source:event', 1000, 0, 0, 'ann', 'over')", more[0], more[1])
	call(t, op, fmt.Sprintf("public.fn_queue_bulk_run(%v, 'ann')", got["operation_id"]))
	eventually(t, "resolved", func() bool {
		tick()
		return get[int](c, "SELECT count(*) FROM public.iu_route_dead_letter WHERE resolution = 'abandoned'") == 2
	})
	require.EqualValues(t, 2, call(t, op, fmt.Sprintf("public.fn_queue_bulk_undo(%v, 'ann')", got["operation_id"]))["undone"], "and opened again")
}
