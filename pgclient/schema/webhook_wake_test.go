// Wake signals of webhooks, and the data about endpoints that panes read.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWebhookWakes(t *testing.T) {
	h := newHooks(t)
	ctx := context.Background()
	listener := h.db.Conn(t, "")
	_, err := listener.Exec(ctx, "LISTEN queue_wake_webhook; LISTEN fence")
	require.NoError(t, err)
	// heard returns "layer hint count" of every signal up to now
	heard := func() (signals []string) {
		t.Helper()
		h.exec("NOTIFY fence")
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		for {
			n, err := listener.WaitForNotification(wait)
			require.NoError(t, err)
			if n.Channel == "fence" {
				return signals
			}
			var p struct {
				Layer string
				Hint  string `json:"worker_hint"`
				Count int
				At    time.Time `json:"occurred_at"`
				Of    string    `json:"event_domain"`
			}
			require.NoError(t, json.Unmarshal([]byte(n.Payload), &p))
			require.False(t, p.At.IsZero())
			require.Equal(t, "webhook", p.Of)
			signals = append(signals, fmt.Sprint(p.Layer, " ", p.Hint, " ", p.Count))
		}
	}
	h.subscribe("order")
	h.emit("order", 2)
	require.Empty(t, heard(), "off by default")

	h.flag("queue.notify.bridge_enabled", "true")
	h.emit("order", 3)
	require.Equal(t, []string{"event webhook_router 3"}, heard(), "one signal per statement")
	h.route()
	// The open transaction of another test may delay some events until the next run of the router:
	// then each run sends a signal.
	sagas := 0
	for _, signal := range heard() {
		var n int
		_, err := fmt.Sscanf(signal, "saga saga_orchestrator %d", &n)
		require.NoError(t, err, signal)
		sagas += n
	}
	require.Equal(t, 5, sagas)
	h.call("public.fn_saga_orchestrator_run()")
	require.Equal(t, []string{"job webhook_worker 5"}, heard())
	leases := h.claim(2)
	require.Empty(t, heard(), "a claim wakes nobody")
	h.finish("", leases...)
	require.Equal(t, []string{"job saga_orchestrator 2"}, heard(), "a result wakes the orchestrator")
	h.call("public.fn_saga_orchestrator_run()")
	require.Empty(t, heard(), "settling wakes nobody")
	tx, err := h.work.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT set_config('qtop.doorbell', 'on', true)")
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	require.Empty(t, heard(), "who rings the doorbell himself is not rung for")
}

func TestWebhookEndpointNames(t *testing.T) {
	h := newHooks(t)
	for url, want := range map[string]string{
		"https://user:secret@Example.COM:8443/a?b#c": "example.com:8443",
		"HTTP://[::1]:80/":                           "[::1]:80",
		"http://a.b?x=/y":                            "a.b",
		"https://h":                                  "h",
		"https://":                                   "https://",
		"Not A URL":                                  "not a url",
		"":                                           "",
		"ftp://u@v@w/x":                              "w",
	} {
		h.exec("INSERT INTO public.subscriptions (event_type, callback_url) VALUES ('x', $1)", url)
		require.Equal(t, want, one[string](h, "SELECT v.endpoint FROM public.v_webhook_endpoint v JOIN public.subscriptions s ON s.id = v.subscription_id WHERE s.callback_url = $1", url), url)
	}
	_, err := h.root.Exec(context.Background(), "INSERT INTO public.subscriptions (event_type, callback_url, secret_ref) VALUES ('x', 'y', '')")
	refused(t, "23514", err, "an empty reference is neither signed nor unsigned")
}

func TestWebhookEndpointPane(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 4)
	h.step()
	require.True(t, one[bool](h, "SELECT waiting = 4 AND oldest_waiting_at <= now() AND unsigned FROM public.v_webhook_endpoint"))
	h.exec("UPDATE public.subscriptions SET max_attempts = 1 WHERE id = $1", sub)
	leases := h.claim(3)
	h.finish("HTTP_500", leases[0])
	h.finish("", leases[1:]...)
	h.flag("webhook.retry_schedule", "60s")
	h.step()
	require.Equal(t, "1 1 t HTTP_500 0", one[string](h, `SELECT concat_ws(' ', waiting, dead_open, last_success_at IS NOT NULL,
		last_failure_code, consecutive_failures) FROM public.v_webhook_endpoint`))
	require.Equal(t, 1, one[int](h, "SELECT waiting::int FROM public.fn_webhook_backlog()"))
	h.exec("UPDATE public.subscriptions SET max_attempts = 9 WHERE id = $1", sub)
	h.finish("TIMEOUT", h.claim(1)...)
	h.step()
	require.True(t, one[bool](h, "SELECT waiting = 1 AND oldest_at IS NULL FROM public.v_webhook_backlog"), "due later is not old")
}

func TestWebhookLastSuccessIsKept(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 2)
	h.step()
	leases := h.claim(2)
	h.finish("", leases[0])
	require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_state SET last_success_at = now() - interval '1 hour'"))
	h.finish("", leases[1])
	require.True(t, one[bool](h, "SELECT last_success_at > now() - interval '1 minute' FROM public.v_webhook_endpoint"))
}
