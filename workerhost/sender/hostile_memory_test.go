package sender

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One Send is at most one request on the wire: when the connection breaks after the request was
// written, net/http does not send it again.
func TestNeverReplayed(t *testing.T) {
	var mu sync.Mutex
	requests := 0
	url := connServer(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for i := 0; ; i++ {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			mu.Lock()
			requests++
			mu.Unlock()
			if i == 1 {
				return // the second request on a connection is read but gets no response
			}
			_ = say(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	s := newSender(t, Config{Allow: loopback()})
	sent, lost := 0, 0
	for sent < 200 && lost == 0 {
		sent++
		if res := s.Send(context.Background(), request(url)); !res.Delivered {
			require.Equal(t, CodeConnectionReset, res.Code)
			lost++
		}
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 1, lost, "no connection was reused in 200 requests")
	require.Equal(t, sent, requests)
}

func TestMemoryIsBounded(t *testing.T) {
	const sends = 64
	piece := strings.Repeat("\xff", 64<<10)
	url := rawServer(t, func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\n\r\n"); flood(c, piece) })
	head := rawServer(t, func(c net.Conn) { _ = say(c, "HTTP/1.1 200 OK\r\nX: "); flood(c, piece) })
	s := newSender(t, Config{Allow: loopback(), Concurrency: 8})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range sends / 8 {
				res := s.Send(context.Background(), request(url))
				if !res.Delivered || len(res.Excerpt) > 4<<10 || len(res.Excerpt) < 4<<10-3 {
					t.Errorf("%+v", res)
				}
				if res = s.Send(context.Background(), request(head)); res.Code != CodeProtocolError {
					t.Errorf("%+v", res)
				}
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	// All bytes ever allocated, including by the test's servers, so that garbage collection hides
	// nothing: each of these servers could have sent gigabytes.
	perSend := (after.TotalAlloc - before.TotalAlloc) / (2 * sends)
	t.Logf("%d KiB allocated per request", perSend>>10)
	require.Less(t, perSend, uint64(512<<10))
}

// Many endless responses at once use bounded memory while all of them are read.
func TestMemoryInUseIsBounded(t *testing.T) {
	const sends = 200
	piece := []byte(strings.Repeat("\xff", 64<<10))
	var under atomic.Int64
	pour := func(head string) func(net.Conn) {
		return func(c net.Conn) {
			under.Add(1)
			_ = say(c, head)
			for {
				if _, err := c.Write(piece); err != nil {
					break
				}
			}
			hold(c)
		}
	}
	endless := []string{
		rawServer(t, func(c net.Conn) {
			under.Add(1)
			_ = say(c, "HTTP/1.1 500 No\r\nContent-Length: 65000\r\n\r\n"+strings.Repeat("a", 60_000))
			hold(c)
		}),
		rawServer(t, func(c net.Conn) {
			under.Add(1)
			_ = say(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("h", 30<<10))
			hold(c)
		}),
		rawServer(t, pour("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")),
		rawServer(t, pour("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")),
		rawServer(t, pour("HTTP/1.1 200 OK\r\n\r\n")),
	}
	s := newSender(t, Config{Allow: loopback(), Concurrency: sends})
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	before := inUse()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range sends {
		all.Go(func() {
			r := request(endless[i%len(endless)])
			r.Timeout = time.Minute
			s.Send(ctx, r)
		})
	}
	require.Eventually(t, func() bool { return under.Load() == sends }, 30*time.Second, time.Millisecond)
	most := uint64(0)
	for range 5 {
		most = max(most, inUse())
	}
	stop()
	all.Wait()
	per := (max(most, before) - before) / sends
	t.Logf("%d KiB in use per request, both ends", per>>10)
	require.Less(t, per, uint64(192<<10))
}

// The sender reads at most 64 KiB of a body: the server notices that its writes stop.
func TestBodyLimitStopsReading(t *testing.T) {
	counting := &countingReader{}
	s := newSender(t, Config{})
	text := s.reader.excerpt(counting)
	require.Equal(t, maxBodyBytes, counting.read)
	require.Len(t, text, maxExcerpt)
}

type countingReader struct{ read int }

func (c *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	c.read += len(p)
	return len(p), nil
}

func TestExcerptCutsBetweenCharacters(t *testing.T) {
	s := newSender(t, Config{})
	text := s.reader.excerpt(strings.NewReader("a" + strings.Repeat("ü", 4096)))
	require.Equal(t, "a"+strings.Repeat("ü", 2047), text)
	require.Empty(t, s.reader.excerpt(strings.NewReader("")))
}

func TestClassify(t *testing.T) {
	ctx := context.Background()
	op := func(errno syscall.Errno) error {
		return fmt.Errorf("wrapped: %w", &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", errno)})
	}
	for _, c := range []struct {
		err  error
		code string
	}{
		{op(syscall.ECONNRESET), CodeConnectionReset},
		{op(syscall.EPIPE), CodeConnectionReset},
		{io.ErrUnexpectedEOF, CodeConnectionReset},
		{errors.New("http: server closed idle connection"), CodeConnectionReset},
		{op(syscall.EHOSTUNREACH), CodeUnreachable},
		{op(syscall.ETIMEDOUT), CodeTimeout},
		{os.ErrDeadlineExceeded, CodeTimeout},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, CodeTLSFailure},
		{errors.New("net/http: HTTP/1.x transport connection broken: malformed HTTP version"), CodeProtocolError},
	} {
		code, _ := classify(ctx, c.err)
		require.Equal(t, c.code, code, c.err.Error())
	}
	target := netip.MustParseAddrPort("192.0.2.1:443")
	for errno, code := range map[syscall.Errno]string{
		syscall.ECONNREFUSED: CodeConnectionRefused, syscall.ETIMEDOUT: CodeTimeout, syscall.ENETUNREACH: CodeUnreachable,
		syscall.EHOSTUNREACH: CodeUnreachable, syscall.EACCES: CodeUnreachable, syscall.EMFILE: CodeUnreachable,
		syscall.EADDRNOTAVAIL: CodeUnreachable, syscall.ECONNRESET: CodeConnectionReset,
	} {
		require.Equal(t, code, codeOf(connectFailure(target, op(errno))), errno.Error())
	}
}
