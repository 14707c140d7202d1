package demo

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// SecretRef names the signing secret that all working receivers share. The environment variable
// SecretEnv of the demo's process holds its value.
const (
	SecretRef = "demo"
	SecretEnv = "DEMO_WEBHOOK_SECRET"
)

type receiver struct {
	eventType string
	name      string // host name in the callback URL; Lookup resolves it
	secretRef *string
	server    *httptest.Server
	address   string // address without a server: connections to it are refused
	release   chan struct{}
}

func (r *receiver) url() string {
	scheme, address := "http", r.address
	if r.server != nil {
		scheme, address, _ = strings.Cut(r.server.URL, "://")
	}
	_, port, _ := strings.Cut(address, ":")
	return scheme + "://" + r.name + ":" + port + "/hook"
}

// Lookup resolves the names of the demo's receivers, which describe how each receiver behaves.
// All of them are on loopback.
func Lookup(_ context.Context, host string) ([]netip.Addr, error) {
	if strings.HasSuffix(host, ".example") {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (r *receiver) close() {
	if r.release != nil {
		close(r.release)
	}
	if r.server != nil {
		r.server.CloseClientConnections()
		r.server.Close()
	}
}

// backAfter is how long the receiver that returns 503 does so: then a requeue of its dead letters
// succeeds.
const backAfter = 10 * time.Minute

// downUntil returns a handler that answers 503 until the time, and as ok does from then on.
func downUntil(back time.Time, ok http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if time.Now().After(back) {
			ok(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "upstream is down\n")
	}
}

// openReceivers starts the receivers. Two of them work. Of the others, one returns 503 at first, one
// hangs, one refuses connections, one has an untrusted certificate, and one throttles.
func openReceivers(ctx context.Context) (all []*receiver, err error) {
	ref := SecretRef
	quiet := log.New(io.Discard, "", 0)
	serve := func(eventType, name string, tls bool, h http.HandlerFunc) *receiver {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = quiet
		if tls {
			s.StartTLS()
		} else {
			s.Start()
		}
		r := &receiver{eventType: eventType, name: name, secretRef: &ref, server: s}
		all = append(all, r)
		return r
	}
	ok := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20))
		w.WriteHeader(http.StatusNoContent)
	}
	serve("order.created", "hooks.acme.example", false, ok)
	serve("invoice.paid", "billing.example", false, ok)
	serve("shipment.sent", "ship.example", false, downUntil(time.Now().Add(backAfter), ok))
	hang := serve("report.ready", "api.slow.example", false, nil)
	hang.release = make(chan struct{})
	hang.server.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang.release:
		case <-r.Context().Done():
		}
	})
	serve("contract.signed", "sign.example", true, ok)
	var seen atomic.Int64
	serve("stock.changed", "stock.example", false, func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1)%3 == 0 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		ok(w, r)
	})
	// A port that was free a moment ago, so that connections to it are refused.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return all, err
	}
	all = append(all, &receiver{eventType: "user.invited", name: "crm.example", secretRef: &ref, address: l.Addr().String()})
	return all, l.Close()
}

// steady returns the pace of each event type: the interval between two events.
func steady() map[string]time.Duration {
	return map[string]time.Duration{
		"order.created": 150 * time.Millisecond, "invoice.paid": 400 * time.Millisecond, "shipment.sent": 700 * time.Millisecond,
		"report.ready": 5 * time.Second, "contract.signed": 4 * time.Second, "stock.changed": time.Second, "user.invited": 3 * time.Second,
	}
}
