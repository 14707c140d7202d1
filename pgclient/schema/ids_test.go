// Ids need no quoting where users type or read them, and ids of older releases still work.

package schema_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIDsOfNewRows(t *testing.T) {
	c := newCore(t)
	admin, host := c.as("workflow_admin"), c.as("dot_executor")
	bad := []string{"-a", ".a", "a b", "a\nb", "é", "a\x1b[31m", "a;b", "a'b", strings.Repeat("x", 201), " a", "a ", "a\u200b", "a$b"}
	for _, id := range bad {
		fails(t, admin, "22023", "SELECT public.fn_queue_heartbeat_register($1::text, 'DOT', '{iu}', 60, 300, 'ann')", id)
		fails(t, host, "22023", "SELECT public.fn_queue_host_register($1::text, gen_random_uuid(), 'v', '{}')", id)
		fails(t, c.root, "22023", "INSERT INTO public.job_subscription (executor_id, executor_kind, registered_by) VALUES ($1::text, 'DOT', 'x')", id)
	}
	for _, id := range []string{"a", "9", "web-1.example.com:8080/x@y_z", strings.Repeat("x", 200)} {
		require.Equal(t, true, call(t, admin, "public.fn_queue_heartbeat_register($1::text, 'DOT', '{iu}', 60, 300, 'ann')", id)["registered"])
		require.Equal(t, id, call(t, host, "public.fn_queue_host_register($1::text, gen_random_uuid(), 'v', '{}')", id)["host_id"])
	}
	_, err := admin.Exec(t.Context(), "SELECT public.fn_queue_heartbeat_register($1::text, 'DOT', '{iu}', 60, 300, 'ann')", "evil\x1b]0;x"+strings.Repeat("y", 150))
	require.ErrorContains(t, err, `executor id "evil?]0;xyyy`)
	require.NotContains(t, err.Error(), "\x1b")
	require.Less(t, len(err.Error()), 250)
}

func TestIDsOfAnOlderReleaseGoOn(t *testing.T) {
	c := newCore(t)
	c.exec("SET session_replication_role = replica; INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds, registered_by) " +
		"VALUES ('old one', 'DOT', '{}', now(), 60, 300, 'x'); INSERT INTO public.queue_host (host_id, instance, stopped_at) VALUES ('old host', gen_random_uuid(), now()); " +
		"SET session_replication_role = origin")
	admin, host := c.as("workflow_admin"), c.as("dot_executor")
	require.NotNil(t, call(t, host, "public.fn_queue_heartbeat_write('old one', '{}', 'x')")["last_beat_at"])
	require.Equal(t, "old host", call(t, host, "public.fn_queue_host_register('old host', gen_random_uuid(), 'v', '{}')")["host_id"])
	require.Equal(t, "old one", call(t, admin, "public.fn_queue_heartbeat_deregister('old one', 'ann', 'r')")["executor_id"])
	require.Equal(t, true, call(t, admin, "public.fn_queue_heartbeat_register('old one', 'DOT', '{}', 60, 300, 'ann')")["registered"])
	require.Equal(t, "executor old one|host old host", get[string](c, "SELECT string_agg(kind || ' ' || id, '|' ORDER BY kind) FROM public.v_queue_odd_id"))
}

func TestNumbersOfARegistration(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	const register = "SELECT public.fn_queue_heartbeat_register('x', 'DOT', $1::text[], $2::int, $3::int, 'ann')"
	fails(t, admin, "22023", register, []string{"iu", "kg", "iu"}, 60, 300)
	fails(t, admin, "22023", register, []string{"iu"}, 0, 300)
	fails(t, admin, "22023", register, []string{"iu"}, 604801, 999999999)
	fails(t, admin, "22023", register, []string{"iu"}, 60, 1000000000)
	_, err := admin.Exec(t.Context(), register, []string{"iu"}, 604800, 999999999)
	require.NoError(t, err, "a threshold from 1000000 on is not watched, as DP1 §9 has it")
	host := c.as("dot_executor")
	const instance = "'00000000-0000-4000-8000-000000000001'"
	call(t, host, "public.fn_queue_host_register('h', "+instance+", 'v', '{}')")
	fails(t, host, "22023", "SELECT public.fn_queue_host_beat('h', "+instance+", '{}', 0, jsonb_build_object('x', repeat('y', 70000)))")
}
