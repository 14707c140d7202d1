// Tests of worker processes that are killed, stopped and signalled. The receiver's ledger is
// compared with the database.
package workerhost_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// TestLedger kills random hosts under load. The receiver writes each request into its ledger
// before it responds, and at the end the ledger is compared with the database.
func TestLedger(t *testing.T) {
	t.Parallel()
	events, kills := 300, 2
	if os.Getenv("QTOP_TEST_FULL") != "" {
		events, kills = 3000, 5
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))

	w := newWorld(t, "webhook.timeout_seconds", "1", "webhook.lease_seconds", "11", "webhook.max_attempts", "100")
	// a trigger copies every outcome that any host records into this table
	w.exec("CREATE TABLE public.test_outcome (job_id bigint, status text)")
	w.exec(`CREATE FUNCTION public.test_outcome() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN INSERT INTO public.test_outcome VALUES (new.id, new.status::text); RETURN NULL; END $$`)
	w.exec(`CREATE TRIGGER test_outcome AFTER UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
		WHEN (new.status IN ('Completed', 'Failed') AND old.settled_at IS NOT DISTINCT FROM new.settled_at)
		EXECUTE FUNCTION public.test_outcome()`)
	ledger, err := os.Create(filepath.Join(t.TempDir(), "ledger"))
	require.NoError(t, err)
	defer ledger.Close()
	var mu sync.Mutex
	r := receive(t, func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		_, _ = fmt.Fprintln(ledger, req.Header.Get("Webhook-Id"))
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	})
	w.subscribe("order.created", r.URL, nil)
	w.events("order.created", events)
	spec := func(n int) childSpec {
		return childSpec{ID: fmt.Sprintf("w%d", n), Concurrency: 8, Grace: 5 * time.Second}
	}
	workers := []*child{w.spawn(spec(0)), w.spawn(spec(1))}
	names := []string{"w0", "w1"}
	inFlight := 0
	for k := range kills {
		at := events * (k + 1) / (kills + 2)
		eventually(t, func() bool { return r.count() >= at }, "no load")
		i := rnd.IntN(len(workers))
		workers[i].kill()
		n := w.int(leased+" AND worker_id LIKE $1", names[i]+"/%")
		t.Logf("killed %s at %d requests, %d in flight", names[i], r.count(), n)
		inFlight += n
		names[i] = fmt.Sprintf("w%d", k+2)
		workers[i] = w.spawn(spec(k + 2))
	}
	w.becomes(events, completed)

	written, err := os.ReadFile(ledger.Name())
	require.NoError(t, err)
	sent := strings.Fields(string(written))
	ids := map[string]int{}
	for _, id := range sent {
		ids[id]++
	}
	total := w.int(jobs)
	t.Logf("%d events, %d kills: %d requests, %d jobs, %d were in flight at the kills", events, kills, len(sent), total, inFlight)
	require.Len(t, ids, events, "one webhook-id per event, none lost")
	require.Equal(t, events, w.int("SELECT count(DISTINCT saga_id)::int FROM public.webhook_delivery_jobs WHERE status = 'Completed'"))
	require.Equal(t, events, w.int(jobs+" WHERE status = 'Completed'"))
	// a request that timed out and its retry are two jobs, so they do not count as a duplicate
	require.LessOrEqual(t, len(sent), total+inFlight, "duplicates beyond what was in flight")
	require.Equal(t, total, w.int("SELECT count(*)::int FROM public.test_outcome"))
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM (SELECT job_id FROM public.test_outcome GROUP BY 1 HAVING count(*) > 1) x"), "a job with two outcomes")
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.dead_letters"))
	for _, c := range workers {
		c.signal(syscall.SIGTERM)
		require.Equal(t, 0, c.exit())
	}
}

// After SIGTERM under load, requests that can finish in time do so. All other deliveries are
// handed back at once, and another host sends them at its next poll.
func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	heal := make(chan struct{})
	stuck := receive(t, hanging(heal))
	quick := receive(t, ok)
	w.subscribe("stuck", stuck.URL, nil)
	w.subscribe("quick", quick.URL, nil)
	w.events("stuck", 6)
	w.events("quick", 200)
	const grace = 4 * time.Second
	a := w.spawn(childSpec{ID: "a", Concurrency: 16, Grace: grace})
	eventually(t, func() bool { return stuck.count() == 6 && quick.count() >= 20 }, "no load")
	start := time.Now()
	a.signal(syscall.SIGTERM)
	require.Equal(t, 0, a.exit())
	t.Logf("exit 0 after %v of %v grace", time.Since(start).Round(time.Millisecond), grace)
	require.Less(t, time.Since(start), grace+10*time.Second, "the requests would take longer")
	require.Equal(t, 0, w.int(leased))
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE lease_resets > 0 OR status = 'Failed'"))
	require.Equal(t, 6, w.int(`SELECT count(*)::int FROM public.webhook_delivery_jobs j JOIN public.webhook_delivery_sagas s ON s.id = j.saga_id
		JOIN public.events e ON e.id = s.event_id WHERE e.event_type = 'stuck' AND j.status = 'Pending' AND s.attempt_count = 0`))
	require.Equal(t, "true", w.text("SELECT stopped_at IS NOT NULL FROM public.queue_host WHERE host_id = 'a'"))

	close(heal)
	start = time.Now()
	b := w.run(workerhost.Options{ID: "b"})
	w.becomes(206, completed)
	t.Logf("all done elsewhere after %v", time.Since(start).Round(time.Millisecond))
	require.Equal(t, 206, w.int(jobs), "no attempt was spent")
	require.Equal(t, 12, stuck.count())
	require.Equal(t, 200, quick.count(), "a request that could finish was sent twice")
	require.NoError(t, b.stop())
}

// A draining host still records heartbeats, and no other host may take its id.
func TestDrainBeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	stuck := receive(t, hanging(release))
	w.subscribe("stuck", stuck.URL, nil)
	w.events("stuck", 1)
	h := w.run(workerhost.Options{Grace: 10 * time.Minute})
	eventually(t, func() bool { return stuck.count() == 1 }, "no request")
	h.cancel()
	eventually(t, func() bool {
		return w.text("SELECT progress -> 'webhook_worker' ->> 'state' FROM public.queue_host") == "draining"
	}, "no heartbeat while draining")
	require.Equal(t, 1, h.Status().InFlight)
	close(release)
	require.NoError(t, h.stop())
	require.Equal(t, 0, w.int(leased))
	require.Equal(t, 1, w.int(jobs+" WHERE status = 'Completed'"), "the request in flight did not finish")
}

// A worker process is stopped (SIGSTOP) for longer than its lease lasts. When it continues, its
// results change nothing.
func TestStaleToken(t *testing.T) {
	t.Parallel()
	// the process must be stopped before its requests time out
	w := newWorld(t, "webhook.timeout_seconds", "3", "webhook.lease_seconds", "13", "webhook.max_attempts", "100")
	var mu sync.Mutex
	seen := map[string]bool{}
	release := make(chan struct{})
	r := receive(t, func(rw http.ResponseWriter, req *http.Request) {
		mu.Lock()
		first := !seen[req.Header.Get("Webhook-Id")]
		seen[req.Header.Get("Webhook-Id")] = true
		mu.Unlock()
		if first {
			hanging(release)(rw, req)
		}
	})
	w.subscribe("order.created", r.URL, nil)
	w.events("order.created", 3)
	maker := w.run(workerhost.Options{ID: "maker", Loops: []string{"webhook_router", "saga_orchestrator"}})
	w.becomes(3, jobs+" WHERE status = 'Pending'")
	a := w.spawn(childSpec{ID: "a", Concurrency: 8, Grace: 5 * time.Second, Loops: []string{"webhook_worker"}})
	eventually(t, func() bool { return r.count() == 3 }, "no request")
	a.signal(syscall.SIGSTOP)
	b := w.run(workerhost.Options{ID: "b", Loops: []string{"webhook_worker", "lease_reset_cleaner"}})
	stopped := time.Now()
	w.becomes(3, completed)
	t.Logf("finished elsewhere %v after the lease's holder stopped", time.Since(stopped).Round(100*time.Millisecond))
	require.NoError(t, b.stop())
	require.NoError(t, maker.stop())

	const rows = `SELECT string_agg(to_jsonb(x)::text || x.xmin, E'\n' ORDER BY x.id) FROM %s x`
	before := w.text(fmt.Sprintf(rows, "public.webhook_delivery_jobs")) + w.text(fmt.Sprintf(rows, "public.webhook_delivery_sagas"))
	close(release)
	a.signal(syscall.SIGCONT)
	eventually(t, func() bool { return strings.Count(a.text(), "lease lost: the result was dropped") == 3 }, "the stale results are not dropped")
	a.signal(syscall.SIGTERM)
	require.Equal(t, 0, a.exit())
	require.Equal(t, before, w.text(fmt.Sprintf(rows, "public.webhook_delivery_jobs"))+w.text(fmt.Sprintf(rows, "public.webhook_delivery_sagas")))
	require.Equal(t, 6, r.count())
}

// Only one live instance has a host id, and the refusal of a second instance names the first. The
// id of a crashed instance is free at once, for a host that waits for the id and for a host that
// starts later.
func TestHostID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.spawn(childSpec{ID: "box", Grace: time.Second})
	w.becomes(1, "SELECT count(*)::int FROM public.queue_host WHERE host_id = 'box'")
	holder := w.text("SELECT instance FROM public.queue_host")
	second := w.run(workerhost.Options{ID: "box"})
	<-second.done
	require.ErrorContains(t, second.err, "host id box is held by instance "+holder)
	require.ErrorContains(t, second.err, "choose another host_id")
	odd := w.run(workerhost.Options{ID: "web 1"})
	<-odd.done
	require.EqualError(t, odd.err, `host id "web 1" must match ^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$ (host_id): choose an id of letters, digits and . _ : @ / -`)
	require.Equal(t, queue.KindConfig, queue.KindOf(odd.err))
	require.Equal(t, queue.KindFailed, queue.KindOf(second.err))
	require.False(t, second.Status().Running)
	require.NotEmpty(t, second.Status().Refused)

	// in a console the host continues without its id, and a start by the operator is refused in
	// the same way
	idle := w.run(workerhost.Options{ID: "box", Loops: []string{}})
	eventually(t, func() bool {
		err := idle.Start("webhook_worker")
		return err != nil && strings.Contains(err.Error(), "is held by")
	}, "not refused")
	require.False(t, idle.Status().Running)

	// A host that is restarted again and again waits each time, and then takes over the id. The
	// first instance hangs before it crashes: a further heartbeat would refuse the waiting host.
	a.signal(syscall.SIGSTOP)
	start := time.Now()
	w.exec("UPDATE public.queue_host SET last_seen_at = now()")
	waiting := w.spawn(childSpec{ID: "box", Grace: time.Second})
	eventually(t, func() bool { return strings.Contains(waiting.text(), "has the host id and may have crashed") }, "it does not wait")
	a.kill()
	killed := time.Now()
	eventually(t, func() bool {
		return w.text("SELECT instance FROM public.queue_host WHERE stopped_at IS NULL") != holder
	}, "a crashed instance keeps the id")
	require.Less(t, time.Since(start), 15*time.Second, "the id was free because of the silence, not the crash")
	t.Logf("the id was taken %v after the kill", time.Since(killed).Round(10*time.Millisecond))
	waiting.kill()
	eventually(t, func() bool { return idle.Start("webhook_worker") == nil }, "a crashed instance keeps the id")
	require.Empty(t, idle.Status().Refused)
	require.Equal(t, idle.Status().Instance, w.text("SELECT instance FROM public.queue_host"))
	// a clean stop releases the id at once
	require.NoError(t, idle.Stop(""))
	idle.is("webhook_worker", "stopped")
	require.NoError(t, idle.stop())
	third := w.run(workerhost.Options{ID: "box", Loops: []string{"webhook_router"}})
	third.is("webhook_router", "running")
}

// If another instance took the id of a host while that host recorded no heartbeat, the host
// reports this, continues to work under its leases, and takes the id again when the other
// instance has ended.
func TestHostIDLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.run(workerhost.Options{ID: "box"})
	h.is("webhook_worker", "running")
	mine := h.Status().Instance
	eventually(t, func() bool { return w.text("SELECT instance FROM public.queue_host") == mine }, "not registered")
	w.exec("UPDATE public.queue_host SET instance = gen_random_uuid(), last_seen_at = now()")
	eventually(t, func() bool { return h.Status().Refused != "" }, "the loss is not noticed")
	require.True(t, h.Status().Running)
	w.exec("UPDATE public.queue_host SET stopped_at = now()")
	eventually(t, func() bool { return h.Status().Refused == "" }, "the host does not get its id again")
	require.Equal(t, mine, w.text("SELECT instance FROM public.queue_host"))
	var progress map[string]any
	eventually(t, func() bool {
		return json.Unmarshal([]byte(w.text("SELECT progress FROM public.queue_host")), &progress) == nil && len(progress) == len(workerhost.LoopNames())
	}, "it records no heartbeat again")
}
