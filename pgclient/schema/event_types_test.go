// The registry of event types: who may change it, and what it requires of events.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A workflow_admin registers an event type; an event of this type must have the stream and lane of
// the registry, or is refused.
func TestEventTypeIsRegistered(t *testing.T) {
	c := newCore(t)
	admin, writer := c.as("workflow_admin"), c.as("event_ingest_writer")
	set := func(args string) map[string]any {
		t.Helper()
		return call(t, admin, "public.fn_event_type_set('iu', 'made', "+args+", 'ann', 'new')")
	}
	insert := func(stream, lane string) string {
		return "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'made', '" + stream + "', '" + lane + "')"
	}
	fails(t, writer, "23503", insert("update", "immediate"))
	require.Equal(t, "not_found", set("NULL, 'immediate', NULL, NULL, NULL")["rule"], "a new one is given whole")
	require.Equal(t, true, call(t, admin, "public.fn_event_type_set('iu', 'made', 'update', 'immediate', NULL, NULL, NULL, 'ann', NULL, NULL)")["dry_run"], "NULL is a dry run")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.event_type_registry WHERE event_domain = 'iu'"))
	got := set("'update', 'immediate', 'iu_outbound_default', NULL, 'made of parts'")
	require.Equal(t, true, got["created"])
	require.NotNil(t, got["audit_id"])
	_, err := writer.Exec(t.Context(), insert("update", "immediate"))
	require.NoError(t, err)
	fails(t, writer, "23514", insert("updates", "immediate"))
	fails(t, writer, "23514", insert("update", "delayed"))
	require.Equal(t, false, set("NULL, NULL, NULL, false, NULL")["created"])
	require.Equal(t, "made of parts", get[string](c, "SELECT description FROM public.event_type_registry WHERE event_type = 'made'"), "NULL leaves what stands")
	fails(t, writer, "23503", insert("update", "immediate"))
	require.Equal(t, "ours", call(t, admin, "public.fn_event_type_set('system', 'queue_worker_silent', 'x', 'delayed', NULL, NULL, NULL, 'ann', 'r')")["rule"])
	require.Equal(t, "worker", set("NULL, NULL, 'staging_outbound', NULL, NULL")["rule"], "it does not route the domain")
	const staged = "public.fn_event_type_set('staging', 'made', 's', 'delayed', $1::text, NULL, NULL, 'ann', 'r', true)"
	require.Equal(t, "worker", call(t, admin, staged, "iu_outbound_default")["rule"], "its first type, too")
	require.Nil(t, call(t, admin, staged, "staging_outbound")["refused"])
	for _, bad := range []string{"'a b', 'immediate', NULL, NULL, NULL", "'s', 'soon', NULL, NULL, NULL", "'s', 'delayed', 'nobody', NULL, NULL", "'s', 'delayed', NULL, NULL, repeat('x', 501)"} {
		fails(t, admin, "22023", "SELECT public.fn_event_type_set('iu', 'made', "+bad+", 'ann', 'r')")
	}
	fails(t, admin, "22023", "SELECT public.fn_event_type_set('IU', 'made', 's', 'delayed', NULL, NULL, NULL, 'ann', 'r')")
	fails(t, admin, "22023", "SELECT public.fn_event_type_set('iu', NULL, 's', 'delayed', NULL, NULL, NULL, 'ann', 'r')")
	fails(t, c.as("dead_letter_operator"), "42501", "SELECT public.fn_event_type_set('iu', 'x', 's', 'delayed', NULL, NULL, NULL, 'ann', 'r')")
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'event_type_set' AND outcome = 'done'"))
}

// A workflow_admin names the roles that may enqueue jobs for an executor kind. While no role is
// named, every producer may.
func TestExecutorProducerIsNamed(t *testing.T) {
	c := newCore(t)
	admin, writer := c.as("workflow_admin"), c.as("event_ingest_writer")
	set := func(role string, allowed any) map[string]any {
		t.Helper()
		return call(t, admin, "public.fn_executor_producer_set('Codex', $1, $2, 'ann', 'r')", role, allowed)
	}
	const enqueue = "SELECT public.fn_job_enqueue('k', 'kg', 'Codex')"
	put := func() error {
		_, err := writer.Exec(t.Context(), enqueue)
		return err
	}
	require.NoError(t, put())
	require.Equal(t, "role", set("nobody_at_all", true)["rule"])
	require.Equal(t, "unchanged", set("router_worker", false)["rule"])
	require.Equal(t, []any{"router_worker"}, set("router_worker", true)["after"])
	fails(t, writer, "42501", enqueue)
	require.Equal(t, "unchanged", set("router_worker", true)["rule"])
	require.Len(t, set("event_ingest_writer", true)["after"], 2)
	require.NoError(t, put())
	require.NotNil(t, set("event_ingest_writer", false)["audit_id"])
	fails(t, writer, "42501", enqueue)
	require.Equal(t, true, call(t, admin, "public.fn_executor_producer_set('Codex', 'router_worker', false, 'ann', NULL, NULL)")["dry_run"], "NULL is a dry run")
	fails(t, writer, "42501", enqueue)
	require.Empty(t, set("router_worker", false)["after"])
	require.NoError(t, put())
	fails(t, admin, "22023", "SELECT public.fn_executor_producer_set('MOT', 'router_worker', true, 'ann', 'r')")
	fails(t, admin, "22023", "SELECT public.fn_executor_producer_set('Codex', 'router_worker', NULL, 'ann', 'r')")
	fails(t, c.as("dot_executor"), "42501", "SELECT public.fn_executor_producer_set('Codex', 'router_worker', true, 'ann', 'r')")
	require.Equal(t, "4 3", get[string](c, `SELECT count(*) FILTER (WHERE outcome = 'done') || ' ' || count(*) FILTER (WHERE outcome LIKE 'refused: %')
		FROM public.queue_operator_action WHERE action = 'executor_producer_set'`))
}
