// Tests of a secret that is missing or bad on one host. That is a fault of the host's
// configuration: no attempt is counted, another host delivers, and the fault ends when the secret
// is fixed.
package workerhost_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/sender"
)

func fileSecret(t *testing.T, path string) *sender.Secrets {
	t.Helper()
	s, err := sender.NewSecrets([]sender.SecretSource{{Ref: "acme", From: "file:" + path}})
	require.NoError(t, err)
	return s
}

// The host without the secret hands back the deliveries that it claimed and reports the reason.
// The other host delivers, and no attempt is counted.
func TestAnotherHostHasTheSecret(t *testing.T) {
	t.Parallel()
	const events = 30
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad"), filepath.Join(dir, "good")
	require.NoError(t, os.WriteFile(bad, []byte("not+base64! not"), 0o600))
	require.NoError(t, os.WriteFile(good, []byte(secret), 0o600))
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1", "webhook.max_attempts", "1")
	r := receive(t, ok)
	ref := "acme"
	sub := w.subscribe("order.created", r.URL, &ref)
	a := w.run(workerhost.Options{ID: "a", Secrets: fileSecret(t, bad)})
	w.events("order.created", events)
	w.becomes(1, "SELECT count(*)::int FROM public.v_signing_fault WHERE host_id = 'a' AND subscription_id = $1", sub)
	w.becomes(0, leased)
	require.Equal(t, "no live host can sign: secret_ref \"acme\": file "+bad+": secret 1 of 2 is not whsec_ followed by standard base64", w.why(sub))
	require.Zero(t, r.count())
	w.unspent(events)

	w.run(workerhost.Options{ID: "b", Secrets: fileSecret(t, good)})
	w.becomes(events, completed)
	w.becomes(1, "SELECT count(*)::int FROM public.v_webhook_host_secrets WHERE host_id = 'a' AND secret_refs = '{}'")
	w.becomes(1, "SELECT count(*)::int FROM public.v_webhook_host_secrets WHERE host_id = 'b' AND secret_refs = '{acme}'")
	require.Equal(t, events, r.count())
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	for _, g := range r.all() {
		require.NoError(t, wh.Verify(g.body, g.header))
	}
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE worker_id LIKE 'a/%'"), "attempts of a")
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE lease_resets > 0 OR attempt_no > 1"))
	require.Equal(t, "slows", w.link(sub, "state"))
	require.NoError(t, a.stop())
	require.Equal(t, "clear", w.link(sub, "state"), "the fault of a stopped host is not shown")
}

// why returns the first reason why the deliveries of a webhook subscription are blocked.
func (w *world) why(sub int) string {
	w.t.Helper()
	return w.text("SELECT public.fn_queue_why($1::text) ->> 'why'", strconv.Itoa(sub))
}

// link returns one member of the JSON object with the reason about signing.
func (w *world) link(sub int, member string) string {
	w.t.Helper()
	return w.text("SELECT l ->> $2 FROM jsonb_array_elements(public.fn_queue_why($1::text) -> 'links') l WHERE l ->> 'link' = 'signing'",
		strconv.Itoa(sub), member)
}

// A single host without a usable secret sends nothing, and no attempt is counted, for every fault
// of the secret. Each reason contains the remedy, and once the file is right the host delivers
// without a restart.
func TestSigningFaultEndsByItself(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "acme")
	w := newWorld(t, "queue.tick.webhook_worker.interval_seconds", "1", "webhook.max_attempts", "1")
	r := receive(t, ok)
	ref := "acme"
	sub := w.subscribe("order.created", r.URL, &ref)
	var out output
	h := w.run(workerhost.Options{Secrets: fileSecret(t, path), Log: slog.New(slog.NewTextHandler(&out, nil))})
	w.events("order.created", 5)
	says := func(what, do string) {
		t.Helper()
		w.becomes(1, "SELECT count(*)::int FROM public.v_signing_fault WHERE strpos(what, $1) > 0 AND strpos(remedy, $2) > 0", what, do)
		require.Contains(t, w.why(sub), what)
		require.Contains(t, w.link(sub, "do"), do)
		require.Equal(t, "blocks", w.link(sub, "state"))
		faults, err := inspect.SigningFaults(t.Context(), h.client)
		require.NoError(t, err)
		require.Len(t, faults, 1)
		require.True(t, faults[0].Nowhere)
		require.Contains(t, out.String(), what)
	}
	says("does not exist", "write the secret there, mode 0600")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	says("is empty", "put the secret there")
	require.NoError(t, os.WriteFile(path, []byte("whsec_!!"), 0o600))
	says("not whsec_ followed by standard base64", "copy it whole")
	open := path + ".open"
	require.NoError(t, os.WriteFile(open, []byte(secret), 0o600))
	require.NoError(t, os.Chmod(open, 0o644)) //nolint:gosec // a file that everyone may read is refused
	require.NoError(t, os.Rename(open, path)) // so the host never reads a file that it may use
	w.events("order.created", 5)
	says("mode 0644", "chmod 600 "+path)
	w.becomes(0, leased)
	require.Zero(t, r.count())
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.dead_letters"))
	w.exec("UPDATE public.subscriptions SET secret_ref = 'nobody' WHERE id = $1", sub)
	w.events("order.created", 1)
	says("is not in delivery.secrets", "add {ref")
	w.exec("UPDATE public.subscriptions SET secret_ref = 'acme' WHERE id = $1", sub)
	require.NoError(t, os.Chmod(path, 0o600))
	w.becomes(11, completed)
	require.Equal(t, 11, r.count())
	w.becomes(0, "SELECT count(*)::int FROM public.v_signing_fault")
	require.Equal(t, "clear", w.link(sub, "state"))
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE lease_resets > 0 OR attempt_no > 1 OR status = 'Failed'"))
}

// Long paths of many secrets do not make the progress of a host too long to be recorded: the host would
// count as dead.
func TestLongReasonsOfManyUnsignedSubscriptions(t *testing.T) {
	t.Parallel()
	const subscriptions = 50
	w := newWorld(t)
	var sources []sender.SecretSource
	for i := range subscriptions {
		ref := "r" + strconv.Itoa(i)
		sources = append(sources, sender.SecretSource{Ref: ref, From: "file:/" + strings.Repeat(strings.Repeat("x", 200)+"/", 10) + ref})
		w.subscribe("order.created", "https://127.0.0.1:1/", &ref)
	}
	secrets, err := sender.NewSecrets(sources)
	require.NoError(t, err)
	w.run(workerhost.Options{Secrets: secrets})
	w.events("order.created", 1)
	w.becomes(subscriptions, "SELECT count(*)::int FROM public.v_signing_fault WHERE what LIKE 'secret_ref%xxx%' AND remedy LIKE 'write the secret there%'")
}
