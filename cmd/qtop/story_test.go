package main

// A whole incident at three in the morning: an operator on a narrow terminal
// finds the cause of fifty thousand dead letters, freezes them, requeues them
// at a rate with the brake on, loses the connection, reconnects, sees the exact
// progress, raises the rate, aborts, undoes the items without an attempt, and
// reads all of it in the audit. The database, the worker processes and the
// receiver are real; keys are counted as in TestStoryReceiverBreaks.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// ledger is a receiver that records each request before it answers.
type ledger struct {
	mu  sync.Mutex
	got map[string]int // requests by webhook-id
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got[r.Header.Get("webhook-id")]++
	w.WriteHeader(http.StatusNoContent)
}

func (l *ledger) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.got)
}

// story gives the test access to the database, beside the screen.
type story struct {
	t    *testing.T
	conn *pgx.Conn
	db   *pgtest.DB
}

func (x story) number(sql string) (n int) {
	x.t.Helper()
	require.NoError(x.t, x.conn.QueryRow(x.t.Context(), sql).Scan(&n), sql)
	return n
}

func (x story) eventually(what string, ok func() bool) {
	x.t.Helper()
	require.Eventually(x.t, ok, patience, 50*time.Millisecond, "%s", what)
}

const tried = "SELECT requeued + skipped + failed + undone FROM public.queue_bulk_operation"

// host starts a worker process with these loops.
func (x story) host(id, loops string) *exec.Cmd {
	x.t.Helper()
	login := pgtest.Login(x.t, x.db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "queue_viewer")
	cmd := qtop(x.t, x.db.DSN(login), "worker", "--host-id", id, "--loops", loops)
	cmd.Env = append(cmd.Env, "QTOP_DELIVERY_ALLOW_NETWORKS=127.0.0.0/8", "QTOP_DELIVERY_ALLOW_PLAIN_HTTP=127.0.0.0/8")
	require.NoError(x.t, cmd.Start())
	x.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	x.eventually(id+" is alive", func() bool {
		return x.number("SELECT count(*) FROM public.queue_host WHERE host_id = '"+id+"' AND stopped_at IS NULL") == 1
	})
	return cmd
}

func TestStoryAtThreeInTheMorning(t *testing.T) {
	t.Parallel()
	cause := 2000
	if os.Getenv("QTOP_TEST_FULL") != "" {
		cause = 50_000
	}
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	for code, n := range map[string]int{"HTTP_503": cause, "TIMEOUT": cause / 8, "TLS_FAILURE": cause / 40} {
		require.NoError(t, deadLetters(t.Context(), x.conn, n, code))
	}
	require.NoError(t, deadJobs(t.Context(), x.conn, cause/20, "kg.reindex", "kg"))
	all := x.number("SELECT (SELECT count(*) FROM public.dead_letter_open) + (SELECT count(*) FROM public.job_dead_letter WHERE resolved_at IS NULL)")
	require.Greater(t, all, cause+cause/8)
	receiver := &ledger{got: map[string]int{}}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	_, err := x.conn.Exec(t.Context(), "UPDATE public.subscriptions SET callback_url = $1 WHERE event_type = 't.HTTP_503'", server.URL+"/hook")
	require.NoError(t, err)
	endpoint := strings.TrimPrefix(server.URL, "http://")
	sender := x.host("sender", "saga_orchestrator,webhook_worker,lease_reset_cleaner")
	x.host("runner", "bulk_operation_runner,counter_compactor")
	dsn := db.DSN(operator(t, db))

	// The first screen shows the cause; in pane 5 it is the first group.
	h := &keyLog{screen: openSized(t, 80, 24, dsn), began: time.Now()}
	h.until("DEAD")
	h.until("HTTP_503")
	h.press("5")
	h.match(`(?m)HTTP_503 +` + regexp.QuoteMeta(endpoint) + ` .*` + grouped(cause))

	// Freeze the dead letters of the group. The preview shows their number and
	// their endpoint.
	h.press("N")
	h.until("Canary")
	h.write("receiver is back since 02:50")
	h.press(enter)
	h.until(endpoint)
	h.match(`dead letters +` + strconv.Itoa(cause) + `, as of`)
	h.answer("Plan")
	require.Equal(t, cause, x.number("SELECT frozen_count FROM public.queue_bulk_operation"))
	_, err = x.conn.Exec(t.Context(), "UPDATE public.dot_config SET value = '5' WHERE key = 'webhook.max_attempts'")
	require.NoError(t, err)

	// Start the operation: first its canary, then the rest at the rate.
	h.press("6")
	h.until("planned")
	h.press("S")
	h.answer("Start")
	h.until("running")
	x.eventually("the canary passed", func() bool { return x.number("SELECT canary_passed::int FROM public.queue_bulk_operation") == 1 })
	x.eventually("it goes on at its rate", func() bool { return x.number(tried) > 30 })

	// The terminal is lost. The operation continues, because hosts carry it
	// out.
	require.NoError(t, h.tty.Close())
	select {
	case <-h.exit:
	case <-time.After(patience):
		t.Fatal("the console outlived its terminal")
	}
	before := x.number(tried)
	x.eventually("it goes on without a console", func() bool { return x.number(tried) > before+20 })

	// A new console: the first screen shows that the operation runs, pane 6
	// its exact progress.
	h.screen = openSized(t, 80, 24, dsn)
	h.until("RUNNING")
	h.press("6")
	h.until("Operations · 1 row")
	h.press(enter)
	h.until("Items, latest first")
	least := x.number(tried)
	h.match(`items +[\d,]+ requeued`)
	h.wait("exact progress", func(text string) bool {
		m := regexp.MustCompile(`([\d,]+) requeued, ([\d,]+) skipped, ([\d,]+) failed, ([\d,]+) undone`).FindStringSubmatch(text)
		if m == nil {
			return false
		}
		shown := 0
		for _, part := range m[1:] {
			n, err := strconv.Atoi(strings.ReplaceAll(part, ",", ""))
			require.NoError(t, err)
			shown += n
		}
		return shown >= least && shown <= x.number(tried)
	})

	// The operator doubles the rate.
	h.press("+")
	h.until("items per second")
	h.press(enter)
	h.until("20/s → 40/s")
	h.answer("Rate")
	h.until("40/s")
	require.Equal(t, 40, x.number("SELECT rate_per_second::int FROM public.queue_bulk_operation"))

	// The sender stops: sagas that are requeued from now on wait, and the page
	// of :why says why.
	require.NoError(t, sender.Process.Signal(syscall.SIGTERM))
	require.NoError(t, sender.Wait())
	const begun = `EXISTS (SELECT 1 FROM public.webhook_delivery_jobs j WHERE j.saga_id = g.id)`
	x.eventually("requeued ones wait", func() bool {
		return x.number("SELECT count(*) FROM public.webhook_delivery_sagas g WHERE g.status = 'Pending' AND NOT "+begun) > 10
	})
	h.press(":")
	h.write("why webhook " + endpoint)
	h.press(enter)
	h.until("What can block it, in order")
	h.until("no live host runs webhook_worker")
	h.press("\x1b")
	h.gone("What can block it, in order") // wait, because the bytes of esc and X together would be one key
	h.until("Items, latest first")

	// The operator aborts the operation, and undoes the requeues whose sagas
	// have no attempt yet.
	h.press("X")
	h.answer("Abort")
	h.until("aborted")
	waiting := x.number("SELECT count(*) FROM public.webhook_delivery_sagas g WHERE g.status = 'Pending' AND NOT " + begun)
	h.press("U")
	h.answer("Undo")
	require.Equal(t, waiting, x.number("SELECT undone FROM public.queue_bulk_operation"))
	h.match(fmt.Sprintf(`%d undone`, waiting))

	// Nothing was lost and nothing was requeued twice: each dead letter is
	// open, or was requeued once.
	require.Equal(t, 0, x.number("SELECT count(*) FROM (SELECT dead_letter_id FROM public.dead_letter_requeues GROUP BY 1 HAVING count(*) > 1) x"))
	require.Equal(t, all, x.number(`SELECT (SELECT count(*) FROM public.dead_letter_open) + (SELECT count(*) FROM public.dead_letter_requeues)
		+ (SELECT count(*) FROM public.job_dead_letter WHERE resolved_at IS NULL)`))
	require.Equal(t, x.number("SELECT requeued FROM public.queue_bulk_operation"), x.number("SELECT count(*) FROM public.dead_letter_requeues"))
	require.Equal(t, receiver.distinct(), x.number("SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Completed'"), "what was delivered is what the receiver wrote down")

	// The audit has all of it: who, what, why.
	h.press("g", "a")
	for _, action := range []string{"bulk undo", "bulk abort", "bulk rate", "bulk run", "bulk plan"} {
		h.until(action)
	}
	h.until("tester")
	h.press("/")
	h.write("action:bulk_plan")
	h.press(enter)
	h.gone("bulk undo")
	h.press(enter)
	h.until("receiver is back since 02:50")
	h.match(`selected +` + grouped(cause))
	h.took()
	h.press("q")
	h.ends()
}

// grouped formats a number as the screens do.
func grouped(n int) string {
	s := strconv.Itoa(n)
	if len(s) > 3 {
		s = s[:len(s)-3] + "," + s[len(s)-3:]
	}
	return s
}
