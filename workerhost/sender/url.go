package sender

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

func badURL(detail string) error {
	return &failure{code: CodeBadURL, detail: "callback URL: " + detail}
}

// CheckURL returns why every request to a URL would fail with BAD_URL; "" if requests to it can be
// sent. The text repeats no part of the URL.
func CheckURL(raw string) string {
	_, err := judgeURL(raw)
	var f *failure
	if errors.As(err, &f) {
		return strings.TrimPrefix(f.detail, "callback URL: ")
	}
	return ""
}

// judgeURL returns the parsed URL with lower-case scheme and host and without fragment. It
// returns BAD_URL if two programs could understand the URL differently. The dialer checks the
// addresses of the host later. No error text repeats any part of the URL, because callback URLs
// contain tokens.
func judgeURL(raw string) (*url.URL, error) {
	for i := range len(raw) {
		// Non-ASCII bytes are refused too: Unicode normalisation could turn such a host into
		// digits, and such a query would be sent unescaped.
		if raw[i] <= ' ' || raw[i] >= 0x7f {
			return nil, badURL("has a blank, a control character or one beyond ASCII; percent-encode it, hosts in their xn-- form")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, badURL("cannot be parsed") // the parse error would quote the URL
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, badURL("the scheme is neither https nor http")
	case u.Opaque != "" || u.Host == "":
		return nil, badURL("has no host")
	case u.User != nil:
		return nil, badURL("holds a user or password; sign with a secret_ref instead")
	}
	host := strings.ToLower(u.Hostname())
	if err := judgeHost(host, strings.HasPrefix(u.Host, "[")); err != nil {
		return nil, err
	}
	port := u.Port()
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, badURL("the port is not one of 1 to 65535")
		}
		port = strconv.FormatUint(n, 10)
	}
	if port != "" {
		u.Host = net.JoinHostPort(host, port)
	} else if u.Host = host; strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// judgeHost allows IPv6 in brackets without a zone, IPv4 as four plain decimals, and DNS names.
// It refuses any other form of an address (127.1, 0x7f.1, 2130706433, 0177.0.0.1), because some
// resolvers would accept such a form.
func judgeHost(host string, bracketed bool) error {
	if host == "" {
		return badURL("has no host")
	}
	addr, err := netip.ParseAddr(host)
	if bracketed {
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return badURL("the text in brackets is not an IPv6 address without zone")
		}
		return nil
	}
	if err == nil {
		if !addr.Is4() {
			return badURL("an IPv6 address needs brackets")
		}
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	if name == "" || len(name) > 253 {
		return badURL("the host is not a DNS name")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return badURL("the host is not a DNS name")
		}
	}
	last := labels[len(labels)-1]
	hex, isHex := strings.CutPrefix(last, "0x")
	if strings.Trim(last, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == "" {
		return badURL("the host ends in a number but is not a plain IPv4 address")
	}
	return nil
}
