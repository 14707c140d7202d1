package main

// Bulk operations while worker hosts are killed, and with a receiver that
// fails again in the middle of the operation.

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// planned freezes and starts a bulk operation on all dead letters of a code,
// with the verb, and does not wait for its end.
func (x story) planned(code, rate, brake, canary string) {
	x.t.Helper()
	cmd := qtop(x.t, x.db.DSN(operator(x.t, x.db)), "requeue", "--filter", "code:"+code, "--rate", rate, "--brake", brake, "--canary", canary,
		"--reason", "the receiver is back", "--yes")
	out, err := cmd.CombinedOutput()
	require.NoError(x.t, err, string(out))
}

// An id without a dead letter is skipped in the answer and gives exit code 1, at a rate as without one;
// the operation on the others is started.
func TestRequeueAtARateNamesUnknownIDs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	require.NoError(t, deadLetters(t.Context(), x.conn, 1, "HTTP_503"))
	id := strconv.Itoa(x.number("SELECT dead_letter_id::int FROM public.dead_letter_open"))
	out, err := qtop(t, db.DSN(operator(t, db)), "requeue", id, "999999", "--rate", "1", "--reason", "r", "--yes").CombinedOutput()
	require.ErrorContains(t, err, "exit status 1", string(out))
	require.Contains(t, string(out), "webhook running → 1\n999999 skipped: no such dead letter: never written, or removed by retention\n")
	require.Equal(t, 1, x.number("SELECT count(*)::int FROM public.queue_bulk_operation WHERE state = 'running' AND frozen_count = 1"))
}

// Worker hosts are killed at random moments, five times. Nevertheless each
// item of the operation has exactly one outcome, each dead letter becomes one
// saga, and no item remains.
func TestBulkSurvivesKilledHosts(t *testing.T) {
	t.Parallel()
	n, rate := 1000, "100"
	if os.Getenv("QTOP_TEST_FULL") != "" {
		n, rate = 50_000, "1000"
	}
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	require.NoError(t, deadLetters(t.Context(), x.conn, n, "HTTP_503"))
	require.NoError(t, deadLetters(t.Context(), x.conn, n/20, "TIMEOUT"))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	x.planned("HTTP_503", rate, "0", "0")
	// These dead letters appear after the operation was frozen, so they are
	// not part of it.
	require.NoError(t, deadLetters(t.Context(), x.conn, n/20, "CONNECTION_RESET"))
	_, err := x.conn.Exec(t.Context(), "UPDATE public.dot_config SET value = '0' WHERE key = 'queue.tick.saga_orchestrator.interval_seconds'")
	require.NoError(t, err)

	hosts := map[string]*exec.Cmd{}
	for round := range 6 {
		for _, name := range []string{"a", "b"} {
			hosts[name] = x.host(name+strconv.Itoa(round), "bulk_operation_runner")
		}
		if round == 5 {
			break
		}
		before := x.number(tried)
		// If all items are done before the last kill, nothing can increase any
		// more.
		x.eventually("the operation goes on", func() bool { return x.number(tried) > before || before == n })
		time.Sleep(time.Duration(dice.IntN(700)) * time.Millisecond) // the hosts are killed at a random moment
		for _, cmd := range hosts {
			require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
			_ = cmd.Wait()
		}
	}
	require.Eventually(t, func() bool {
		return x.number("SELECT count(*) FROM public.queue_bulk_operation WHERE waits = '"+strconv.Itoa(n)+" requeued items wait: queue.tick.saga_orchestrator.interval_seconds is 0'") == 1
	}, 5*patience, 100*time.Millisecond)
	for sql, want := range map[string]int{
		"SELECT requeued FROM public.queue_bulk_operation": n, "SELECT done FROM public.queue_bulk_operation": 0, "SELECT skipped + failed + undone FROM public.queue_bulk_operation": 0,
		"SELECT count(*) FROM public.queue_bulk_operation_item WHERE outcome = 'done'": n, "SELECT count(DISTINCT target) FROM public.queue_bulk_operation_item": n,
		"SELECT count(DISTINCT new_id) FROM public.queue_bulk_operation_item": n, "SELECT count(*) FROM public.dead_letter_requeues WHERE operation_id = 1": n,
		"SELECT count(*) FROM public.webhook_delivery_sagas WHERE requeued_from_dead_letter_id IS NOT NULL": n,
		"SELECT count(*) FROM public.dead_letter_open":                                                      2 * (n / 20),
	} {
		require.Equal(t, want, x.number(sql), sql)
	}
}

// The receiver fails again in the middle: the brake pauses the operation before
// more than fifty first attempts have failed, and records that. The remaining
// items are unchanged.
func TestBrakeStopsWhenTheReceiverFailsAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	require.NoError(t, deadLetters(t.Context(), x.conn, 400, "HTTP_503"))
	well := &ledger{got: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if well.distinct() >= 60 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		well.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for _, sql := range []string{
		"UPDATE public.subscriptions SET callback_url = '" + server.URL + "'", "UPDATE public.dot_config SET value = '5' WHERE key = 'webhook.max_attempts'",
	} {
		_, err := x.conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	x.host("w", "saga_orchestrator,webhook_worker,bulk_operation_runner")
	// At this rate, even two runs of the tick worker at once requeue fewer
	// than fifty items.
	x.planned("HTTP_503", "15", "20", "5")
	x.eventually("the brake", func() bool {
		return x.number("SELECT count(*) FROM public.queue_bulk_operation WHERE state = 'paused' AND state_why LIKE 'the brake:%'") == 1
	})
	failed := x.number("SELECT count(*) FROM public.queue_bulk_operation_item i JOIN public.queue_bulk_operation o USING (operation_id) WHERE i.first_result = 'failed' AND i.first_at <= o.state_at")
	require.LessOrEqual(t, failed, 50, "settled when it was paused")
	var why string
	var bad, seen int
	require.NoError(t, x.conn.QueryRow(t.Context(), "SELECT state_why FROM public.queue_bulk_operation").Scan(&why))
	_, err := fmt.Sscanf(why, "the brake: %d of the last %d first attempts failed", &bad, &seen)
	require.NoError(t, err, why)
	require.True(t, seen >= 10 && seen <= 50 && bad*100 >= 20*seen, why)
	require.GreaterOrEqual(t, x.number("SELECT count(*) FROM public.queue_bulk_operation_item WHERE first_result = 'failed'"), bad, why)
	left := x.number("SELECT count(*) FROM public.dead_letter_open")
	require.Greater(t, left, 200, "what was not attempted is an open dead letter as before")
	out, err := qtop(t, db.DSN(operator(t, db)), "ops").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, strings.Join(strings.Fields(string(out)), " "), "1 requeue_webhook paused")
}
