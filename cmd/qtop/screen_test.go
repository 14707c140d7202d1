package main

// Drives the console as an operator does: the real program in a
// pseudo-terminal, keys in, screen out, on a real database.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// patience limits every wait; a test must not fail because the machine is busy.
const patience = 60 * time.Second

type screen struct {
	t    testing.TB
	cmd  *exec.Cmd
	tty  *os.File
	emu  *vt.SafeEmulator
	exit chan error
	raw  *lastBytes

	ended time.Time // when the program ended; may be read once exit has given its value
}

// lastBytes keeps the end of the program's output.
type lastBytes struct {
	b    []byte
	seen chan time.Time // receives the time of output; buffer of one
}

func (l *lastBytes) add(p []byte) {
	select {
	case l.seen <- time.Now():
	default:
	}
	l.b = append(l.b, p...)
	if len(l.b) > 1<<16 {
		l.b = l.b[len(l.b)-1<<15:]
	}
}

func open(t testing.TB, dsn string, args ...string) *screen {
	t.Helper()
	return openSized(t, 120, 40, dsn, args...)
}

func openSized(t testing.TB, cols, rows int, dsn string, args ...string) *screen {
	t.Helper()
	return onScreen(t, cols, rows, qtop(t, dsn, args...))
}

// onScreen starts the program in a terminal.
func onScreen(t testing.TB, cols, rows int, cmd *exec.Cmd) *screen {
	t.Helper()
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	return onTerminal(t, cols, rows, cmd)
}

// onTerminal starts the program in a terminal, with the TERM that cmd already
// has.
func onTerminal(t testing.TB, cols, rows int, cmd *exec.Cmd) *screen {
	t.Helper()
	cmd.Env = append(cmd.Env, "LANG=C.UTF-8", "TZ=UTC")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)})
	require.NoError(t, err)
	s := &screen{t: t, cmd: cmd, tty: tty, emu: vt.NewSafeEmulator(cols, rows), exit: make(chan error, 1), raw: &lastBytes{seen: make(chan time.Time, 1)}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 1<<16)
		for {
			n, err := tty.Read(buf)
			s.raw.add(buf[:n])
			_, _ = s.emu.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { // passes the emulator's answers to queries back to the program
		buf := make([]byte, 1024)
		for {
			n, err := s.emu.Read(buf)
			if err != nil {
				return
			}
			_, _ = tty.Write(buf[:n])
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		s.ended = time.Now()
		select {
		case <-read: // all output has been read
		case <-time.After(2 * time.Second): // a child process that still runs keeps the terminal open: do not wait for it
		}
		_ = tty.Close()
		<-read
		s.exit <- err
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error for an ended process is fine
		<-ended
	})
	return s
}

func (s *screen) text() string { return ansi.Strip(s.emu.Render()) }

func (s *screen) wait(what string, ok func(string) bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok(s.text()) {
		if time.Now().After(deadline) {
			s.t.Fatalf("the screen never showed %s:\n%s", what, s.text())
		}
		time.Sleep(20 * time.Millisecond) // between two looks at the screen
	}
}

func (s *screen) until(text string) {
	s.t.Helper()
	s.wait(fmt.Sprintf("%q", text), func(have string) bool { return strings.Contains(have, text) })
}

func (s *screen) match(expr string) {
	s.t.Helper()
	re := regexp.MustCompile(expr)
	s.wait(expr, re.MatchString)
}

func (s *screen) gone(text string) {
	s.t.Helper()
	s.wait(fmt.Sprintf("anything but %q", text), func(have string) bool { return !strings.Contains(have, text) })
}

func (s *screen) keys(keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		_, err := s.tty.WriteString(k)
		require.NoError(s.t, err)
		time.Sleep(30 * time.Millisecond) // as fast as a person types
	}
}

// quiet waits until a new dialog accepts keys.
func (s *screen) quiet() { time.Sleep(600 * time.Millisecond) } // nothing on the screen shows when keys are taken again

func (s *screen) ends() {
	s.t.Helper()
	select {
	case err := <-s.exit:
		require.NoError(s.t, err)
	case <-time.After(patience):
		s.t.Fatalf("the program did not end:\n%s", s.text())
	}
}

const (
	enter = "\r"
	tab   = "\t"
)

// An operator finds the dead letter, requeues it with a reason, and reads the audit.
func TestConsoleRequeues(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), conn, 3, "HTTP_503"))
	s := open(t, db.DSN(operator(t, db)))
	s.until("NO HOST")
	s.keys("5")
	s.until("http_503.example")
	s.keys(enter)
	s.until("· 3 rows") // the dead letters, not the group with its preview
	s.keys("R")
	s.until("Reason")
	s.quiet()
	s.keys("receiver healed", enter)
	s.until("Keep")
	s.match(`Requeue \d`)
	s.quiet()
	s.keys(enter) // the safe button has the focus
	s.gone("Keep")
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.dead_letter_requeues").Scan(&n))
	require.Zero(t, n)

	s.keys("R")
	s.until("Reason")
	s.quiet()
	s.keys("receiver healed", enter)
	s.until("Keep")
	s.quiet()
	s.keys(tab, enter)
	require.Eventually(t, func() bool {
		return conn.QueryRow(t.Context(), "SELECT count(*) FROM public.dead_letter_requeues").Scan(&n) == nil && n == 1
	}, patience, 50*time.Millisecond, "%s", s.text())
	var attempts, jobs int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT g.attempt_count, (SELECT count(*) FROM public.webhook_delivery_jobs j WHERE j.saga_id = g.id)
		FROM public.dead_letter_requeues r JOIN public.webhook_delivery_sagas g ON g.id = r.new_saga_id WHERE r.requeued_by = 'tester' AND r.reason = 'receiver healed'`).Scan(&attempts, &jobs))
	require.Zero(t, attempts)
	require.Zero(t, jobs)
	s.until("Done")
	s.quiet()
	s.keys(enter)
	s.gone("Done")
	s.keys("ga")
	s.until("dead letter 3")
	s.keys(enter)
	s.until("receiver healed")
	s.keys("q")
	s.ends()
	require.Contains(t, string(s.raw.b), "\x1b[?1049l", "the alternate screen was left")
}

// The database goes away while the console runs: the last snapshot stays with
// its age, and actions are off with the reason. When the database is back, the
// console recovers by itself.
func TestConsoleSurvivesDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.OwnInstalled(t, "postgres", nil)
	dsn := server.DSN("postgres", "postgres")
	s := open(t, dsn)
	s.until("NO HOST")
	s.keys("3")
	s.until("Alerts")
	s.keys("gf")
	s.until("queue.notify.bridge_enabled")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := server.Done()
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGINT)) // a fast shutdown
	<-done
	s.until("actions off")
	s.until("queue.notify.bridge_enabled")
	s.keys("E")
	s.quiet()
	require.NotContains(t, s.text(), "Set a flag", "no form opens while nothing can be done")
	require.NoError(t, server.Restart(ctx))
	s.until("live")
	s.keys("q")
	s.ends()
}

// A signal from outside also ends the console cleanly.
func TestConsoleEndsOnHangup(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dsn := db.DSN(operator(t, db))
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		s := open(t, dsn)
		s.until("NO HOST")
		require.NoError(t, s.cmd.Process.Signal(sig))
		s.ends()
		require.Contains(t, string(s.raw.b), "\x1b[?1049l", "%v", sig)
	}
}

// A console that a signal ends while the database works on an action names the action, behind the alternate screen.
func TestConsoleEndsDuringAction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), conn, 3, "HTTP_503"))
	s := open(t, db.DSN(operator(t, db)))
	s.until("NO HOST")
	s.keys("5")
	s.until("http_503.example")
	s.keys(enter)
	s.until("· 3 rows")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE public.dead_letter_requeues IN EXCLUSIVE MODE") // the action waits for it, its preview does not
	require.NoError(t, err)
	s.keys("R")
	s.until("Reason")
	s.quiet()
	s.keys("receiver healed", enter)
	s.until("Keep")
	s.quiet()
	s.keys(tab, enter)
	s.until("action in progress")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.ends()
	require.NoError(t, tx.Rollback(t.Context()))
	_, after, _ := strings.Cut(string(s.raw.b), "\x1b[?1049l")
	require.Regexp(t, `qtop: the console ended before the result of an action was shown: Requeue [a-z ]+; see qtop audit\r\n$`, after)
	require.Equal(t, 1, strings.Count(after, "qtop: "), after)
}
