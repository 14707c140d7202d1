package pgsession

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
)

// Lookup lets callers leave a lookup of a host name that goes on. Go's resolver does not end a lookup when
// its context is cancelled, and that of the C library ends when it likes. So each lookup runs in the
// background, at most one for each name: a caller that comes meanwhile waits for the same answer. The
// zero value is ready.
type Lookup[A any] struct{ running singleflight.Group }

// lookupLife is how long a lookup may go on in the background, after which the next one begins.
const lookupLife = 2 * time.Minute

// Do returns what resolve returns for a host. When ctx ends first, it returns an error that names the host
// and the resolver, and the lookup goes on for up to two minutes.
func (l *Lookup[A]) Do(ctx context.Context, host string, resolve func(ctx context.Context, host string) (A, error)) (A, error) {
	began := time.Now()
	answer := l.running.DoChan(host, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupLife)
		defer cancel()
		return resolve(ctx, host)
	})
	select {
	case a := <-answer:
		found, _ := a.Val.(A)
		return found, a.Err
	case <-ctx.Done():
		var none A
		e := &net.DNSError{UnwrapErr: ctx.Err(), Name: host, Server: NameServers(), Err: "cancelled"}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			e.Err, e.IsTimeout = "no answer after "+time.Since(began).Round(100*time.Millisecond).String(), true
		}
		return none, e
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
