package main

// The programs under test: a qtop built for scripts and process tests, and the
// test binary itself as qtop where the race detector should watch a host or a
// console.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgtest"
)

const asProgram = "QTOP_TEST_AS_PROGRAM"

// noExitPause keeps a process under the race detector from sleeping for a
// second before it exits: the tests start hundreds of them.
const noExitPause = "atexit_sleep_ms=0"

// built is the directory of a qtop without the race detector, which starts six
// times as fast: the tests start hundreds of verbs. TestMain sets it.
var built string

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		main()
		return
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup: the programs that tests start would inherit that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	embedded.SuperviseMain()
	os.Exit(inBuilt(func() int { return pgtest.Main(m) }))
}

// inBuilt builds the program, runs the tests, and removes the program.
func inBuilt(run func() int) int {
	dir, err := os.MkdirTemp("", "qtop-built-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir, ".") // as .ci/build.sh does
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the program: %s\n%s", err, out)
		return 1
	}
	built = dir
	return run()
}

// qtop returns a process of the program: hosts and the console with the race
// detector, if the tests have it, and other verbs without.
func qtop(t testing.TB, dsn string, args ...string) *exec.Cmd {
	t.Helper()
	if len(args) > 0 && args[0] != "worker" {
		return program(t, filepath.Join(built, "qtop"), dsn, args...)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	return program(t, self, dsn, args...)
}

// program returns a process of the qtop at path.
func program(t testing.TB, path, dsn string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), asProgram+"=1", "QTOP_DSN="+dsn, "QTOP_ACTOR=tester", "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home, "GORACE="+noExitPause)
	return cmd
}

// operator creates a login with the rights of an operator on call.
func operator(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return pgtest.Login(t, db, "dead_letter_operator", "workflow_admin", "queue_viewer")
}

// deadLetters makes n dead letters of one endpoint the way that hosts do:
// events are routed, claimed, reported as failed and settled.
func deadLetters(ctx context.Context, conn *pgx.Conn, n int, code string) error {
	for _, sql := range []string{
		`UPDATE public.dot_config SET value = '1' WHERE key = 'webhook.max_attempts'`,
		`UPDATE public.dot_config SET value = '0' WHERE key = 'webhook.circuit_failures'`,
		fmt.Sprintf(`INSERT INTO public.subscriptions (event_type, callback_url, active, verified)
			VALUES ('t.%s', 'https://%s.example/hook', true, true)`, code, strings.ToLower(code)),
		fmt.Sprintf(`INSERT INTO public.events (event_type, payload)
			SELECT 't.%s', jsonb_build_object('n', i, 'api_key', 'hush') FROM generate_series(1, %d) i`, code, n),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	// A transaction that a parallel test holds open, in full runs for minutes,
	// delays the router, so this is repeated as long as there is progress, and without
	// the slow start of endpoints whose events waited long.
	for deadline := time.Now().Add(4 * patience); ; {
		if _, err := conn.Exec(ctx, `SELECT public.fn_webhook_router_run(10000), public.fn_saga_orchestrator_run(10000)`); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "DELETE FROM public.webhook_slow_start"); err != nil {
			return err
		}
		var reports string
		err := conn.QueryRow(ctx, `SELECT COALESCE(jsonb_agg(jsonb_build_object('job_id', job_id, 'lease_token', lease_token,
			'delivered', false, 'code', $1::text)), '[]')::text FROM public.fn_webhook_job_claim('test', 5000)`, code).Scan(&reports)
		if err != nil {
			return err
		}
		if reports != "[]" {
			if _, err := conn.Exec(ctx, `SELECT public.fn_webhook_job_report($1::jsonb)`, reports); err != nil {
				return err
			}
			deadline = time.Now().Add(4 * patience)
			continue
		}
		var open int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM public.dead_letter_open WHERE final_error_code = $1", code).Scan(&open); err != nil || open == n {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d dead letters are open", open, n)
		}
	}
}

// deadJobs makes n dead letters of one job kind the way that hosts do: an
// executor gets a job subscription; jobs are enqueued, claimed, and fail until
// their attempts are used up.
func deadJobs(ctx context.Context, conn *pgx.Conn, n int, kind, domain string) error {
	for _, sql := range []string{
		`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds,
			registered_by) VALUES ('undertaker', 'Agent', '{}', now(), 3600, 3600, 'test') ON CONFLICT DO NOTHING`,
		`INSERT INTO public.job_subscription (executor_id, executor_kind, max_parallel, enabled, registered_by)
			VALUES ('undertaker', 'Agent', 100000, true, 'test') ON CONFLICT DO NOTHING`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, `SELECT public.fn_job_enqueue($1, $2, 'Agent', jsonb_build_object('n', i, 'api_key', 'hush'), p_max_attempts => 1)
		FROM generate_series(1, $3::int) i`, kind, domain, n)
	if err != nil {
		return err
	}
	var ids, tokens []string
	if err := conn.QueryRow(ctx, `SELECT array_agg(job_id::text), array_agg(lease_token::text) FROM public.fn_job_claim('undertaker', ARRAY[$1::text], $2)`, kind, n).
		Scan(&ids, &tokens); err != nil {
		return err
	}
	var dead int
	err = conn.QueryRow(ctx, `SELECT count(*) FROM public.fn_job_fail($1::uuid[], $2::uuid[], array_fill('HANDLER_ERROR'::text, ARRAY[$3::int]),
		array_fill('it broke'::text, ARRAY[$3::int]), array_fill(false, ARRAY[$3::int])) WHERE outcome = 'done'`, ids, tokens, n).Scan(&dead)
	if err == nil && dead != n {
		err = fmt.Errorf("%d of %d jobs died", dead, n)
	}
	return err
}
