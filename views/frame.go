package views

import (
	"strings"

	"github.com/qtop/qtop/views/theme"
)

// Screen has the lines around the body of a pane.
type Screen struct {
	Header  Header
	Tabs    []Tab
	Banners []Banner
	Status  Status
	Hints   []Hint
	Problem Problem // an error in the input line, shown in place of the hints
}

// Draw draws the whole screen. It calls body with the size left for it. The result has exactly
// s.H lines of exactly s.W cells.
func (x Screen) Draw(e Env, s Size, body func(Size) []string) string {
	l, ok := Split(s.W, s.H, len(x.Banners))
	if !ok {
		return TooSmall(e, s)
	}
	lines := make([]string, 0, s.H)
	lines = append(lines, x.Header.Line(e, s.W), TabLine(x.Tabs, e, s.W))
	for i := range l.Banner.H {
		lines = append(lines, x.Banners[i].Line(e, s.W))
	}
	drawn := body(Size{l.Body.W, l.Body.H})
	for i := range l.Body.H {
		line := ""
		if i < len(drawn) {
			line = drawn[i]
		}
		lines = append(lines, e.Theme.Left(line, s.W))
	}
	foot := Footer(x.Hints, e, s.W)
	if x.Problem.Text != "" {
		foot = x.Problem.Line(e, s.W)
	}
	status := x.Status.Lines(e, s.W, l.Body.H)
	lines = append(lines[:len(lines)+1-len(status)], append(status, foot)...)
	return e.Theme.Twins(strings.Join(lines, "\n"))
}

// TooSmall returns what a terminal shows that is too small for every warning:
// only that it is too small.
func TooSmall(e Env, s Size) string {
	if s.W <= 0 || s.H <= 0 {
		return ""
	}
	words := wrap("qtop needs at least 60 columns and 15 lines; this is "+Count(int64(s.W))+" by "+Count(int64(s.H))+". q quits.", s.W)
	if len(words) > s.H {
		words = words[:s.H]
	}
	for i := range words {
		words[i] = e.Theme.Left(words[i], s.W)
	}
	return strings.Join(words, "\n")
}

// Overlay draws a box over a screen, with its top left corner at x, y.
func Overlay(screen string, box []string, x, y int, s Size) string {
	lines := strings.Split(screen, "\n")
	for i, b := range box {
		at := y + i
		if at < 0 || at >= len(lines) {
			continue
		}
		lines[at] = overlayCells(lines[at], b, max(x, 0), s.W)
	}
	return strings.Join(lines, "\n")
}

// Centre returns the position of a box: centred, a little above the middle, and below the header.
func Centre(box []string, s Size) (x, y int) {
	w := 0
	for _, b := range box {
		w = max(w, theme.Width(b))
	}
	return max((s.W-w)/2, 0), max((s.H-len(box))/3, 1)
}
