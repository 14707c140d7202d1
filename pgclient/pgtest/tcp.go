// A TCP port for a server that listens only on a socket, for tests that put a proxy between a
// client and the database.

package pgtest

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/qtop/qtop/pgclient/embedded"
)

// TCP forwards a loopback port to the server's socket until cleanup and returns the address of the
// port, "127.0.0.1:port". OverTCP puts it into a DSN.
func TCP(t testing.TB, s *embedded.Server) string {
	t.Helper()
	if s == nil {
		t.Skip("pgtest: QTOP_TEST_DSN names a server without a socket of ours")
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	f := &forwarder{socket: filepath.Join(s.SocketDir(), ".s.PGSQL.5432"), open: map[net.Conn]bool{}}
	f.wg.Go(func() { f.accept(l) })
	t.Cleanup(func() {
		_ = l.Close()
		f.close()
	})
	return l.Addr().String()
}

// OverTCP returns the DSN with its socket replaced by a TCP address.
func OverTCP(t testing.TB, dsn, addr string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	q := u.Query()
	q.Del("host")
	q.Del("port")
	u.Host, u.RawQuery = addr, q.Encode()
	return u.String()
}

// forwarder copies bytes between pairs of connections.
type forwarder struct {
	socket string
	wg     sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func (f *forwarder) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(context.Background(), "unix", f.socket)
		if err != nil { // the server is down: the connection of the client ends
			_ = client.Close()
			continue
		}
		if !f.keep(client, server) {
			return
		}
		f.wg.Go(func() { f.copy(client, server) })
		f.wg.Go(func() { f.copy(server, client) })
	}
}

// copy ends both directions when one ends: a PostgreSQL session needs both directions.
func (f *forwarder) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		_ = c.Close()
		delete(f.open, c)
	}
}

// keep registers a pair of connections, which close will close; false = the forwarder is closed
// already.
func (f *forwarder) keep(pair ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range pair {
		if f.closed {
			_ = c.Close()
			continue
		}
		f.open[c] = true
	}
	return !f.closed
}

func (f *forwarder) close() {
	f.mu.Lock()
	f.closed = true
	for c := range f.open {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}
