// Tests with a hostile name server on loopback: no forbidden address is dialled, whatever the
// name server returns.
package sender

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answers returns the addresses that a name server returns for the n-th query of a name; no
// addresses mean NXDOMAIN. If ok is false, the name server does not respond.
type answers func(name string, n int) (all []netip.Addr, ok bool)

// nameServer is a name server over UDP, and over TCP for responses that are too long for UDP.
type nameServer struct {
	udp     net.PacketConn
	tcp     net.Listener
	answers answers

	mu    sync.Mutex
	asked map[string]int // number of queries, by name and type
	conns []net.Conn     // connections of the resolver; the resolver waits 5 s for a response even after its caller has returned
}

func newNameServer(t *testing.T, a answers) *nameServer {
	t.Helper()
	s := &nameServer{answers: a, asked: map[string]int{}}
	var err error
	s.udp, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	s.tcp, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	open.Go(s.serveUDP)
	open.Go(s.serveTCP)
	t.Cleanup(func() {
		_ = s.udp.Close()
		_ = s.tcp.Close()
		open.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, conn := range s.conns {
			_ = conn.Close()
		}
	})
	return s
}

// lookup is a Config.Lookup that uses Go's resolver with this name server.
func (s *nameServer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		address := s.udp.LocalAddr().String()
		if strings.HasPrefix(network, "tcp") {
			address = s.tcp.Addr().String()
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
		}
		return conn, err
	}}
	return r.LookupNetIP(ctx, "ip", host)
}

func (s *nameServer) serveUDP() {
	buf := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply := s.reply(buf[:n], 512); reply != nil {
			_, _ = s.udp.WriteTo(reply, from)
		}
	}
}

func (s *nameServer) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err == nil {
			question := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, question); err == nil {
				if reply := s.reply(question, 65535); reply != nil {
					_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)) //nolint:gosec // at most 65535
				}
			}
		}
		_ = conn.Close()
	}
}

// reply responds to one query for A or AAAA. If the response is longer than most bytes, it is
// truncated.
func (s *nameServer) reply(question []byte, most int) []byte {
	name, at := "", 12
	for question[at] != 0 {
		name += string(question[at+1:at+1+int(question[at])]) + "."
		at += 1 + int(question[at])
	}
	kind := binary.BigEndian.Uint16(question[at+1:])
	question = question[:at+5]
	s.mu.Lock()
	if most == 512 { // over UDP only: the repeat over TCP is the same query
		s.asked[fmt.Sprint(name, kind)]++
	}
	n := s.asked[fmt.Sprint(name, kind)]
	s.mu.Unlock()
	all, ok := s.answers(strings.TrimSuffix(name, "."), n)
	if !ok {
		return nil
	}
	reply := append([]byte{}, question...)
	count := 0
	for _, a := range all {
		if a.Is4() != (kind == 1) {
			continue
		}
		data := a.AsSlice()
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
		reply = append(reply, data...)
		count++
	}
	flags := uint16(0x8180)
	if len(all) == 0 {
		flags |= 3 // NXDOMAIN
	}
	if len(reply) > most {
		flags, count, reply = flags|0x0200, 0, reply[:len(question)]
	}
	binary.BigEndian.PutUint16(reply[2:], flags)
	binary.BigEndian.PutUint16(reply[6:], uint16(count)) //nolint:gosec // few enough for a response of 64 KiB
	clear(reply[8:12])
	return reply
}

func many(n int, of ...string) []netip.Addr {
	var all []netip.Addr
	for i := range n {
		all = append(all, netip.MustParseAddr(of[i%len(of)]))
	}
	return all
}

func TestHostileNameServer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIP: needs 127.0.0.2")
	}
	const honest = "127.0.0.1" // the test uses it as a public address
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	port := receiver.Listener.Addr().(*net.TCPAddr).Port
	forbidden := newSentinel(t, fmt.Sprintf("127.0.0.2:%d", port))
	closed := newSilentTwin(t) // nothing listens on the honest address at the port of closed
	server := newNameServer(t, func(name string, n int) ([]netip.Addr, bool) {
		if n > 100 { // an endless loop of queries is a bug
			return nil, false
		}
		switch name, _, _ = strings.Cut(name, "."); name {
		case "rebinding": // public when it is checked, forbidden in a second lookup at the dial
			return many(1, map[bool]string{true: honest, false: "127.0.0.2"}[n == 1]), true
		case "mixed":
			return many(20, "127.0.0.2", "::ffff:127.0.0.2", "169.254.169.254", "::1", "64:ff9b::127.0.0.2", honest), true
		case "many":
			return many(25, "127.0.0.2", "10.0.0.1", "fd00:ec2::254"), true
		case "huge":
			return many(2000, "127.0.0.2", "10.0.0.1", "fd00:ec2::254"), true
		case "huge-mixed":
			return many(2000, "127.0.0.2", honest), true
		case "translated":
			return many(4, "64:ff9b::127.0.0.2", "2002:7f00:2::1", "::127.0.0.2", "::ffff:0:127.0.0.2"), true
		case "slow":
			return nil, false
		}
		return nil, true // NXDOMAIN
	})
	c := Config{Allow: []netip.Prefix{netip.MustParsePrefix(honest + "/32")}, Lookup: server.lookup}
	s := newSender(t, c)
	c.Resolve = 300 * time.Millisecond
	hasty := newSender(t, c) // for the name that gets no response
	send := func(scheme, name string, port int) Result {
		before := time.Now()
		s := s
		if name == "slow" {
			s = hasty
		}
		r := s.Send(t.Context(), request(fmt.Sprintf("%s://%s.example.:%d/", scheme, name, port)))
		require.Less(t, time.Since(before), 20*time.Second, name)
		return r
	}
	for _, scheme := range []string{"http", "https"} {
		for name, code := range map[string]string{
			"many": CodeAddressRefused, "huge": CodeAddressRefused, "translated": CodeAddressRefused, "nothing": CodeDNSFailure,
		} {
			require.Equal(t, code, send(scheme, name, port).Code, "%s %s", scheme, name)
		}
		require.Contains(t, []string{CodeTimeout, CodeDNSFailure}, send(scheme, "slow", port).Code)
	}
	for _, name := range []string{"mixed", "huge-mixed"} {
		r := send("http", name, port)
		require.True(t, r.Delivered, "%s: the honest address answers, the others are passed over: %s", name, r.Detail)
	}
	require.Equal(t, CodeConnectionRefused, send("http", "rebinding", closed.port()).Code, "what was judged is dialled")
	require.Equal(t, CodeAddressRefused, send("http", "rebinding", closed.port()).Code, "the next request judges anew")
	forbidden.heardNothing(t)
	closed.heardNothing(t)
}
