package sender

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	far := now.Add(maxRetryAfter)
	zero := time.Time{}
	for _, c := range []struct {
		values []string
		want   time.Time
	}{
		{nil, zero},
		{[]string{""}, zero},
		{[]string{"  "}, zero},
		{[]string{"0"}, zero},
		{[]string{"1"}, now.Add(time.Second)},
		{[]string{" 120 "}, now.Add(2 * time.Minute)},
		{[]string{"007"}, now.Add(7 * time.Second)},
		{[]string{"120", "120"}, now.Add(2 * time.Minute)},
		{[]string{"120", "121"}, zero},
		{[]string{"120", ""}, zero},
		{[]string{"120, 120"}, zero},
		{[]string{"-5"}, zero},
		{[]string{"+5"}, zero},
		{[]string{"1.5"}, zero},
		{[]string{"1e3"}, zero},
		{[]string{"0x10"}, zero},
		{[]string{"NaN"}, zero},
		{[]string{"Inf"}, zero},
		{[]string{"soon"}, zero},
		{[]string{"٣"}, zero},
		{[]string{"9223372036"}, far},
		{[]string{"9223372037"}, far},
		{[]string{"99999999999999999999999999"}, far},
		{[]string{strings.Repeat("0", 100)}, zero},
		{[]string{"Sun, 01 Mar 2026 12:01:00 GMT"}, now.Add(time.Minute)},
		{[]string{"Sunday, 01-Mar-26 12:01:00 GMT"}, now.Add(time.Minute)},
		{[]string{"Sun Mar  1 12:01:00 2026"}, now.Add(time.Minute)},
		{[]string{"Sun, 01 Mar 2026 11:59:00 GMT"}, zero},
		{[]string{"Sun, 01 Mar 2026 12:00:00 GMT"}, zero},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, far},
		{[]string{"Sat, 31 Feb 2026 12:00:00 GMT"}, zero},
		{[]string{"2026-03-01T12:01:00Z"}, zero},
	} {
		require.True(t, c.want.Equal(retryAfter(c.values, now)), "%q: %s", c.values, retryAfter(c.values, now))
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "0", "-1", "NaN", "Sun, 01 Mar 2026 12:01:00 GMT", "99999999999999999999", "1, 2"} {
		f.Add(seed, seed)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, one, two string) {
		at := retryAfter([]string{one}, now)
		if !at.IsZero() {
			require.True(t, at.After(now))
			require.False(t, at.After(now.Add(maxRetryAfter)))
		}
		if strings.TrimSpace(one) != strings.TrimSpace(two) {
			require.True(t, retryAfter([]string{one, two}, now).IsZero())
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x00\x1b[2J\u009b\u202e\u200b\U000e0041\ufeff\u2028\xff\r\n", 10)
	f.Add(http.StatusText(404), 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(limit&0xffff, 0)
		got := clean(s, limit)
		require.LessOrEqual(t, len(got), limit)
		require.True(t, utf8.ValidString(got))
		require.Equal(t, -1, strings.IndexFunc(got, func(r rune) bool {
			return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
		}))
		require.Equal(t, got, clean(got, limit))
	})
}
