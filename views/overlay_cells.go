package views

// Lays one painted string over another, counted in cells.

import (
	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/views/theme"
)

const sgrReset = "\x1b[m"

// overlayCells replaces the cells of line from x on by over. If a wide rune is cut in half, its
// remaining half becomes a blank, so that every line keeps its width.
func overlayCells(line, over string, x, w int) string {
	n := theme.Width(over)
	if x >= w {
		return line
	}
	if x+n > w {
		over = ansi.Truncate(over, w-x, "")
		n = theme.Width(over)
	}
	left := ansi.Truncate(line, x, "")
	left += sgrReset + theme.Blank(x-theme.Width(left))
	right := ansi.TruncateLeft(line, x+n, "")
	for cut := x + n + 1; theme.Width(right) > max(w-x-n, 0) && cut <= w+1; cut++ {
		right = ansi.TruncateLeft(line, cut, "")
	}
	return left + over + sgrReset + theme.Blank(w-x-n-theme.Width(right)) + right
}
