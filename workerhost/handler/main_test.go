// Child processes of the tests: with childArg, the test binary is a command that a handler runs,
// or a host that runs such a command.
package handler_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/qtop/qtop/workerhost/handler"
)

const (
	childArg = "handler-test-child"
	patience = 60 * time.Second
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childArg {
		os.Exit(childMain(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

// childMain writes its arguments, environment and input to a file, or runs as a host, which the
// test kills.
func childMain(mode string, args []string) int {
	var what any
	switch mode {
	case "args":
		what = args
	case "env":
		what = os.Environ()
	case "host":
		h, err := handler.Command(args, handler.CommandOptions{})
		if err == nil {
			err = h.Handle(context.Background(), job())
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b, err := json.Marshal(what)
	if err == nil {
		err = os.WriteFile(args[0], b, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// self returns the argv that starts this binary as a child.
func self(t *testing.T, mode string, args ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return append([]string{exe, childArg, mode}, args...)
}

func readJSON[T any](t *testing.T, path string) (v T) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &v))
	return v
}

func job() handler.Job {
	return handler.Job{
		ID: "0198c1a2-0000-7000-8000-000000000001", RootID: "0198c1a2-0000-7000-8000-000000000000", Kind: "resize", Domain: "media", Executor: "worker", Attempt: 2, MaxAttempts: 5,
		Priority: 100, EnqueuedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Payload: json.RawMessage(`{"a": 1}`),
	}
}

func command(t *testing.T, grace time.Duration, argv ...string) handler.Handler {
	t.Helper()
	h, err := handler.Command(argv, handler.CommandOptions{Grace: grace})
	require.NoError(t, err)
	return h
}

// presence is a FIFO that shows whether processes are alive. Each live process keeps the FIFO
// open for writing (a zombie does not), so the reader gets EOF when the last of them has ended.
type presence struct {
	path  string
	lines chan string
	gone  chan struct{}
}

func newPresence(t *testing.T) *presence {
	t.Helper()
	p := &presence{path: filepath.Join(t.TempDir(), "presence"), lines: make(chan string, 16), gone: make(chan struct{})}
	require.NoError(t, syscall.Mkfifo(p.path, 0o600))
	go func() {
		defer close(p.gone)
		f, err := os.Open(p.path) // blocks until a process opens it for writing
		if err != nil {
			return
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		if f, err := os.OpenFile(p.path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})
	return p
}

// line waits for a line from a process.
func (p *presence) line(t *testing.T) string {
	t.Helper()
	select {
	case s := <-p.lines:
		return s
	case <-time.After(patience):
		require.FailNow(t, "no process has started")
		return ""
	}
}

// none waits until all processes that hold the FIFO open have ended.
func (p *presence) none(t *testing.T) {
	t.Helper()
	select {
	case <-p.gone:
	case <-time.After(patience):
		require.FailNow(t, "a process is still there")
	}
}

// within runs f and fails the test when f does not return in time.
func within(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		require.FailNow(t, "the handler does not return")
		return nil
	}
}
