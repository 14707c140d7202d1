// Tests of deliveries from event to receiver: dead letters and requeue, refused addresses,
// secrets, polling and wake signals, the off switch, endpoints that hang, ids and headers.
package workerhost_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/sender"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestDeadLetterAndRequeue(t *testing.T) {
	t.Setenv("QTOP_TEST_SECRET", secret)
	w := newWorld(t, "webhook.max_attempts", "3")
	var healed atomic.Bool
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !healed.Load() {
			http.Error(rw, "not now", http.StatusServiceUnavailable)
		}
	})
	secrets, err := sender.NewSecrets([]sender.SecretSource{{Ref: "acme", From: "env:QTOP_TEST_SECRET"}})
	require.NoError(t, err)
	ref := "acme"
	w.subscribe("order.created", r.URL+"/hook", &ref)
	h := w.run(workerhost.Options{Secrets: secrets})
	w.events("order.created", 1)

	w.becomes(1, "SELECT count(*)::int FROM public.dead_letters")
	require.Equal(t, "503 503 503", w.text("SELECT string_agg(response_status::text, ' ') FROM public.webhook_delivery_jobs"))
	require.Equal(t, 3, r.count())
	require.Equal(t, "DeadLettered 3 HTTP_503", w.text("SELECT status || ' ' || attempt_count || ' ' || final_error_code FROM public.webhook_delivery_sagas"))
	require.Equal(t, "true", w.text("SELECT d.payload_snapshot::text = e.payload::text FROM public.dead_letters d JOIN public.events e ON e.id = d.event_id"))
	require.Equal(t, "true", w.text("SELECT count(DISTINCT lease_resets) = 1 AND max(lease_resets) = 0 FROM public.webhook_delivery_jobs"))

	// requeue makes only a new saga; the next run of the orchestrator makes the job
	require.NoError(t, h.Drain("saga_orchestrator"))
	h.is("saga_orchestrator", "stopped")
	op, err := pgclient.Open(t.Context(), pgclient.Options{DSN: w.db.DSN(pgtest.Login(t, w.db, "dead_letter_operator")), Actor: "ann"})
	require.NoError(t, err)
	defer op.Close()
	do := actions.New(op)
	plan, err := do.Plan(t.Context(), queue.Request{
		Action: queue.ActRequeue, Targets: []string{w.text("SELECT id FROM public.dead_letters")}, Reason: "receiver healed",
	})
	require.NoError(t, err)
	require.Empty(t, plan.Refused)
	res, err := do.Apply(t.Context(), plan)
	require.NoError(t, err)
	require.EqualValues(t, 1, res.Done, "%+v", res)
	require.Equal(t, "Pending 0 1", w.text("SELECT status || ' ' || attempt_count || ' ' || requeue_generation FROM public.webhook_delivery_sagas WHERE status <> 'DeadLettered'"))
	h.polls("webhook_worker", 2)
	require.Equal(t, 3, w.int(jobs), "no job before the orchestrator runs")
	require.Equal(t, 3, r.count())

	healed.Store(true)
	require.NoError(t, h.Start("saga_orchestrator"))
	w.becomes(1, completed)
	require.Equal(t, 4, w.int(jobs))
	all := r.all()
	require.Len(t, all, 4)
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	for _, g := range all {
		require.Equal(t, all[0].id, g.id)
		require.Equal(t, string(all[0].body), string(g.body))
		require.Equal(t, w.text("SELECT payload FROM public.events"), string(g.body))
		require.NoError(t, wh.Verify(g.body, g.header))
		flipped := bytes.Clone(g.body)
		flipped[len(flipped)/2] ^= 1
		require.Error(t, wh.Verify(flipped, g.header))
	}
	require.Positive(t, r.open.Load(), "connections are kept for the next request")
	require.NoError(t, h.stop())
	require.Equal(t, "true", w.text("SELECT stopped_at IS NOT NULL FROM public.queue_host"))
	eventually(t, func() bool { return r.open.Load() == 0 }, "a stopped host keeps idle connections")
}

// A forbidden address is not dialled, however it is written, and a webhook that cannot be signed
// is not sent.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "webhook.max_attempts", "1")
	var heard atomic.Int64
	sentinel, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer sentinel.Close()
	go func() {
		for {
			c, err := sentinel.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(sentinel.Addr().String())
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		a, err := netip.ParseAddr(strings.ReplaceAll(strings.TrimSuffix(host, ".example"), "_", ":"))
		if err != nil {
			return nil, fmt.Errorf("no such host %s", host)
		}
		return []netip.Addr{a}, nil
	}
	var urls []string
	for _, scheme := range []string{"http", "https"} {
		for _, host := range []string{
			"127.0.0.1", "[::ffff:127.0.0.1]", "169.254.169.254", "[::1]",
			"127.0.0.1.example", "__ffff_127.0.0.1.example", "169.254.169.254.example", "__1.example",
		} {
			urls = append(urls, scheme+"://"+host+":"+port+"/")
		}
	}
	for _, u := range urls {
		w.subscribe("order.created", u, nil)
	}
	r := receive(t, ok)
	unknown := "nobody"
	signed := w.subscribe("order.signed", r.URL, &unknown)

	strict := sender.New(sender.Config{Version: "test", Concurrency: 4, Lookup: lookup})
	defer strict.Close()
	h := w.run(workerhost.Options{Sender: strict})
	w.events("order.created", 1)
	w.becomes(len(urls), "SELECT count(*)::int FROM public.dead_letters")
	require.Equal(t, "ADDRESS_REFUSED", w.text("SELECT string_agg(DISTINCT final_error_code, ',') FROM public.dead_letters"))
	require.NoError(t, h.stop())

	w.run(workerhost.Options{}) // this host may dial loopback addresses, so only the secret is wrong
	w.events("order.signed", 1)
	w.becomes(1, "SELECT count(*)::int FROM public.v_signing_fault WHERE subscription_id = $1", signed)
	w.becomes(1, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE subscription_id = $1 AND status = 'Pending' AND attempt_no = 1", signed)
	require.Zero(t, r.count())
	require.Zero(t, heard.Load(), "the sentinel was called")
}

// A panic during a delivery fails the attempt and does not end the process.
func TestPanicWhileSending(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "webhook.max_attempts", "1")
	bad := sender.New(sender.Config{Version: "test", Lookup: func(context.Context, string) ([]netip.Addr, error) { panic("lookup") }})
	defer bad.Close()
	w.subscribe("order.created", "https://hooks.example/", nil)
	h := w.run(workerhost.Options{Sender: bad})
	w.events("order.created", 2)
	w.becomes(2, "SELECT count(*)::int FROM public.dead_letters WHERE final_error_code = 'WORKER_PANIC'")
	require.Equal(t, "running", h.status("webhook_worker").State)
}

// With wake signals switched off (queue.notify.bridge_enabled), the polls of
// the loops find all work.
func TestPolling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.db.Conn(t, "")
	rows, err := conn.Query(t.Context(), "SELECT DISTINCT 'LISTEN queue_wake_' || d FROM (SELECT event_domain FROM public.event_type_registry "+
		"UNION SELECT unnest('{webhook,system,iu,kg,staging,job,config}'::text[])) s (d)")
	require.NoError(t, err)
	var listen []string
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		listen = append(listen, s)
	}
	require.NoError(t, rows.Err())
	for _, s := range listen {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err)
	}
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	w.run(workerhost.Options{})
	w.events("order.created", 20)
	w.becomes(20, completed)
	require.Equal(t, 20, r.count())
	w.set("webhook.timeout_seconds", "7")
	w.exec("SELECT pg_notify('queue_wake_webhook', 'the end')")
	n, err := conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "the end", n.Payload, "something was notified with the bridge off")
}

// With wake signals switched on (queue.notify.bridge_enabled), a new event is
// delivered at once, although the intervals of all loops are long.
func TestWaking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true", "queue.tick.webhook_router.interval_seconds", "600",
		"queue.tick.saga_orchestrator.interval_seconds", "600", "queue.tick.webhook_worker.interval_seconds", "600")
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{})
	h.listens()
	var took []time.Duration
	for i := range 20 {
		start := time.Now()
		w.events("order.created", 1)
		eventually(t, func() bool { return r.count() == i+1 }, "event %d never arrives", i)
		took = append(took, r.all()[i].at.Sub(start))
		w.becomes(i+1, completed)
	}
	slices.Sort(took)
	t.Logf("insert → request: median %v, slowest %v", took[10].Round(time.Microsecond*100), took[19].Round(time.Microsecond*100))
	st := h.Status()
	require.NotZero(t, st.Listener.Heard)
	require.NotEmpty(t, st.Wakes)
}

// The off switch stops deliveries within one poll, requests in flight finish, and no alert
// reports the worker as silent. Switched on again, the worker delivers the rest.
func TestSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	r := receive(t, hanging(release))
	w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{Concurrency: 8, PerEndpoint: 4})
	w.events("order.created", 4)
	eventually(t, func() bool { return r.count() == 4 }, "no request arrives")

	w.set("webhook.worker.enabled", "false")
	w.events("order.created", 30)
	h.polls("webhook_worker", 2)
	close(release)
	w.becomes(4, completed) // the orchestrator is not switched off
	h.polls("webhook_worker", 3)
	require.Equal(t, 4, r.count())
	require.Equal(t, "stopped", w.text("SELECT last_beat_payload ->> 'state' FROM public.queue_heartbeat WHERE executor_id = 'webhook_worker'"))
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.v_queue_alert WHERE subject = 'webhook_worker'"))
	require.Equal(t, "running", h.status("webhook_worker").State)

	w.set("webhook.worker.enabled", "true")
	w.becomes(34, completed)
	require.Equal(t, 34, r.count())
}

// An endpoint that hangs occupies only its share of the slots, also when many webhook
// subscriptions send to this endpoint.
func TestHangingEndpoint(t *testing.T) {
	t.Parallel()
	for _, subscriptions := range []int{1, 12} {
		t.Run(fmt.Sprint(subscriptions), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stuck := receive(t, hanging(nil))
			healthy := receive(t, ok)
			for i := range subscriptions {
				w.subscribe("stuck", fmt.Sprintf("%s/%d", stuck.URL, i), nil)
			}
			w.subscribe("fine", healthy.URL, nil)
			w.events("stuck", 40) // all older than the events for the healthy endpoint
			h := w.run(workerhost.Options{Concurrency: 16, PerEndpoint: 4, Grace: 2 * time.Second})
			eventually(t, func() bool { return stuck.count() == 4 }, "the stuck endpoint has not its share")
			w.events("fine", 100)
			w.becomes(100, completed)
			require.Equal(t, 100, healthy.count())
			require.Equal(t, 4, stuck.count(), "requests to the endpoint that hangs")
			require.NoError(t, h.stop())
			require.Equal(t, 0, w.int(leased), "all handed back")
			require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Failed' OR lease_resets > 0"))
		})
	}
}

// Two databases send to one receiver that drops requests with a repeated id. The receiver gets
// all events, and each delivery names its event type and time.
func TestOneReceiverOfTwoDatabases(t *testing.T) {
	const n = 100
	r := receive(t, ok)
	for i := range 2 {
		w := newWorld(t)
		w.subscribe("order.ü\r\n%", r.URL, nil)
		w.exec(`INSERT INTO public.events (event_type, payload) SELECT E'order.ü\r\n%', jsonb_build_object('from', $1::int, 'n', g) FROM generate_series(1, $2) g`, i, n)
		w.run(workerhost.Options{})
		w.becomes(n, completed)
	}
	seen, contents := map[string]bool{}, map[string]bool{}
	for _, x := range r.all() {
		if !seen[x.id] {
			seen[x.id], contents[string(x.body)] = true, true
		}
		require.Equal(t, "order.%C3%BC%0D%0A%25", x.header.Get("webhook-event-type"))
		created, err := time.Parse(time.RFC3339Nano, x.header.Get("webhook-event-created"))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), created, time.Hour)
	}
	require.Len(t, contents, 2*n)
}
