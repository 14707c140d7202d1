package sender

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDetail is the greatest length of Result.Detail in bytes: enough for an address and a reason.
const maxDetail = 300

// clean returns s as one line of valid UTF-8 of at most limit bytes without control or format
// characters (C0, DEL, C1, bidi marks, zero width, tags, line separators). A white space control
// becomes a space, each other such character U+FFFD, so that a reader sees where it was.
func clean(s string, limit int) string {
	var b strings.Builder
	b.Grow(min(len(s), limit))
	for _, r := range s {
		switch {
		case r >= ' ' && r < 0x7f:
		case r == '\t' || r == '\n' || r == '\v' || r == '\f' || r == '\r':
			r = ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
