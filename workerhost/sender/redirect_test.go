// Tests of redirects: a redirect is a response with its status, whatever its target. No request
// follows it, and the result does not contain its target.
package sender

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere, again atomic.Int32
	target := server(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	var location string
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/hook" {
			again.Add(1)
		}
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header()["Location"] = []string{location}
		w.Header().Set("Refresh", "0; url="+target.URL)
		w.Header().Set("Set-Cookie", "sid=1")
		if r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" {
			again.Add(1)
		}
		w.WriteHeader(status)
	}
	plain := server(t, answer)
	secured := httptest.NewTLSServer(http.HandlerFunc(answer))
	t.Cleanup(secured.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secured.Certificate())
	looked := atomic.Int32{}
	s := newSender(t, Config{Allow: loopback(), RootCAs: roots, Lookup: func(context.Context, string) ([]netip.Addr, error) {
		looked.Add(1)
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	for _, from := range []string{plain.URL, secured.URL} {
		for _, status := range []int{300, 301, 302, 303, 305, 307, 308, 399} {
			for _, to := range []string{
				target.URL, // from https to http, when from is https
				strings.Replace(target.URL, "127.0.0.1", "localhost", 1),
				"/elsewhere", "elsewhere", "?again", "//" + strings.TrimPrefix(target.URL, "http://"), "",
				from + "/hook", // a loop
				"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://metadata.google.internal/",
				"file:///etc/passwd", "gopher://127.0.0.1/", "javascript:alert(1)", "http://%zz", "http://a b/", "\x00",
				strings.Repeat("x", 16<<10),
			} {
				location = to
				res := s.Send(context.Background(), request(fmt.Sprintf("%s/hook?status=%d", from, status)))
				if to == "\x00" { // net/http itself refuses this header
					require.Contains(t, []string{CodeProtocolError, fmt.Sprintf("HTTP_%d", status)}, res.Code)
					continue
				}
				require.Equal(t, fmt.Sprintf("HTTP_%d", status), res.Code, "%q: %s", to, res.Detail)
				require.False(t, res.Delivered)
				requireClean(t, res)
			}
		}
	}
	require.Zero(t, elsewhere.Load(), "requests to the target of a redirect")
	require.Zero(t, again.Load(), "other requests to the receiver")
	require.Zero(t, looked.Load(), "names of redirects that were looked up")
}

// A line break in Location ends the header line: the text after it is another header or breaks
// the response, and never becomes part of a later request.
func TestRedirectWithLineBreaks(t *testing.T) {
	for _, c := range []struct{ location, code string }{
		{"http://a/\r\nX-Evil: 1", "HTTP_302"},
		{"http://a/\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP_302"},
		{"http://a/\n\nHTTP/1.1 200 OK\n\n", "HTTP_302"},
		{"http://a/\r\n no header", "HTTP_302"},
		{"http://a/\r\nno header", CodeProtocolError},
	} {
		s := newSender(t, Config{Allow: loopback()})
		url := rawServer(t, func(conn net.Conn) {
			_ = say(conn, "HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: "+c.location+"\r\nContent-Length: 0\r\n\r\n")
		})
		for range 2 {
			res := s.Send(context.Background(), request(url))
			require.Equal(t, c.code, res.Code, "%q: %s", c.location, res.Detail)
			requireClean(t, res)
		}
	}
}
