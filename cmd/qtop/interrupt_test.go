package main

// A signal that interrupts a verb: its exit code, and what it says about what
// was done.

import (
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// The verbs wait for a lock in the database when the signal comes.
func TestSignalInterruptsVerb(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		lock string
		sig  syscall.Signal
		code int
		said string
	}{
		{[]string{"audit"}, "public.queue_operator_action IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130, "qtop: interrupted\n"},
		{[]string{"audit", "-o", "json"}, "public.queue_operator_action IN ACCESS EXCLUSIVE MODE", syscall.SIGTERM, 130, `{"error":{"do":"","what":"interrupted","where":""}}` + "\n"},
		{[]string{"audit", "--watch"}, "public.queue_operator_action IN ACCESS EXCLUSIVE MODE", syscall.SIGTERM, 0, ""},
		{[]string{"export", "audit"}, "public.queue_operator_action IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130, "qtop: interrupted: the export is not whole\n"},
		{[]string{"export", "audit", "FILE"}, "public.queue_operator_action IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130, "qtop: interrupted: no file was written\n"},
		{[]string{"doctor"}, "public.queue_host IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130, "qtop: interrupted\n"},
		{[]string{"flag", "set", "webhook.max_attempts", "4", "--yes", "--reason", "r"}, "public.queue_operator_action IN EXCLUSIVE MODE", syscall.SIGINT, 130,
			"qtop: interrupted: qtop does not know whether the action was done: see qtop audit\n"},
		{[]string{"flag", "set", "webhook.max_attempts", "4", "--yes", "--reason", "r"}, "public.dot_config IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130,
			"qtop: interrupted: nothing was changed\n"},
		{[]string{"job", "enqueue", "--kind", "kg.reindex", "--domain", "kg", "--executor", "Agent"}, "public.job_queue IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130,
			"qtop: interrupted: qtop does not know whether the job was enqueued: see qtop queues --kind kg.reindex\n"},
		{[]string{"job", "enqueue", "--kind", "kg.reindex", "--domain", "kg", "--executor", "Agent", "--key", "once"}, "public.job_queue IN ACCESS EXCLUSIVE MODE", syscall.SIGINT, 130,
			"qtop: interrupted: qtop does not know whether the job was enqueued: enqueue it again with the same --key, which makes no second job\n"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			conn, watch := db.Conn(t, ""), db.Conn(t, "")
			_, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE "+tt.lock)
			require.NoError(t, err)
			for i, arg := range tt.args {
				if arg == "FILE" {
					tt.args[i] = filepath.Join(t.TempDir(), "audit.csv")
				}
			}
			login := operator(t, db)
			if tt.args[0] == "job" {
				login = pgtest.Login(t, db, "event_ingest_writer")
			}
			cmd := qtop(t, db.DSN(login), tt.args...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			require.NoError(t, cmd.Start())
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			require.Eventually(t, func() bool {
				var waits bool
				err := watch.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
					WHERE datname = current_database() AND application_name LIKE 'qtop %' AND wait_event_type = 'Lock')`).Scan(&waits)
				return err == nil && waits
			}, patience, 10*time.Millisecond, "%s", &errs)
			require.NoError(t, cmd.Process.Signal(tt.sig))
			select {
			case <-ended:
			case <-time.After(patience):
				_ = cmd.Process.Kill()
				<-ended
				require.FailNow(t, "it does not end", errs.String())
			}
			require.Equal(t, tt.code, cmd.ProcessState.ExitCode(), "%s", &errs)
			require.Equal(t, tt.said, errs.String())
		})
	}
}

// If an operation cannot be started, the verb still says which operations it
// made and started.
func TestOperationNotStarted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), conn, 1, "HTTP_503"))
	require.NoError(t, deadJobs(t.Context(), conn, 1, "kg.reindex", "kg"))
	_, err := conn.Exec(t.Context(), `CREATE FUNCTION public.test_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
		CREATE TRIGGER test_refuses BEFORE UPDATE ON public.queue_bulk_operation FOR EACH ROW WHEN (NEW.operation_id = 2 AND NEW.state = 'running') EXECUTE FUNCTION public.test_refuses()`)
	require.NoError(t, err)
	cmd := qtop(t, db.DSN(operator(t, db)), "requeue", "--filter", "code:*", "--rate", "1", "--yes", "--reason", "r")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.Error(t, cmd.Run())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, errs.String(), "not this one")
	require.Contains(t, out.String(), "webhook running → 1\n")
	require.Contains(t, out.String(), "→ 2: not started\n")
}
