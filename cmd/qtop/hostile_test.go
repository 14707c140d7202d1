package main

// In the hostile world every name that qtop's SQL uses has a double: another
// object of the same name, in schema public and in a schema that comes first
// in the search_path of the database and of every login. These tests install
// qtop there, run a host and the verbs, and fail if a double is called.

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
)

func TestHostileWorld(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	pgtest.Hostile(t, db)
	super := pgtest.Login(t, db)
	x := story{t, db.Conn(t, ""), db}
	_, err := x.conn.Exec(t.Context(), "ALTER ROLE "+pgx.Identifier{super}.Sanitize()+" SUPERUSER")
	require.NoError(t, err)
	run := func(dsn string, args ...string) string {
		t.Helper()
		out, err := qtop(t, dsn, args...).CombinedOutput()
		var exit *exec.ExitError
		if err != nil {
			require.ErrorAs(t, err, &exit, "%s", args)
			require.Contains(t, []int{1, 3, 4, 5, 6, 75, 77}, exit.ExitCode(), "%s: %s", args, out)
		}
		return string(out)
	}
	require.Contains(t, run(db.DSN(super), "migrate", "up"), "up 001")

	// The jobs and events are created before the doubles, because the
	// statements of this test do not give the types of all arguments.
	var got int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(server.Close)
	for code, n := range map[string]int{"HTTP_503": 20, "TIMEOUT": 3} {
		require.NoError(t, deadLetters(t.Context(), x.conn, n, code))
	}
	require.NoError(t, deadJobs(t.Context(), x.conn, 5, "kg.reindex", "kg"))
	for _, sql := range []string{
		"UPDATE public.subscriptions SET callback_url = '" + server.URL + "/hook'",
		"INSERT INTO public.events (event_type, payload) SELECT 't.HTTP_503', '{}' FROM generate_series(1, 10)",
		"UPDATE public.dot_config SET value = '1' WHERE key LIKE 'queue.tick.%.interval_seconds'",
		"UPDATE public.queue_tick_worker SET last_run_at = NULL, last_attempt_at = NULL",
	} {
		_, err := x.conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	pgtest.HostileOverloads(t, db)
	require.Empty(t, db.Calls(t), "installing calls none")

	// Run every tick worker, and the deliveries.
	host := x.host("all", strings.Join(workerhost.LoopNames(), ","))
	x.eventually("webhooks are delivered", func() bool {
		return x.number("SELECT count(*) FROM public.webhook_delivery_sagas WHERE status = 'Completed'") >= 10
	})
	x.eventually("every tick that is on ran", func() bool {
		got = x.number("SELECT count(*) FROM public.queue_tick_worker WHERE last_run_at IS NOT NULL")
		return got >= 8
	})
	op := db.DSN(operator(t, db))
	deadLetter := fmt.Sprint(x.number("SELECT min(dead_letter_id) FROM public.dead_letter_open"))
	for _, verb := range []string{
		"status", "health", "alerts", "executors", "executors -o json", "hosts", "dlq", "dlq-groups", "dlq " + deadLetter, "flags", "scheduler", "audit", "queues",
		"queues --filter kind:*", "lease list", "executor subscriptions", "subscriptions", "subscriptions --share", "subscriptions --resolve kg/made", "report --since 1h", "route", "consumer",
		"webhooks", "ops", "notifications", "why webhook", "doctor", "version", "migrate status", "mark deploy --yes", "job enqueue --kind kg.reindex --domain kg --executor Codex",
		"requeue " + deadLetter + " --reason x --yes", "resolve " + deadLetter + " --reason x --yes", "flag set webhook.max_attempts 6 --reason x --yes",
		"tick stale_heartbeat_check --reason x --yes", "executor deregister kg_1 --reason x --yes", "export jobs", "export flags", "export audit",
	} {
		run(op, strings.Fields(verb)...)
	}
	for _, verb := range []string{"doctor", "migrate up", "migrate status", "status"} {
		run(db.DSN(super), strings.Fields(verb)...)
	}
	require.NoError(t, host.Process.Signal(syscall.SIGTERM))
	_ = host.Wait()
	require.Empty(t, db.Calls(t))
}

// An old release does call the doubles. This shows that the test would notice
// a call.
func TestHostileWorldOfAnOldRelease(t *testing.T) {
	pgtest.NotHostile(t, "here the doubles are called, to show that they can be")
	t.Parallel()
	db := pgtest.Released(t)
	// A login that may only create functions makes one double. It answers like
	// the real function, so that its caller would not notice.
	lone := pgtest.Login(t, db)
	admin := db.Conn(t, "")
	for _, sql := range []string{
		"GRANT CREATE ON SCHEMA public TO " + lone, "SET ROLE " + lone,
		`CREATE FUNCTION public.make_interval(secs integer) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN
			RAISE LOG 'qtop-hostile % make_interval', current_database(); RETURN pg_catalog.make_interval(secs => secs::float8); END $$`,
		"RESET ROLE", "UPDATE public.queue_tick_worker SET last_run_at = now() - interval '1 day', last_attempt_at = NULL",
		"SELECT public.fn_queue_tick_request(worker_name, 'external') FROM public.queue_tick_worker", "SELECT public.fn_queue_stale_check()",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	require.Equal(t, []string{"make_interval"}, db.Calls(t))

	pgtest.Hostile(t, db)
	pgtest.HostileOverloads(t, db)
	eve := pgtest.Login(t, db, "queue_viewer", "workflow_admin", "dead_letter_operator", "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker")
	conn, err := pgx.Connect(t.Context(), db.DSN(eve))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, sql := range []string{
		"SELECT public.fn_queue_snapshot('0')", "SELECT public.fn_queue_tick_request(worker_name, 'wake') FROM public.queue_tick_worker",
		"SELECT public.fn_job_claim('w', NULL, 1)", "SELECT public.fn_saga_orchestrator_run()", "SELECT public.fn_webhook_job_claim('w', 1, '{}', 1)",
		"SELECT public.fn_dot_config_set('webhook.max_attempts', '7', 'eve', 'x')",
		"SELECT * FROM public.queue_heartbeat WHERE executor_id = 'x'",
		"SELECT has_function_privilege(session_user, to_regprocedure('public.fn_queue_mark(text, text)'), 'EXECUTE')",
	} {
		_, _ = conn.Exec(ctx, sql) // the answer of a double may break the statement
	}
	calls := db.Calls(t)
	for _, called := range []string{"operator evil.=", "public.format(", "evil.has_function_privilege(a1 name, a2 regprocedure, a3 text)"} {
		require.Contains(t, strings.Join(calls, "\n"), called)
	}
}
