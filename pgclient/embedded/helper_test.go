package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A helper is this test binary, started a second time as a process that owns a server, so that the
// test can kill it. It prints one JSON line when its server runs (or failed to), and stops the
// server when its standard input ends.

const helperEnv = "QTOP_EMBEDDED_TEST_HELPER"

type helperOrder struct {
	Mode    string // "start", "locate"
	Dir     string // base directory
	Pipe    bool   // use the pipe supervisor
	Durable bool   // full durability instead of the settings of a test server
	Hide    bool   // hide every PostgreSQL of this machine first (own mount namespace)
}

type helperReport struct {
	Err                                     string
	Pid                                     int
	Joined                                  bool
	DSN, Dir, Data, Socket, Version, Origin string
}

// helperMain is called by TestMain.
func helperMain() {
	raw := os.Getenv(helperEnv)
	if raw == "" {
		return
	}
	var o helperOrder
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		panic(err)
	}
	os.Exit(helperRun(o))
}

func helperRun(o helperOrder) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	report := func(r helperReport) {
		_ = json.NewEncoder(os.Stdout).Encode(r)
	}
	if o.Hide {
		if err := hidePostgres(); err != nil {
			report(helperReport{Err: "hiding PostgreSQL: " + err.Error()})
			return 1
		}
	}
	notice := func(line string) { fmt.Fprintln(os.Stderr, "notice:", line) }
	if o.Mode == "locate" {
		b, err := Locate(ctx, 0, notice)
		r := helperReport{Version: b.Version, Dir: b.Dir, Origin: b.Origin}
		if err != nil {
			r.Err = err.Error()
		}
		report(r)
		return 0
	}
	s, err := Start(ctx, Options{Dir: o.Dir, Test: !o.Durable, pipe: o.Pipe, Notice: notice})
	if err != nil {
		report(helperReport{Err: err.Error()})
		return 1
	}
	report(helperReport{
		Pid: s.Pid(), Joined: s.Joined(), DSN: s.DSN(Superuser, "postgres"), Dir: s.Dir(),
		Data: s.DataDir(), Socket: s.SocketDir(), Version: s.Version(), Origin: s.Binaries().Origin,
	})
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type helper struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	out    *bufio.Reader
	report helperReport
}

// startHelper starts a helper and waits for its report. adjust may change the
// command before it starts.
func startHelper(t *testing.T, o helperOrder, adjust func(*exec.Cmd)) *helper {
	t.Helper()
	h := prepareHelper(t, o, adjust)
	require.NoError(t, h.cmd.Start())
	h.awaitReport(t)
	return h
}

func prepareHelper(t *testing.T, o helperOrder, adjust func(*exec.Cmd)) *helper {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	order, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helperEnv+"="+string(order))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	if adjust != nil {
		adjust(cmd)
	}
	h := &helper{cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout)}
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return h
}

func (h *helper) awaitReport(t *testing.T) {
	t.Helper()
	line, err := h.out.ReadBytes('\n')
	require.NoError(t, err, "the helper ended without a report")
	require.NoError(t, json.Unmarshal(line, &h.report))
}

// kill ends the helper with SIGKILL.
func (h *helper) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, h.cmd.Process.Kill())
	_ = h.cmd.Wait()
}

// end lets the helper stop its server and exit.
func (h *helper) end(t *testing.T) {
	t.Helper()
	require.NoError(t, h.stdin.Close())
	require.NoError(t, h.cmd.Wait())
}

// gone waits until the process pid has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		p, ok := lookup(pid)
		return !ok || p.zombie
	}, 20*time.Second, 5*time.Millisecond, "process %d still runs", pid)
}

// empty waits until no server process is left in the data directory.
func empty(t *testing.T, data string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := survivors(data)
		return err == nil && len(left) == 0
	}, 20*time.Second, 5*time.Millisecond, "processes are left in %s", data)
}
