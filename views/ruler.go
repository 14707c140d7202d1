package views

// The line above the curves of the last hour: a sign at the time of each mark
// and of each action of a person, with its label beside it if there is room.

import (
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// marker is the sign in one cell of that line. It may stand for several
// actions and marks.
type marker struct {
	x     int
	label string // label of the newest mark in the cell; without a mark, of the newest action
	mark  bool   // the label is that of a mark
	more  int    // how many further actions and marks it represents
}

// text returns the label in at most w cells. The number of further ones is never cut off.
func (p marker) text(th theme.Theme, w int) string {
	if p.more == 0 {
		return th.Cut(p.label, w)
	}
	tail := " +" + Count(int64(p.more))
	return th.Cut(p.label, w-len(tail)) + tail
}

// markers returns the signs for a line of n cells, newest first. Each cell is
// a time span of length each; the last cell is the current, incomplete span.
func markers(s *queue.Snapshot, e Env, n int, each time.Duration) []marker {
	var out []marker
	for _, h := range happenings(s, e) {
		back := max(int(s.TakenAt.Truncate(each).Sub(h.at.Truncate(each))/each), 0)
		x := n - 1 - back
		m := marker{x: x, label: theme.Safe(h.pin), mark: h.id == ""}
		switch last := len(out) - 1; {
		case x < 0:
		case last >= 0 && out[last].x == x:
			m.more = out[last].more + 1
			if out[last].mark || !m.mark {
				m.label, m.mark = out[last].label, out[last].mark
			}
			out[last] = m
		default:
			out = append(out, m)
		}
	}
	return out
}

// leastLabel is the smallest width of a label in cells: a narrower one could not be understood.
const leastLabel = 10

// ruler returns the line of w cells with the signs ps and their labels. If
// there is room, it begins with the text what, the name of the curve.
func ruler(th theme.Theme, ps []marker, w int, what string) string {
	var b strings.Builder
	at := 0 // how many cells are written
	put := func(text string) { b.WriteString(text); at += theme.Width(text) }
	if len(ps) == 0 || theme.Width(what) <= ps[len(ps)-1].x {
		put(th.Cut(what, w))
	}
	for i := len(ps) - 1; i >= 0; i-- {
		p, next := ps[i], w+1
		if i > 0 {
			next = ps[i-1].x
		}
		before, after := p.x-at-1, next-p.x-2 // one blank is left beside the neighbouring signs
		if at == 0 {
			before = p.x
		}
		n := theme.Width(p.text(th, w))
		switch {
		case n <= after || after >= leastLabel && after >= before:
			put(theme.Blank(p.x-at) + th.G.Pin + p.text(th, after))
		case n <= before || before >= leastLabel:
			label := p.text(th, before)
			put(theme.Blank(p.x-at-theme.Width(label)) + label + th.G.Pin)
		default:
			put(theme.Blank(p.x-at) + th.G.Pin)
		}
	}
	return b.String() + theme.Blank(w-at)
}

// signs returns the line without labels, for the curves below the first.
func signs(th theme.Theme, ps []marker, w int) string {
	bare := make([]marker, len(ps))
	for i, p := range ps {
		bare[i] = marker{x: p.x}
	}
	return strings.TrimRight(ruler(th, bare, w, ""), " ")
}
