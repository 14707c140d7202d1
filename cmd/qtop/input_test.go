package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// One signal ends a question, and nothing is changed.
func TestSignalAtAQuestion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dsn := db.DSN(operator(t, db))
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		s := open(t, dsn, "flag", "set", "webhook.worker.enabled", "false", "--reason", "r")
		s.until("Type yes to do it")
		require.NoError(t, s.cmd.Process.Signal(sig))
		s.exits(130)
		require.Contains(t, s.text(), "interrupted: nothing was changed", "%v", sig)
	}
	// Ctrl-C as the terminal sends it.
	s := open(t, dsn, "flag", "set", "webhook.worker.enabled", "false", "--reason", "r")
	s.until("Type yes to do it")
	_, err := s.tty.WriteString("\x03")
	require.NoError(t, err)
	s.exits(130)
	var done int
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT count(*) FROM public.queue_operator_action").Scan(&done))
	require.Zero(t, done)
}

// For an unknown terminal the program prints a line and shows no screen.
func TestUnknownTerminal(t *testing.T) {
	t.Parallel()
	cmd := qtop(t, "host=/nowhere dbname=none")
	cmd.Env = append(cmd.Env, "TERM=nonexist")
	s := onTerminal(t, 120, 40, cmd)
	s.exits(2)
	require.Contains(t, s.text(), `qtop: this machine has no description of the terminal TERM="nonexist"`)
	require.NotContains(t, string(s.raw.b), "\x1b[?1049h")
}

// withoutSize starts the console in a terminal that reports no size.
func withoutSize(t *testing.T) (cmd *exec.Cmd, tty *os.File) {
	t.Helper()
	cmd = qtop(t, "host=/nowhere dbname=none")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{})
	require.NoError(t, err)
	endless := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		endless.Stop()
		_ = tty.Close()
	})
	return cmd, tty
}

// In a terminal that reports no size, such as a serial console, nothing could be drawn.
func TestTerminalWithoutSize(t *testing.T) {
	t.Parallel()
	cmd, tty := withoutSize(t)
	out, _ := io.ReadAll(tty) // the end of the terminal is an error on Linux
	_ = cmd.Wait()
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), "the terminal reports a size of 0 columns and 0 lines")
}

// A terminal in a container gets its size a moment after the program starts.
func TestTerminalThatIsSizedLate(t *testing.T) {
	t.Parallel()
	cmd, tty := withoutSize(t)
	time.Sleep(300 * time.Millisecond) // most likely the program has looked at the size by then
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}))
	const screen = "\x1b[?1049h"
	var out []byte
	for buf := make([]byte, 4096); !strings.Contains(string(out), screen); {
		n, err := tty.Read(buf)
		out = append(out, buf[:n]...)
		require.NoError(t, err, "%s", out)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestKnownTerminal(t *testing.T) {
	own := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(own, "q"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(own, "q", "qterm"), nil, 0o600))
	t.Setenv("TERMINFO_DIRS", own)
	for term, want := range map[string]bool{
		"xterm": true, "xterm-256color": true, "xterm-ghostty": true, "tmux-direct": true, "vt100": true, "vt220": true, "vt": false, "linux": true,
		"qterm": true, "nonexist": false, "../q/qterm": false, ".": false, "q": false, strings.Repeat("x", 5000): false, "rxvt-unicode-256color": true, "st-256color": true, "stupid": false,
	} {
		require.Equal(t, want, knownTerminal(term), "%.40q", term)
	}
}

// exits waits for the program to end with this code.
func (s *screen) exits(code int) {
	s.t.Helper()
	select {
	case err := <-s.exit:
		var failed *exec.ExitError
		require.ErrorAs(s.t, err, &failed, "%s", s.text())
		require.Equal(s.t, code, failed.ExitCode(), "%s", s.text())
	case <-time.After(patience):
		s.t.Fatalf("the program did not end:\n%s", s.text())
	}
}

// Cron and systemd give /dev/null as standard input. It is a character device
// like a terminal, but nobody can answer a question there.
func TestNobodyAnswersFromDevNull(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cmd := qtop(t, db.DSN(operator(t, db)), "mark", "deploy")
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	cmd.Stdin = null
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), "cannot ask for confirmation without a terminal")
	require.Contains(t, string(out), "give --yes")
}
