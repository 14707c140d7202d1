package main

// Tests of a standard output and a standard error whose reader has gone.

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// brokenPipe returns the end of a pipe to which a process may write, and which nobody reads.
func brokenPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// A verb whose reader has gone reports it in one line and ends with 1, also if it repeats its answer.
func TestAnswerIntoABrokenPipe(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t).DSN("")
	for _, args := range [][]string{
		{"version"}, {"--version"}, {"--help"}, {"help", "dlq"}, {"status", "--help"}, {"config", "show"}, {"profile", "list", "-o", "json"}, {"completion", "bash"},
		{"migrate", "sql"}, {"flags", "-o", "json"}, {"export", "flags"}, {"doctor"}, {"status", "--watch"}, {"--accessible"},
	} {
		cmd := qtop(t, dsn, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = brokenPipe(t), &errs
		_ = cmd.Run()
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%v: %s %s", args, cmd.ProcessState, errs.String())
		require.Equal(t, 1, strings.Count(errs.String(), "broken pipe"), "%v: %s", args, errs.String())
		both := qtop(t, dsn, args...)
		both.Stdout, both.Stderr = brokenPipe(t), brokenPipe(t)
		_ = both.Run()
		require.Equal(t, 1, both.ProcessState.ExitCode(), "%v: %s", args, both.ProcessState)
	}
}

// A worker host whose log nobody reads any more goes on: it reads its configuration again, works on a
// job, whose command does not ignore SIGPIPE, and drains at SIGTERM.
func TestWorkerOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	login := pgtest.Login(t, db, "dot_executor")
	_, err := conn.Exec(t.Context(), `SELECT public.fn_queue_executor_register('mine', 'DOT', '{}', 3, 600, $1, 'test'),
		public.fn_job_subscription_set('mine', NULL, NULL, 0, 5, true, NULL, 'test', 'test')`, login)
	require.NoError(t, err)
	cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1", "--executor", "mine", "--loops", "job_executor,job_queue_default")
	cmd.Env = append(cmd.Env, `QTOP_HANDLERS=[{"kind":"pipe","command":["/bin/sh","-c","sh -c 'kill -PIPE $$'; test $? = 141"]}]`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, so SIGHUP reads the configuration again
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	require.True(t, bufio.NewScanner(logs).Scan())
	hosted(t, conn, 2)
	require.NoError(t, logs.Close())
	var old string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT instance::text FROM public.queue_host").Scan(&old))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP)) // each reload is logged
	require.Eventually(t, func() bool {
		var next bool
		err := conn.QueryRow(t.Context(), "SELECT instance::text <> $1 FROM public.queue_host", old).Scan(&next)
		return err == nil && next
	}, patience, 20*time.Millisecond, "the host with the settings that were read again")
	hosted(t, conn, 2)
	_, err = conn.Exec(t.Context(), "SELECT public.fn_job_enqueue('pipe', 'media', 'DOT', p_max_attempts => 1)")
	require.NoError(t, err)
	var status string
	require.Eventually(t, func() bool {
		return conn.QueryRow(t.Context(), "SELECT status FROM public.job_history WHERE job_kind = 'pipe'").Scan(&status) == nil
	}, patience, 20*time.Millisecond)
	require.Equal(t, "succeeded", status)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	require.Equal(t, "SIGTERM", stopReason(t, conn))
}

// fullPipe returns both ends of a pipe in which there is no more room.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	for _, size := range []int{4096, 1} { // the first leaves less than a page
		require.NoError(t, w.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
		for err = nil; err == nil; {
			_, err = w.Write(bytes.Repeat([]byte("\n"), size))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	_ = w.Fd() // blocking again, as a process gets it
	return r, w
}

// A worker host whose log is a pipe that nobody reads works on jobs and drains at SIGTERM. Once somebody reads, every line is there.
func TestWorkerDoesNotWaitForItsLog(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		db := pgtest.New(t)
		conn := db.Conn(t, "")
		login := pgtest.Login(t, db, "dot_executor")
		_, err := conn.Exec(t.Context(), `SELECT public.fn_queue_executor_register('mine', 'DOT', '{}', 3, 600, $1, 'test'),
			public.fn_job_subscription_set('mine', NULL, NULL, 0, 5, true, NULL, 'test', 'test')`, login)
		require.NoError(t, err)
		cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1", "--executor", "mine", "--loops", "job_executor,job_queue_default", "--grace", "20s")
		cmd.Env = append(cmd.Env, `QTOP_HANDLERS=[{"kind":"pipe","command":["/bin/true"]}]`)
		r, w := fullPipe(t)
		cmd.Stderr = w
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		hosted(t, conn, 2)
		_, err = conn.Exec(t.Context(), "SELECT public.fn_job_enqueue('pipe', 'media', 'DOT', p_max_attempts => 1)")
		require.NoError(t, err)
		var status string
		require.Eventually(t, func() bool {
			return conn.QueryRow(t.Context(), "SELECT status FROM public.job_history WHERE job_kind = 'pipe'").Scan(&status) == nil
		}, patience, 20*time.Millisecond)
		require.Equal(t, "succeeded", status)
		require.NoError(t, w.Close())
		text := make(chan string, 1)
		if read {
			go func() {
				all, _ := io.ReadAll(r)
				text <- string(all)
			}()
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		endless := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		require.NoError(t, cmd.Wait())
		endless.Stop()
		require.Equal(t, "SIGTERM", stopReason(t, conn))
		if read {
			all := <-text
			require.Contains(t, all, `"msg":"worker host starts"`)
			require.Contains(t, all, `"msg":"worker host ended"`)
		}
	}
}
