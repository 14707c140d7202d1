package workerhost

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

// idleHost returns a host that is not run and needs no database.
func idleHost(t *testing.T) *Host {
	t.Helper()
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: "postgres://host@127.0.0.1:1/app?sslmode=disable", WorkConns: 1})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	h, err := New(client, Options{ID: "idle"})
	require.NoError(t, err)
	return h
}

// A handler of a kind that no job can have is refused: it would never run, and a list of long kinds
// does not fit into the host's row.
func TestHandlerOfNoJobKindIsRefused(t *testing.T) {
	t.Parallel()
	does := handler.Func(func(context.Context, handler.Job) error { return nil })
	for kind, ok := range map[string]bool{
		"kg.reindex": true, strings.Repeat("k", 100): true, strings.Repeat("k", 101): false, "": false, "1st": false, "a b": false, "\x1b[2J": false,
	} {
		err := Options{ID: "h", Handlers: map[string]handler.Handler{kind: does}}.Check()
		if ok {
			require.NoError(t, err, kind)
			continue
		}
		require.ErrorContains(t, err, "kind is not the name of a job kind (handlers, kind", kind)
		require.ErrorContains(t, err, handler.KindForm, kind)
		require.NotContains(t, err.Error(), "\x1b")
		require.Equal(t, queue.KindConfig, queue.KindOf(err))
	}
}

// A host without an id is refused before it asks the database, whose error names arguments of SQL.
func TestHostWithoutAnIDIsRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", " \n"} {
		require.EqualError(t, Options{ID: id}.Check(), "the host has no id (host_id): give it one that no other host has, such as shop-1")
	}
}

// pointed is a handler whose method needs its fields.
type pointed struct{ err error }

func (p *pointed) Handle(context.Context, handler.Job) error { return p.err }

// A handler that is nil is refused, also one of a type: each of its jobs would panic.
func TestNilHandlerIsRefused(t *testing.T) {
	t.Parallel()
	for _, none := range []handler.Handler{nil, handler.Func(nil), (*pointed)(nil)} {
		err := Options{ID: "h", Handlers: map[string]handler.Handler{"kg.reindex": none}}.Check()
		require.EqualError(t, err, "the handler is nil (handlers, kind kg.reindex): set a handler or remove the entry", "%T", none)
		require.Equal(t, queue.KindConfig, queue.KindOf(err))
	}
	require.NoError(t, Options{ID: "h", Handlers: map[string]handler.Handler{"kg.reindex": &pointed{}}}.Check())
}

// /readyz returns why the host is not ready, safe to print, whatever the text.
func TestReadyzIsSafeToPrint(t *testing.T) {
	t.Parallel()
	h := idleHost(t)
	addr, err := h.ServeMetrics(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	body := func() string {
		resp, err := http.Get("http://" + addr.String() + "/readyz")
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
		return string(text)
	}
	raw := "gone \x1b]0;x\a \u009b31m \u202e \xff\nX-Injected: yes"
	for _, hold := range []func(){func() { h.waits.Store(&raw) }, func() { h.row.refused.Store(&raw) }} {
		hold()
		said, ended := strings.CutSuffix(body(), "\n")
		require.True(t, ended)
		require.Contains(t, said, "gone ")
		require.Equal(t, queue.Clean(raw).String(), said)
		require.NotContains(t, said, "\n")
		require.NotContains(t, said, "\x1b")
	}
}

// A client that stops in the middle of a request, of its header or of its body, keeps no connection of the host.
func TestMetricsOfAClientThatStops(t *testing.T) {
	t.Parallel()
	addr, err := idleHost(t).ServeMetrics(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	for _, half := range []string{"GET /healthz HTTP/1.1\r\nHost:", "POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc"} {
		c, err := net.Dial("tcp", addr.String())
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(c, half)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, c)
		require.NoError(t, err, "it is not closed: %s", half)
	}
}

// docs/sizing.md has a row for each metric of qtop, and no others.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	addr, err := idleHost(t).ServeMetrics(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	resp, err := http.Get("http://" + addr.String() + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	served, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	document, err := os.ReadFile("../docs/sizing.md")
	require.NoError(t, err)
	names := func(pattern string, text []byte) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	have := append(names(`(?m)^# TYPE (qtop_\w+)`, served), databaseNames(t)...)
	slices.Sort(have)
	require.Contains(t, have, "qtop_database_readable")
	require.Equal(t, have, names("(?m)^\\| `(qtop_\\w+)", document))
	for _, used := range names(`\b(qtop_[a-z_]+)`, document) { // the alert rules use them
		require.Contains(t, have, used)
	}
	for _, outcome := range names(`outcome="(\w+)"`, served) {
		require.Contains(t, string(document), "`"+outcome+"`")
	}
}

// databaseNames returns the names of the figures of a database in which something waits.
func databaseNames(t *testing.T) (all []string) {
	t.Helper()
	ch := make(chan prometheus.Metric, 100)
	databaseFigures(ch, &queue.Snapshot{Waiting: []queue.Waiting{{Source: "job"}}})
	close(ch)
	for m := range ch {
		all = append(all, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(m.Desc().String())[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A host without Options.Sender sends, but not to private addresses.
func TestDefaultSender(t *testing.T) {
	t.Parallel()
	res := idleHost(t).webhooks.Sender.Send(t.Context(), sender.Request{URL: "https://127.0.0.1:1/", ID: "1", Timeout: 10 * time.Second})
	require.Equal(t, "ADDRESS_REFUSED", res.Code)
}
