// Tests of the end of commands: no process outlives its attempt.
package handler_test

import (
	"context"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/handler"
)

// family is a command with two child processes. Neither the command nor a child ends without
// SIGKILL. The first line that the command writes to the FIFO is its pid.
const family = `
trap '' TERM
exec 9>"$0"
sh -c 'sleep 300; sleep 300' &
sleep 300 &
echo $$ >&9
wait
wait
sleep 300`

func TestEndOfTheContextEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(context.Context) (context.Context, func())
		code string
		text string
	}{
		{"stopped", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel
		}, handler.CodeStopped, "the host stopped the command"},
		{"out of time", func(ctx context.Context) (context.Context, func()) {
			c := &expiring{Context: ctx, done: make(chan struct{})}
			return c, func() { close(c.done) }
		}, handler.CodeTimeout, "the command took longer than its timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPresence(t)
			ctx, end := tt.end(t.Context())
			result := make(chan error, 1)
			h := command(t, 100*time.Millisecond, "sh", "-c", family, p.path)
			go func() { result <- h.Handle(ctx, job()) }()
			pid, err := strconv.Atoi(p.line(t))
			require.NoError(t, err)
			end()
			code, text, permanent := handler.Outcome(within(t, func() error { return <-result }))
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.text, text)
			require.False(t, permanent)
			p.none(t)
			require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the command itself was reaped")
		})
	}
}

// expiring is a context whose deadline passes when the test closes its
// channel.
type expiring struct {
	context.Context //nolint:containedctx // a context that wraps one
	done            chan struct{}
}

func (c *expiring) Done() <-chan struct{} { return c.done }

func (c *expiring) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestCommandMayEndItselfWithinTheGrace(t *testing.T) {
	t.Parallel()
	p := newPresence(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-p.lines; cancel() }()
	// The exit code 0 is the result of the shell's clean-up, not of its work. sleep must not hold
	// the output open: a SIGTERM between its fork and exec would be lost, and the test would wait
	// for sleep to end.
	h := command(t, patience, "sh", "-c", `trap 'echo cleaned up; exit 0' TERM; exec 9>"$0"; sleep 300 >/dev/null 2>&1 & echo up >&9; wait`, p.path)
	code, text, _ := handler.Outcome(within(t, func() error { return h.Handle(ctx, job()) }))
	require.Equal(t, handler.CodeStopped, code)
	require.Equal(t, "the host stopped the command: cleaned up", text)
}

func TestWhatACommandLeavesBehind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, script, code string }{
		{"holds the output", `exec 9>"$0"; echo up >&9; sleep 300 & exit 0`, ""},
		{"holds the output of a failure", `exec 9>"$0"; echo up >&9; sleep 300 & exit 4`, "EXIT_4"},
		{"holds nothing", `exec 9>"$0"; echo up >&9; sleep 300 >/dev/null 2>&1 </dev/null & exit 0`, ""},
		{"floods", `exec 9>"$0"; echo up >&9; yes & exit 0`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPresence(t)
			h := command(t, 100*time.Millisecond, "sh", "-c", tt.script, p.path)
			code, _, _ := handler.Outcome(within(t, func() error { return h.Handle(t.Context(), job()) }))
			require.Equal(t, tt.code, code)
			p.line(t)
			p.none(t)
		})
	}
}

// A process that moved to another session does not delay the end of its attempt, and is killed
// too.
func TestWhatMovedAwayEndsToo(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux and setsid")
	}
	const stray = `setsid sh -c 'trap "" TERM; exec sleep 300 9>&9' & `
	for _, tt := range []struct{ name, script, code string }{
		{"after an end", `exec 9>"$0"; ` + stray + `echo up >&9; exit 0`, ""},
		{"after a stop", `exec 9>"$0"; ` + stray + `echo up >&9; sleep 300`, handler.CodeStopped},
		{"twice removed, without output", `exec 9>"$0"; setsid setsid sh -c '(sleep 300; sleep 300) & sleep 300' >/dev/null 2>&1 </dev/null & echo up >&9; exit 0`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPresence(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := command(t, 100*time.Millisecond, "sh", "-c", tt.script, p.path)
			result := make(chan error, 1)
			go func() { result <- h.Handle(ctx, job()) }()
			p.line(t)
			if tt.code != "" {
				cancel()
			}
			code, _, _ := handler.Outcome(within(t, func() error { return <-result }))
			require.Equal(t, tt.code, code)
			p.none(t)
		})
	}
}

func TestCommandIsNotStartedWithoutTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, text, _ := handler.Outcome(command(t, 0, "sh", "-c", "exit 9").Handle(ctx, job()))
	require.Equal(t, handler.CodeStopped, code)
	require.Equal(t, "the command was not started: no time was left for it", text)
}

func TestCommandDiesWithItsHost(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("parent-death signals are Linux's")
	}
	p := newPresence(t)
	argv := self(t, "host", "sh", "-c", `exec 9>"$0"; echo up >&9; exec sleep 300`, p.path)
	host := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	require.NoError(t, host.Start())
	p.line(t)
	require.NoError(t, host.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, host.Wait(), &exit)
	p.none(t)
}
