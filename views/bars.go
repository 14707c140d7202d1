package views

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Banner is a line above every pane, shown while something is wrong with the snapshot or
// the server.
type Banner struct {
	Word  string // what is wrong, such as LOST or MONITORING OFF
	Text  string
	Alarm bool // true: drawn as an alarm; false: as a caution
}

// Line draws the banner in exactly w cells.
func (b Banner) Line(e Env, w int) string {
	th := e.Theme
	look := queue.Choose(b.Alarm, th.Alarm, th.Caution)
	word := " " + b.Word + " "
	return th.Left(look.Paint(word)+" "+th.Strong.Paint(th.Cut(theme.Safe(b.Text), w-theme.Width(word)-1)), w)
}

// MaxBanners is the largest number of lines that banners take.
const MaxBanners = 3

// WrapBanners returns the banners with their texts wrapped at w cells, as separate lines without
// a word, as long as that leaves a line for each banner. A text is wrapped at the last separator
// that fits, so that a number of other width in front does not move the rest. If there are more
// banners than lines, the last line has the words of all that are left, and the
// text of the last one.
func WrapBanners(all []Banner, e Env, w int) []Banner {
	if len(all) > MaxBanners {
		rest := all[MaxBanners-1:]
		last := rest[len(rest)-1]
		words := make([]string, len(rest))
		for i, b := range rest {
			words[i] = b.Word
			last.Alarm = last.Alarm || b.Alarm
		}
		last.Word = strings.Join(words, " "+e.Theme.G.Dot+" ")
		all = append(all[:MaxBanners-1:MaxBanners-1], last)
	}
	free := MaxBanners - len(all)
	var out []Banner
	for _, b := range all {
		room := max(w-theme.Width(b.Word)-3, 8)
		text := theme.Safe(b.Text)
		if free <= 0 || theme.Width(text) <= room {
			out = append(out, b)
			continue
		}
		lines := wrap(text, room)
		if sep := " " + e.Theme.G.Dot + " "; strings.Contains(text, sep) {
			lines = nil
			for _, part := range strings.Split(text, sep) {
				if n := len(lines); n > 0 && theme.Width(lines[n-1]+sep+part) <= room {
					lines[n-1] += sep + part
					continue
				}
				lines = append(lines, wrap(part, room)...)
			}
		}
		if len(lines) > 1+free {
			lines[free] = strings.Join(lines[free:], " ")
			lines = lines[:1+free]
		}
		free -= len(lines) - 1
		for i, line := range lines {
			out = append(out, Banner{Word: queue.Choose(i == 0, b.Word, strings.Repeat(" ", theme.Width(b.Word))), Text: line, Alarm: b.Alarm})
		}
	}
	return out
}

// Status is the status line below the body.
type Status struct {
	Left       string
	Right      []string // the text on the right in several lengths, longest first; the longest that fits is drawn
	Bad        bool     // the text on the left is a refusal or an error
	Message    bool     // the text on the left is not cut: where it is longer than the line, it goes on over the body
	Production bool
}

// bar returns the style of the status line.
func (s Status) bar(th theme.Theme) theme.Style { return queue.Choose(s.Production, th.Alarm, th.Bar) }

// Lines draws the status line, in several lines if a message needs them; the upper ones cover the end
// of the body, of which there are most lines. Each line has exactly w cells.
func (s Status) Lines(e Env, w, most int) []string {
	th := e.Theme
	lead, style := " ", s.bar(th)
	if s.Bad {
		lead, style = " "+th.G.Warning+" ", th.Caution
	}
	margin, text := theme.Width(lead), theme.Safe(s.Left)
	if !s.Message || margin+theme.Width(text) <= w {
		return []string{s.Line(e, w)}
	}
	parts := wrap(text, w-margin)
	if len(parts) > 1+most {
		parts = append(parts[:most], strings.Join(parts[most:], " "))
	}
	for i, part := range parts {
		parts[i] = style.Paint(th.Left(queue.Choose(i == 0, lead, strings.Repeat(" ", margin))+part, w))
	}
	return parts
}

// Line draws the status line in exactly w cells.
func (s Status) Line(e Env, w int) string {
	th := e.Theme
	bar := s.bar(th)
	left, right := theme.Safe(s.Left), ""
	for _, form := range s.Right {
		right = " " + theme.Safe(form) + " "
		if theme.Width(left)+3+theme.Width(right) <= w {
			break
		}
	}
	whole := theme.Width(left) + queue.Choose(s.Bad, 3, 1) // with its margin and sign
	switch {
	case theme.Width(right) > w/2, whole+theme.Width(right) > w && (s.Bad || whole <= w):
		right = "" // nothing beside a text that needs the whole line
	}
	room := w - theme.Width(right)
	if s.Bad {
		return th.Caution.Paint(th.Left(" "+th.G.Warning+" "+left, room)) + bar.Paint(right)
	}
	return bar.Paint(th.Left(" "+left, room) + right)
}

// Hint is one key in the last line of the screen, with a word that says what
// it does.
type Hint struct {
	Key, Word string
	Off       bool // the action is not available: drawn dim and in brackets, and pressing the key shows the reason
	Acts      bool // the key changes something: drawn first, apart from the keys that only show something
	Keep      bool // the key is never left out; if there is no room, its word is
}

// draw returns the painted hint and its width in cells.
func (h Hint) draw(th theme.Theme, words bool) (string, int) {
	word := theme.Safe(h.Word)
	plain, painted := h.Key+" "+word, th.Accent.Paint(h.Key)+" "+th.Text.Paint(word)
	switch {
	case h.Key == "":
		plain, painted = word, th.Text.Paint(word)
	case !words:
		plain, painted = h.Key, th.Accent.Paint(h.Key)
	}
	if h.Off {
		plain = "(" + plain + ")"
		painted = th.Dim.Paint(plain)
	}
	return painted, theme.Width(plain)
}

// Footer draws the hints in exactly w cells: keys that act, a line, keys that only show something,
// and last the hints with Keep. If there is no room, it leaves out, in this order: the keys that
// only show something, from the end; the words of the hints with Keep; the keys that act, from the
// end.
func Footer(hints []Hint, e Env, w int) string {
	th := e.Theme
	var acting, looking, kept []Hint
	for _, h := range hints {
		switch {
		case h.Keep:
			kept = append(kept, h)
		case h.Acts:
			acting = append(acting, h)
		default:
			looking = append(looking, h)
		}
	}
	words := true
	width := func(hints []Hint) (n int) {
		for _, h := range hints {
			_, k := h.draw(th, words || !h.Keep)
			n += k + 2
		}
		return n
	}
	rule := 0
	if len(acting) > 0 {
		rule = theme.Width(th.G.V) + 2
	}
	words = width(kept) <= w/2 && width(acting)+rule+width(kept) <= w+1 // each hint is one blank wider than its text, two between hints; the last needs none
	room := w + 1 - width(kept)
	for len(looking) > 0 && width(acting)+rule+width(looking) > room {
		looking = looking[:len(looking)-1]
	}
	for len(acting) > 0 && width(acting)+rule > room {
		acting = acting[:len(acting)-1]
	}
	out, used := " ", 1
	put := func(painted string, n int) {
		if used > 1 {
			out, used = out+"  ", used+2
		}
		out, used = out+painted, used+n
	}
	for _, h := range acting {
		put(h.draw(th, true))
	}
	if len(acting) > 0 && len(looking)+len(kept) > 0 {
		put(th.Edge.Paint(th.G.V), theme.Width(th.G.V))
	}
	for _, h := range looking {
		put(h.draw(th, true))
	}
	for _, h := range kept {
		put(h.draw(th, words))
	}
	return th.Left(out, w)
}

// Problem is an error in the input line, drawn below the cell it refers to.
type Problem struct {
	Cell int // -1: the whole line
	Text string
}

// Line draws the error in exactly w cells, with the text on the side of the cell that has room for
// it.
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
