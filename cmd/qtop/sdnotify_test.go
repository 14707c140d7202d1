package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// A worker reports to the service manager that started it: ready, alive, stopping, and why it failed.
func TestServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner")
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer socket.Close()
	said := make(chan string, 1000)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := socket.Read(buf)
			if err != nil {
				close(said)
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				said <- line
			}
		}
	}()
	wait := func(line string) {
		t.Helper()
		for deadline := time.After(patience); ; {
			select {
			case got := <-said:
				if strings.HasPrefix(got, line) {
					return
				}
			case <-deadline:
				require.FailNow(t, "the worker never reported "+line)
			}
		}
	}
	cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=400000")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	wait("READY=1")
	wait("WATCHDOG=1")
	wait("WATCHDOG=1")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	wait("STOPPING=1")
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		require.FailNow(t, "the worker does not end")
	}

	cmd = qtop(t, pgtest.Empty(t).DSN(""), "worker")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path)
	require.Error(t, cmd.Run())
	wait("STATUS=qtop is not installed in this database")
}
