// Tests of secrets in a running host: they can be rotated in their file, and they are visible
// only as signatures.
package workerhost_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/sender"
)

// output collects everything that a host writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func TestSecretsRotateAndStaySecret(t *testing.T) {
	t.Parallel()
	keys := []string{secret, "whsec_" + base64.StdEncoding.EncodeToString([]byte("the second of the three secrets")),
		"whsec_" + base64.StdEncoding.EncodeToString([]byte("the last of the three secrets..."))}
	file := filepath.Join(t.TempDir(), "acme")
	keep := func(keys ...string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file+".new", []byte(strings.Join(keys, "\n")+"\n"), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	keep(keys[0])
	w := newWorld(t, "webhook.max_attempts", "1")
	r := receive(t, func(rw http.ResponseWriter, req *http.Request) {
		rw.WriteHeader(http.StatusAccepted)
		_, _ = rw.Write([]byte("signed " + req.Header.Get("Webhook-Signature"))) // a receiver that returns the signature in its response
	})
	secrets, err := sender.NewSecrets([]sender.SecretSource{{Ref: "acme", From: "file:" + file}})
	require.NoError(t, err)
	ref, missing := "acme", "nobody"
	w.subscribe("order.created", r.URL, &ref)
	w.subscribe("order.unsigned", r.URL, &missing)
	w.subscribe("order.panics", "https://panics.example/", &ref)
	var out output
	s := sender.New(sender.Config{Version: "test", Allow: loopback(), PlainHTTP: loopback(), Concurrency: 4, Lookup: func(context.Context, string) ([]netip.Addr, error) { panic("lookup") }})
	t.Cleanup(s.Close)
	h := w.run(workerhost.Options{Secrets: secrets, Sender: s, Log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})

	verifies := func(g got) (by []int) {
		for i, key := range keys {
			wh, err := standardwebhooks.NewWebhook(key)
			require.NoError(t, err)
			if wh.Verify(g.body, g.header) == nil {
				by = append(by, i)
			}
		}
		require.Len(t, strings.Fields(g.header.Get("Webhook-Signature")), len(by), "one signature per secret")
		return by
	}
	// the host signs with the old secrets until it reads the file again
	signedBy := func(want ...int) {
		t.Helper()
		eventually(t, func() bool {
			n := r.count()
			w.events("order.created", 1)
			eventually(t, func() bool { return r.count() == n+1 }, "not sent")
			return fmt.Sprint(verifies(r.all()[n])) == fmt.Sprint(want)
		}, "never signed by %v", want)
	}
	signedBy(0)
	keep(keys[1], keys[0])
	signedBy(0, 1)
	keep(keys[2], keys[1])
	signedBy(1, 2)
	keep(keys[2])
	signedBy(2)

	unsigned := "SELECT count(*)::int FROM public.v_signing_fault f JOIN public.subscriptions u ON u.id = f.subscription_id WHERE u.event_type = $1"
	failed := "SELECT count(*)::int FROM public.dead_letters d JOIN public.subscriptions u ON u.id = d.subscription_id WHERE u.event_type = $1 AND d.final_error_code = $2"
	w.becomes(0, unfinished)
	n := r.count()
	w.events("order.unsigned", 1)
	w.events("order.panics", 1)
	w.becomes(1, unsigned, "order.unsigned")
	w.becomes(1, failed, "order.panics", "WORKER_PANIC")
	require.Equal(t, n, r.count(), "a webhook that cannot be signed was sent")
	// with a broken file nothing is sent, neither unsigned nor signed with the old secrets
	require.NoError(t, os.WriteFile(file, []byte(keys[0]+" "+strings.TrimSuffix(keys[1], "=")+"!"), 0o600))
	eventually(t, func() bool {
		w.events("order.created", 1)
		return w.int(unsigned, "order.created") == 1
	}, "a broken secret file is not noticed")
	require.Contains(t, w.text("SELECT what FROM public.v_signing_fault WHERE what LIKE '%base64%'"), "secret 2 of 2")
	require.NoError(t, h.stop())

	var seen strings.Builder
	seen.WriteString(out.String())
	require.Contains(t, seen.String(), "cannot sign")
	for _, table := range []string{"webhook_delivery_jobs", "webhook_delivery_sagas", "dead_letters", "subscriptions", "queue_tick_worker", "queue_host", "queue_heartbeat"} {
		rows, err := w.admin.Query(t.Context(), "SELECT to_jsonb(x)::text FROM public."+table+" x")
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		seen.WriteString(strings.Join(all, "\n"))
	}
	fmt.Fprintf(&seen, "%v %+v %#v", h.Status(), h.Status(), h.Status())
	for _, key := range keys {
		text := strings.TrimPrefix(key, "whsec_")
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		for _, form := range []string{text, strings.TrimRight(text, "="), string(raw), hex.EncodeToString(raw), fmt.Sprintf("%d", raw), base64.URLEncoding.EncodeToString(raw)} {
			require.NotContains(t, seen.String(), form)
		}
	}
}
