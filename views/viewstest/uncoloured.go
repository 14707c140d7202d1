package viewstest

import "strings"

// Uncoloured returns a screen without the escape sequences that qtop draws with: those of colours.
// All others stay. A regular expression for this takes most of a test's time under the race
// detector.
func Uncoloured(screen string) string {
	var out strings.Builder
	for {
		at := strings.Index(screen, "\x1b[")
		if at < 0 {
			out.WriteString(screen)
			return out.String()
		}
		end := at + 2 + len(screen[at+2:]) - len(strings.TrimLeft(screen[at+2:], "0123456789;"))
		if strings.HasPrefix(screen[end:], "m") {
			out.WriteString(screen[:at])
			end++
		} else {
			out.WriteString(screen[:end])
		}
		screen = screen[end:]
	}
}
