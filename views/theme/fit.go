package theme

// Brings strings to a width. Widths are counted in graphemes as a terminal shows them, not in bytes
// or runes.

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
)

const blanks = "                                                                                                                                                                                                                                                                "

// Blank returns n spaces; none for a negative n.
func Blank(n int) string {
	if n <= 0 {
		return ""
	}
	if n <= len(blanks) {
		return blanks[:n]
	}
	return strings.Repeat(" ", n)
}

// Safe returns text that cannot control the terminal. Printable ASCII, which is nearly all text, is
// returned without further checks.
func Safe(s string) string {
	if plain(s) {
		return s
	}
	return queue.Clean(s).String()
}

// plain reports whether every byte is printable ASCII, so that each byte is one cell.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// Width returns the number of cells of s; escape sequences have none. Printable ASCII, colours and
// signs that do not combine with other characters are counted here; only other text needs a search
// for graphemes, which is slower.
func Width(s string) int {
	n := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 0x20 <= c && c <= 0x7e:
			n++
		case c == 0x1b:
			k := strings.IndexByte(s[i:], 'm')
			if k < 2 || s[i+1] != '[' || strings.Trim(s[i+2:i+k], "0123456789;") != "" {
				return ansi.StringWidth(s)
			}
			i += k
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			if (r < '─' || r > '◯') && !strings.ContainsRune("…·×–‖↑↓→≈≥✓✖", r) {
				return ansi.StringWidth(s)
			}
			n, i = n+1, i+size-1
		}
	}
	return n
}

// Cut shortens s to at most w cells; a shortened text ends in the ellipsis.
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

// Left returns s in exactly w cells, filled with spaces on the right.
func (t Theme) Left(s string, w int) string {
	s = t.Cut(s, w)
	return s + Blank(w-Width(s))
}

// Right returns s in exactly w cells, filled with spaces on the left.
func (t Theme) Right(s string, w int) string {
	s = t.Cut(s, w)
	return Blank(w-Width(s)) + s
}
