// Tests of forbidden addresses: the table of ranges, each way to write an address, names, DNS
// rebinding, and listeners that must get no connection.
package sender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func codeOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	return ""
}

func TestForbiddenAddresses(t *testing.T) {
	g := newGuard(nil, nil)
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
		"127.0.0.1", "127.1.2.3", "127.255.255.255", "168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2",
		"172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.31.196.1", "192.52.193.1",
		"192.88.99.1", "192.168.0.1", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::2", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::8.8.8.8",
		"::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b::100.64.0.1", "64:ff9b::0.0.0.0", "64:ff9b:0:0:1::8.8.8.8", "64:ff9b:1::1",
		"64:ff9b:1:ffff::7f00:1", "100::1", "100:0:0:1::1", "1::1", "1fff::1", "2001::1", "2001:0:7f00:1::", "2001:2::1",
		"2001:10::1", "2001:1f:ffff::1", "2001:20::1", "2001:1ff::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "2620:4f:8000::1",
		"3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%eth0",
		"febf::1", "fec0::1", "feff::1", "ff02::1", "ff0e::1", "ffff::1",
		"2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1",
	} {
		for _, plain := range []bool{false, true} {
			_, err := g.judge(netip.MustParseAddr(text), plain)
			require.Equal(t, CodeAddressRefused, codeOf(err), text)
		}
	}
	_, err := g.judge(netip.Addr{}, false)
	require.Equal(t, CodeAddressRefused, codeOf(err))
	_, err = g.judge(netip.MustParseAddr("2606:4700::1%eth0"), false)
	require.Equal(t, CodeAddressRefused, codeOf(err), "zone")
}

func TestPublicAddresses(t *testing.T) {
	g := newGuard(nil, nil)
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8",
		"2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1", "2003::1", "2606:4700::5efe:8.8.8.8", "64:ff9b::8.8.8.8", "64:ff9b::808:808",
	} {
		given := netip.MustParseAddr(text)
		got, err := g.judge(given, false)
		require.NoError(t, err, text)
		require.Equal(t, given.Unmap(), got)
		_, err = g.judge(given, true)
		require.Equal(t, CodeAddressRefused, codeOf(err), "plain http to %s", text)
	}
}

func TestAllowedAddresses(t *testing.T) {
	type row struct {
		allow, addr string
		ok          bool
	}
	for _, r := range []row{
		{"127.0.0.0/8", "127.0.0.1", true},
		{"127.0.0.0/8", "::ffff:127.0.0.1", true},
		{"::ffff:127.0.0.0/104", "127.0.0.1", true},
		{"127.0.0.0/8", "64:ff9b::127.0.0.1", true},
		{"127.0.0.0/8", "2002:7f00:1::", true},
		{"127.0.0.0/8", "2001:0:1:2:3:4:80ff:fffe", true}, // Teredo client 127.0.0.1
		{"127.0.0.0/8", "::127.0.0.1", true},
		{"127.0.0.0/8", "::1", false},
		{"127.0.0.0/8", "10.0.0.1", false},
		{"127.0.0.0/8", "128.0.0.1", true}, // public, but allowed by https only
		{"64:ff9b::/96", "64:ff9b::8.8.8.8", true},
		{"64:ff9b::/96", "64:ff9b::127.0.0.1", false},
		{"64:ff9b::/96", "64:ff9b::a9fe:a9fe", false},
		{"64:ff9b:1::/48", "64:ff9b:1::1", true},
		{"::/0", "64:ff9b::10.0.0.1", false},
		{"::/0", "2002:a00:1::", false},
		{"::/0", "::1", true},
		{"::/0", "127.0.0.1", false},
		{"10.0.0.0/8", "10.1.2.3", true},
		{"fd00:ec2::254/128", "fd00:ec2::254", true},
		{"fd00:ec2::254/128", "fd00:ec2::253", false},
		{"fe80::/10", "fe80::1%eth0", false},
		{"10.0.0.1/8", "10.200.0.1", true}, // host bits set
	} {
		g := newGuard([]netip.Prefix{netip.MustParsePrefix(r.allow)}, nil)
		_, err := g.judge(netip.MustParseAddr(r.addr), false)
		require.Equal(t, r.ok, err == nil, "allow %s, address %s: %v", r.allow, r.addr, err)
	}
	ten := []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/8")} // an invalid prefix allows nothing
	g := newGuard(ten, ten)
	_, err := g.judge(netip.MustParseAddr("10.0.0.1"), true)
	require.NoError(t, err)
	_, err = g.judge(netip.MustParseAddr("127.0.0.1"), false)
	require.Error(t, err)
}

// Plain http is allowed by a separate list of networks. That list allows no special-purpose
// range, and allowing requests to the NAT64 prefix does not allow plain http to the whole
// internet.
func TestPlainHTTP(t *testing.T) {
	for _, r := range []struct {
		allow, plain, addr string
		ok                 bool
	}{
		{"10.0.0.0/8", "", "10.0.0.1", false},
		{"", "10.0.0.0/8", "10.0.0.1", false},
		{"10.0.0.0/8", "10.0.0.0/8", "10.0.0.1", true},
		{"10.0.0.0/8", "10.1.0.0/16", "10.0.0.1", false},
		{"64:ff9b::/96", "", "64:ff9b::8.8.8.8", false},
		{"", "8.8.8.0/24", "8.8.8.8", true},
		{"", "8.8.8.0/24", "64:ff9b::8.8.8.8", true},
		{"", "64:ff9b::/96", "64:ff9b::8.8.8.8", true},
		{"", "::/0", "64:ff9b::127.0.0.1", false},
		{"", "0.0.0.0/0", "64:ff9b::127.0.0.1", false},
		{"", "0.0.0.0/0", "169.254.169.254", false},
	} {
		var allow, plain []netip.Prefix
		if r.allow != "" {
			allow = append(allow, netip.MustParsePrefix(r.allow))
		}
		if r.plain != "" {
			plain = append(plain, netip.MustParsePrefix(r.plain))
		}
		_, err := newGuard(allow, plain).judge(netip.MustParseAddr(r.addr), true)
		require.Equal(t, r.ok, err == nil, "%+v: %v", r, err)
	}
}

// sentinel is a listener on a loopback address to which the sender must never
// connect. At its end the test checks that only the test itself has connected.
type sentinel struct{ net.Listener }

func newSentinel(t *testing.T, addr string) sentinel {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("no listener on %s here: %v", addr, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return sentinel{l}
}

func (s sentinel) port() int { return s.Addr().(*net.TCPAddr).Port }

// heardNothing connects to the sentinel and fails if an earlier connection
// exists: connections are accepted in their order.
func (s sentinel) heardNothing(t *testing.T) {
	t.Helper()
	own, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer func() { _ = own.Close() }()
	first, err := s.Accept()
	require.NoError(t, err)
	defer func() { _ = first.Close() }()
	require.Equal(t, own.LocalAddr().String(), first.RemoteAddr().String(), "somebody reached the sentinel")
}

func TestSentinelsHearNothing(t *testing.T) {
	t.Run("v4", func(t *testing.T) {
		l := newSentinel(t, "127.0.0.1:0")
		spellings := []string{
			"127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "0177.0.0.1", "0177.1", "017700000001",
			"127.0.0.1.", "127.000.000.001", "0.0.0.0", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
			"[2002:7f00:1::1]", "[::ffff:127.0.0.1%25lo]", "[::]", "①②⑦.0.0.1", "%31%32%37.0.0.1", "127。0。0。1", "localhost", "localhost.",
			"LOCALHOST", "a.localtest.example", "user@127.0.0.1", "127.0.0.1%00.example.com", "example.com@127.0.0.1", "[127.0.0.1]",
		}
		// A resolver that accepts each form as loopback, like the most lenient libc.
		s := newSender(t, Config{Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1"), netip.MustParseAddr("127.0.0.1")}, nil
		}})
		for _, scheme := range []string{"http", "https"} {
			for _, host := range spellings {
				res := s.Send(context.Background(), request(fmt.Sprintf("%s://%s:%d/", scheme, host, l.port())))
				require.Contains(t, []string{CodeAddressRefused, CodeBadURL}, res.Code, "%s: %s", host, res.Detail)
			}
		}
		l.heardNothing(t)
	})
	t.Run("v6", func(t *testing.T) {
		l := newSentinel(t, "[::1]:0")
		s := newSender(t, Config{Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("::1%lo")}, nil
		}})
		for _, host := range []string{"[::1]", "[0:0:0:0:0:0:0:1]", "[::0001]", "[::1%25lo]", "[::]", "ip6-localhost"} {
			for _, scheme := range []string{"http", "https"} {
				res := s.Send(context.Background(), request(fmt.Sprintf("%s://%s:%d/", scheme, host, l.port())))
				require.Contains(t, []string{CodeAddressRefused, CodeBadURL}, res.Code, "%s: %s", host, res.Detail)
			}
		}
		l.heardNothing(t)
	})
}

func TestMetadataRefusedAtDial(t *testing.T) {
	s := newSender(t, Config{Allow: loopback()})
	for _, host := range []string{"169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "100.100.100.200", "168.63.129.16"} {
		for _, scheme := range []string{"http", "https"} {
			res := s.Send(context.Background(), request(scheme+"://"+host+"/latest/meta-data/"))
			require.Equal(t, CodeAddressRefused, res.Code, host)
			require.Contains(t, res.Detail, "delivery.allow_networks")
		}
	}
}

// newSilentTwin returns a sentinel on 127.0.0.2, at a port at which nothing
// listens on 127.0.0.1.
func newSilentTwin(t *testing.T) sentinel {
	t.Helper()
	_, port := boundSocket(t)
	return newSentinel(t, fmt.Sprintf("127.0.0.2:%d", port))
}

// The name server first returns a public address and then loopback. Send dials the address that
// was checked, so the listener on loopback gets no connection.
func TestRebinding(t *testing.T) {
	l := newSilentTwin(t)
	var asked atomic.Int32
	s := newSender(t, Config{
		// 127.0.0.1 takes the role of the public address: nothing listens at the port there.
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			if asked.Add(1)%2 == 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
		},
	})
	for i := range 10 {
		res := s.Send(context.Background(), request(fmt.Sprintf("https://rebind.example:%d/", l.port())))
		want := CodeConnectionRefused
		if i%2 == 1 {
			want = CodeAddressRefused
		}
		require.Equal(t, want, res.Code, "request %d: %s", i, res.Detail)
		require.Equal(t, int32(i+1), asked.Load(), "one lookup per dial")
	}
	l.heardNothing(t)
}

func TestMixedAnswers(t *testing.T) {
	l := newSilentTwin(t)
	srv, got := recorder(t)
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	answer := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::ffff:127.0.0.1")}
	s := newSender(t, Config{
		Allow:  []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return answer, nil },
	})
	res := s.Send(context.Background(), request(fmt.Sprintf("http://mixed.example:%d/", port)))
	require.True(t, res.Delivered, res.Detail)
	require.Len(t, got(), 1)
	res = s.Send(context.Background(), request(fmt.Sprintf("https://mixed.example:%d/", l.port())))
	require.Equal(t, CodeConnectionRefused, res.Code)
	l.heardNothing(t)
}

func TestPlainHTTPOnlyWithinAllow(t *testing.T) {
	s := newSender(t, Config{Allow: loopback(), Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
	}})
	for _, host := range []string{"8.8.8.8", "hook.example"} {
		res := s.Send(context.Background(), request("http://"+host+"/"))
		require.Equal(t, CodeAddressRefused, res.Code)
		require.Contains(t, res.Detail, "https")
	}
}

// Many addresses of one family leave a candidate of the other.
func TestAddressOfTheOtherFamilyAnswers(t *testing.T) {
	srv, got := recorder(t)
	s := newSender(t, Config{Allow: loopback(), Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return many(12, "::1", "::1", "::1", "::1", "::1", "::1", "::1", "::1", "::1", "::1", "127.0.0.1"), nil
	}})
	res := s.Send(context.Background(), request(fmt.Sprintf("http://many.example:%d/", srv.Listener.Addr().(*net.TCPAddr).Port)))
	require.True(t, res.Delivered, res.Detail)
	require.Len(t, got(), 1)
}

// The next address of a name is tried when the first does not answer.
func TestSecondAddressAnswers(t *testing.T) {
	srv, got := recorder(t)
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	s := newSender(t, Config{Allow: loopback(), Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.1")}, nil
	}})
	require.True(t, s.Send(context.Background(), request(fmt.Sprintf("http://two.example:%d/", port))).Delivered)
	require.Len(t, got(), 1)
}
