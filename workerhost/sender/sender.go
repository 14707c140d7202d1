// Package sender makes the outgoing HTTP requests of a worker host. No other code of the host
// connects to servers other than the database.
//
// Start from Sender (New, Send), Request and Result, and from Secrets for signing keys.
//
// Guarantees, for every URL and every behaviour of the receiver:
//
//   - one Send puts the request on the wire at most once, follows no redirect,
//     uses no proxy and returns by its deadline with one of the fixed codes;
//   - no connection is opened to a special-purpose address that the operator did not allow,
//     whatever the form of the address and the answer of DNS (address.go, dial.go);
//   - the signed bytes are the sent bytes (sign.go);
//   - memory per request is bounded: 32 KiB of header, 64 KiB of body read,
//     4 KiB of it kept.
//
// HTTP/1.1 only. With HTTP/2 all deliveries to a host would share one connection: if a receiver
// stalled its flow-control window, it would stall the deliveries of other subscriptions too, and
// the transport may send refused streams again without a call of Send. With a pool of HTTP/1.1
// connections as large as the concurrency, deliveries do not affect each other and each request
// is counted.
//
// net/http writes one quoted line to the standard logger when a receiver sends unrequested bytes
// on an idle connection. qtop calls slog.SetDefault, so that this line goes to its log and not to
// the terminal.
package sender

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// maxHeaderBytes bounds the status line and header of a response, including interim 1xx
	// responses.
	maxHeaderBytes = 32 << 10
	// idleTimeout is how long an unused connection is kept. Many receivers close idle connections
	// after 5 to 75 s; net/http notices that and dials again.
	idleTimeout = 60 * time.Second
	// idleTotalFactor × Concurrency bounds the idle connections to all hosts together, so that
	// many endpoints cannot use up the file descriptors of the process.
	idleTotalFactor = 4
)

// Config configures a Sender. New reads it once.
type Config struct {
	Version string // sent as User-Agent qtop/<version>
	// Allow holds the special-purpose ranges that may be dialled (delivery.allow_networks).
	Allow []netip.Prefix
	// PlainHTTP holds the networks to which http without TLS is allowed
	// (delivery.allow_plain_http). It allows no special-purpose range.
	PlainHTTP   []netip.Prefix
	Concurrency int // idle connections kept per receiver host; at least 1
	// Resolve bounds the name resolution, Connect the TCP handshake, TLS the TLS handshake, Headers
	// the time from the last byte sent to the end of the response header, Body the time to read the
	// body, which does not affect the outcome. Zero means 12 s, 5 s, 5 s, as long as Request.Timeout
	// allows, and 5 s. A resolver waits 5 s for each name server that does not answer before it asks
	// the next one: in 12 s two of three may be down.
	Resolve, Connect, TLS, Headers, Body time.Duration
	RootCAs                              *x509.CertPool // nil = the system's root certificates
	// Lookup resolves names; nil = net.DefaultResolver. The addresses that it returns are
	// checked and then dialled: no name is looked up twice.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Sender sends webhook requests. It is safe for concurrent use.
type Sender struct {
	userAgent []string
	transport *http.Transport
	body      time.Duration // Config.Body
	reader    reader
	closed    atomic.Bool
}

// New returns a Sender without open connections.
func New(c Config) *Sender {
	c.Resolve = cmp.Or(c.Resolve, 12*time.Second)
	c.Connect = cmp.Or(c.Connect, 5*time.Second)
	c.TLS = cmp.Or(c.TLS, 5*time.Second)
	c.Body = cmp.Or(c.Body, 5*time.Second)
	if c.RootCAs == nil {
		// They are read once. If the first handshake read them while no file can be opened, no certificate would ever
		// be valid in this process. An error comes again in every handshake.
		_, _ = x509.SystemCertPool()
	}
	c.Concurrency = max(c.Concurrency, 1) // 0 would be net/http's default of 2
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	d := &dialer{
		guard: newGuard(c.Allow, c.PlainHTTP), lookup: c.Lookup, resolving: c.Resolve, connect: c.Connect, handshake: c.TLS,
		tls: &tls.Config{
			RootCAs:            c.RootCAs,
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			ClientSessionCache: tls.NewLRUClientSessionCache(1024),
		},
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:                  nil,
		DialContext:            d.plain,
		DialTLSContext:         d.secured,
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           idleTotalFactor * c.Concurrency,
		MaxIdleConnsPerHost:    c.Concurrency,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  c.Headers,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return &Sender{userAgent: []string{userAgent(c.Version)}, transport: transport, body: c.Body}
}

// Close closes the idle connections and makes further Sends fail with TIMEOUT. Requests under way
// end by their context or deadline.
func (s *Sender) Close() {
	s.closed.Store(true)
	s.CloseIdle()
}

// CloseIdle closes the idle connections, and those of requests under way when these end. The sender
// can be used further: the next Send opens a new connection.
func (s *Sender) CloseIdle() { s.transport.CloseIdleConnections() }

// Send makes one attempt. It never panics and returns within r.Timeout.
func (s *Sender) Send(ctx context.Context, r Request) (res Result) {
	res.Started = time.Now()
	defer func() {
		// A panic after the header of a 2xx response does not change the outcome.
		if p := recover(); p != nil && !res.Delivered {
			res.fail(CodeWorkerPanic, fmt.Sprintf("panic while sending: %v", p))
		}
		res.Took = time.Since(res.Started)
	}()

	deadline := res.Started.Add(r.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if s.closed.Load() {
		res.fail(CodeTimeout, "not sent: the sender is closed")
		return res
	}
	if err := ctx.Err(); err != nil {
		res.fail(CodeTimeout, "not sent: no time was left")
		return res
	}
	req, err := r.build(ctx, s.userAgent, res.Started)
	if err != nil {
		res.fail(classify(ctx, err))
		return res
	}
	// RoundTrip and not http.Client, which would follow redirects.
	resp, err := s.transport.RoundTrip(req)
	if s.closed.Load() {
		// A connection dialled while Close ran must not stay in the pool.
		defer s.transport.CloseIdleConnections()
	}
	if err != nil {
		code, detail := classify(ctx, err)
		res.fail(code, hideOwn(detail, r.URL)) // of an answer that is not HTTP it has the first line, which may be the request
		var known *failure
		if errors.As(err, &known) {
			res.Shortage = known.shortage
		}
		return res
	}
	defer func() { _ = resp.Body.Close() }() // an error does not matter: the outcome is decided already
	defer time.AfterFunc(s.body, cancel).Stop()
	res.judge(resp, &s.reader, time.Now().Add(r.ClockAhead))
	res.Excerpt = hideOwn(res.Excerpt, r.URL)
	return res
}
