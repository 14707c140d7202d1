package sender

import (
	"fmt"
	"net/netip"
	"slices"
)

// special is a special-purpose address range. No request may go to it unless the operator allows
// it.
type special struct {
	prefix string
	what   string
}

// specialV4 follows the IANA special-purpose registry, plus multicast, class E
// and one cloud metadata service with a public address.
func specialV4() []special {
	return []special{
		{"0.0.0.0/8", "unspecified (this network)"},
		{"10.0.0.0/8", "private"},
		{"100.64.0.0/10", "carrier-grade NAT"},
		{"127.0.0.0/8", "loopback"},
		{"168.63.129.16/32", "cloud metadata"},
		{"169.254.0.0/16", "link-local (cloud metadata)"},
		{"172.16.0.0/12", "private"},
		{"192.0.0.0/24", "IETF protocol assignments"},
		{"192.0.2.0/24", "documentation"},
		{"192.31.196.0/24", "AS112"},
		{"192.52.193.0/24", "AMT"},
		{"192.88.99.0/24", "6to4 relay"},
		{"192.168.0.0/16", "private"},
		{"192.175.48.0/24", "AS112"},
		{"198.18.0.0/15", "benchmarking"},
		{"198.51.100.0/24", "documentation"},
		{"203.0.113.0/24", "documentation"},
		{"224.0.0.0/4", "multicast"},
		{"240.0.0.0/4", "reserved (broadcast)"},
	}
}

// specialV6 lists ranges with their names. The ranges outside 2000::/3 are listed only so that
// refusals can name them: every address outside 2000::/3 is refused, even if it is assigned one
// day.
func specialV6() []special {
	return []special{
		{"2001::/32", "Teredo"},
		{"2001:10::/28", "ORCHID"},
		{"2001:20::/28", "ORCHIDv2"},
		{"2001::/23", "IETF protocol assignments"},
		{"2001:db8::/32", "documentation"},
		{"2002::/16", "6to4"},
		{"2620:4f:8000::/48", "AS112"},
		{"3fff::/20", "documentation"},
		{"::/128", "unspecified"},
		{"::1/128", "loopback"},
		{"::ffff:0:0/96", "IPv4-mapped"},
		{"::ffff:0:0:0/96", "IPv4-translated"},
		{"::/96", "IPv4-compatible"},
		{"64:ff9b::/96", "NAT64"},
		{"64:ff9b:1::/48", "local NAT64"},
		{"100::/64", "discard"},
		{"5f00::/16", "segment routing"},
		{"fc00::/7", "unique local"},
		{"fe80::/10", "link-local"},
		{"fec0::/10", "site-local"},
		{"ff00::/8", "multicast"},
	}
}

// guard decides which addresses may be dialled: any IPv4 address that is not special, any IPv6
// global unicast address that is not special, and the addresses that the operator allows.
type guard struct {
	allow  []netip.Prefix
	plain  []netip.Prefix // networks to which http without TLS is allowed, if the address is allowed too
	v4, v6 []namedPrefix
}

type namedPrefix struct {
	netip.Prefix
	what string
}

func newGuard(allow, plain []netip.Prefix) *guard {
	parse := func(in []special) []namedPrefix {
		out := make([]namedPrefix, len(in))
		for i, s := range in {
			out[i] = namedPrefix{netip.MustParsePrefix(s.prefix), s.what}
		}
		return out
	}
	return &guard{allow: unmapPrefixes(allow), plain: unmapPrefixes(plain), v4: parse(specialV4()), v6: parse(specialV6())}
}

// unmapPrefixes turns ::ffff:a.b.c.d/96+n into a.b.c.d/n, because addresses are checked in the
// IPv4 form.
func unmapPrefixes(in []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, p := range in {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out = append(out, p)
	}
	return out
}

// judge returns the address to dial, as an IPv4 address if it is an IPv4-mapped one, or the error
// ADDRESS_REFUSED. With plainHTTP it also refuses addresses to which the operator has not allowed
// http without TLS.
//
// An IPv6 address that embeds an IPv4 address can lead to the IPv6 or to the IPv4 address. It is
// allowed when the operator allowed the embedded address, or when the operator allowed the IPv6
// range and the embedded address is not special. With the well-known NAT64 prefix, by which an
// IPv6-only network reaches IPv4, only the embedded address counts.
func (g *guard) judge(given netip.Addr, plainHTTP bool) (netip.Addr, error) {
	addr := given.Unmap()
	if !addr.IsValid() {
		return addr, &failure{code: CodeAddressRefused, detail: "DNS returned an address that is neither IPv4 nor IPv6"}
	}
	if addr.Zone() != "" {
		return addr, refused(addr.String(), "bound to a network interface (zone)")
	}
	inner, carries := embedded(addr)
	innerAllowed := carries && g.allowed(inner)
	innerWhat := ""
	if carries && !innerAllowed {
		innerWhat = g.special(inner)
	}
	if !innerAllowed && (!g.allowed(addr) || innerWhat != "") {
		if what := g.special(addr); what != "" && !nat64(addr) {
			return addr, refused(addr.String(), what)
		}
		if innerWhat != "" {
			return addr, refused(addr.String(), "leads to "+innerWhat+" "+inner.String())
		}
	}
	if plainHTTP && !within(g.plain, addr) && !(carries && within(g.plain, inner)) {
		return addr, &failure{code: CodeAddressRefused, detail: fmt.Sprintf("plain http to %s refused; use https, or add its network to delivery.allow_plain_http", addr)}
	}
	return addr, nil
}

func refused(addr, what string) error {
	return &failure{code: CodeAddressRefused, detail: fmt.Sprintf("%s refused: %s; add its network to delivery.allow_networks if requests to it are intended", addr, what)}
}

func (g *guard) allowed(a netip.Addr) bool { return within(g.allow, a) }

func within(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// nat64 reports whether a has the well-known NAT64 prefix: packets to a are sent to its embedded
// IPv4 address.
func nat64(a netip.Addr) bool { return netip.MustParsePrefix("64:ff9b::/96").Contains(a) }

// special returns the name of the special-purpose range that contains a, or "" when a is not
// special.
func (g *guard) special(a netip.Addr) string {
	table := g.v6
	if a.Is4() {
		table = g.v4
	}
	for _, p := range table {
		if p.Contains(a) {
			return p.what
		}
	}
	if a.Is6() && a.As16()[0]&0xe0 != 0x20 {
		return "not global unicast"
	}
	return ""
}

// embedded returns the IPv4 address to which a translator or tunnel would send packets for the
// IPv6 address a. The local NAT64 prefix 64:ff9b:1::/48 has no fixed layout, so no address is
// extracted from it.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	v4 := func(i int) (netip.Addr, bool) { return netip.AddrFrom4([4]byte(b[i : i+4])), true }
	zeros := func(from, to int) bool {
		for _, x := range b[from:to] {
			if x != 0 {
				return false
			}
		}
		return true
	}
	switch {
	case zeros(0, 12) && !zeros(12, 15): // IPv4-compatible, except :: and ::1
		return v4(12)
	case zeros(0, 8) && b[8] == 0xff && b[9] == 0xff && zeros(10, 12): // IPv4-translated
		return v4(12)
	case b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b && zeros(4, 12): // NAT64
		return v4(12)
	case b[0] == 0x20 && b[1] == 0x02: // 6to4
		return v4(2)
	case b[0] == 0x20 && b[1] == 0x01 && zeros(2, 4): // Teredo: the client, bits inverted
		for i := 12; i < 16; i++ {
			b[i] = ^b[i]
		}
		return v4(12)
	case b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP interface id
		return v4(12)
	}
	return netip.Addr{}, false
}
