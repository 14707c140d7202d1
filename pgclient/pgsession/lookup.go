package pgsession

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Lookup lets callers leave a lookup of a host name that goes on. A lookup is cancelled when its last caller
// has left, but Go's resolver does not always end then, and that of the C library ends when it likes. So each
// lookup runs in the background, at most one for each name: a caller that comes meanwhile waits for the same
// answer, and behind a lookup that was cancelled and has not ended for the next one. The zero value is ready.
type Lookup[A any] struct {
	mu      sync.Mutex
	running map[string]*flight[A]
}

// flight is a lookup in the background.
type flight[A any] struct {
	callers int
	cancel  context.CancelFunc
	done    chan struct{} // closed when found and err are set
	found   A
	err     error
}

// Do returns what resolve returns for a host. When ctx ends first, it returns an error that names the host
// and the resolver.
func (l *Lookup[A]) Do(ctx context.Context, host string, resolve func(ctx context.Context, host string) (A, error)) (A, error) {
	began := time.Now()
	for {
		f, joined := l.join(ctx, host, resolve)
		select {
		case <-f.done:
			if joined {
				return f.found, f.err
			}
		case <-ctx.Done():
			if joined {
				l.leave(f)
			}
			var none A
			e := &net.DNSError{UnwrapErr: ctx.Err(), Name: host, Server: NameServers(), Err: "cancelled"}
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				e.Err, e.IsTimeout = "no answer after "+time.Since(began).Round(100*time.Millisecond).String(), true
			}
			return none, e
		}
	}
}

// join returns the lookup of the host, which it begins if none is running. joined is false for one that was
// cancelled and has not ended.
func (l *Lookup[A]) join(ctx context.Context, host string, resolve func(ctx context.Context, host string) (A, error)) (f *flight[A], joined bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f = l.running[host]; f != nil {
		if f.callers == 0 {
			return f, false
		}
		f.callers++
		return f, true
	}
	if l.running == nil {
		l.running = map[string]*flight[A]{}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f = &flight[A]{callers: 1, cancel: cancel, done: make(chan struct{})}
	l.running[host] = f
	go func() {
		defer cancel()
		f.found, f.err = resolve(ctx, host)
		l.mu.Lock()
		delete(l.running, host)
		l.mu.Unlock()
		close(f.done)
	}()
	return f, true
}

func (l *Lookup[A]) leave(f *flight[A]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.callers--; f.callers == 0 {
		f.cancel()
	}
}

// NameServers names what this machine asks for the address of a host, as an error shows it.
func NameServers() string {
	text, _ := os.ReadFile("/etc/resolv.conf") // without it, the text below
	var all []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			all = append(all, words[1])
		}
	}
	if len(all) == 0 {
		return "the resolver of this machine"
	}
	return strings.Join(slices.Compact(all), ", ") + " (/etc/resolv.conf)"
}
