package views

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Banner is a line above every pane, shown while something is wrong with the snapshot or
// the server.
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

// Status is the status line below the body.
type Status struct {
	Left       string
	Right      []string // the text on the right, longest form first
	Bad        bool     // the text on the left is a refusal or an error
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

// Hint is one key in the last line.
type Hint struct {
	Key, Word string
	Off       bool // drawn dim and in brackets; pressing the key says why
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

// Problem is an error in the input line, drawn below the cell it refers to.
type Problem struct {
	Cell int // -1: the whole line
	Text string
}

// Line draws it in exactly w cells, with the text on the side that has room for it.
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
