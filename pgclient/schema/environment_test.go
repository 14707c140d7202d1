// The environment that a database has: its name, and whether it is guarded.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A guarded database can be made open, or get another name, only by giving its current name;
// setting the flag, giving another name, or an expiry do not do it. An unreadable value counts as
// guarded.
func TestEnvironmentIsLoweredByItsNameAlone(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	value := func() string {
		return get[string](c, "SELECT value FROM public.dot_config WHERE key = 'queue.environment'")
	}
	set := func(name, guard string, confirm any) map[string]any {
		t.Helper()
		return call(t, admin, "public.fn_queue_environment_set($1, $2, $3, 'ann', 'r')", name, guard, confirm)
	}
	flag := func(v string) any {
		t.Helper()
		return call(t, admin, "public.fn_dot_config_set('queue.environment', $1, 'ann', 'r')", v)["rule"]
	}
	require.Equal(t, "unset", value())
	require.Nil(t, flag("staging open"), "an open one may be changed as any flag")
	require.Equal(t, "unchanged", set("staging", "open", nil)["rule"])
	require.Equal(t, "invalid_value", flag("prod eu guarded"))
	require.Equal(t, "conflict", call(t, admin, "public.fn_dot_config_set('queue.environment', 'x guarded', 'ann', 'r', now() + interval '1 hour')")["rule"])
	require.Nil(t, flag("prod guarded"), "and raised")
	for _, v := range []string{"prod open", "unset", "staging guarded"} {
		require.Equal(t, "confirm", flag(v), v)
	}
	require.Equal(t, "name", set("prod", "open", nil)["rule"])
	require.Equal(t, "name", set("prod2", "guarded", "prod2")["rule"])
	fails(t, admin, "22023", "SELECT public.fn_queue_environment_set('prod', 'none', 'prod', 'ann', 'r')")
	fails(t, admin, "22023", "SELECT public.fn_queue_environment_set(NULL, 'open', 'prod', 'ann', 'r')")
	fails(t, c.as("dead_letter_operator"), "42501", "SELECT public.fn_queue_environment_set('prod', 'open', 'prod', 'ann', 'r')")
	require.Equal(t, "prod guarded", value())
	dry := call(t, admin, "public.fn_queue_environment_set('prod', 'open', NULL, 'ann', 'r', NULL)")
	require.Equal(t, "prod", dry["confirm"], "a dry run, and NULL is one, says which name is wanted")
	require.Equal(t, "prod guarded", value())
	require.NotNil(t, set("prod", "open", "prod")["audit_id"])
	require.Equal(t, "prod open", value())
	require.Equal(t, "2 1", get[string](c, `SELECT count(*) FILTER (WHERE outcome = 'refused: name') || ' ' || count(*) FILTER (WHERE outcome = 'done')
		FROM public.queue_operator_action WHERE action = 'environment_set'`))

	c.exec("UPDATE public.dot_config SET value = 'production' WHERE key = 'queue.environment'") // written directly, without a guard: unreadable
	require.Equal(t, "confirm", flag("unset"))
	require.Equal(t, "name", set("x", "open", "x")["rule"])
	require.Nil(t, set("x", "open", "production")["rule"])
}
