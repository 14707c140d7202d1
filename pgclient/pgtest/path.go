// A TCP connection to a server through a proxy that can fail like a network.

package pgtest

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Path forwards a loopback port to a TCP address until a fault is set. The tests need this
// proxy because dropping the reply to a COMMIT requires knowledge of PostgreSQL's protocol.
type Path struct {
	l  net.Listener
	to string
	wg sync.WaitGroup

	mu      sync.Mutex
	open    map[*pair]bool
	silent  bool   // bytes are dropped, connections stay open
	down    bool   // connections are refused
	drops   int    // how many more replies are dropped; the connection of each is cut
	with    []byte // only replies that contain it are dropped; nil: any
	dropped []time.Time
	delay   time.Duration // before the first bytes of each reply
}

// pair is one connection through a path: its end at the client and its end at the server.
type pair struct {
	client, server net.Conn
	half           bool // the connection to the server is closed, and the client does not notice
	asked          bool // the client has sent something and has no reply yet
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// NewPath starts a path to an address; it is closed at cleanup.
func NewPath(t testing.TB, to string) *Path {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	p := &Path{l: l, to: to, open: map[*pair]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address at which the path listens; see OverTCP.
func (p *Path) Addr() string { return p.l.Addr().String() }

// Close ends the path and all connections on it.
func (p *Path) Close() {
	_ = p.l.Close()
	p.Cut(true)
	p.wg.Wait()
}

func (p *Path) accept() {
	var dialer net.Dialer
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := dialer.DialContext(context.Background(), "tcp", p.to)
		p.mu.Lock()
		switch {
		case err != nil:
			_ = client.Close()
		case p.down:
			_, _ = client.Close(), server.Close()
		default:
			pr := &pair{client: client, server: server}
			p.open[pr] = true
			p.wg.Go(func() { p.copy(pr, server, client) })
			p.wg.Go(func() { p.copy(pr, client, server) })
		}
		p.mu.Unlock()
	}
}

func (p *Path) copy(pr *pair, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		pass := n > 0 && !p.silent && !pr.half
		if pass && p.drops > 0 && from == pr.server && committed(buf[:n]) && bytes.Contains(buf[:n], p.with) {
			// The server has committed, but the client gets no reply.
			p.drops--
			p.dropped = append(p.dropped, time.Now())
			pass = false
			pr.close()
		}
		wait := time.Duration(0)
		if from == pr.client {
			pr.asked = true
		} else if pr.asked {
			pr.asked, wait = false, p.delay
		}
		p.mu.Unlock()
		if pass {
			time.Sleep(wait)
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err == nil {
			continue
		}
		p.mu.Lock()
		if !pr.half || from == pr.client {
			pr.close()
			delete(p.open, pr)
		}
		p.mu.Unlock()
		return
	}
}

// committed reports whether a reply ends a statement outside of a transaction: its last message is
// ReadyForQuery with state idle, and a CommandComplete precedes it.
func committed(reply []byte) bool {
	n := len(reply)
	return n > 6 && string(reply[n-6:]) == "Z\x00\x00\x00\x05I" && contains(reply, 'C')
}

// contains reports whether a reply has a message of a type.
func contains(reply []byte, kind byte) bool {
	for len(reply) >= 5 {
		if reply[0] == kind {
			return true
		}
		n := 1 + int(reply[1])<<24 + int(reply[2])<<16 + int(reply[3])<<8 + int(reply[4])
		if n < 5 || n > len(reply) {
			return true // the reply was divided between two reads, and its earlier part was checked before
		}
		reply = reply[n:]
	}
	return false
}

// Open returns how many connections lead through the path.
func (p *Path) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// Cut ends every connection; if down is true, it also refuses new ones.
func (p *Path) Cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for pr := range p.open {
		pr.close()
	}
}

// Delay makes each reply begin d later from now on, as if the server took that much longer.
func (p *Path) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hole drops all bytes while on is true. Connections that exist meanwhile stay broken afterwards.
func (p *Path) Hole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = on
}

// HalfOpen closes the existing connections on the server's side only, like a firewall that
// forgets a connection: the client can write but gets no reply. New connections work.
func (p *Path) HalfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pr := range p.open {
		pr.half = true
		_ = pr.server.Close()
	}
}

// DropReplies drops the next n replies to statements that have committed, and cuts
// their connections.
func (p *Path) DropReplies(n int) { p.drop(n, nil) }

// DropReplyWith drops the next reply to a committed statement that contains a text, such as the
// answer to the claim of one job, and cuts its connection.
func (p *Path) DropReplyWith(text string) { p.drop(1, []byte(text)) }

func (p *Path) drop(n int, with []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops, p.with = n, with
}

// Dropped returns the times at which replies were dropped.
func (p *Path) Dropped() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dropped)
}
