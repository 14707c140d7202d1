package main

// Runs `qtop worker` as a process: it ticks, works on jobs, serves its metrics, and ends cleanly at
// a signal.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost/handler"
)

// Texts of other logins get into the log, and a terminal obeys what it reads there.
func TestLogsCannotControlATerminal(t *testing.T) {
	const evil = "\u009d0;owned\u009c\u009b2J\x7f\u202e\u200b\U000e0041"
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	var out bytes.Buffer
	hostLog(&out).Info("lease lost", "worker_id", evil)
	hostLog(secrecy.Writer{W: &out}).Info("lease lost", "worker_id", evil)
	log, done := new(app).logFile()
	log.Info("lease lost", "worker_id", evil)
	done()
	file, err := os.ReadFile(filepath.Join(os.Getenv("XDG_STATE_HOME"), "qtop", "qtop.log"))
	require.NoError(t, err)
	lines := strings.Split(out.String()+string(file), "\n")
	require.Len(t, lines, 4)
	for _, line := range lines[:3] {
		require.Negative(t, strings.IndexFunc(line, queue.Unsafe), "%q", line)
		var entry struct {
			Worker string `json:"worker_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		require.Equal(t, secrecy.Mask(evil), entry.Worker, "the same JSON")
	}
}

func TestWorkerProcess(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "queue_viewer")
	cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1", "--metrics-addr", "127.0.0.1:0")
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(logs)
	var addr string
	for addr == "" && lines.Scan() {
		var entry struct{ Msg, Address string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry), lines.Text())
		addr = entry.Address
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, patience, 50*time.Millisecond)
	code, body := get("/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	require.Eventually(t, func() bool {
		_, body := get("/metrics")
		return strings.Contains(body, `qtop_loop_running{loop="webhook_router"} 1`) && strings.Contains(body, "\ngo_goroutines ")
	}, patience, 50*time.Millisecond)
	conn := db.Conn(t, "")
	require.Eventually(t, func() bool {
		var waiting int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM public.queue_tick_worker WHERE last_run_at IS NULL").Scan(&waiting)
		return err == nil && waiting == 0
	}, patience, 50*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	var stopped bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT stopped_at IS NOT NULL FROM public.queue_host WHERE host_id = 'w1'").Scan(&stopped))
	require.True(t, stopped)

	// A second live host with the same id is refused; package workerhost tests
	// that. Here bad settings end the worker with one line and code 78.
	bad := qtop(t, db.DSN(login), "worker", "--loops", "no_such_loop")
	out, err := bad.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 78, bad.ProcessState.ExitCode())
	require.Contains(t, string(out), "no_such_loop")
}

// Handlers of the configuration work on jobs, each within its own time limit.
// All mistakes in the handlers are reported at once, one line each.
func TestWorkerHandlers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	login := pgtest.Login(t, db, "dot_executor")
	for _, sql := range []string{
		"SELECT public.fn_queue_executor_register('mine', 'DOT', '{}', 3, 600, '" + login + "', 'test')",
		"SELECT public.fn_job_subscription_set('mine', NULL, NULL, 0, 5, true, NULL, 'test', 'test')",
		"SELECT public.fn_job_enqueue('resize', 'media', 'DOT', '{\"picture\": 7}')",
		"SELECT public.fn_job_enqueue('hang', 'media', 'DOT', p_max_attempts => 1)",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	got := filepath.Join(t.TempDir(), "got")
	cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1", "--executor", "mine", "--loops", "job_executor")
	cmd.Env = append(cmd.Env, `QTOP_HANDLERS=[{"kind":"resize","command":["/bin/sh","-c","cat > \"$0\"","`+got+`"]},{"kind":"hang","command":["sleep","1000"],"timeout":"1s"}]`)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		var done int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM public.job_history
			WHERE (job_kind, status) = ('resize', 'succeeded') OR (job_kind, status, failure_code) = ('hang', 'dead_letter', 'TIMEOUT')`).Scan(&done)
		return err == nil && done == 2
	}, patience, 50*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	input, err := os.ReadFile(got)
	require.NoError(t, err)
	require.Contains(t, string(input), `"payload":{"picture": 7}`)

	bad := qtop(t, db.DSN(login), "worker")
	bad.Env = append(bad.Env, `QTOP_HANDLERS=[{"kind":"a","command":["/no/such/program"]},{"kind":"b b","url":"https://h/"}]`)
	out, err := bad.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 78, bad.ProcessState.ExitCode())
	require.Len(t, strings.Split(strings.TrimSpace(string(out)), "\n"), 2, string(out))
	require.Contains(t, string(out), "kind a")
	require.Contains(t, string(out), "entry 2")

	// A host that works on no jobs needs no programs of handlers.
	other := qtop(t, db.DSN(login), "worker", "--host-id", "w2", "--loops", "config_expiry")
	other.Env = append(other.Env, bad.Env[len(bad.Env)-1])
	require.NoError(t, other.Start())
	require.Eventually(t, func() bool {
		var lives bool
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM public.queue_host WHERE host_id = 'w2')").Scan(&lives)
		return err == nil && lives
	}, patience, 50*time.Millisecond)
	require.NoError(t, other.Process.Signal(syscall.SIGTERM))
	require.NoError(t, other.Wait())
}

// The command of a job may call qtop, which knows the variables that the host gave to the command.
func TestHandlersMayCallQtop(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	h, err := handler.Command([]string{"/bin/sh", "-c", `"$0" config show >"$1" 2>"$2"`, filepath.Join(built, "qtop"), home + "/out", home + "/errs"}, handler.CommandOptions{})
	require.NoError(t, err)
	require.NoError(t, h.Handle(t.Context(), handler.Job{ID: "0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11", RootID: "0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11", Kind: "k", Domain: "d", Attempt: 1, Payload: []byte("{}")}))
	out, err := os.ReadFile(home + "/out")
	require.NoError(t, err)
	require.Contains(t, string(out), "host_id")
	errs, err := os.ReadFile(home + "/errs")
	require.NoError(t, err)
	require.Empty(t, string(errs))
}

// A console opens without the programs that its worker host needs, and reports
// their absence where a host is needed.
func TestConsoleWithoutPrograms(t *testing.T) {
	t.Setenv("QTOP_HANDLERS", `[{"kind":"a","command":["/no/such/program"]}]`)
	s := open(t, pgtest.New(t).DSN(""), "--pane", "host")
	s.match(`The worker host of this process cannot start: .*/no/such/program`)
	s.keys("S")
	s.match(`Start is off: .*/no/such/program`)
}
