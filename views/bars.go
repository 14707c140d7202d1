package views

// This file is the lines around the body: banners above it, the status bar and
// the keys below it.

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Banner is one line that stands above every pane while something is wrong with
// the picture itself.
type Banner struct {
	Word  string // LOST, MONITORING OFF
	Text  string
	Alarm bool // else a caution
}

// Line draws it in exactly w cells.
func (b Banner) Line(e Env, w int) string {
	th := e.Theme
	look := queue.Choose(b.Alarm, th.Alarm, th.Caution)
	word := " " + b.Word + " "
	return th.Left(look.Paint(word)+" "+th.Strong.Paint(th.Cut(theme.Safe(b.Text), w-theme.Width(word)-1)), w)
}

// Status is the bar under the body.
type Status struct {
	Left       string
	Right      []string // forms of what stands on the right, longest first
	Bad        bool     // what is said on the left is a refusal or an error
	Production bool
}

// Line draws it in exactly w cells.
func (s Status) Line(e Env, w int) string {
	th := e.Theme
	bar := queue.Choose(s.Production, th.Alarm, th.Bar)
	left, right := theme.Safe(s.Left), ""
	for _, form := range s.Right {
		right = " " + theme.Safe(form) + " "
		if theme.Width(left)+3+theme.Width(right) <= w {
			break
		}
	}
	if theme.Width(right) > w/2 {
		right = ""
	}
	room := w - theme.Width(right)
	if s.Bad {
		return th.Caution.Paint(th.Left(" "+th.G.Warning+" "+left, room)) + bar.Paint(right)
	}
	return bar.Paint(th.Left(" "+left, room) + right)
}

// Hint is one key of the last line.
type Hint struct {
	Key, Word string
	Off       bool // greyed and in brackets; pressing it says why
}

// Footer draws as many hints as fit into exactly w cells.
func Footer(hints []Hint, e Env, w int) string {
	th := e.Theme
	out, used := " ", 1
	for _, h := range hints {
		word := theme.Safe(h.Word)
		plain := h.Key + " " + word
		painted := th.Accent.Paint(h.Key) + " " + th.Text.Paint(word)
		if h.Key == "" {
			plain, painted = word, th.Text.Paint(word)
		}
		if h.Off {
			plain = "(" + plain + ")"
			painted = th.Dim.Paint(plain)
		}
		n := theme.Width(plain)
		if used+n > w {
			break
		}
		out += painted
		used += n
		if used+2 <= w {
			out += "  "
			used += 2
		}
	}
	return out + theme.Blank(w-used)
}

// Problem points from the last line at a cell of what is typed above it.
type Problem struct {
	Cell int // -1: at nothing in particular
	Text string
}

// Line draws it in exactly w cells; the words stand where there is room for them.
func (p Problem) Line(e Env, w int) string {
	th := e.Theme
	text := theme.Safe(p.Text)
	if p.Cell < 0 {
		return th.Warning.Paint(th.Left(" "+th.G.Warning+" "+text, w))
	}
	at := min(p.Cell, max(w-2, 0))
	if n := theme.Width(text); at+2+n > w && at >= w-at {
		return th.Warning.Paint(th.Left(th.Right(text, at-1)+" ^", w))
	}
	return th.Warning.Paint(th.Left(theme.Blank(at)+"^ "+text, w))
}
