package main

// Tests that a stop is bounded: whatever the database, the network or a handler
// does, the program ends within its grace time plus two seconds, and no process
// of a command is left.

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// ownDatabase starts a server that a test may break, with the schema. It
// returns the server, a connection of a superuser, and the DSN of a host's
// login.
func ownDatabase(t *testing.T) (*embedded.Server, *pgx.Conn, string) {
	t.Helper()
	server := pgtest.OwnInstalled(t, "postgres", nil)
	conn, err := pgsession.Connect(t.Context(), server.DSN(embedded.Superuser, "postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), `CREATE ROLE test_host LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner, queue_viewer`)
	require.NoError(t, err)
	return server, conn, server.DSN("test_host", "postgres")
}

// stubborn is a shell script that ignores SIGTERM and starts a grandchild in
// another session, which ignores it too. It records the ids of both processes.
const stubborn = `#!/bin/sh
trap '' TERM
setsid sh -c 'trap "" TERM; echo $$ >>"$0"; exec sleep 300' "$PIDS" &
echo $$ >>"$PIDS"
sleep 300
sleep 300
`

// stubbornHost starts a worker, of the program without the race detector, that
// runs stubborn as the command of a job. It returns the process, a function
// that waits for a line that the worker sends to its service manager, and a
// function that returns the ids of the command's processes.
func stubbornHost(t *testing.T, conn *pgx.Conn, dsn, grace, id string) (*exec.Cmd, func(line string) (before []string), func() []int) {
	t.Helper()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	script := filepath.Join(dir, "stubborn")
	require.NoError(t, os.WriteFile(script, []byte(strings.ReplaceAll(stubborn, "$PIDS", pids)), 0o700)) //nolint:gosec // it is run
	_, err := conn.Exec(t.Context(), `SELECT public.fn_queue_heartbeat_register($1, 'DOT', '{}', 3, 600, 'test'),
		public.fn_job_subscription_set($1, 'stub_' || $1, NULL, 0, 10, true, NULL, 'test', 'test'), public.fn_job_enqueue('stub_' || $1, 'work', 'DOT')`, id)
	require.NoError(t, err)
	cmd := program(t, filepath.Join(built, "qtop"), dsn, "worker", "--host-id", id, "--grace", grace)
	config := filepath.Join(dir, "qtop", "config.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o700))
	require.NoError(t, os.WriteFile(config, []byte("handlers:\n  - kind: stub_"+id+"\n    command: ["+script+"]\n"), 0o600))
	manager, wait := serviceSocket(t)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir, "NOTIFY_SOCKET="+manager)
	log := &lockedBuffer{}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", id, log.text())
		}
	})
	processes := func() (ids []int) {
		b, _ := os.ReadFile(pids)
		for _, line := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(line); err == nil {
				ids = append(ids, pid)
			}
		}
		return ids
	}
	require.Eventually(t, func() bool { return len(processes()) == 2 }, patience, 20*time.Millisecond)
	return cmd, wait, processes
}

// lives reports whether a process runs. A zombie does not.
func lives(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}

// A SIGTERM ends a host within its grace time plus two seconds, with or without
// a running command, whatever the database does. A second SIGTERM ends it at
// once. On a busy machine an end may take longer, or endBy may cut it short with
// code 1, so each stop is repeated until one is quick enough.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("NOT CHECKED: without /proc nothing shows which processes are left")
	}
	const grace = 2 * time.Second
	for _, tt := range []struct {
		name  string
		harm  func(*testing.T, *embedded.Server, *pgtest.Path)
		twice bool
	}{
		{"none", func(*testing.T, *embedded.Server, *pgtest.Path) {}, false},
		{"frozen", func(t *testing.T, s *embedded.Server, _ *pgtest.Path) { pgtest.Freeze(t, s) }, false},
		{"black hole", func(_ *testing.T, _ *embedded.Server, p *pgtest.Path) { p.Hole(true) }, false},
		{"half open", func(_ *testing.T, _ *embedded.Server, p *pgtest.Path) { p.HalfOpen() }, false},
		{"down", func(_ *testing.T, _ *embedded.Server, p *pgtest.Path) { p.Cut(true) }, false},
		{"second signal", func(t *testing.T, s *embedded.Server, _ *pgtest.Path) { pgtest.Freeze(t, s) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limit, code := grace+2*time.Second, 0
			if tt.twice {
				limit, code = time.Second, 130
			}
			stop := func() (took time.Duration, ended int) {
				server, conn, dsn := ownDatabase(t)
				p := pgtest.NewPath(t, pgtest.TCP(t, server))
				cmd, wait, processes := stubbornHost(t, conn, pgtest.OverTCP(t, dsn, p.Addr()), grace.String(), "h")
				tt.harm(t, server, p)
				endless := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
				defer endless.Stop()
				began := time.Now()
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				if tt.twice {
					wait("STOPPING=1") // it has taken the first one: the kernel may merge two that wait
					time.Sleep(sameStop)
					began = time.Now()
					require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				}
				_ = cmd.Wait()
				took, ended = time.Since(began), cmd.ProcessState.ExitCode()
				t.Logf("ended after %v with %d", took.Round(time.Millisecond), ended)
				for _, pid := range processes() { // a killed process needs a moment to vanish
					require.Eventually(t, func() bool { return !lives(pid) }, patience, 10*time.Millisecond, "process %d of the command is left", pid)
				}
				return took, ended
			}
			for deadline := time.Now().Add(patience); ; {
				took, ended := stop()
				if took <= limit && ended == code {
					return
				}
				require.True(t, took > limit || ended == 1, "it ended in time, but with %d", ended)
				require.True(t, time.Now().Before(deadline), "each stop took more than %v or was cut short", limit)
			}
		})
	}
}

// A verb ends after SIGTERM also while nobody reads its answer: it waits in a write, which no signal ends.
// It says what that leaves unknown, in the form of its answer.
func TestEndsThoughNobodyReads(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := db.Conn(t, "").Exec(t.Context(), `INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, executor, attempts, failure_code, last_error, payload, first_failed_at, last_failed_at)
		SELECT gen_random_uuid(), 'k', 'kg', 'Agent', 1, 'HANDLER_ERROR', repeat('x', 200), '{}', now(), now() FROM generate_series(1, 1000)`)
	require.NoError(t, err)
	const line = "interrupted, and cut short because it did not end within two seconds"
	for says, args := range map[string][]string{
		"qtop: " + line + "\n": {"migrate", "sql"},
		`{"error":{"do":"","what":"` + line + `: the export is not whole","where":""}}` + "\n": {"export", "dlq", "--output", "jsonl"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			out, in, err := os.Pipe()
			require.NoError(t, err)
			defer func() { _ = out.Close() }()
			verb := qtop(t, db.DSN(""), args...)
			var errs lockedBuffer
			verb.Stdout, verb.Stderr = in, &errs
			require.NoError(t, verb.Start())
			_ = in.Close()
			_, err = out.Read(make([]byte, 1)) // the pipe does not hold the rest
			require.NoError(t, err)
			endless := time.AfterFunc(patience, func() { _ = verb.Process.Kill() })
			defer endless.Stop()
			require.NoError(t, verb.Process.Signal(syscall.SIGTERM))
			_ = verb.Wait()
			require.Equal(t, exitInterrupted, verb.ProcessState.ExitCode(), errs.text())
			require.Equal(t, says, errs.text())
		})
	}
}

// A verb that is cut short while it writes a file leaves none.
func TestCutShortLeavesNoFile(t *testing.T) {
	t.Parallel()
	a, dir := &app{}, t.TempDir()
	leave := func() { <-a.leave(func() {}) }
	leave()
	files := func() []os.DirEntry {
		all, err := os.ReadDir(dir)
		require.NoError(t, err)
		return all
	}
	_, err := a.newFile(filepath.Join(dir, "cut"), false, func(io.Writer) error {
		require.Len(t, files(), 1)
		leave()
		require.Empty(t, files())
		return io.ErrShortWrite
	})
	require.ErrorIs(t, err, io.ErrShortWrite)
	_, err = a.newFile(filepath.Join(dir, "whole"), false, func(io.Writer) error { return nil })
	require.NoError(t, err)
	leave()
	require.Len(t, files(), 1, "a file that is whole stays")
}

// A verb ends within two seconds of SIGTERM, and the console by q within the grace time of its host
// and two seconds, while the server is frozen. On a busy machine an end may take longer, so both are
// repeated until both are quick enough.
func TestEndsBesideAFrozenServer(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	for deadline := time.Now().Add(patience); ; {
		verb, console := endsBesideAFrozenServer(t, grace)
		t.Logf("the verb ended after %s, the console after %s", verb.Round(time.Millisecond), console.Round(time.Millisecond))
		if verb <= 2*time.Second && console <= grace+2*time.Second {
			return
		}
		require.True(t, time.Now().Before(deadline), "each time one of them took longer")
	}
}

// endsBesideAFrozenServer stops a verb and a console with a worker host while their server is frozen,
// and returns how long each took to end.
func endsBesideAFrozenServer(t *testing.T, grace time.Duration) (verb, console time.Duration) {
	t.Helper()
	server, conn, dsn := ownDatabase(t)
	watch := qtop(t, dsn, "status", "--watch")
	var out lockedBuffer
	watch.Stdout = &out
	require.NoError(t, watch.Start())
	t.Cleanup(func() { _ = watch.Process.Kill() })
	s := open(t, dsn, "--host-id", "console", "--grace", grace.String())
	s.until("NO HOST")
	s.keys("gw")
	s.until("webhook_router")
	s.keys("S")
	s.until("Not now")
	s.quiet() // a new dialog ignores keys until then
	s.keys(tab, enter)
	hosted(t, conn, 1)
	s.until("Done")
	s.quiet()
	s.keys(enter)
	s.gone("Done")
	require.Eventually(t, func() bool { return out.text() != "" }, patience, 20*time.Millisecond)
	pgtest.Freeze(t, server)

	endless := time.AfterFunc(patience, func() { _ = watch.Process.Kill() })
	defer endless.Stop()
	began := time.Now()
	require.NoError(t, watch.Process.Signal(syscall.SIGTERM))
	_ = watch.Wait()
	verb = time.Since(began)

	s.until("LOST") // a heartbeat of its host waits for the server by then
	s.keys("q")
	s.until("Drain and quit")
	s.quiet()
	s.keys(tab)
	began = time.Now()
	s.keys(enter)
	select {
	case err := <-s.exit:
		if err != nil { // its end was cut short
			t.Log(err)
			return verb, patience
		}
	case <-time.After(patience):
		t.Fatalf("the console did not end:\n%s", s.text())
	}
	return verb, s.ended.Sub(began)
}
