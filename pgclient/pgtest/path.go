// A path to a server over TCP that breaks in each of the ways a network does.

package pgtest

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Path forwards a loopback port to a TCP address until it is told not to. It is the
// tests' own: what a reply dropped after COMMIT needs, a proxy of bytes cannot know.
type Path struct {
	l  net.Listener
	to string
	wg sync.WaitGroup

	mu      sync.Mutex
	open    map[*pair]bool
	silent  bool // bytes are swallowed, connections stand
	down    bool // connections are refused
	drops   int  // so many replies are dropped and their connections cut
	dropped []time.Time
}

// pair is a connection as both ends see it.
type pair struct {
	client, server net.Conn
	half           bool // the server's end is gone, and the client does not know
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// NewPath listens for a path to an address; it ends at cleanup.
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

// Addr is where it listens: see OverTCP.
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
		if pass && p.drops > 0 && from == pr.server && committed(buf[:n]) {
			// The server has committed, and the client will never know.
			p.drops--
			p.dropped = append(p.dropped, time.Now())
			pass = false
			pr.close()
		}
		p.mu.Unlock()
		if pass {
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

// committed tells whether a reply ends a statement outside of a transaction: the
// last message is ReadyForQuery with state idle, after the end of a command.
func committed(reply []byte) bool {
	n := len(reply)
	return n > 6 && string(reply[n-6:]) == "Z\x00\x00\x00\x05I" && contains(reply, 'C')
}

// contains tells whether a reply has a message of a type.
func contains(reply []byte, kind byte) bool {
	for len(reply) >= 5 {
		if reply[0] == kind {
			return true
		}
		n := 1 + int(reply[1])<<24 + int(reply[2])<<16 + int(reply[3])<<8 + int(reply[4])
		if n < 5 || n > len(reply) {
			return true // cut between two reads: what comes first was seen before
		}
		reply = reply[n:]
	}
	return false
}

// Cut ends every connection; down: and refuses new ones.
func (p *Path) Cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for pr := range p.open {
		pr.close()
	}
}

// Hole swallows everything from now on; what stood stays broken.
func (p *Path) Hole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = on
}

// HalfOpen ends what stands on the server's side alone, as a firewall that forgets
// a connection: the client writes and is never answered. New connections work.
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
func (p *Path) DropReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = n
}

// Dropped lists when replies were dropped.
func (p *Path) Dropped() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dropped)
}
