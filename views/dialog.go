package views

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Field is one input of a dialog.
type Field struct {
	Label   string
	Value   string
	Caret   int // position of the caret, in runes
	Help    string
	Error   string
	Choices bool // the keys left and right change the value
}

// Dialog is a dialog as it is drawn: the form, preview or result of an action. The button that
// changes nothing is first and has the focus at the start.
type Dialog struct {
	Title    string
	Alarm    bool // production: the frame is drawn as an alarm
	Intro    []string
	Facts    []queue.PlanLine
	Notes    []string // skipped rows with the reasons, and warnings
	Fields   []Field
	Buttons  []string
	Focus    int  // index of what has the focus: the fields first, then the buttons
	Quiet    bool // the dialog has just opened and does not accept keys yet
	Hint     string
	Error    string
	Offset   int
	Progress string // shown instead of the buttons while the action runs
}

// Lines draws the dialog for a screen of size s.
func (d Dialog) Lines(e Env, s Size) []string {
	th := e.Theme
	w := boxWidth(s, dialogWidth)
	inner := w - 4
	body, tail := d.parts(e, s)
	room := d.room(len(tail), s)
	if len(body) > room {
		offset := min(max(d.Offset, 0), d.Last(e, s))
		more := len(body) - offset - (room - 1)
		body = append([]string{}, body[offset:min(offset+room-1, len(body))]...)
		if more > 0 {
			body = append(body, th.Dim.Paint(th.Cut(th.G.Down+" "+Plural(int64(more), "more line", "more lines")+", pgdn and pgup scroll", inner)))
		}
	}
	lines := append(body, tail...)
	if len(lines) > s.H-4 { // header and footer stay visible
		lines = lines[len(lines)-max(s.H-4, 0):]
	}
	return box(e, d.Title, lines, w, queue.Choose(d.Alarm, th.Critical, th.Accent))
}

const dialogWidth = 84

// leastText is how many lines of the text above the fields a dialog shows at least.
const leastText = 3

// parts returns the text above the fields, which scrolls if it is long, and the lines below it, which
// are always visible. Where these leave less than leastText lines to the text, an error scrolls with
// the text; then blank lines and the hint are left out, and the help and the error of a field are cut
// to a line.
func (d Dialog) parts(e Env, s Size) (body, tail []string) {
	w := boxWidth(s, dialogWidth) - 4
	for pressed := roomy; pressed <= tight; pressed++ {
		body, tail = d.body(e, w, pressed), d.tail(e, w, pressed)
		if s.H-4-len(tail) >= min(len(body), leastText) {
			break
		}
	}
	return body, tail
}

// pressure says how much a dialog must save lines.
type pressure int

const (
	roomy    pressure = iota
	scrolled          // the error is part of the text that scrolls
	tight             // also no blank lines and no hint
)

// failure returns the lines of the error.
func (d Dialog) failure(e Env, w int) []string {
	return hung("", wrap(e.Theme.G.Critical+" "+theme.Safe(d.Error), w), e.Theme.Critical)
}

// room returns how many lines above the fields and buttons a screen of size s shows.
func (d Dialog) room(tail int, s Size) int { return max(s.H-4-tail, 1) }

// Last returns the greatest scroll offset: it shows the end of the text on a screen of size s.
func (d Dialog) Last(e Env, s Size) int {
	text, tail := d.parts(e, s)
	body, room := len(text), d.room(len(tail), s)
	return queue.Choose(body > room, body-room+1, 0)
}

// Shown returns how many lines of a text that scrolls a screen of size s shows at once.
func (d Dialog) Shown(e Env, s Size) int {
	_, tail := d.parts(e, s)
	return max(d.room(len(tail), s)-1, 1)
}

// SameAs is the label of the line in a dialog that shows the qtop command with
// the same effect.
const SameAs = "same as"

// longestLabel is the width up to which a label is beside its value; a longer one is above it.
const longestLabel = 20

// body returns the text above fields and buttons; it scrolls if it is long.
func (d Dialog) body(e Env, w int, p pressure) []string {
	th := e.Theme
	var out []string
	for _, s := range d.Intro {
		out = append(out, hung("", wrap(theme.Safe(s), w), th.Text)...)
	}
	if d.Error != "" && p >= scrolled {
		out = append(out, d.failure(e, w)...)
	}
	label := 0
	for _, f := range d.Facts {
		if n := theme.Width(theme.Safe(f.Label)); n <= longestLabel {
			label = max(label, n)
		}
	}
	if len(d.Facts) > 0 && len(out) > 0 {
		out = append(out, "")
	}
	for _, f := range d.Facts {
		name := theme.Safe(f.Label)
		if theme.Width(name) > longestLabel { // the name of what is changed is not cut
			out, name = append(out, hung("", wrap(name, w), th.Dim)...), ""
		}
		out = append(out, hung(th.Dim.Paint(th.Left(name, label))+"  ", queue.Choose(strings.HasPrefix(f.Value.String(), "qtop "), wrapCommand, wrap)(f.Value.String(), w-label-2), th.Text)...)
	}
	if len(d.Notes) > 0 && len(out) > 0 {
		out = append(out, "")
	}
	for _, n := range d.Notes {
		out = append(out, hung("", wrap(theme.Safe(n), w), th.Dim)...)
	}
	return out
}

// tail returns fields, buttons and, if it is not in the body, the error; they are always visible.
func (d Dialog) tail(e Env, w int, p pressure) []string {
	th := e.Theme
	var out []string
	blank := func() {
		if p < tight {
			out = append(out, "")
		}
	}
	for i, f := range d.Fields {
		if i == 0 {
			blank()
		}
		out = append(out, f.line(e, w, d.Focus == i))
		below, look := "", th.Dim
		switch {
		case f.Error != "":
			below, look = th.G.Warning+" "+theme.Safe(f.Error), th.Warning
		case d.Focus == i:
			below = theme.Safe(f.Help)
		}
		switch {
		case below != "" && p == tight:
			out = append(out, look.Paint(th.Cut(theme.Blank(fieldLabel)+below, w)))
		case below != "":
			out = append(out, hung(theme.Blank(fieldLabel), wrap(below, w-fieldLabel), look)...)
		}
	}
	if d.Error != "" && p < scrolled {
		blank()
		out = append(out, d.failure(e, w)...)
	}
	blank()
	if d.Progress != "" {
		out = append(out, th.Accent.Paint(th.Cut(theme.Safe(d.Progress), w)))
	} else if len(d.Buttons) > 0 {
		out = append(out, d.buttons(e, w)...)
	}
	if d.Hint != "" && p < tight {
		out = append(out, th.Dim.Paint(th.Cut(theme.Safe(d.Hint), w)))
	}
	return out
}

const fieldLabel = 16

func (f Field) line(e Env, w int, focus bool) string {
	th := e.Theme
	front := queue.Choose(focus, th.Strong, th.Dim).Paint(th.Left(theme.Safe(f.Label), fieldLabel))
	room := max(w-fieldLabel, 4)
	if f.Choices {
		v := theme.Safe(f.Value)
		if focus {
			return th.Cut(front+th.Accent.Paint("< ")+th.Strong.Paint(v)+th.Accent.Paint(" >")+th.Dim.Paint("  left and right change the value"), w)
		}
		return th.Cut(front+th.Text.Paint(v), w)
	}
	return front + input(th, f.Value, f.Caret, room, focus)
}

// input draws a line of text in exactly w cells, scrolled so that the caret is visible.
func input(th theme.Theme, value string, caret, w int, focus bool) string {
	runes := []rune(value)
	caret = min(max(caret, 0), len(runes))
	before, after := theme.Safe(string(runes[:caret])), theme.Safe(string(runes[caret:]))
	if !focus {
		return th.Field.Paint(th.Left(before+after, w))
	}
	at := " "
	if len(runes) > caret {
		at = theme.Safe(string(runes[caret : caret+1]))
		after = theme.Safe(string(runes[caret+1:]))
	}
	for theme.Width(before)+theme.Width(at) > w && before != "" {
		_, before = splitRune(before)
	}
	rest := max(w-theme.Width(before)-theme.Width(at), 0)
	return th.Field.Paint(before) + th.Caret.Paint(at) + th.Field.Paint(th.Left(after, rest))
}

func splitRune(s string) (head, rest string) {
	for i := range s {
		if i > 0 {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// buttons draws the buttons, in as many lines as they need.
func (d Dialog) buttons(e Env, w int) []string {
	const gap = "   "
	th := e.Theme
	var out []string
	for i, b := range d.Buttons {
		text := "[ " + theme.Safe(b) + " ]"
		switch {
		case d.Quiet:
			text = th.Dim.Paint(text)
		case d.Focus == len(d.Fields)+i:
			text = th.Chosen.Paint(th.G.Right + " " + theme.Safe(b) + " ")
		default:
			text = th.Button.Paint(text)
		}
		if last := len(out) - 1; last >= 0 && theme.Width(out[last]+gap+text) <= w {
			out[last] += gap + text
		} else {
			out = append(out, th.Cut(text, w))
		}
	}
	return out
}
