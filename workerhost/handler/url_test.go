// Tests of URL handlers against real HTTP receivers, and of Parse.
package handler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

func newSender(t *testing.T, allow ...string) *sender.Sender {
	t.Helper()
	c := sender.Config{Version: "test"}
	for _, a := range allow {
		c.Allow = append(c.Allow, netip.MustParsePrefix(a))
		c.PlainHTTP = c.Allow
	}
	s := sender.New(c)
	t.Cleanup(s.Close)
	return s
}

func endpoint(t *testing.T, url string) handler.Handler {
	t.Helper()
	h, err := handler.URL(url, newSender(t, "127.0.0.0/8"))
	require.NoError(t, err)
	return h
}

func receiver(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestURLOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status    int
		body      string
		code      string
		text      string
		permanent bool
	}{
		{200, "noise", "", "", false},
		{204, "", "", "", false},
		{302, "", "HTTP_302", "answered 302 Found", false},
		{400, "bad\nline\x00", "HTTP_400", "answered 400 Bad Request: bad line\ufffd", true},
		{401, "", "HTTP_401", "answered 401 Unauthorized", false},
		{404, "no such job", "HTTP_404", "answered 404 Not Found: no such job", false},
		{410, "", "HTTP_410", "answered 410 Gone", true},
		{422, "", "HTTP_422", "answered 422 Unprocessable Entity", true},
		{429, "", "HTTP_429", "answered 429 Too Many Requests", false},
		{500, strings.Repeat("x", 1<<20), "HTTP_500", "answered 500 Internal Server Error: " + strings.Repeat("x", 4096-36), false},
		{503, "", "HTTP_503", "answered 503 Service Unavailable", false},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			url := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			code, text, permanent := handler.Outcome(endpoint(t, url).Handle(t.Context(), job()))
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.text, text)
			require.Equal(t, tt.permanent, permanent)
			require.Equal(t, int64(1), calls.Load())
		})
	}
}

// A receiver that repeats the URL in its answer does not put the tokens of it into the stored text.
func TestURLHidesItsTokens(t *testing.T) {
	t.Parallel()
	address := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "no route "+r.RequestURI+" ("+r.URL.Path+") for "+r.URL.Query().Get("code"))
	})
	for path, want := range map[string]string{
		"/api/job?code=aB3dE1":                         "no route /api/job?code=••• (/api/job) for •••",
		"/hooks/T0123ABCD/x%2Fy7z9?a=1&code=a%20b7-cc": "no route /hooks/•••/•••?a=1&code=••• (/hooks/•••/•••) for •••",
		"/orders/orderCreated.v2?code=plain":           "no route /orders/orderCreated.v2?code=plain (/orders/orderCreated.v2) for plain",
		"/a1b2/created?t0ken123":                       "no route /a1b2/created?••• (/a1b2/created) for ",
	} {
		_, text, _ := handler.Outcome(endpoint(t, address+path).Handle(t.Context(), job()))
		require.Equal(t, "answered 404 Not Found: "+want, text, path)
	}
	for _, answer := range []string{"POST %s HTTP/1.1\r\n\r\n", "HTTP/1.1 404 No\r\nno route %s\r\n\r\n"} { // no HTTP: the error of net/http has the line
		odd := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = fmt.Fprintf(c, answer, r.RequestURI)
				_ = c.Close()
			}
		})
		code, text, _ := handler.Outcome(endpoint(t, odd+"/hooks/T0123ABCD/x?code=aB3dE1gH2jK3").Handle(t.Context(), job()))
		require.Equal(t, "PROTOCOL_ERROR", code, text)
		require.Contains(t, text, "/hooks/•••/x?code=•••")
	}
	for n := range 12 { // where the text is cut, no beginning of a token is left
		long := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, strings.Repeat("x", 4080+n)+"aB3dE1gH2jK3")
		})
		_, text, _ := handler.Outcome(endpoint(t, long+"/?code=aB3dE1gH2jK3").Handle(t.Context(), job()))
		require.NotContains(t, text, "aB3dE1")
	}
}

func TestURLGetsTheJob(t *testing.T) {
	t.Parallel()
	j := job()
	j.Payload = json.RawMessage(`{"n": 12345678901234567890.1, "t": "<é>"}`)
	want, err := j.JSON()
	require.NoError(t, err)
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r
		body <- string(b)
	})
	require.NoError(t, endpoint(t, url+"/work?x=1").Handle(t.Context(), j))
	r := <-got
	require.Equal(t, string(want), <-body)
	require.Equal(t, "POST /work?x=1", r.Method+" "+r.RequestURI)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Qtop-Job-Id": j.ID, "Idempotency-Key": j.RootID, "Qtop-Job-Attempt": "2", "User-Agent": "qtop/test",
	} {
		require.Equal(t, []string{value}, r.Header.Values(name), name)
	}
	require.Empty(t, r.Header.Values("Webhook-Signature"))
}

// One attempt is one request. Without the lower-case header name, net/http would repeat a request
// with an Idempotency-Key when a kept-alive connection breaks.
func TestURLIsCalledOncePerTry(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	url := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if calls.Add(1) == 2 {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		}
	})
	h := endpoint(t, url)
	require.NoError(t, h.Handle(t.Context(), job()))
	code, _, _ := handler.Outcome(h.Handle(t.Context(), job()))
	require.Equal(t, sender.CodeConnectionReset, code)
	require.Equal(t, int64(2), calls.Load())
}

func TestURLWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	code, text, permanent := handler.Outcome(endpoint(t, closed).Handle(t.Context(), job()))
	require.Equal(t, sender.CodeConnectionRefused, code)
	require.NotEmpty(t, text)
	require.False(t, permanent)

	h, err := handler.URL(closed, newSender(t))
	require.NoError(t, err)
	code, _, _ = handler.Outcome(h.Handle(t.Context(), job()))
	require.Equal(t, sender.CodeAddressRefused, code, "allow_networks applies to URLs of the configuration too")

	called := make(chan struct{}, 4)
	hang := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		called <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-called; cancel() }()
	code, _, _ = handler.Outcome(within(t, func() error { return endpoint(t, hang).Handle(ctx, job()) }))
	require.Equal(t, handler.CodeStopped, code)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	code, _, _ = handler.Outcome(within(t, func() error { return endpoint(t, hang).Handle(ctx, job()) }))
	require.Equal(t, handler.CodeTimeout, code)
}

func TestParse(t *testing.T) {
	t.Parallel()
	url := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	silent := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	})
	all, err := handler.Parse([]handler.Spec{
		{Kind: "resize", Command: []string{"sh", "-c", "exit 5"}},
		{Kind: "Mail.send:bulk_1-x", URL: url},
		{Kind: "hangs", Command: []string{"sh", "-c", "trap '' TERM; sleep 1000; sleep 1000"}, Timeout: 50 * time.Millisecond},
		{Kind: "hangs.too", URL: silent, Timeout: 50 * time.Millisecond},
	}, newSender(t, "127.0.0.0/8"))
	require.NoError(t, err)
	require.Len(t, all, 4)
	for _, kind := range []string{"hangs", "hangs.too"} {
		code, _, permanent := handler.Outcome(within(t, func() error { return all[kind].Handle(t.Context(), job()) }))
		require.Equal(t, handler.CodeTimeout, code)
		require.False(t, permanent)
	}
	code, _, _ := handler.Outcome(all["resize"].Handle(t.Context(), job()))
	require.Equal(t, "EXIT_5", code)
	code, _, _ = handler.Outcome(all["Mail.send:bulk_1-x"].Handle(t.Context(), job()))
	require.Equal(t, "HTTP_418", code)

	none, err := handler.Parse(nil, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestParseSaysEverythingAtOnce(t *testing.T) {
	t.Parallel()
	ok := []string{"sh"}
	all, err := handler.Parse([]handler.Spec{
		{Command: ok},
		{Kind: "1st", Command: ok},
		{Kind: "a", Command: ok},
		{Kind: "a", Command: ok},
		{Kind: "b"},
		{Kind: "c", Command: ok, URL: "https://example.org"},
		{Kind: "d", Command: []string{}},
		{Kind: "e", Command: []string{"qtop-no-such-program"}},
		{Kind: "f", URL: "ftp://token@example.org/secret"},
		{Kind: "g", URL: "https:///secret"},
		{Kind: "h", URL: "https://%zz/secret"},
		{Kind: strings.Repeat("k", 101), URL: "https://example.org"},
		{Kind: "x\x1b[2J\n", URL: "nonsense"},
		{Kind: "a b"},
		{Kind: "i", URL: "https://user:token@example.org/"},
		{Kind: "j", URL: "https://example.org:65536/token"},
		{Kind: "k", URL: "https://127.1/token"},
	}, newSender(t))
	require.Nil(t, all)
	require.Equal(t, queue.KindConfig, queue.KindOf(err))
	const form = "kind is not the name of a job kind (handlers, entry %): begin with A-Z or a-z, then letters, digits and _ . : - (at most 100)"
	at := func(where string) string { return strings.Replace(form, "%", where, 1) }
	require.Equal(t, []string{
		"kind is missing (handlers, entry 1): name the job kind that this entry works on",
		at("2, kind 1st"),
		"kind is bound already by entry 3 (handlers, entry 4, kind a): keep one of them",
		"neither command nor url is given (handlers, entry 5, kind b): give one of them",
		"both command and url are given (handlers, entry 6, kind c): keep one of them",
		"the command is empty (handlers, entry 7, kind d): name a program and its arguments",
		`command "qtop-no-such-program" cannot be run: executable file not found in $PATH (handlers, entry 8, kind e): install it, or give its whole path`,
		"the scheme of the url is neither http nor https (handlers, entry 9, kind f): use https://HOST/PATH",
		"the url has no host (handlers, entry 10, kind g): use https://HOST/PATH",
		"the url cannot be parsed (handlers, entry 11, kind h): use https://HOST/PATH",
		at("12, kind " + strings.Repeat("k", 100)),
		at("13, kind x␛[2J␊"),
		"the scheme of the url is neither http nor https (handlers, entry 13, kind x␛[2J␊): use https://HOST/PATH",
		at("14, kind a b"),
		"neither command nor url is given (handlers, entry 14, kind a b): give one of them",
		"the url holds a user or password (handlers, entry 15, kind i): use https://HOST/PATH",
		"no request can be sent to the url: the port is not one of 1 to 65535 (handlers, entry 16, kind j): use https://HOST/PATH",
		"no request can be sent to the url: the host ends in a number but is not a plain IPv4 address (handlers, entry 17, kind k): use https://HOST/PATH",
	}, strings.Split(err.Error(), "\n"))

	_, err = handler.Parse([]handler.Spec{{Kind: "a", URL: "https://example.org"}}, nil)
	require.ErrorContains(t, err, "a url needs a sender")
}
