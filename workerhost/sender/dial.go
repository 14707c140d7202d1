package sender

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/pgsession"
)

// maxCandidates bounds how many addresses of one name are dialled.
const maxCandidates = 8

// dialer opens the connections of a Sender. It resolves a name once, checks each address and
// dials the checked address: there is no second lookup that a hostile name server could answer
// differently.
type dialer struct {
	guard                         *guard
	lookup                        func(ctx context.Context, host string) ([]netip.Addr, error)
	lookups                       pgsession.Lookup[[]netip.Addr]
	resolving, connect, handshake time.Duration
	tls                           *tls.Config
}

type dialDeadlineKey struct{}

// withDialDeadline puts the request's deadline into the values of the context. net/http detaches
// a dial from the cancellation of its request but keeps the context values; without this value a
// dial could continue after its request has ended.
func withDialDeadline(ctx context.Context) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, dialDeadlineKey{}, deadline)
}

func dialContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Value(dialDeadlineKey{}).(time.Time); ok {
		return context.WithDeadline(ctx, deadline)
	}
	return context.WithCancel(ctx)
}

// caught turns a panic into an error. It is deferred in code that net/http runs in its dial
// goroutine, where Send cannot recover.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = &failure{code: CodeWorkerPanic, detail: fmt.Sprintf("panic while connecting: %v", p)}
	}
}

func (d *dialer) plain(ctx context.Context, _, hostport string) (conn net.Conn, err error) {
	defer caught(&err)
	ctx, cancel := dialContext(ctx)
	defer cancel()
	if conn, err = d.dial(ctx, hostport, true); err != nil {
		return nil, err
	}
	return newAnswering(conn), nil
}

// tlsConn closes the connection without sending the TLS close alert: writing the alert can block
// for 5 s when the peer does not read, and Send must return by its deadline.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) Close() error { return c.NetConn().Close() }

// answerTime bounds how long a failed write waits for the answer.
const answerTime = time.Second

// answering lets the answer count of a receiver that closes the connection before it has read the
// whole request, as some do after 413 or 429. net/http takes the first failed write as the outcome,
// although the answer has arrived. So a failed write returns when the connection is closed: net/http
// closes it after the answer, or when there is nothing left to read.
type answering struct {
	net.Conn
	closed context.Context //nolint:containedctx // ends with Close
	end    context.CancelFunc
}

func newAnswering(c net.Conn) net.Conn {
	closed, end := context.WithCancel(context.Background())
	return &answering{c, closed, end}
}

func (c *answering) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		select {
		case <-c.closed.Done():
		case <-time.After(answerTime):
		}
	}
	return n, err
}

func (c *answering) Close() error {
	c.end()
	return c.Conn.Close()
}

func (d *dialer) secured(ctx context.Context, _, hostport string) (conn net.Conn, err error) {
	defer caught(&err)
	ctx, cancel := dialContext(ctx)
	defer cancel()
	raw, err := d.dial(ctx, hostport, false)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		_ = raw.Close()
		return nil, badURL("has no usable host and port")
	}
	cfg := d.tls.Clone()
	cfg.ServerName = strings.TrimSuffix(host, ".")
	secured := tls.Client(raw, cfg)
	ctx, stop := context.WithTimeout(ctx, d.handshake)
	defer stop()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, handshakeFailure(ctx, err)
	}
	return newAnswering(tlsConn{secured}), nil
}

// dial connects to the first permitted address that accepts the connection. It skips refused
// addresses; if all addresses are refused, it returns the error of the first.
func (d *dialer) dial(ctx context.Context, hostport string, plainHTTP bool) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, badURL("has no usable host and port")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, badURL("the port is not one of 1 to 65535")
	}
	found, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var targets []netip.AddrPort
	var refusal error
	for _, given := range found {
		addr, err := d.guard.judge(given, plainHTTP)
		if err == nil {
			targets = append(targets, netip.AddrPortFrom(addr, uint16(port)))
		} else if refusal == nil {
			refusal = err
		}
	}
	if len(targets) == 0 {
		return nil, refusal
	}
	ctx, cancel := context.WithTimeout(ctx, d.connect)
	defer cancel()
	targets = alternating(targets)
	return dialFirst(ctx, targets[:min(len(targets), maxCandidates)])
}

// alternating returns the targets with IPv4 and IPv6 in turn, first the family of the first target.
// Otherwise a name with many addresses of a family by which this host reaches nothing would leave no
// candidate of the other.
func alternating(targets []netip.AddrPort) []netip.AddrPort {
	var first, second []netip.AddrPort
	for _, t := range targets {
		if t.Addr().Is4() == targets[0].Addr().Is4() {
			first = append(first, t)
		} else {
			second = append(second, t)
		}
	}
	all := make([]netip.AddrPort, 0, len(targets))
	for i := range targets {
		all = append(all, first[min(i, len(first)):min(i+1, len(first))]...)
		all = append(all, second[min(i, len(second)):min(i+1, len(second))]...)
	}
	return all
}

// resolve returns at least one address of host, or an error.
func (d *dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	within, cancel := context.WithTimeout(ctx, d.resolving)
	defer cancel()
	found, err := d.lookups.Do(within, host, func(ctx context.Context, host string) (all []netip.Addr, err error) {
		defer caught(&err) // in another goroutine than Send
		return d.lookup(ctx, host)
	})
	switch {
	case err != nil && ctx.Err() != nil: // the request has ended, not the time for the lookup
		return nil, ctx.Err()
	case err != nil:
		return nil, lookupFailure(host, err)
	}
	if len(found) == 0 {
		return nil, &failure{code: CodeDNSFailure, detail: host + " has no address"}
	}
	return found, nil
}

// dialFirst dials the targets in order, until one accepts. There is at least one target. Each
// gets an equal share of the remaining time, so that an unreachable target leaves time for the
// next ones. If the host itself lacks something for a connection to one of them, that is the error.
func dialFirst(ctx context.Context, targets []netip.AddrPort) (net.Conn, error) {
	var first *failure
	for i, target := range targets {
		var dialer net.Dialer
		if end, ok := ctx.Deadline(); ok {
			dialer.Timeout = max(time.Until(end)/time.Duration(len(targets)-i), time.Millisecond)
		}
		// target is an address: nothing is looked up. DialTCP would bind a local port first, and no two
		// connections of the machine could have the same.
		conn, err := dialer.DialContext(ctx, "tcp", target.String())
		if err == nil {
			return conn, nil
		}
		if failed := connectFailure(target, err); first == nil || first.shortage == nil && failed.shortage != nil {
			first = failed
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}
