package queue

// A form of Text in ASCII, with which tests compare every character.

import "strings"

// ASCII returns t in printable ASCII. Marks keep their names (<ESC>, <9B>, <U+202E>, <+12>,
// "...(+900 bytes)"); every other character is written by its number, as \u{E9}. No character is
// replaced by a similar one, so that different texts never look the same.
func ASCII(t Text) string {
	if plain(t.s) {
		return t.s
	}
	var b strings.Builder
	b.Grow(len(t.s) + 16)
	for _, r := range t.s {
		switch {
		case r >= 0x20 && r < 0x7f:
			b.WriteByte(byte(r))
		case r == '⟨':
			b.WriteByte('<')
		case r == '⟩':
			b.WriteByte('>')
		case r == '…':
			b.WriteString("...")
		case r >= '␀' && r <= '␡':
			b.WriteString("<" + controlName(r-'␀') + ">")
		default:
			b.WriteString(`\u{` + hex(r, 1) + `}`)
		}
	}
	return b.String()
}

// controlName returns the name of a control character; n is the distance of its symbol from U+2400.
func controlName(n rune) string {
	names := [...]string{
		"NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI",
		"DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US",
		"SP", "DEL",
	}
	return names[n]
}
