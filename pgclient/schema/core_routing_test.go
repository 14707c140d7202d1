// Routing: which recipients an event reaches, and that no event is skipped.

package schema_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func (c *core) recipients(domain, kind, stream, table, payload string) string {
	c.t.Helper()
	return get[string](c, `SELECT string_agg(recipient_ref || ' ' || step, ',' ORDER BY recipient_ref)
		FROM public.fn_event_resolve_recipients($1, $2, $3, $4, $5)`, domain, kind, stream, table, payload)
}

func TestResolveSteps(t *testing.T) {
	c := newCore(t)
	require.Equal(t, "role:auto_instantiator 1", c.recipients("iu", "template.instance_auto_composed", "update", "", "{}"))
	require.Equal(t, "agency:sysop 2", c.recipients("any", "thing", "alert", "", "{}"), "a NULL domain is every domain")
	require.Equal(t, "role:health_owner 3", c.recipients("system", "issue_opened", "update", "", "{}"))
	require.Equal(t, "agency:sysop 2,role:health_owner 3", c.recipients("system", "issue_opened", "alert", "", "{}"))
	require.Equal(t, "role:dot_executor 4", c.recipients("dot", "thing", "update", "", "{}"))
	require.Equal(t, "agency:integrity 2,agency:sysop 2", c.recipients("health", "x", "alert", "", "{}"))
	require.Equal(t, "broadcast 5", c.recipients("iu", "nobody.cares", "update", "", "{}"))

	c.exec("DELETE FROM public.event_subscription")
	c.exec(`INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter) VALUES
		('user:all', NULL, NULL, NULL, NULL, '{}'), ('user:all', 'iu', 'a', NULL, NULL, '{}'), ('user:all', 'iu', 'a', 's', NULL, '{}'),
		('user:table', 'iu', 'a', NULL, 'units', '{}'), ('user:scope', 'iu', 'a', NULL, NULL, '{"k": {"n": 1}}')`)
	require.Equal(t, "user:all 1", c.recipients("iu", "a", "s", "", "{}"), "once, at the best step")
	require.Equal(t, "user:all 3", c.recipients("iu", "a", "other", "", "{}"))
	require.Equal(t, "user:all 4", c.recipients("kg", "a", "s", "units", `{"k": {"n": 1}}`))
	require.Equal(t, "user:all 1,user:scope 3,user:table 3", c.recipients("iu", "a", "s", "units", `{"k": {"n": 1, "m": 2}}`))
	require.Equal(t, "user:all 1", c.recipients("iu", "a", "s", "other", `{"k": {"n": 2}}`))
	c.exec("UPDATE public.event_subscription SET mute = true WHERE recipient_ref = 'user:all' AND event_stream = 's'")
	require.Equal(t, "user:all 3", c.recipients("iu", "a", "s", "", "{}"), "a muted row counts as absent")
	c.exec("UPDATE public.event_subscription SET mute = true")
	require.Equal(t, "broadcast 5", c.recipients("iu", "a", "s", "units", "{}"))
	c.exec("UPDATE public.event_subscription SET mute = false")
	setFlag(t, c.as("workflow_admin"), "queue.subscription_resolution.enabled", "false")
	require.Equal(t, "broadcast 5", c.recipients("iu", "a", "s", "units", "{}"), "off: everything is broadcast")

	for _, bad := range []string{"ann", "user:", "person:ann", ""} {
		fails(t, c.root, "23514", "INSERT INTO public.event_subscription (recipient_ref) VALUES ($1)", bad)
	}
	fails(t, c.root, "23505", "INSERT INTO public.event_subscription (recipient_ref) VALUES ('user:all')")
	admin := c.as("workflow_admin")
	_, err := admin.Exec(context.Background(), "INSERT INTO public.event_subscription (recipient_ref, event_domain) VALUES ('agent:x', 'kg')")
	require.NoError(t, err)
	fails(t, admin, "42501", "DELETE FROM public.event_subscription")
	fails(t, c.as("dot_executor", "queue_viewer"), "42501", "INSERT INTO public.event_subscription (recipient_ref) VALUES ('agent:y')")
}

// newRoutes registers one event type in three domains: events of iu reach user:ann, events of kg
// reach role:kg_indexer, and events of staging are broadcast.
func newRoutes(t *testing.T) *core {
	t.Helper()
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate'), ('kg', 'made', 's', 'immediate'), ('staging', 'made', 's', 'immediate')")
	c.exec("INSERT INTO public.event_subscription (recipient_ref, event_domain) VALUES ('user:ann', 'iu')")
	return c
}

func (c *core) emit(domain, ref string) {
	c.t.Helper()
	c.exec("SELECT public.fn_iu_emit_event($1, 'made', 's', 'immediate', 'info', NULL, $2)", domain, ref)
}

func (c *core) routed() string {
	return get[string](c, `SELECT COALESCE(string_agg(e.event_subject_ref || ' ' || a.recipient_ref, ',' ORDER BY e.event_subject_ref), '')
		FROM public.iu_route_attempt a JOIN public.event_outbox e ON e.id = a.event_id`)
}

func TestRouteOnce(t *testing.T) {
	c := newRoutes(t)
	for _, ref := range []string{"1", "2", "3"} {
		c.emit("iu", ref)
	}
	c.emit("kg", "4")
	c.emit("staging", "5")
	pool := c.wide(4, "dot_executor")
	eventually(t, "all routed", func() bool {
		together(t, 4, func(int) (map[string]any, error) {
			return tryCall(pool, "public.fn_iu_route_worker_run('iu_outbound_default', 2)")
		})
		return get[int](c, "SELECT count(*) FROM public.iu_route_attempt") == 4
	})
	require.Equal(t, "1 user:ann,2 user:ann,3 user:ann,4 role:kg_indexer", c.routed(), "staging has a worker of its own")
	require.Equal(t, "iu 3 3,kg 1 1,system 0 0", get[string](c, `SELECT string_agg(event_domain || ' ' || events_seen || ' ' || attempts_written, ','
		ORDER BY event_domain) FROM public.iu_route_worker_cursor`))
	require.EqualValues(t, 0, call(t, pool, "public.fn_iu_route_worker_run()")["events"])
	for _, bad := range []string{"0", "10001", "NULL"} {
		fails(t, pool, "22023", "SELECT public.fn_iu_route_worker_run('iu_outbound_default', "+bad+")")
	}
	setFlag(t, c.as("workflow_admin"), "iu_core.routes_master_enabled", "false")
	c.emit("iu", "6")
	require.Contains(t, call(t, pool, "public.fn_iu_route_worker_run()")["skipped"], "iu_core.routes_master_enabled")
	require.NotContains(t, c.routed(), "6")
}

// A transaction that commits late delays only its own events. They are shown as HELD once it has
// been open for a minute; the test lowers this to a second.
func TestRouteLateCommit(t *testing.T) {
	c := newRoutes(t)
	c.exec(`DO $$ BEGIN EXECUTE replace(pg_get_functiondef('public.fn_routing_held()'::regprocedure), '1 minute', '1 second'); END $$`)
	run := func() { call(t, c.root, "public.fn_iu_route_worker_run()") }
	c.emit("iu", "1")
	run()
	late := c.begin(c.as("event_ingest_writer"))
	_, err := late.Exec(context.Background(), "SET application_name = 'slow importer'; SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, '2')")
	require.NoError(t, err)
	idle := c.begin(c.root)
	_, err = idle.Exec(context.Background(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	c.emit("iu", "3")
	run()
	require.Equal(t, "1 user:ann,3 user:ann", c.routed(), "3 does not wait for 2")
	held := `SELECT COALESCE(string_agg(concat_ws(' ', h ->> 'worker', h ->> 'domain', h ->> 'program', h ->> 'pid', h ->> 'user'), ','), '')
		FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'held') h`
	var pid, user string
	require.NoError(t, late.QueryRow(context.Background(), "SELECT pg_backend_pid()::text, session_user::text").Scan(&pid, &user))
	eventually(t, "held", func() bool { return get[string](c, held) != "" })
	viewer := c.as("queue_viewer") // without pg_read_all_stats
	shown := func(sql string) (text string) {
		require.NoError(t, viewer.QueryRow(context.Background(), sql).Scan(&text))
		return text
	}
	require.Equal(t, "iu_outbound_default  slow importer "+pid+" "+user, shown(held), "who has written no event is not told")
	const health = "source = 'cursor_held' AND subject = 'iu_outbound_default' AND domain IS NULL AND age_seconds > 0"
	require.Equal(t, "held", get[string](c, "SELECT status_hint FROM public.v_queue_health WHERE "+health))
	require.Equal(t, "slows pid "+pid+" "+user+" slow importer, open since ", shown(`SELECT (l ->> 'state') || ' ' || regexp_replace(l ->> 'detail', '[^ ]+ [^ ]+$', '')
		FROM jsonb_array_elements(public.fn_queue_why('events iu') -> 'links') l WHERE l ->> 'link' = 'held'`))
	require.NoError(t, idle.Commit(context.Background()))
	require.NoError(t, late.Commit(context.Background()))
	run()
	require.Equal(t, "1 user:ann,2 user:ann,3 user:ann", c.routed())
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_health WHERE "+health))
	require.Empty(t, get[string](c, held))
}

// An event that cannot be routed becomes a dead letter and stops no other event.
func TestRouteFailureAlone(t *testing.T) {
	c := newRoutes(t)
	c.exec(`CREATE FUNCTION public.fn_test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT event_subject_ref FROM public.event_outbox WHERE id = NEW.event_id) = '2' THEN RAISE 'no'; END IF; RETURN NEW; END $$`)
	c.exec("CREATE TRIGGER trg_test BEFORE INSERT ON public.iu_route_attempt FOR EACH ROW EXECUTE FUNCTION public.fn_test_refuse()")
	for _, ref := range []string{"1", "2", "3"} {
		c.emit("iu", ref)
	}
	eventually(t, "the others went on", func() bool {
		call(t, c.root, "public.fn_iu_route_worker_run()")
		return c.routed() == "1 user:ann,3 user:ann"
	})
	require.Equal(t, "ROUTE_P0001 no 2", get[string](c, `SELECT concat_ws(' ', failure_code, last_error, event_snapshot ->> 'event_subject_ref')
		FROM public.iu_route_dead_letter`))
	require.Equal(t, "ROUTE_P0001 1 open", get[string](c, `SELECT concat_ws(' ', subject, dead_lettered, status_hint) FROM public.v_queue_health
		WHERE source = 'dead_letter_event'`))
	fails(t, c.as("queue_viewer"), "42501", "SELECT event_snapshot FROM public.iu_route_dead_letter")
}
