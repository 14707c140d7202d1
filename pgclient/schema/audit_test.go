// The audit: which columns of a row are proven, which are only claimed by the caller, and how many
// refusals are kept.

package schema_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestAuditClaims(t *testing.T) {
	c := newCore(t)
	login := pgtest.Login(t, c.db, "workflow_admin", "dead_letter_operator")
	conn := c.db.Conn(t, login)
	claimed := func(origin string) (claims map[string]any, by string) {
		t.Helper()
		_, err := conn.Exec(context.Background(), "SELECT set_config('qtop.origin', $1::text, false)", origin)
		require.NoError(t, err)
		_, err = conn.Exec(context.Background(), "SELECT public.fn_dot_config_set('webhook.max_attempts', (3 + floor(random() * 1000))::int::text, 'ann', 'test')")
		require.NoError(t, err)
		var raw []byte
		require.NoError(t, c.root.QueryRow(context.Background(), "SELECT claimed, db_role FROM public.queue_operator_action ORDER BY id DESC LIMIT 1").Scan(&raw, &by))
		if raw != nil {
			require.NoError(t, json.Unmarshal(raw, &claims))
		}
		return claims, by
	}
	for origin, want := range map[string]map[string]any{
		"": nil,
		`{"loginuid":"1000","sudo_user":"anna","ssh_connection":"10.0.0.7 50122 10.0.0.4 22","os_user":"root","db_role":"boss"}`: {"loginuid": "1000", "sudo_user": "anna",
			"ssh_connection": "10.0.0.7 50122 10.0.0.4 22", "os_user": "root"},
		"{nonsense":             {"unreadable": true},
		"[1]":                   nil,
		`"text"`:                nil,
		`{"sudo_user":{"a":1}}`: {"sudo_user": `{"a": 1}`},
		`{"os_user":"` + strings.Repeat("x", 500) + `"}`:    {"os_user": strings.Repeat("x", 200)},
		`{"os_user":"` + strings.Repeat("x", 5000) + `"}`:   {"unreadable": true},
		`{"os_user":"password=hunter2"}`:                    {"os_user": "password=•••"},
		`{"sudo_user":"","loginuid":null,"os_user":"root"}`: {"os_user": "root"},
	} {
		got, by := claimed(origin)
		require.Equal(t, want, got, origin)
		require.Equal(t, login, by, "what the session proves stands beside it")
	}
}

// The filter in an audit row is only what the caller claimed: here, an operation is planned for
// dead letters that its filter does not match.
func TestAuditFilterIsClaimed(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 2)
	ids := []string{}
	for _, id := range deadLetters {
		ids = append(ids, strings.TrimSpace(one[string](h, "SELECT $1::bigint::text", id)))
	}
	h.call("public.fn_queue_bulk_plan('requeue_webhook', $1::text[], 'code:HARMLESS', 5, 50, 0, 'ann', 'test')", ids)
	require.Equal(t, "claimed: code:HARMLESS", one[string](h, "SELECT filter FROM public.queue_operator_action WHERE action = 'bulk_plan'"))
}

// Refusals are recorded, but no login can fill the table with them.
func TestAuditOfRefusalsIsBounded(t *testing.T) {
	c := newCore(t)
	admin, other := c.as("workflow_admin"), c.as("workflow_admin")
	refused := func() (n int) {
		return get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE outcome LIKE 'refused%'")
	}
	for i := range 160 {
		got := call(t, admin, "public.fn_queue_executor_owner_set('none', 'dot_executor', 'eve', 'x')")
		require.Equal(t, "not_found", got["rule"])
		require.Equal(t, i < 100, got["audit_id"] != nil, "refusal %d", i)
	}
	require.Equal(t, 100, refused())
	require.Equal(t, "refused: not_found; further refusals of this login are not recorded for a minute",
		get[string](c, "SELECT outcome FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))
	call(t, other, "public.fn_queue_executor_owner_set('none', 'dot_executor', 'bob', 'x')")
	require.Equal(t, 101, refused(), "another login has its own")
	call(t, admin, "public.fn_dot_config_set('webhook.max_attempts', '6', 'eve', 'test')")
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'flag_set'"), "what is done is always recorded")
	people := func() string {
		return get[string](c, "SELECT COALESCE(string_agg(a ->> 'by', ' '), '') FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'actions') a")
	}
	require.Equal(t, "eve", people())
	// Rows that were written before the clock was set back are not of the last minute or hour.
	c.exec("ALTER TABLE public.queue_operator_action DISABLE TRIGGER USER; UPDATE public.queue_operator_action SET at = at + interval '1 day'; ALTER TABLE public.queue_operator_action ENABLE TRIGGER USER")
	require.Empty(t, people())
	require.NotNil(t, call(t, admin, "public.fn_queue_executor_owner_set('none', 'dot_executor', 'eve', 'x')")["audit_id"])

	// An attempt to use another login's executor is recorded too.
	host := c.as("dot_executor")
	call(t, admin, "public.fn_queue_executor_register('mine', 'DOT', '{}', 30, 600, 'subscription_admin', 'ann')")
	call(t, host, "public.fn_queue_heartbeat_write('mine', '{}', 'eve')")
	require.Equal(t, "mine refused: not_owner", get[string](c, "SELECT target || ' ' || outcome FROM public.queue_operator_action WHERE action = 'executor_beat'"))
	call(t, c.as("queue_viewer", "workflow_admin"), "public.fn_event_mark_read(ARRAY[gen_random_uuid()], 'role:nobody_at_all')")
	require.Equal(t, "role:nobody_at_all refused: not_recipient", get[string](c, "SELECT target || ' ' || outcome FROM public.queue_operator_action WHERE action = 'event_mark_read'"))
}
