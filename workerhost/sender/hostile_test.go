// Tests of hostile receivers: each attempt gets the right error code, ends by its deadline and
// uses bounded memory.
package sender

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// rawServer calls talk with every connection after rawServer has read the request.
func rawServer(t testing.TB, talk func(c net.Conn)) string {
	return connServer(t, func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		talk(c)
	})
}

func connServer(t testing.TB, talk func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	closing := false
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if closing {
				_ = c.Close()
				mu.Unlock()
				return
			}
			open[c] = true
			mu.Unlock()
			all.Go(func() {
				talk(c)
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		closing = true
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

func say(c net.Conn, text string) error {
	_, err := io.WriteString(c, text)
	return err
}

// hold waits until the sender closes the connection.
func hold(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func trickle(c net.Conn, piece string) {
	for say(c, piece) == nil {
		time.Sleep(5 * time.Millisecond)
	}
}

func flood(c net.Conn, piece string) {
	bytes := []byte(piece) // made once, because the memory test also counts what the servers allocate
	for {
		if _, err := c.Write(bytes); err != nil {
			return
		}
	}
}

func TestHostileReceivers(t *testing.T) {
	const timeout = 300 * time.Millisecond
	bomb := gzipBomb(t)
	lines := strings.Repeat("X-Flood: "+strings.Repeat("y", 100)+"\r\n", 64)
	for _, c := range []struct {
		name      string
		talk      func(net.Conn)
		code      string // "" = delivered
		atTimeout bool   // the attempt must last until the deadline
	}{
		{"stall before header", hold, CodeTimeout, true},
		{"stall in status line", func(c net.Conn) { _ = say(c, "HTTP/1.1 2"); hold(c) }, CodeTimeout, true},
		{"trickling header", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nX: "); trickle(c, "a") }, CodeTimeout, true},
		{"header flood", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\n"); flood(c, lines) }, CodeProtocolError, false},
		{"endless header line", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nX: "); flood(c, strings.Repeat("a", 4096)) }, CodeProtocolError, false},
		{"endless status line", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 "); flood(c, strings.Repeat("a", 4096)) }, CodeProtocolError, false},
		{"1xx flood", func(c net.Conn) { flood(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") }, CodeProtocolError, false},
		{"1xx trickle", func(c net.Conn) { trickle(c, "HTTP/1.1 100 Continue\r\n\r\n") }, CodeTimeout, true},
		{"endless body 2xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\n\r\n"); flood(c, lines) }, "", false},
		{"endless body 5xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 500 No\r\n\r\n"); flood(c, lines) }, "HTTP_500", false},
		{"endless chunks", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			flood(c, "1000\r\n"+strings.Repeat("z", 4096)+"\r\n")
		}, "", false},
		{"endless chunk extension", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
			flood(c, strings.Repeat("e", 4096))
		}, "", false},
		{"endless trailer", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
			flood(c, lines)
		}, "", false},
		{"huge content length", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nabc")
			hold(c)
		}, "", true},
		{"stalling body 2xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"); hold(c) }, "", true},
		{"trickling body 2xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 202 OK\r\n\r\n"); trickle(c, "a") }, "", true},
		{"trickling body 4xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 404 No\r\n\r\n"); trickle(c, "a") }, "HTTP_404", true},
		{"reset mid-body 2xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"); reset(c) }, "*", false},
		{"close mid-body 5xx", func(c net.Conn) { _ = say(c, "HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\nabc") }, "HTTP_503", false},
		{"reset before header", reset, CodeConnectionReset, false},
		{"close before header", func(net.Conn) {}, CodeConnectionReset, false},
		{"close in header", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nX: y") }, CodeConnectionReset, false},
		{"garbage", func(c net.Conn) { _ = say(c, "\x00\x1b[2J\xff\r\nnonsense\r\n\r\n") }, CodeProtocolError, false},
		{"another protocol", func(c net.Conn) { _ = say(c, "220 smtp.example ESMTP\r\n") }, CodeProtocolError, false},
		{"status 000", func(c net.Conn) { _ = say(c, "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n") }, CodeProtocolError, false},
		{"status 42", func(c net.Conn) { _ = say(c, "HTTP/1.1 42 Short\r\n\r\n") }, CodeProtocolError, false},
		{"two content lengths", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
		}, CodeProtocolError, false},
		{"switching protocols", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			trickle(c, "raw")
		}, "HTTP_101", false},
		{"HTTP/1.0", func(c net.Conn) { _ = say(c, "HTTP/1.0 200 OK\r\n\r\nbye") }, "", false},
		{"gzip is not unpacked", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08")
		}, "", false},
		{"body longer than it says", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabcHTTP/1.1 500 No\r\n\r\n")
		}, "", false},
		{"negative content length", func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n") }, CodeProtocolError, false},
		{"content length beyond 64 bits", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n")
		}, CodeProtocolError, false},
		{"content length and chunks", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 500 No\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
		}, "HTTP_500", false},
		{"broken chunk", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n")
		}, "HTTP_500", false},
		{"gzip that would unpack to 16 MiB", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: "+strconv.Itoa(len(bomb))+"\r\n\r\n"+bomb)
		}, "", false},
		{"HTTP/2 settings flood", func(c net.Conn) { flood(c, strings.Repeat("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 100)) }, CodeProtocolError, false},
		{"HTTP/2 upgrade", func(c net.Conn) {
			_ = say(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			flood(c, "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}, "HTTP_101", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, Config{Allow: loopback()})
			r := request(rawServer(t, c.talk))
			r.Timeout = 10 * time.Second
			if c.atTimeout {
				r.Timeout = timeout
			}
			res := s.Send(context.Background(), r)
			// Where the header decides, a busy machine may not connect and read it in time: then the
			// sender gets more time.
			for c.atTimeout && c.code != CodeTimeout && res.Code == CodeTimeout && r.Timeout < 4*time.Second {
				r.Timeout *= 2
				res = s.Send(context.Background(), r)
			}
			if c.code == "*" {
				// The reset of the connection can arrive before the header is
				// read, so both codes are right.
				require.Contains(t, []string{"", CodeConnectionReset}, res.Code, res.Detail)
			} else {
				require.Equal(t, c.code, res.Code, res.Detail)
			}
			require.Equal(t, res.Code == "", res.Delivered)
			if c.atTimeout {
				require.GreaterOrEqual(t, res.Took, r.Timeout)
			}
			require.Less(t, res.Took, 8*time.Second, "ended long after its deadline")
			requireClean(t, res)
		})
	}
}

// The header of a response decides the outcome; a body that never arrives does
// not delay Send.
func TestStallingBodyIsLeft(t *testing.T) {
	t.Parallel()
	for status, code := range map[string]string{"200 OK": "", "500 No": "HTTP_500"} {
		s := newSender(t, Config{Allow: loopback(), Body: 100 * time.Millisecond})
		r := request(rawServer(t, func(c net.Conn) { _ = say(c, "HTTP/1.1 "+status+"\r\nContent-Length: 10\r\n\r\nabc"); hold(c) }))
		r.Timeout = time.Hour
		res := s.Send(context.Background(), r)
		require.Equal(t, code, res.Code, res.Detail)
		require.Equal(t, "abc", res.Excerpt)
		require.Less(t, res.Took, time.Minute)
	}
}

// gzipBomb returns 16 KiB that unpack to 16 MiB. A larger bomb takes minutes to make under the
// race detector and proves no more.
func gzipBomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 16 {
		_, err := z.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

// A response that arrives before the receiver has read the whole request counts. The connection
// with the half-sent request is not used again.
func TestAnswerBeforeTheBodyIsRead(t *testing.T) {
	for status, code := range map[string]string{"200 OK": "", "413 Too Large": "HTTP_413"} {
		var connections atomic.Int32
		release := make(chan struct{})
		url := connServer(t, func(c net.Conn) {
			connections.Add(1)
			_, _ = c.Read(make([]byte, 1))
			_ = say(c, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
			<-release
		})
		t.Cleanup(func() { close(release) })
		s := newSender(t, Config{Allow: loopback()})
		for n := range int32(3) {
			r := request(url)
			r.Body = bytes.Repeat([]byte("x"), 32<<20)
			res := s.Send(context.Background(), r)
			require.Equal(t, code, res.Code, res.Detail)
			require.Equal(t, n+1, connections.Load(), "a connection was used again")
		}
	}
}

// The answer also counts when the receiver then closes the connection on which the rest of the
// request still arrives.
func TestAnswerBeforeTheConnectionIsClosed(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	roots := x509.NewCertPool()
	roots.AddCert(cert.Certificate())
	for _, scheme := range []string{"http", "https"} {
		url := connServer(t, func(c net.Conn) {
			if scheme == "https" {
				c = tlsConn{tls.Server(c, cert.TLS)}
				defer func() { _ = c.Close() }()
			}
			_, _ = c.Read(make([]byte, 512))
			_ = say(c, "HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nConnection: close\r\nContent-Length: 5\r\n\r\nlater")
		})
		s := newSender(t, Config{Allow: loopback(), RootCAs: roots})
		for range 5 {
			r := request(strings.Replace(url, "http:", scheme+":", 1))
			r.Body = bytes.Repeat([]byte("x"), 32<<20)
			res := s.Send(context.Background(), r)
			require.Equal(t, "HTTP_429", res.Code, "%s: %s", scheme, res.Detail)
			require.Equal(t, "later", res.Excerpt)
			require.False(t, res.RetryAfter.IsZero())
		}
	}
}

func requireClean(t *testing.T, res Result) {
	t.Helper()
	require.LessOrEqual(t, len(res.Excerpt), 4<<10)
	require.LessOrEqual(t, len(res.Detail), maxDetail)
	require.Equal(t, res.Excerpt, clean(res.Excerpt, 1<<20))
	require.Equal(t, res.Detail, clean(res.Detail, 1<<20))
}

func TestHeaderTimeout(t *testing.T) {
	s := newSender(t, Config{Allow: loopback(), Headers: 50 * time.Millisecond})
	r := request(rawServer(t, hold))
	r.Timeout = time.Minute
	res := s.Send(context.Background(), r)
	require.Equal(t, CodeTimeout, res.Code)
	require.Less(t, res.Took, 30*time.Second)
	// without it, a receiver may use the whole time of the request (webhook.timeout_seconds)
	require.Zero(t, newSender(t, Config{}).transport.ResponseHeaderTimeout)
}

func TestTLSHandshakeTimeout(t *testing.T) {
	url := strings.Replace(connServer(t, hold), "http:", "https:", 1)
	s := newSender(t, Config{Allow: loopback(), TLS: 50 * time.Millisecond})
	r := request(url)
	r.Timeout = time.Minute
	res := s.Send(context.Background(), r)
	require.Equal(t, CodeTimeout, res.Code)
	require.Contains(t, res.Detail, "TLS")

	// The deadline of the request also ends the handshake and the dial.
	s = newSender(t, Config{Allow: loopback(), TLS: time.Hour})
	r.Timeout = 50 * time.Millisecond
	res = s.Send(context.Background(), r)
	require.Equal(t, CodeTimeout, res.Code)
}

func TestTLSEndsInHandshake(t *testing.T) {
	s := newSender(t, Config{Allow: loopback()})
	closing := connServer(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) })
	res := s.Send(context.Background(), request(strings.Replace(closing, "http:", "https:", 1)))
	require.Contains(t, []string{CodeTLSFailure, CodeConnectionReset}, res.Code) // closing a socket with unread bytes resets the connection
	resetting := connServer(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); reset(c) })
	res = s.Send(context.Background(), request(strings.Replace(resetting, "http:", "https:", 1)))
	require.Equal(t, CodeConnectionReset, res.Code)
}

// boundSocket binds a port of 127.0.0.1. Until Listen is called on the socket, connections are
// refused, and no other process can take the port.
func boundSocket(t *testing.T) (fd, port int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	syscall.CloseOnExec(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return fd, name.(*syscall.SockaddrInet4).Port
}

func TestConnectionRefused(t *testing.T) {
	_, port := boundSocket(t)
	s := newSender(t, Config{Allow: loopback()})
	for _, scheme := range []string{"http", "https"} {
		res := s.Send(context.Background(), request(fmt.Sprintf("%s://127.0.0.1:%d/", scheme, port)))
		require.Equal(t, CodeConnectionRefused, res.Code)
	}
}

// Closing a TLS connection must not write the close alert, because writing to a peer that does
// not read can block. So no bytes arrive after the response.
func TestTLSCloseDoesNotWrite(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	roots := x509.NewCertPool()
	roots.AddCert(cert.Certificate())
	farewell := make(chan int64, 1)
	url := connServer(t, func(raw net.Conn) {
		c := tls.Server(raw, cert.TLS)
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			farewell <- -1
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		_ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		n, _ := io.Copy(io.Discard, raw)
		farewell <- n
	})
	s := newSender(t, Config{Allow: loopback(), RootCAs: roots})
	res := s.Send(context.Background(), request(strings.Replace(url, "http:", "https:", 1)))
	require.True(t, res.Delivered, res.Detail)
	require.Zero(t, <-farewell)
}

// A listener whose accept queue is full completes no TCP handshake, like an unreachable host.
func TestConnectTimeout(t *testing.T) {
	fd, port := boundSocket(t)
	require.NoError(t, syscall.Listen(fd, 0))
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	full := false
	for range 64 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			full = true
			break
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if !full {
		t.Skip("this system's accept queue does not fill up")
	}
	s := newSender(t, Config{Allow: loopback(), Connect: 100 * time.Millisecond})
	r := request("https://" + addr)
	r.Timeout = time.Minute
	res := s.Send(context.Background(), r)
	require.Equal(t, CodeTimeout, res.Code)
	require.Contains(t, res.Detail, "connecting to")
	require.Less(t, res.Took, 30*time.Second)
}

// A receiver does not read a body that is larger than the socket buffers: Send ends by its
// deadline.
func TestReceiverThatDoesNotRead(t *testing.T) {
	release := make(chan struct{})
	url := connServer(t, func(net.Conn) { <-release })
	defer close(release)
	s := newSender(t, Config{Allow: loopback()})
	r := request(url)
	r.Body = bytes.Repeat([]byte("x"), 32<<20)
	r.Timeout = 300 * time.Millisecond
	res := s.Send(context.Background(), r)
	require.Equal(t, CodeTimeout, res.Code)
	require.Less(t, res.Took, 8*time.Second)
}

// A resolver that ignores its context must not delay Send.
func TestResolverThatHangs(t *testing.T) {
	release := make(chan struct{})
	returned := make(chan struct{})
	s := newSender(t, Config{Lookup: func(context.Context, string) ([]netip.Addr, error) {
		defer close(returned)
		<-release
		return nil, errors.New("late")
	}})
	r := request("https://hook.example/")
	r.Timeout = 50 * time.Millisecond
	res := s.Send(context.Background(), r)
	require.Equal(t, CodeTimeout, res.Code)
	close(release)
	<-returned
}

// A dial ends when its request ends.
func TestDialEndsWithItsRequest(t *testing.T) {
	ended := make(chan error, 1)
	s := newSender(t, Config{Resolve: time.Hour, Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	r := request("https://hook.example/")
	r.Timeout = 50 * time.Millisecond
	s.Send(context.Background(), r)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the dial outlives its request")
	}
}

// When a receiver closes a kept-alive connection between two requests, no delivery fails,
// provided the sender has noticed the close before the next request.
func TestDeadPooledConnection(t *testing.T) {
	srv := server(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })
	s := newSender(t, Config{Allow: loopback()})
	for range 20 {
		require.True(t, s.Send(context.Background(), request(srv.URL)).Delivered)
		srv.CloseClientConnections() // returns when they are closed
		// The sender notices the close soon. Until then a request may still fail on the
		// connection, so the test waits until a new dial is needed.
		require.Eventually(t, func() bool {
			res := s.Send(context.Background(), request(srv.URL))
			return res.Delivered || res.Code != CodeConnectionReset
		}, 10*time.Second, time.Millisecond)
	}
}
