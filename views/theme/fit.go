package theme

// This file brings strings to a width. Widths are those of graphemes as a
// terminal shows them, not of bytes or runes.

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
)

const blanks = "                                                                                                                                                                                                                                                                "

// Blank is n spaces; none for a negative n.
func Blank(n int) string {
	if n <= 0 {
		return ""
	}
	if n <= len(blanks) {
		return blanks[:n]
	}
	return strings.Repeat(" ", n)
}

// Safe is text that cannot act on the terminal. Printable ASCII is passed
// through: it is nearly everything that is drawn, and needs no second look.
func Safe(s string) string {
	if plain(s) {
		return s
	}
	return queue.Clean(s).String()
}

// plain tells whether every byte is printable ASCII, so that bytes are cells.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// Width is how many cells s takes; sequences take none.
func Width(s string) int {
	if plain(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// Cut shortens s to at most w cells, ending in the ellipsis where it was longer.
func (t Theme) Cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if Width(s) <= w {
		return s
	}
	if plain(s) && w > len(t.G.Ellipsis) {
		return s[:w-1] + t.G.Ellipsis
	}
	return ansi.Truncate(s, w, t.G.Ellipsis)
}

// Left is s in exactly w cells, filled on the right.
func (t Theme) Left(s string, w int) string {
	s = t.Cut(s, w)
	return s + Blank(w-Width(s))
}

// Right is s in exactly w cells, filled on the left.
func (t Theme) Right(s string, w int) string {
	s = t.Cut(s, w)
	return Blank(w-Width(s)) + s
}

// Spread puts left and right at the two ends of w cells; where both do not fit,
// the left one is cut.
func (t Theme) Spread(left, right string, w int) string {
	rw := Width(right)
	if rw >= w {
		return t.Cut(right, w)
	}
	left = t.Cut(left, w-rw-1)
	return left + Blank(w-rw-Width(left)) + right
}
