package views

import "github.com/qtop/qtop/views/theme"

// box draws a frame of exactly w cells around lines.
func box(e Env, title string, lines []string, w int, edge theme.Style) []string {
	th := e.Theme
	inner := max(w-4, 1)
	head := th.G.TL + th.G.H
	if title != "" {
		head += " " + th.Cut(theme.Safe(title), inner-2) + " "
	}
	for theme.Width(head) < w-1 {
		head += th.G.H
	}
	out := []string{edge.Paint(th.Cut(head+th.G.TR, w))}
	for _, l := range lines {
		out = append(out, edge.Paint(th.G.V)+" "+th.Left(l, inner)+" "+edge.Paint(th.G.V))
	}
	foot := th.G.BL
	for theme.Width(foot) < w-1 {
		foot += th.G.H
	}
	return append(out, edge.Paint(foot+th.G.BR))
}

// boxWidth returns the width of a box: readable, and less than the screen unless only a
// few cells would remain beside it.
func boxWidth(s Size, want int) int {
	if s.W-want < 12 {
		return max(s.W, 8)
	}
	return want
}
