package views

// Shows marks and the actions of people above lines of history: a sign in the cell of its time, and
// its label beside it where there is room.

import (
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// marker is the sign above one cell of a history line.
type marker struct {
	x     int
	label string // of the newest mark in the cell, else of the newest action
	mark  bool   // the label is of a mark
	more  int    // how many others it stands for
}

// text is the label in at most w cells; that there are others is not cut off.
func (p marker) text(th theme.Theme, w int) string {
	if p.more == 0 {
		return th.Cut(p.label, w)
	}
	tail := " +" + Count(int64(p.more))
	return th.Cut(p.label, w-len(tail)) + tail
}

// markers finds the marks and the actions of people on a line of n cells of so long each, of
// which the last one is running; newest first.
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

// leastLabel is the cells below which a label says nothing.
const leastLabel = 6

// ruler is a line of w cells with its pins; before them, where there is room, what
// the line is.
func ruler(th theme.Theme, ps []marker, w int, what string) string {
	var b strings.Builder
	at := 0 // the cells that are written
	put := func(text string) { b.WriteString(text); at += theme.Width(text) }
	if len(ps) == 0 || theme.Width(what) < ps[len(ps)-1].x {
		put(th.Cut(what, w))
	}
	for i := len(ps) - 1; i >= 0; i-- {
		p, next := ps[i], w+1
		if i > 0 {
			next = ps[i-1].x
		}
		before, after := p.x-at-1, next-p.x-2 // a blank on the far side of each
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

// signs is the ruler without a word, for the lines below the first.
func signs(th theme.Theme, ps []marker, w int) string {
	bare := make([]marker, len(ps))
	for i, p := range ps {
		bare[i] = marker{x: p.x}
	}
	return strings.TrimRight(ruler(th, bare, w, ""), " ")
}
