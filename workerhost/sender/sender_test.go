// Tests of well-behaved receivers: the request, signatures, reuse of connections, outcomes.
package sender

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// newSender makes a Sender that is closed at cleanup and never uses the real resolver.
func newSender(t testing.TB, c Config) *Sender {
	t.Helper()
	if c.Version == "" {
		c.Version = "1.2.3"
	}
	if c.Lookup == nil {
		c.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	}
	if c.PlainHTTP == nil { // most receivers of the tests use plain http
		c.PlainHTTP = c.Allow
	}
	s := New(c)
	t.Cleanup(s.Close)
	return s
}

func server(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func request(url string) Request {
	return Request{URL: url, ID: "evt_1-sub_2", Body: []byte(`{"a": 1}`), Timeout: 10 * time.Second}
}

type seen struct {
	header http.Header
	body   []byte
	method string
	uri    string
	host   string
}

func recorder(t testing.TB) (*httptest.Server, func() []seen) {
	var mu sync.Mutex
	var all []seen
	srv := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seen{r.Header.Clone(), body, r.Method, r.RequestURI, r.Host})
	})
	return srv, func() []seen {
		mu.Lock()
		defer mu.Unlock()
		return append([]seen(nil), all...)
	}
}

func TestWhatArrives(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback(), Version: "9.9\r\nX-Evil: 1"})
	r := request(srv.URL + "/hook/%2Fa?token=x%20y#fragment")
	r.Body = []byte("{\"keep\":  [1,2 ] ,\n \"b\":\"\u00fc\"}\n")
	before := time.Now()
	res := s.Send(context.Background(), r)
	require.True(t, res.Delivered, res.Detail)
	require.Equal(t, 200, res.Status)
	require.Empty(t, res.Code)
	require.Empty(t, res.Detail)
	require.WithinRange(t, res.Started, before, time.Now())
	require.Positive(t, res.Took)

	require.Len(t, got(), 1)
	one := got()[0]
	require.Equal(t, "POST", one.method)
	require.Equal(t, "/hook/%2Fa?token=x%20y", one.uri)
	require.Equal(t, strings.TrimPrefix(srv.URL, "http://"), one.host)
	require.Equal(t, r.Body, one.body)
	stamp, err := strconv.ParseInt(one.header.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	require.Equal(t, res.Started.Unix(), stamp)
	one.header.Del("webhook-timestamp")
	require.Equal(t, http.Header{
		"Content-Length": {strconv.Itoa(len(r.Body))},
		"Content-Type":   {"application/json"},
		"User-Agent":     {"qtop/9.9--X-Evil:-1"},
		"Webhook-Id":     {r.ID},
	}, one.header, "unsigned, uncompressed, nothing else")
}

func TestEmptyBody(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback()})
	r := request(srv.URL)
	r.Body, r.Secrets = nil, [][]byte{[]byte("k")}
	require.True(t, s.Send(context.Background(), r).Delivered)
	wh, _ := standardwebhooks.NewWebhookRaw([]byte("k"))
	require.NoError(t, wh.Verify(nil, got()[0].header))
}

func TestSignatureByReferenceLibrary(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback()})
	old, current := bytes.Repeat([]byte{7}, 24), []byte("0123456789abcdef0123456789abcdef")
	r := request(srv.URL)
	r.Body = []byte("{ \"n\" : 1 }\n\x00\xff")
	r.Secrets = [][]byte{current, old}
	require.True(t, s.Send(context.Background(), r).Delivered)
	one := got()[0]
	require.Len(t, strings.Split(one.header.Get("webhook-signature"), " "), 2)

	for _, secret := range r.Secrets {
		wh, err := standardwebhooks.NewWebhook("whsec_" + base64.StdEncoding.EncodeToString(secret))
		require.NoError(t, err)
		require.NoError(t, wh.Verify(one.body, one.header))
		for i := range one.body {
			flipped := bytes.Clone(one.body)
			flipped[i] ^= 1
			require.Error(t, wh.Verify(flipped, one.header), "byte %d", i)
		}
		for _, name := range []string{"webhook-id", "webhook-timestamp"} {
			h := one.header.Clone()
			h.Set(name, h.Get(name)+"1")
			require.Error(t, wh.VerifyIgnoringTimestamp(one.body, h), name)
		}
	}
	stranger, _ := standardwebhooks.NewWebhookRaw([]byte("another"))
	require.Error(t, stranger.Verify(one.body, one.header))
}

// Receivers refuse a signature whose time is minutes off, so the time is that of the right clock and
// not that of this host.
func TestSignatureByTheRightClock(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback()})
	r := request(srv.URL)
	r.Secrets = [][]byte{[]byte("k")}
	wh, _ := standardwebhooks.NewWebhookRaw([]byte("k"))
	for i, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		r.ClockAhead = ahead
		res := s.Send(context.Background(), r)
		require.True(t, res.Delivered)
		one := got()[i]
		require.Equal(t, strconv.FormatInt(res.Started.Add(ahead).Unix(), 10), one.header.Get("webhook-timestamp"))
		require.NoError(t, wh.VerifyIgnoringTimestamp(one.body, one.header))
	}
}

func TestSigningFailedSendsNothing(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback()})
	for name, change := range map[string]func(*Request){
		"CRLF in id":   func(r *Request) { r.ID = "a\r\nX-Evil: 1" },
		"LF in id":     func(r *Request) { r.ID = "a\nb" },
		"blank in id":  func(r *Request) { r.ID = "a b" },
		"stop in id":   func(r *Request) { r.ID = "a.1" },
		"no id":        func(r *Request) { r.ID = "" },
		"long id":      func(r *Request) { r.ID = strings.Repeat("x", 513) },
		"beyond ASCII": func(r *Request) { r.ID = "ä" },
		"no secrets":   func(r *Request) { r.Secrets = [][]byte{} },
		"empty secret": func(r *Request) { r.Secrets = [][]byte{[]byte("k"), nil} },
	} {
		r := request(srv.URL)
		change(&r)
		res := s.Send(context.Background(), r)
		require.Equal(t, CodeSigningFailed, res.Code, name)
		require.False(t, res.Delivered, name)
		require.NotContains(t, res.Detail, "Evil", name)
	}
	require.Empty(t, got())
}

func TestStatuses(t *testing.T) {
	srv := server(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Location", "/?status=200")
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(status)
		if status >= 200 && status != 204 && status != 304 {
			_, _ = io.WriteString(w, "no\x1b[31m\u202e\r\n")
		}
	})
	s := newSender(t, Config{Allow: loopback()})
	for _, status := range []int{200, 201, 202, 204, 299} {
		res := s.Send(context.Background(), request(fmt.Sprintf("%s/?status=%d", srv.URL, status)))
		require.True(t, res.Delivered, status)
		require.Equal(t, status, res.Status)
		require.True(t, res.RetryAfter.IsZero())
	}
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308, 400, 404, 410, 429, 500, 503, 599, 999} {
		req := request(fmt.Sprintf("%s/?status=%d", srv.URL, status))
		req.ClockAhead = time.Hour // of the database server
		res := s.Send(context.Background(), req)
		require.False(t, res.Delivered, status)
		require.Equal(t, status, res.Status)
		require.Equal(t, fmt.Sprintf("HTTP_%d", status), res.Code)
		if status != 304 {
			require.Equal(t, "no\ufffd[31m\ufffd  ", res.Excerpt)
		}
		if status == 429 || status == 503 {
			require.WithinDuration(t, time.Now().Add(time.Hour+2*time.Minute), res.RetryAfter, 20*time.Second)
		} else {
			require.True(t, res.RetryAfter.IsZero(), status)
		}
	}
}

func TestRedirectTargetsHearNothing(t *testing.T) {
	var hits atomic.Int32
	target := server(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	srv := server(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Location", target.URL)
		w.WriteHeader(status)
	})
	s := newSender(t, Config{Allow: loopback()})
	for _, status := range []int{301, 302, 303, 307, 308} {
		res := s.Send(context.Background(), request(fmt.Sprintf("%s/?status=%d", srv.URL, status)))
		require.Equal(t, fmt.Sprintf("HTTP_%d", status), res.Code)
	}
	require.Zero(t, hits.Load())
}

func TestNoProxy(t *testing.T) {
	var hits atomic.Int32
	proxy := server(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	s := newSender(t, Config{Allow: loopback()})
	// net/http reads the proxy variables once per process, perhaps before this test, so check the
	// field too.
	require.Nil(t, s.transport.Proxy)
	res := s.Send(context.Background(), request("http://hook.example/"))
	require.Equal(t, CodeDNSFailure, res.Code)
	require.Zero(t, hits.Load())
}

func TestPoolIsAsLargeAsConcurrency(t *testing.T) {
	const inFlight = 16
	var opened atomic.Int32
	gate := make(chan struct{}, inFlight)
	var waiting sync.WaitGroup
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waiting.Done()
		<-gate
		_, _ = io.WriteString(w, "ok")
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	s := newSender(t, Config{Allow: loopback(), Concurrency: inFlight})
	for range 5 {
		waiting.Add(inFlight)
		var done sync.WaitGroup
		for range inFlight {
			done.Go(func() {
				if res := s.Send(context.Background(), request(srv.URL)); !res.Delivered {
					t.Errorf("not delivered: %s %s", res.Code, res.Detail)
				}
			})
		}
		waiting.Wait() // all of them are in the handler at once
		for range inFlight {
			gate <- struct{}{}
		}
		done.Wait()
	}
	// A connection returns to the pool a moment after Send returns, so there may be a few more
	// dials than inFlight; 80 dials, one per request, would mean no reuse.
	require.GreaterOrEqual(t, opened.Load(), int32(inFlight))
	require.LessOrEqual(t, opened.Load(), int32(2*inFlight))
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = quiet()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate()) // valid for example.com and 127.0.0.1
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	toLoopback := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	trusting := newSender(t, Config{Allow: loopback(), RootCAs: roots, Lookup: toLoopback})
	for _, host := range []string{"example.com", "EXAMPLE.com", "example.com.", "127.0.0.1"} {
		res := trusting.Send(context.Background(), request(fmt.Sprintf("https://%s:%d/", host, port)))
		require.True(t, res.Delivered, "%s: %s", host, res.Detail)
		require.Equal(t, "HTTP/1.1", res.Excerpt)
	}
	res := trusting.Send(context.Background(), request(fmt.Sprintf("https://other.test:%d/", port)))
	require.Equal(t, CodeTLSFailure, res.Code, "wrong host")
	require.Contains(t, res.Detail, "other.test")

	wary := newSender(t, Config{Allow: loopback(), Lookup: toLoopback})
	res = wary.Send(context.Background(), request(fmt.Sprintf("https://example.com:%d/", port)))
	require.Equal(t, CodeTLSFailure, res.Code, "self-signed")

	plain := server(t, func(http.ResponseWriter, *http.Request) {})
	res = trusting.Send(context.Background(), request(strings.Replace(plain.URL, "http:", "https:", 1)))
	require.Equal(t, CodeTLSFailure, res.Code, "no TLS there")
}

func TestCallerStops(t *testing.T) {
	entered := make(chan struct{})
	release := make(chan struct{})
	srv := server(t, func(http.ResponseWriter, *http.Request) { close(entered); <-release })
	defer close(release)
	s := newSender(t, Config{Allow: loopback()})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-entered; cancel() }()
	r := request(srv.URL)
	r.Timeout = time.Hour
	res := s.Send(ctx, r)
	require.Equal(t, CodeTimeout, res.Code)
	require.Contains(t, res.Detail, "caller")
}

func TestNoTimeNoDial(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback()})
	for _, timeout := range []time.Duration{0, -time.Second} {
		r := request(srv.URL)
		r.Timeout = timeout
		require.Equal(t, CodeTimeout, s.Send(context.Background(), r).Code)
	}
	s.Close()
	s.Close()
	require.Equal(t, CodeTimeout, s.Send(context.Background(), request(srv.URL)).Code)
	require.Empty(t, got())
}

func TestPanicsStayInside(t *testing.T) {
	s := newSender(t, Config{Lookup: func(context.Context, string) ([]netip.Addr, error) { panic("resolver\nbroke") }})
	for _, scheme := range []string{"http", "https"} {
		res := s.Send(context.Background(), request(scheme+"://hook.example/"))
		require.Equal(t, CodeWorkerPanic, res.Code)
		require.Contains(t, res.Detail, "resolver broke")
	}
	var nobody context.Context
	res := s.Send(nobody, request("https://hook.example/"))
	require.Equal(t, CodeWorkerPanic, res.Code)
	require.Positive(t, res.Took)
}

func TestDNSFailures(t *testing.T) {
	for name, answer := range map[string]func(context.Context) ([]netip.Addr, error){
		"not found": func(context.Context) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		},
		"broken":  func(context.Context) ([]netip.Addr, error) { return nil, errors.New("server misbehaving") },
		"nothing": func(context.Context) ([]netip.Addr, error) { return nil, nil },
		"slow":    func(ctx context.Context) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		s := newSender(t, Config{Resolve: 50 * time.Millisecond, Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) { return answer(ctx) }})
		res := s.Send(context.Background(), request("https://hook.example/path?token=s3cret"))
		require.Equal(t, CodeDNSFailure, res.Code, name)
		require.Contains(t, res.Detail, "hook.example", name)
		require.NotContains(t, res.Detail, "s3cret", name)
	}
}

// The time for the TCP handshake begins after the name resolution: a name server that is down costs
// the resolver more than that.
func TestSlowNameServer(t *testing.T) {
	t.Parallel()
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback(), Connect: 2 * time.Second, Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2500 * time.Millisecond):
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}})
	res := s.Send(context.Background(), request(fmt.Sprintf("http://slow.example:%d/", srv.Listener.Addr().(*net.TCPAddr).Port)))
	require.True(t, res.Delivered, res.Detail)
	require.Len(t, got(), 1)
}

// A name without an address, and a name whose CNAME leads to itself, may exist: the error must
// not claim that the name does not exist.
func TestDNSWithoutAnAddress(t *testing.T) {
	loop := []byte{0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 12} // the queried name is a CNAME of itself
	for name, answers := range map[string][]byte{"no record": nil, "a CNAME loop": loop} {
		resolver := nameserver(t, answers)
		s := newSender(t, Config{Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return resolver.LookupNetIP(ctx, "ip", host)
		}})
		res := s.Send(context.Background(), request("https://hook.example/path"))
		require.Equal(t, CodeDNSFailure, res.Code, name)
		require.Contains(t, res.Detail, "DNS has no address for hook.example", name)
		require.NotContains(t, res.Detail, "does not exist", name)
	}
}

// nameserver responds to every query with answers, which holds one record or none.
func nameserver(t *testing.T, answers []byte) *net.Resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			asked := 12 // length of the header; then name, type and class
			for asked < n && buf[asked] != 0 {
				asked += int(buf[asked]) + 1
			}
			if asked += 5; asked > n {
				continue
			}
			reply := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, byte(min(len(answers), 1)), 0, 0, 0, 0}, buf[12:asked]...)
			_, _ = conn.WriteTo(append(reply, answers...), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}
