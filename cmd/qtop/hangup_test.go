package main

// What ends a worker: SIGTERM drains it, SIGHUP ends it only where it has a terminal. The row of
// the host records why it stopped.

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// lockedBuffer is a buffer that one goroutine reads while another writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// hosted waits until the host runs n loops.
func hosted(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var runs bool
		err := conn.QueryRow(t.Context(), "SELECT stopped_at IS NULL AND pg_catalog.cardinality(loops) = $1 FROM public.queue_host", n).Scan(&runs)
		return err == nil && runs
	}, patience, 20*time.Millisecond)
}

// stopReason returns the reason of the stop that the host recorded.
func stopReason(t *testing.T, conn *pgx.Conn) (why string) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT stop_reason FROM public.queue_host WHERE stopped_at IS NOT NULL").Scan(&why))
	return why
}

// Without a terminal, SIGHUP makes the worker read its configuration again. If
// the configuration is unusable, the host goes on with the old one, also where only
// the database or the system refuses a host with it. SIGTERM
// drains the worker, and the host records SIGTERM as the reason of its stop.
func TestHangupReadsConfigurationAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	login := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner")
	cmd := qtop(t, db.DSN(login), "worker")
	home := t.TempDir()
	manager, reports := serviceSocket(t)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+home, "QTOP_ACTOR=", "QTOP_HOST_ID=", "NOTIFY_SOCKET="+manager)
	write := func(text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(home, "qtop"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(home, "qtop", "config.yaml"), []byte(text), 0o600))
	}
	write("host_id: w1\nloops: [config_expiry]\n")
	var log lockedBuffer
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, wherever the test runs
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	hosted(t, conn, 1)

	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for i, bad := range []string{"loops: [no_such_loop]\n", "metrics_addr: nowhere\n", "metrics_addr: " + taken.Addr().String() + "\n", "read_only: true\n"} {
		write(bad)
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Count(log.text(), "the configuration was not read again") == i+1 }, patience, 20*time.Millisecond, "%s", bad)
		hosted(t, conn, 1)
	}
	logs := func(text string) { // another goroutine reads the log
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(log.text(), text) }, patience, 20*time.Millisecond, "%s", text)
	}
	logs("read_only is set, and a worker host changes the database")
	require.NoError(t, os.Remove(filepath.Join(home, "qtop", "config.yaml"))) // as while somebody replaces it
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	reports("STATUS=goes on with the old settings: the configuration file is gone")
	hosted(t, conn, 1)

	write("host_id: 'no good'\nloops: [config_expiry]\n")
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	reports("STATUS=goes on with the old settings: host id ")
	logs("no host can start with the configuration that was read again")
	hosted(t, conn, 1)

	write("host_id: w1\nloops: [config_expiry, webhook_router]\nactor: ben\n")
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	hosted(t, conn, 2)
	logs("settings of the connection have changed")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), log.text())
	require.Equal(t, "SIGTERM", stopReason(t, conn))
}

// A SIGHUP that was ignored at the start stays ignored, as under nohup.
func TestHangupUnderNohup(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	cmd := qtop(t, db.DSN(pgtest.Login(t, db, "dot_executor")), "worker", "--host-id", "w1", "--loops", "config_expiry")
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	cmd.Args = append([]string{sh, "-c", `trap "" HUP; exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = sh
	s := onTerminal(t, 120, 40, cmd)
	hosted(t, conn, 1)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP)) // if this SIGHUP counted as a signal, the next would be the second and end the worker at once
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.ends()
	require.Equal(t, "SIGTERM", stopReason(t, conn))
}

// With a terminal, SIGHUP means that the operator has gone: the worker drains.
func TestHangupOnTerminal(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	s := onTerminal(t, 120, 40, qtop(t, db.DSN(pgtest.Login(t, db, "dot_executor")), "worker", "--host-id", "w1", "--loops", "config_expiry"))
	hosted(t, conn, 1)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	s.ends()
	require.Equal(t, "SIGHUP", stopReason(t, conn))
}
