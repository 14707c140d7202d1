// Executors and hosts: who may register one, send its heartbeat, and end it.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

const register = "public.fn_queue_heartbeat_register($1, $2, '{iu}', 60, 300, 'ann')"

// MOT, which DP6 §3.4 excludes, is refused as an executor kind, however it is spelt.
func TestExecutorKinds(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	for i, kind := range []any{"MOT", "mot", "DOT ", " DOT", "dot", "future_MOT_executor", "", nil, "DOT\n", "ＤＯＴ"} {
		_, err := tryCall(admin, register, fmt.Sprint("e", i), kind)
		refused(t, "22023", err, fmt.Sprint("kind ", kind))
		state := "23514"
		if kind == nil {
			state = "23502"
		}
		fails(t, c.root, state, `INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at,
			expected_cadence_seconds, stale_threshold_seconds, registered_by) VALUES ('e', $1, '{}', now(), 60, 300, 'x')`, kind)
		fails(t, c.root, state, "UPDATE public.queue_heartbeat SET executor_kind = $1", kind)
	}
	for i, kind := range []string{"DOT", "Agent", "Hermes", "Codex", "PG_worker", "external_worker", "future_Kestra_adapter"} {
		require.Equal(t, true, call(t, admin, register, fmt.Sprint("good", i), kind)["registered"], kind)
	}
}

func TestExecutorRegister(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	for _, bad := range []string{
		"'', 'DOT', '{}', 60, 300, 'ann'", "' x', 'DOT', '{}', 60, 300, 'ann'", "repeat('x', 201), 'DOT', '{}', 60, 300, 'ann'",
		"NULL, 'DOT', '{}', 60, 300, 'ann'", "'x', 'DOT', '{Bad}', 60, 300, 'ann'", "'x', 'DOT', '{NULL}', 60, 300, 'ann'",
		"'x', 'DOT', '{}', 0, 300, 'ann'", "'x', 'DOT', '{}', NULL, 300, 'ann'", "'x', 'DOT', '{}', 301, 300, 'ann'",
		"'x', 'DOT', '{}', 60, -5, 'ann'", "'x', 'DOT', '{}', 60, 300, ''",
	} {
		fails(t, admin, "22023", "SELECT public.fn_queue_heartbeat_register("+bad+")")
	}
	call(t, admin, "public.fn_dot_config_set('queue.heartbeat.stale_threshold_seconds', '777', 'ann', 'r')")
	call(t, admin, "public.fn_queue_heartbeat_register('kg', 'Agent', NULL, 60, NULL, 'ann')")
	require.Equal(t, "777 {}", get[string](c, "SELECT stale_threshold_seconds || ' ' || domain_scope::text FROM public.queue_heartbeat WHERE executor_id = 'kg'"))
	again := call(t, admin, "public.fn_queue_heartbeat_register('kg', 'DOT', '{}', 1, 1, 'bob')")
	require.Equal(t, "exists", again["rule"])
	require.Contains(t, again["reason"], "by ann at ")
	require.Equal(t, "Agent", get[string](c, "SELECT executor_kind FROM public.queue_heartbeat WHERE executor_id = 'kg'"))
	require.Equal(t, "exists", call(t, admin, "public.fn_queue_heartbeat_register('stale_heartbeat_check', 'DOT', '{}', 60, 300, 'bob')")["rule"])
	require.Equal(t, "done,refused: exists,refused: exists", get[string](c, `SELECT string_agg(outcome, ',' ORDER BY id)
		FROM public.queue_operator_action WHERE action = 'executor_register'`))
	fails(t, c.as("queue_viewer", "dot_executor", "dead_letter_operator"), "42501", "SELECT "+
		"public.fn_queue_heartbeat_register('y', 'DOT', '{}', 60, 300, 'eve')")
}

// 16 sessions register the same executor id at once: one succeeds, the others are refused with the
// name of the person who registered it.
func TestExecutorRegisterRace(t *testing.T) {
	c := newCore(t)
	pool := c.wide(16, "workflow_admin")
	got := together(t, 16, func(i int) (map[string]any, error) {
		return tryCall(pool, "public.fn_queue_heartbeat_register('same', 'DOT', '{}', 60, 300, $1)", fmt.Sprint("op", i))
	})
	require.Equal(t, 1, count(got, "registered", true))
	require.Equal(t, 15, count(got, "rule", "exists"))
	by := get[string](c, "SELECT registered_by FROM public.queue_heartbeat WHERE executor_id = 'same'")
	for i, g := range got {
		if g["registered"] == true {
			require.Equal(t, fmt.Sprint("op", i), by)
		} else {
			require.Contains(t, g["reason"], by)
		}
	}
}

func TestExecutorBeat(t *testing.T) {
	c := newCore(t)
	admin, dot := c.as("workflow_admin"), c.as("dot_executor")
	beat := func(id, payload string) map[string]any {
		t.Helper()
		return call(t, dot, "public.fn_queue_heartbeat_write($1, $2, 'kg')", id, payload)
	}
	require.Equal(t, "unregistered", beat("kg", "{}")["rule"])
	require.Equal(t, "tick_worker", beat("stale_heartbeat_check", "{}")["rule"])
	call(t, admin, register, "kg", "Agent")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = '2020-01-01' WHERE executor_id = 'kg'")
	require.NotEmpty(t, beat("kg", `{"state": "working", "in_flight": 3}`)["last_beat_at"])
	require.True(t, get[bool](c, `SELECT last_beat_at > now() - interval '1 minute' AND last_beat_payload ->> 'in_flight' = '3'
		FROM public.queue_heartbeat WHERE executor_id = 'kg'`))

	// The time of the last work is stored by the clock of the server, whatever clock the sender has.
	worked := func(payload string) float64 {
		t.Helper()
		beat("kg", payload)
		require.False(t, get[bool](c, "SELECT last_beat_payload ? 'now' FROM public.queue_heartbeat WHERE executor_id = 'kg'"))
		return get[float64](c, "SELECT extract(epoch FROM clock_timestamp() - (last_beat_payload ->> 'last_work_at')::timestamptz)::float8 FROM public.queue_heartbeat WHERE executor_id = 'kg'")
	}
	for _, day := range []string{"2020-01-01", "2090-01-01"} {
		require.InDelta(t, 40, worked(`{"last_work_at": "`+day+`T12:00:00.5Z", "now": "`+day+`T13:00:40.5+01:00"}`), 10)
		require.InDelta(t, 0, worked(`{"last_work_at": "`+day+`T12:00:01Z", "now": "`+day+`T12:00:00Z"}`), 10, "after its own now")
	}
	require.InDelta(t, 0, worked(`{"last_work_at": "2090-01-01T12:00:00Z"}`), 10, "of a release that sends no now")
	require.Greater(t, worked(`{"last_work_at": "2020-01-01T12:00:00Z"}`), 1e6)
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.queue_heartbeat WHERE last_beat_payload ? 'last_work_at' AND last_beat_payload ->> 'last_work_at' NOT LIKE '____-__-__T%Z'"))

	for _, key := range []string{"body", "content", "raw", "vector", "embedding", "secret", "token", "password", "ssn", "personal_data"} {
		_, err := tryCall(dot, "public.fn_queue_heartbeat_write('kg', jsonb_build_object($1::text, 1), 'kg')", key)
		refused(t, "22023", err, key)
		fails(t, c.root, "23514", "UPDATE public.queue_heartbeat SET last_beat_payload = jsonb_build_object($1::text, 1) WHERE executor_id = 'kg'", key)
	}
	for _, bad := range []string{"'kg', '[]', 'a'", "'kg', '{}', ' '", "'kg', jsonb_build_object('x', repeat('x', 8000)), 'a'"} {
		fails(t, dot, "22023", "SELECT public.fn_queue_heartbeat_write("+bad+")")
	}
	fails(t, c.as("queue_viewer", "workflow_admin"), "42501", "SELECT public.fn_queue_heartbeat_write('kg', '{}', 'a')")

	// Nobody can end the silence of an executor that another role owns.
	owner := pgtest.Login(t, c.db)
	member := c.db.Pool(t, pgtest.Login(t, c.db, "dot_executor", owner))
	c.exec("UPDATE public.queue_heartbeat SET owner_role = $1 WHERE executor_id = 'kg'", owner)
	require.Equal(t, "not_owner", beat("kg", "{}")["rule"])
	require.NotEmpty(t, call(t, member, "public.fn_queue_heartbeat_write('kg', '{}', 'a')")["last_beat_at"])
	c.exec("UPDATE public.queue_heartbeat SET owner_role = 'no_such_role' WHERE executor_id = 'kg'")
	require.Equal(t, "not_owner", beat("kg", "{}")["rule"], "a role that is gone")
	c.exec("UPDATE public.queue_heartbeat SET owner_role = NULL WHERE executor_id = 'kg'")

	call(t, admin, "public.fn_queue_heartbeat_deregister('kg', 'ann', 'moved')")
	require.Equal(t, "deregistered", beat("kg", "{}")["rule"])
}

func TestExecutorDeregister(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	drop := func(id string) map[string]any {
		t.Helper()
		return call(t, admin, "public.fn_queue_heartbeat_deregister($1, 'ann', 'moved')", id)
	}
	require.Equal(t, "not_found", drop("kg")["rule"])
	require.Equal(t, "tick_worker", drop("stale_heartbeat_check")["rule"])
	c.executor("kg", 60, 300, 3000)
	call(t, admin, "public.fn_queue_alert_ack('kg', 'ann', 'mine', '1 hour')")
	require.Equal(t, true, drop("kg")["deregistered"])
	gone := drop("kg")
	require.Equal(t, "gone", gone["rule"])
	require.Contains(t, gone["reason"], "by ann at ")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE subject = 'kg'"))
	require.Equal(t, "deregistered", get[string](c, "SELECT cleared_reason FROM public.queue_alert_ack"))
	require.Equal(t, "deregistered", get[string](c, `SELECT e ->> 'state' FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'executors') e
		WHERE e ->> 'executor_id' = 'kg'`), "a tombstone stays listed")
	require.Equal(t, true, call(t, admin, register, "kg", "DOT")["registered"], "and comes back to life")
	require.True(t, get[bool](c, `SELECT deregistered_at IS NULL AND deregistered_by IS NULL AND silent_event_at IS NULL
		AND last_beat_at > now() - interval '1 minute' FROM public.queue_heartbeat WHERE executor_id = 'kg'`))
	for _, bad := range []string{"'kg', '', 'r'", "'kg', 'ann', ''", "'kg', 'ann', NULL"} {
		fails(t, admin, "22023", "SELECT public.fn_queue_heartbeat_deregister("+bad+")")
	}
	fails(t, c.as("queue_viewer", "dot_executor"), "42501", "SELECT public.fn_queue_heartbeat_deregister('kg', 'eve', 'r')")
}

const newUUID = "SELECT gen_random_uuid()::text"

func TestHostIdentity(t *testing.T) {
	c := newCore(t)
	dot := c.as("dot_executor")
	a, b := get[string](c, newUUID), get[string](c, newUUID)
	reg := func(instance string) map[string]any {
		t.Helper()
		return call(t, dot, "public.fn_queue_host_register('h1', $1, 'v1', '{webhook_worker}')", instance)
	}
	beat := func(instance string) any {
		t.Helper()
		return call(t, dot, "public.fn_queue_host_beat('h1', $1, '{webhook_worker}', 2, '{}')", instance)["rule"]
	}
	require.Nil(t, reg(a)["rule"])
	require.Nil(t, reg(a)["rule"], "the same instance again")
	held := reg(b)
	require.Equal(t, "held", held["rule"])
	require.Contains(t, held["reason"], a)
	require.Nil(t, beat(a))
	require.Equal(t, "lost", beat(b))
	c.exec("UPDATE public.queue_host SET last_seen_at = now() - interval '16 seconds'")
	require.Nil(t, reg(b)["rule"], "a silent one gives way")
	require.Equal(t, "lost", beat(a))
	require.Equal(t, false, call(t, dot, "public.fn_queue_host_stop('h1', $1)", a)["stopped"])
	require.Equal(t, true, call(t, dot, "public.fn_queue_host_stop('h1', $1)", b)["stopped"])
	require.Nil(t, reg(a)["rule"], "a stopped one too")
	got := together(t, 8, func(int) (map[string]any, error) {
		return tryCall(dot, "public.fn_queue_host_register('h2', gen_random_uuid(), 'v', '{}')")
	})
	require.Equal(t, 7, count(got, "rule", "held"))
}
