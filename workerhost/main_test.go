// Worker processes of the tests: with QTOP_TEST_HOST, the test binary is a worker host in a
// separate process, which the tests kill, stop and signal.
package workerhost_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

const childEnv = "QTOP_TEST_HOST"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(childMain(spec))
	}
	os.Exit(pgtest.Main(m))
}

// childSpec is the configuration of a worker process.
type childSpec struct {
	DSN, ID     string
	Loops       []string
	Concurrency int
	Grace       time.Duration
	Executor    string
	Ledger      string // file to which the handler of kind "work" writes the job's id at its start and end
	Took        time.Duration
}

// handlers returns the handlers of a worker process: "work" runs for a while, "long" for 5 s, "stuck"
// never returns, "kill" kills the process, and "command" starts one.
func (s childSpec) handlers() (map[string]handler.Handler, error) {
	if s.Ledger == "" {
		return map[string]handler.Handler{}, nil
	}
	ledger, err := os.OpenFile(s.Ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	command, err := handler.Command([]string{"true"}, handler.CommandOptions{})
	if err != nil {
		return nil, err
	}
	return map[string]handler.Handler{
		"command": command,
		"work": handler.Func(func(_ context.Context, job handler.Job) error {
			_, _ = fmt.Fprintln(ledger, "begin", job.ID)
			time.Sleep(s.Took)
			_, _ = fmt.Fprintln(ledger, "end", job.ID)
			return nil
		}),
		"long": handler.Func(func(context.Context, handler.Job) error {
			time.Sleep(5 * time.Second)
			return nil
		}),
		"kill": handler.Func(func(_ context.Context, job handler.Job) error {
			_, _ = fmt.Fprintln(ledger, "begin", job.ID)
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}),
		"stuck": handler.Func(func(ctx context.Context, job handler.Job) error {
			_, _ = fmt.Fprintln(ledger, "begin", job.ID)
			<-ctx.Done()
			return ctx.Err()
		}),
		"drill": handler.Func(func(_ context.Context, job handler.Job) error {
			var payload struct{ N int }
			if err := json.Unmarshal(job.Payload, &payload); err != nil {
				return err
			}
			_, _ = fmt.Fprintln(ledger, "begin", payload.N, time.Now().UnixMilli())
			time.Sleep(s.Took)
			_, _ = fmt.Fprintln(ledger, "end", payload.N, time.Now().UnixMilli())
			return nil
		}),
	}, nil
}

func childMain(spec string) int {
	var s childSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go leak()
	go func() { // end when the test process has ended: if it was killed, no worker process may be left
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(4)
	}()
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: s.DSN, WorkConns: hostConns, Actor: "test"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	defer client.Close()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	handlers, err := s.handlers()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	h, err := workerhost.New(client, workerhost.Options{
		ID: s.ID, Version: "test", Executor: s.Executor, Handlers: handlers, Loops: s.Loops, Concurrency: s.Concurrency, Grace: s.Grace, Log: log,
		Sender: sender.New(sender.Config{Version: cmp.Or(s.ID, "test"), Allow: loopback(), PlainHTTP: loopback(), Concurrency: s.Concurrency}),
	})
	if err == nil {
		err = h.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// leak makes the process allocate memory without end when it gets SIGUSR1,
// until the kernel ends it.
func leak() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	<-asked
	var all [][]byte
	for {
		block := make([]byte, 8<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		all = append(all, block)
		runtime.KeepAlive(all)
	}
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// child is one worker process.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	once sync.Once
}

// spawn starts a worker process on the world's database.
func (w *world) spawn(s childSpec) *child {
	w.t.Helper()
	if s.DSN == "" {
		s.DSN = w.dsn
	}
	spec, err := json.Marshal(s)
	require.NoError(w.t, err)
	exe, err := os.Executable()
	require.NoError(w.t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(spec), "GORACE=atexit_sleep_ms=0")
	return startChild(w.t, cmd)
}

func startChild(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{t: t, cmd: cmd, log: filepath.Join(t.TempDir(), "worker.log"), done: make(chan struct{})}
	out, err := os.Create(c.log)
	require.NoError(t, err)
	cmd.Stderr, cmd.Stdout = out, out
	in, err := cmd.StdinPipe() // closed when the test process ends
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		_ = in.Close()
		_ = out.Close()
		close(c.done)
	}()
	t.Cleanup(func() {
		c.kill()
		if _, race, found := strings.Cut(c.text(), "WARNING: DATA RACE"); found {
			t.Errorf("data race in worker %d:%s", cmd.Process.Pid, race[:min(len(race), 8000)])
		}
		if t.Failed() {
			t.Logf("worker %d:\n%s", cmd.Process.Pid, tail(c.text(), 4000))
		}
	})
	return c
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// kill ends the process with SIGKILL, like a crash.
func (c *child) kill() {
	c.once.Do(func() { _ = c.cmd.Process.Kill() })
	<-c.done
}

// exit waits for the end of the process and returns its exit code.
func (c *child) exit() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		require.FailNow(c.t, "the worker process does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

func (c *child) text() string {
	b, _ := os.ReadFile(c.log)
	return string(b)
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
