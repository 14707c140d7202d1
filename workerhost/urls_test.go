package workerhost_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost/sender"
)

// The database accepts a callback URL only if the hosts can send to it.
func TestAcceptedURLsCanBeUsed(t *testing.T) {
	conn := pgtest.New(t).Conn(t, "")
	for _, raw := range []string{
		"https://h.example", "HTTPS://H.Example:08443/Path?Q=100%#frag", "https://h.example:/", "https://h.example./", "https://_svc.h-1.example/a%0d%0Ab",
		"https://xn--mnchen-3ya.example/", "https://8.8.8.8:1/", "https://8.8.8.8?x", "https://[2606:4700::1111]:65535/", "https://[::ffff:1.2.3.4]/", "http://localhost/",
		"https://1e100.net/", "https://0x7f.example/a?u=http://u@h:0/", "https://h.example/a:0/", "https://" + strings.Repeat("a", 63) + ".example/",

		"https://", "https://:443/", "https://h.example:0/", "https://h.example:000", "https://[::1]:0?x", "https://h.example:65536/", "https://h.example:99999999999999999999/",
		"https://h.example:x/", "https://127.1/", "https://0x7f.1/", "https://0x7f000001/", "https://2130706433/", "https://0177.0.0.1/", "https://127.0.0.1./", "https://1.2.3.4.5/",
		"https://256.1.1.1/", "https://h.0x/", "https://h.1/", "https://01.1.1.1/", "https://[127.0.0.1]/", "https://[1.2:3]/", "https://[::1::2]/", "https://[]/", "https://./",
		"https://a..b/", "https://.a/", "https://a../", "https://a,b/", "https://a$b/", "https://*.example/", "https://h%2eexample/", "https://h.example/%zz", "https://h.example/%",
		"https://h.example/#%2", "https://u@h.example/", "https://h.example/a b",
		"https://" + strings.Repeat("a", 64) + ".example/", "https://" + strings.Repeat("a.", 127) + "aa/",
	} {
		_, err := conn.Exec(t.Context(), "SELECT public.fn_webhook_url_admit('url'::text, $1::text)", raw)
		require.Equal(t, sender.CheckURL(raw) == "", err == nil, "%s: %v", raw, err)
	}
}
