// Tests of the log lines of a host for each outcome (R02 §5.3).
package workerhost_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// lines is a log whose lines are JSON objects.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// of returns the lines with this message.
func (l *lines) of(t *testing.T, msg string) (all []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := bufio.NewScanner(bytes.NewReader(l.b.Bytes())); s.Scan(); {
		var line map[string]any
		require.NoError(t, json.Unmarshal(s.Bytes(), &line))
		if line["msg"] == msg {
			all = append(all, line)
		}
	}
	return all
}

// Each attempt, lost lease and hand-back is logged as one line with the fields saga, job, error
// code, end of the lease, and worker.
func TestOutcomesAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	held, answer := make(chan struct{}, 10), make(chan struct{}, 10)
	r := receive(t, func(rw http.ResponseWriter, req *http.Request) {
		held <- struct{}{}
		select {
		case <-answer:
			rw.WriteHeader(http.StatusInternalServerError)
		case <-req.Context().Done():
		}
	})
	w.set("webhook.retry_schedule", "1h")
	w.subscribe("order", r.URL, nil)
	log := &lines{}
	h := w.run(workerhost.Options{Loops: []string{"webhook_router", "saga_orchestrator", "webhook_worker"}, Log: slog.New(slog.NewJSONHandler(log, nil))})
	h.listens()
	whole := func(msg string, n int) {
		t.Helper()
		eventually(t, func() bool { return len(log.of(t, msg)) == n }, "%d lines of %s: %v", n, msg, log.of(t, msg))
		for _, line := range log.of(t, msg) {
			for _, field := range []string{"saga_id", "job_id", "error_code", "lease_expiration", "worker_id"} {
				require.Contains(t, line, field, msg)
			}
		}
	}
	w.events("order", 2)
	<-held
	<-held
	w.set("webhook.worker.enabled", "false") // returned jobs are not claimed again
	w.exec("SET ROLE queue_owner; UPDATE public.webhook_delivery_jobs SET lease_until = now() - interval '1 second' WHERE id = (SELECT min(id) FROM public.webhook_delivery_jobs); RESET ROLE")
	w.exec("SELECT public.fn_lease_reset_cleaner_run()")
	answer <- struct{}{}
	answer <- struct{}{}
	whole("attempt", 2)
	whole("lease lost: the result was dropped", 1)
	require.Equal(t, "HTTP_500", log.of(t, "lease lost: the result was dropped")[0]["error_code"])

	w.set("webhook.worker.enabled", "true")
	w.events("order", 1)
	<-held // the new webhook and one that was handed back meanwhile
	<-held
	require.NoError(t, h.Stop("webhook_worker")) // cancels the requests
	h.is("webhook_worker", "stopped")
	require.NoError(t, h.stop())
	whole("handed back", 2)
	whole("retry", 1)
	require.Equal(t, "HTTP_500", log.of(t, "retry")[0]["error_code"])
}

// Each decision of a tick is logged as one line too: retries, dead letters, and expired leases of
// webhooks and jobs. Ticks do not store these lines, because the rows of the tables are the
// record.
func TestDecisionsOfTicksAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGone) })
	w.subscribe("order", r.URL, nil)
	asOwner := func(sql string) { w.exec("SET ROLE queue_owner; " + sql + "; RESET ROLE") }
	w.events("order", 2)
	w.exec("SELECT public.fn_webhook_router_run(), public.fn_saga_orchestrator_run()")
	lose := func(n int) {
		w.exec("SELECT public.fn_webhook_job_claim('silent/1', $1)", n)
		asOwner("UPDATE public.webhook_delivery_jobs SET lease_until = now() - interval '1 second' WHERE status = 'Leased'")
	}
	for range 2 {
		lose(1)
		w.exec("SELECT public.fn_lease_reset_cleaner_run()")
	}
	lose(2)
	executor(t, w.admin, "DOT", "mail", 10)
	w.enqueue("mail", 2)
	w.exec("SELECT public.fn_job_claim('DOT', '{mail}', 2)")
	asOwner(`UPDATE public.job_queue SET lost_leases = 2 WHERE job_id = (SELECT min(job_id::text)::uuid FROM public.job_queue);
		UPDATE public.job_lease SET lease_until = now() - interval '1 second'`)
	log := &lines{}
	w.run(workerhost.Options{
		Loops: []string{"saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "lease_reaper"}, Log: slog.New(slog.NewJSONHandler(log, nil)),
	})
	for msg, n := range map[string]int{"reset": 2, "failed": 1, "dead letter": 3} {
		eventually(t, func() bool { return len(log.of(t, msg)) == n }, "%d lines of %s: %v", n, msg, log.of(t, msg))
		for _, line := range log.of(t, msg) {
			for _, field := range []string{"job_id", "error_code", "lease_expiration", "worker_id"} {
				require.Contains(t, line, field, msg)
			}
			_, webhook := line["job_id"].(float64)
			_, saga := line["saga_id"]
			require.Equal(t, webhook, saga, "%v", line)
		}
	}
	require.Zero(t, w.int("SELECT count(*)::int FROM public.queue_tick_worker WHERE last_result ? 'log'"))
}
