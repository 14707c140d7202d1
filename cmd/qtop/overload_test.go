package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// Another owner creates functions with the names of qtop's functions, but with
// other types or another order of arguments. They are never called. A call
// with named arguments becomes ambiguous and fails; its error points to qtop
// doctor, which names the owner.
func TestOverloadsAreNotCalled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	eve, op, writer := pgtest.Login(t, db), operator(t, db), pgtest.Login(t, db, "event_ingest_writer")
	conn := db.Conn(t, "")
	const body = ` RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('called', nextval('public.called')) $$`
	for _, sql := range []string{
		"CREATE SEQUENCE public.called", "GRANT ALL ON public.called TO PUBLIC", "GRANT CREATE ON SCHEMA public TO " + eve, "SET ROLE " + eve,
		`CREATE FUNCTION public.fn_job_enqueue(p_event_domain text, p_job_kind text, p_executor text, p_payload jsonb, p_priority int,
			p_process_after timestamptz, p_max_attempts int, p_idempotency_key text, p_actor text)` + body,
		`CREATE FUNCTION public.fn_job_enqueue(p_job_kind varchar, p_event_domain varchar, p_executor varchar, p_payload json, p_priority bigint,
			p_process_after timestamptz, p_idempotency_key varchar, p_max_attempts bigint, p_actor varchar)` + body,
		`CREATE FUNCTION public.fn_dot_config_set(p_value varchar, p_key varchar, p_actor varchar, p_reason varchar, p_until timestamptz, p_at timestamptz)` + body,
		`CREATE FUNCTION public.fn_queue_executor_register(p_actor text, p_owner_role text, p_executor_id text, p_kind text, p_domain_scope text[],
			p_stale_threshold_seconds int, p_expected_cadence_seconds int)` + body,
		"RESET ROLE",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for _, c := range []struct{ login, verb, says string }{
		{writer, "job enqueue --kind k --domain iu --executor DOT", "enqueued"},
		{op, "flag set webhook.max_attempts 7 --reason r --yes", "webhook.max_attempts set"},
		{op, "executor register x --owner-role dot_executor --kind DOT --cadence 60s --yes", "is not unique (SQLSTATE 42725): another function of this name exists: the check foreign of qtop doctor names it"},
	} {
		out, _ := qtop(t, db.DSN(c.login), strings.Fields(c.verb)...).CombinedOutput()
		require.Contains(t, string(out), c.says, c.verb)
	}
	out, _ := qtop(t, db.DSN(op), "doctor").CombinedOutput()
	for _, name := range []string{"fn_job_enqueue", "fn_dot_config_set", "fn_queue_executor_register"} {
		require.Regexp(t, `bad +foreign +function public\.`+name+`\(.* of `+eve, string(out))
	}
	var called bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT is_called FROM public.called").Scan(&called))
	require.False(t, called)
}
