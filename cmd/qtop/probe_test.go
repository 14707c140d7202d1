package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// webhook verify sends one signed request through the sender of the hosts. It
// connects to no address that a host may not connect to, and sends nothing that
// it cannot sign.
func TestWebhookVerifySends(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	t.Setenv("QTOP_TEST_ACME", secret)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var status, asked atomic.Int64
	status.Store(http.StatusNoContent)
	got := make(chan *http.Request, 1)
	bodies := make(chan []byte, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asked.Add(1) == 1 {
			got <- r
			bodies <- body
		}
		rw.WriteHeader(int(status.Load()))
	}))
	defer receiver.Close()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "INSERT INTO public.subscriptions (event_type, callback_url, verified, secret_ref) VALUES ('order', $1, false, 'acme')", receiver.URL+"/services/T0AB/X9hush7Zq?t=hush")
	require.NoError(t, err)
	dsn := db.DSN(pgtest.Login(t, db, "subscription_admin", "queue_viewer"))
	verify := func(more ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"webhook", "verify", "1", "--reason", "r", "--yes", "--dsn", dsn}, more...), strings.NewReader(""), &out, &errs)
		require.NotContains(t, out.String()+errs.String(), "hush")
		return code, out.String() + errs.String()
	}
	verified := func() (v bool) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT verified FROM public.subscriptions").Scan(&v))
		return v
	}
	allow := []string{"--delivery-allow-networks", "127.0.0.0/8", "--delivery-allow-plain-http", "127.0.0.0/8"}
	sign := append([]string{"--delivery-secrets", "acme=env:QTOP_TEST_ACME"}, allow...)

	code, text := verify(allow...)
	require.Equal(t, 1, code)
	require.Contains(t, text, `nothing was sent, this process cannot sign: secret_ref "acme" is not in delivery.secrets`)
	code, text = verify(sign[:2]...)
	require.Equal(t, 1, code)
	require.Contains(t, text, "the receiver did not answer with a status of 200 to 299, so nothing was changed: ADDRESS_REFUSED")
	code, text = verify(append([]string{"--dry-run"}, sign...)...)
	require.Zero(t, code)
	require.Contains(t, text, "/services/•••/•••?•••")
	require.Zero(t, asked.Load())
	require.False(t, verified())

	code, text = verify(sign...)
	require.Zero(t, code, text)
	require.Contains(t, text, "1 verified: HTTP_204 after ")
	require.True(t, verified())
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	r := <-got
	require.NoError(t, wh.Verify(<-bodies, r.Header))
	require.Equal(t, "qtop.verify", r.Header.Get("webhook-event-type"))
	require.Regexp(t, `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`, r.Header.Get("webhook-event-created"), "microseconds, as in deliveries")

	status.Store(http.StatusServiceUnavailable)
	code, text = verify(append([]string{"-o", "json"}, sign...)...)
	require.Equal(t, 1, code)
	require.Contains(t, text, "the receiver did not answer with a status of 200 to 299, so nothing was changed: HTTP_503")
	require.EqualValues(t, 2, asked.Load(), "one request each")
}
