package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
)

// A worker reports to the service manager that started it: ready, alive, stopping, what it waits for,
// and why it failed.
func TestServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner")
	path, wait := serviceSocket(t)
	cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=400000", "QTOP_DELIVERY_SECRETS=acme=env:NOWHERE")
	var log lockedBuffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	wait("READY=1")
	require.Eventually(t, func() bool { // another goroutine reads the log
		return strings.Contains(log.text(), `"this host cannot use a secret: it would send no webhook that is signed with it","reason":"secret_ref \"acme\": environment variable NOWHERE is not set"`)
	}, patience, 20*time.Millisecond, "%s", log.text())
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

	nobody := "postgres://anna@" + net.JoinHostPort("127.0.0.1", "1") + "/app?sslmode=disable"
	cmd = qtop(t, nobody, "worker")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path)
	require.NoError(t, cmd.Start())
	wait("STATUS=not ready: waits for the database: no connection to PostgreSQL: ")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	cmd = qtop(t, pgtest.Empty(t).DSN(""), "worker")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path)
	require.Error(t, cmd.Run())
	wait("STATUS=qtop is not installed in this database")
}

// serviceSocket is the socket of a service manager. wait waits for a line with a prefix, and returns
// the lines before it that nobody has waited for.
func serviceSocket(t *testing.T) (path string, wait func(line string) (before []string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
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
	return path, func(line string) (before []string) {
		t.Helper()
		for deadline := time.After(patience); ; {
			select {
			case got := <-said:
				if strings.HasPrefix(got, line) {
					return before
				}
				before = append(before, got)
			case <-deadline:
				require.FailNow(t, "the worker never reported "+line)
			}
		}
	}
}

// A service manager that reads nothing does not hold up a host: it works and drains. Once the manager
// reads again, it gets READY.
func TestServiceManagerThatHangs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	for _, hangs := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "notify")
		addr := &net.UnixAddr{Name: path, Net: "unixgram"}
		socket, err := net.ListenUnixgram("unixgram", addr)
		require.NoError(t, err)
		defer socket.Close()
		full, err := net.DialUnix("unixgram", nil, addr)
		require.NoError(t, err)
		defer full.Close()
		require.NoError(t, full.SetWriteDeadline(time.Now().Add(time.Second)))
		for err == nil {
			_, err = full.Write([]byte("STATUS=old"))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		cmd := qtop(t, db.DSN(pgtest.Login(t, db, "dot_executor")), "worker", "--host-id", "w1", "--loops", "job_executor", "--grace", "20s")
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=200000")
		require.NoError(t, cmd.Start())
		endless := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		hosted(t, conn, 1)
		if !hangs {
			require.NoError(t, socket.SetReadDeadline(time.Now().Add(patience)))
			for buf := make([]byte, 4096); ; {
				n, err := socket.Read(buf)
				require.NoError(t, err)
				if strings.HasPrefix(string(buf[:n]), "READY=1\nSTATUS=every loop runs") {
					break
				}
			}
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
		endless.Stop()
		require.Equal(t, "SIGTERM", stopReason(t, conn))
	}
}

// While a host drains, for a reload and for a stop, it still gives signs of life to the service
// manager and answers at its metrics address.
func TestDrainingHostLives(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	dir := t.TempDir()
	began, end := filepath.Join(dir, "began"), filepath.Join(dir, "end")
	config := filepath.Join(dir, "qtop", "config.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o700))
	require.NoError(t, os.WriteFile(config, []byte("loops: [job_executor]\nhandlers:\n  - kind: slow\n    command: [sh, -c, 'touch "+began+"; until [ -e "+end+" ]; do sleep 0.02; done']\n"), 0o600))
	cmd := qtop(t, db.DSN(pgtest.Login(t, db, "dot_executor")), "worker", "--host-id", "w1", "--metrics-addr", "127.0.0.1:0", "--grace", "20s")
	path, wait := serviceSocket(t)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=100000")
	var log lockedBuffer
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_, err := conn.Exec(t.Context(), `SELECT public.fn_queue_heartbeat_register('w1', 'DOT', '{}', 3, 600, 'test'),
		public.fn_job_subscription_set('w1', 'slow', NULL, 0, 10, true, NULL, 'test', 'test')`)
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()

	drains := func(sig syscall.Signal) {
		_, err := conn.Exec(t.Context(), "SELECT public.fn_job_enqueue('slow', 'work', 'DOT')")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return os.Remove(began) == nil }, patience, 10*time.Millisecond, "%s", log.text())
		require.NoError(t, cmd.Process.Signal(sig))
	}
	addr := regexp.MustCompile(`"msg":"metrics","address":"([^"]+)"`)
	lives := func(hosts int) { // the process has had so many
		t.Helper()
		for range 3 {
			require.NotContains(t, wait("WATCHDOG=1"), "READY=1", "a sign of the host that drains, not of the next one")
		}
		var all [][]string
		require.Eventually(t, func() bool { // another goroutine reads the log
			all = addr.FindAllStringSubmatch(log.text(), -1)
			return len(all) == hosts
		}, patience, 20*time.Millisecond)
		res, err := http.Get("http://" + all[len(all)-1][1] + "/healthz")
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	defer func() {
		if t.Failed() {
			t.Log(log.text())
		}
	}()
	wait("READY=1")
	drains(syscall.SIGHUP)
	wait("STATUS=draining, then it starts with the settings that were read again")
	lives(1)
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	wait("READY=1")
	require.NoError(t, os.Remove(end))
	require.NoError(t, os.WriteFile(config, []byte("loop: [job_executor]\n"), 0o600))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	wait(`STATUS=goes on with the old settings: unknown key "loop"`)
	drains(syscall.SIGTERM)
	wait("STATUS=draining")
	for range 3 {
		require.Empty(t, wait("WATCHDOG=1"), "the status remains")
	}
	lives(2)
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	require.NoError(t, cmd.Wait(), log.text())
}

// A host whose database is away has started for systemd after a while, so that the boot goes on. It is
// not ready before its loops run. The limit of the unit ends only a host that hangs.
func TestServiceStartsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))
	path.Cut(true)
	dsn := pgtest.OverTCP(t, db.DSN(pgtest.Login(t, db, "dot_executor")), path.Addr())
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: dsn, WorkConns: hostConns})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	log := slog.New(slog.DiscardHandler)
	host, err := workerhost.New(client, workerhost.Options{ID: "w1", Loops: []string{"webhook_router"}, Log: log})
	require.NoError(t, err)
	socket, wait := serviceSocket(t)
	m := newServiceManager(t.Context(), func(name string) string { return map[string]string{"NOTIFY_SOCKET": socket}[name] }, log)
	require.Equal(t, startLimit, m.starts)
	m.starts = time.Second
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = host.Run(ctx) })
	running.Go(func() { m.follow(ctx, ctx, host) })
	wait("READY=1")
	wait("STATUS=not ready: ")
	require.NotEmpty(t, host.Ready())
	path.Cut(false)
	require.NotContains(t, wait("STATUS=every loop runs"), "READY=1", "said once")
	m.kept(errors.New("they are wrong"))
	wait("STATUS=goes on with the old settings: they are wrong")
	path.Cut(true)
	wait("STATUS=every loop runs; no heartbeat recorded since 20")
	require.Empty(t, host.Ready(), "a loop that waits for the database runs")
	path.Cut(false)
	require.Eventually(t, func() bool { return host.Status().Failing.Empty() }, patience, 10*time.Millisecond)
	wait("STATUS=goes on with the old settings: they are wrong") // it is still so
	m.reloading()
	wait("STATUS=every loop runs")

	unit, err := os.ReadFile("../../.ci/package/qtop-worker@.service")
	require.NoError(t, err)
	limit := regexp.MustCompile(`(?s)\nType=notify\n.*\nTimeoutStartSec=(.+?)\n`).FindSubmatch(unit)
	require.Len(t, limit, 2)
	seconds, err := time.ParseDuration(string(limit[1]))
	require.NoError(t, err)
	require.GreaterOrEqual(t, seconds, startLimit+20*time.Second, "the time before the host reports")
}
