package sender

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inOwnNetwork runs f on a thread in a separate network, with the loopback interface alone and two local ports.
func inOwnNetwork(f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0)
		}
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// When all local ports for a receiver are in use, that is the outcome, also if another address of it refused the
// connection: the receiver may listen there. An address to which no route leads is unreachable.
func TestNoLocalPortLeft(t *testing.T) {
	var refused, used, unreachable error
	var open []net.Conn
	err := inOwnNetwork(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		listener, err := net.Listen("tcp", "127.0.0.1:9000")
		if err != nil {
			used = err
			return
		}
		defer listener.Close()
		closed, there := netip.MustParseAddrPort("127.0.0.1:9001"), netip.MustParseAddrPort("127.0.0.1:9000")
		for used == nil {
			var c net.Conn
			if c, used = dialFirst(ctx, []netip.AddrPort{closed, there}); used == nil {
				open = append(open, c)
			}
		}
		_, refused = dialFirst(ctx, []netip.AddrPort{closed})
		_, unreachable = dialFirst(ctx, []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:443")})
	})
	for _, c := range open {
		_ = c.Close()
	}
	if err != nil {
		t.Skip("needs the right to make a network namespace: ", err)
	}
	var failed *failure
	require.ErrorAs(t, used, &failed)
	require.ErrorContains(t, failed.shortage, "this host has no local port left for a connection to 127.0.0.1: widen its range of ports", failed.detail)
	require.Len(t, open, 2)
	require.ErrorAs(t, refused, &failed)
	require.Equal(t, CodeConnectionRefused, failed.code)
	require.NoError(t, failed.shortage)
	require.ErrorAs(t, unreachable, &failed)
	require.Equal(t, CodeUnreachable, failed.code)
	require.NoError(t, failed.shortage)
}
