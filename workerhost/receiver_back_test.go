// Tests of receivers that fail for a long time, with a real host and the default retry schedule.
package workerhost_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// One receiver is down for half an hour, one returns 429 for an hour, and one returns 429 with
// Retry-After. Each gets every event once, and no delivery becomes a dead letter: neither one of
// many deliveries, where the circuit opens, nor a single delivery, for which attempts are
// counted. Whenever all remaining deliveries wait, the test moves the time forward.
func TestReceiversComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	w.exec("UPDATE public.dot_config c SET value = r.default_value FROM public.dot_config_rule r WHERE r.key = c.key AND c.key LIKE 'webhook.%'")
	var passed atomic.Int64 // in seconds
	away := map[string]func(http.ResponseWriter){
		"down": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"busy": func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusTooManyRequests) },
		"retry-after": func(rw http.ResponseWriter) {
			rw.Header().Set("Retry-After", "90")
			rw.WriteHeader(http.StatusTooManyRequests)
		},
	}
	receivers, deliveries, all := map[string]*receiver{}, map[string]int{}, 0
	for why, answer := range away {
		until := map[bool]int64{true: 30 * 60, false: 60 * 60}[why == "down"]
		for _, n := range []int{1, 50} {
			name := fmt.Sprintf("%s %d", why, n)
			receivers[name] = receive(t, func(rw http.ResponseWriter, _ *http.Request) {
				if passed.Load() < until {
					answer(rw)
				}
			})
			w.subscribe(name, receivers[name].URL, nil)
			w.events(name, n)
			deliveries[name] = n
			all += n
		}
	}
	h := w.run(workerhost.Options{Loops: []string{"webhook_router", "saga_orchestrator", "webhook_worker"}})
	h.listens()
	w.becomes(all, "SELECT count(*)::int FROM public.webhook_delivery_sagas")

	// An open delivery may wait for its endpoint, its retry, or both. If it waits for neither,
	// the host can send it now.
	const open = `FROM public.webhook_delivery_sagas s LEFT JOIN public.webhook_endpoint_suspensions x USING (subscription_id) WHERE s.status NOT IN ('Completed', 'DeadLettered')`
	const until = "greatest(x.until, CASE WHEN s.status = 'PendingRetry' THEN s.next_attempt_at END)"
	const busy = "SELECT count(*)::int " + open + " AND (COALESCE(" + until + " <= now(), true) OR EXISTS (SELECT FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id AND j.status = 'Leased'))"
	const next = "SELECT greatest(ceil(extract(epoch FROM min(" + until + ") - now())), 1)::int " + open
	moves := 0
	for {
		w.becomes(0, busy)
		require.Zero(t, w.int("SELECT count(*)::int FROM public.dead_letters"), "after %v", time.Duration(passed.Load())*time.Second)
		if w.int("SELECT count(*)::int "+open) == 0 {
			break
		}
		seconds := w.int(next)
		ago := fmt.Sprintf("interval '%d seconds'", seconds)
		passed.Add(int64(seconds))
		w.exec("BEGIN; SET LOCAL session_replication_role = replica; UPDATE public.webhook_endpoint_suspensions SET since = since - " + ago + ", until = until - " + ago +
			"; UPDATE public.webhook_delivery_sagas SET next_attempt_at = next_attempt_at - " + ago + " WHERE next_attempt_at IS NOT NULL; COMMIT; SELECT public.fn_queue_doorbell('webhook')")
		moves++
	}
	require.Equal(t, all, w.int(completed))
	require.GreaterOrEqual(t, passed.Load(), int64(60*60))
	for name, r := range receivers {
		ids := map[string]bool{}
		for _, g := range r.all() {
			ids[g.id] = true
		}
		require.Len(t, ids, deliveries[name], name)
		spent := w.int("SELECT max(s.attempt_count) FROM public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id WHERE e.event_type = $1", name)
		t.Logf("%s: %d requests, at most %d of 10 attempts spent", name, r.count(), spent)
		if !strings.HasPrefix(name, "down") {
			require.Zero(t, spent, "429 costs nothing")
		}
	}
	t.Logf("%v passed in %d moves", time.Duration(passed.Load())*time.Second, moves)
}

// A retry is sent when it is due, however long the interval of the orchestrator is.
func TestRetryIsSentWhenItIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.tick.saga_orchestrator.interval_seconds", "30", "webhook.retry_schedule", "3s")
	var failed atomic.Bool
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !failed.Swap(true) {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	w.subscribe("e", r.URL, nil)
	w.events("e", 1)
	w.run(workerhost.Options{})
	w.becomes(1, completed)
	all := r.all()
	require.Len(t, all, 2)
	waited := all[1].at.Sub(all[0].at)
	t.Logf("the retry came %v after the first attempt", waited.Round(time.Millisecond))
	require.Less(t, waited, 15*time.Second, "the interval was waited for")
	if os.Getenv("QTOP_TEST_FULL") != "" { // the time depends on the machine
		require.Less(t, waited, 3600*time.Millisecond+1500*time.Millisecond)
	}
}
