package sender

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadURLs(t *testing.T) {
	s := newSender(t, Config{Allow: loopback()})
	for _, raw := range []string{
		"", " ", "/path", "//host/path", "host", "host:443", "https:", "https://", "https:///path", "https:host", "https://:443/", "https://?q",
		"ftp://h.example/", "file:///etc/passwd", "javascript:alert(1)", "gopher://h.example/", "unix:///x", "HTTP+X://h",
		"https://u@h.example/", "https://u:s3cret@h.example/", "https://u:s3%zzcret@h.example/", "https://@h.example/", "https://:@h.example/",
		"https://h.example:0/", "https://h.example:65536/", "https://h.example:-1/", "https://h.example:x/", "https://h.example:99999999999/",
		"https://h.example/\r\nX: y", "https://h.example/\x00", "https://h.example/\x7f", "https://h.example/a b", " https://h.example/", "https://h.example/?a b",
		"https://h.example/\u00fc", "https://\u00fc.example/", "https://h.example\\@evil.example/", "https://h%0d.example/", "https://h%2eexample/",
		"https://127.1/", "https://0x7f.1/", "https://0x7f000001/", "https://2130706433/", "https://0177.0.0.1/", "https://127.0.0.1./", "https://1.2.3.4.5/",
		"https://256.1.1.1/", "https://h.0x/", "https://h.1/", "https://01.1.1.1/",
		"https://[::1%25eth0]/", "https://[fe80::1%25lo]/", "https://[127.0.0.1]/", "https://[::1/", "https://::1/", "https://[]/", "https://[v1.x]/",
		"https://./", "https://a..b/", "https://.a/", "https://a../", "https://a,b/", "https://a$b/", "https://*.example/",
		"https://" + strings.Repeat("a", 64) + ".example/", "https://" + strings.Repeat("a.", 127) + "aa/",
	} {
		res := s.Send(context.Background(), request(raw))
		require.Equal(t, CodeBadURL, res.Code, "%q: %s", raw, res.Detail)
		require.NotContains(t, res.Detail, "s3")
		require.NotContains(t, res.Detail, "example")
		require.Equal(t, res.Detail, "callback URL: "+CheckURL(raw))
	}
}

func TestGoodURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"https://h.example":                      "https://h.example",
		"HTTPS://H.Example/Path?Q=A#frag":        "https://h.example/Path?Q=A",
		"https://h.example:443/":                 "https://h.example:443/",
		"https://h.example:08443/":               "https://h.example:8443/",
		"https://h.example:/":                    "https://h.example/",
		"https://h.example./":                    "https://h.example./",
		"https://_svc.h-1.example/a%0d%0ab":      "https://_svc.h-1.example/a%0d%0ab",
		"https://xn--mnchen-3ya.example/":        "https://xn--mnchen-3ya.example/",
		"https://8.8.8.8:1/":                     "https://8.8.8.8:1/",
		"https://[2606:4700::1111]/":             "https://[2606:4700::1111]/",
		"https://[2606:4700::1111]:8443/":        "https://[2606:4700::1111]:8443/",
		"http://localhost/":                      "http://localhost/",
		"https://1e100.net/":                     "https://1e100.net/",
		"https://0x7f.example/a?u=http://u@h:0/": "https://0x7f.example/a?u=http://u@h:0/",
	} {
		u, err := judgeURL(raw)
		require.NoError(t, err, raw)
		require.Empty(t, CheckURL(raw))
		require.Equal(t, want, u.String())
	}
}

func FuzzURL(f *testing.F) {
	for _, seed := range []string{
		"https://h.example/", "http://[::ffff:127.0.0.1]:80/", "https://127.1/", "https://u:p@h/", "https://h:0/", "https://%31.1/",
		"https://[fe80::1%25eth0]/", "HTTPS://A.b.:443/?x#y", "https://0x7f.0.0.1/", "https:////h",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := judgeURL(raw)
		if err != nil {
			require.Equal(t, CodeBadURL, codeOf(err))
			require.Equal(t, err.Error(), clean(err.Error(), 1000))
			return
		}
		require.Contains(t, []string{"http", "https"}, u.Scheme)
		require.Nil(t, u.User)
		require.NotEmpty(t, u.Hostname())
		require.NotEqual(t, "0", u.Port())
		line := u.RequestURI()
		require.Equal(t, -1, strings.IndexFunc(line+u.Host, func(r rune) bool { return r <= ' ' || r >= 0x7f }), "%q", line)
		// Parsing the result again gives the same URL: it can be understood in one way only and
		// hides no address.
		again, err := judgeURL(u.String())
		require.NoError(t, err)
		require.Equal(t, u.String(), again.String())
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.Empty(t, addr.Zone())
		} else {
			require.Empty(t, strings.Trim(u.Hostname(), "abcdefghijklmnopqrstuvwxyz0123456789-_."))
		}
	})
}
