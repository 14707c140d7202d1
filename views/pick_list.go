package views

// Draws lists that open over a pane: the menu of panes, the sort orders of a table, the help.

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Entry is one line of a PickList. An Entry without a Key is a heading.
type Entry struct {
	Key, Word, Text string
	Off             string // why the entry cannot be chosen now; "": it can
}

// PickList is a list with a cursor (-1 = no cursor) and the text that the operator typed to narrow
// the list.
type PickList struct {
	Title   string
	Entries []Entry
	Cursor  int
	Offset  int
	Filter  string
	Typing  bool
	Hint    string
	Wide    bool
	KeyCol  int // width of the column of keys, in cells
	WordCol int
}

// Room returns how many entries a screen of size s shows.
func (p PickList) Room(s Size) int { return max(s.H-6, 1) }

// First returns the scroll offset: Offset, or the nearest one at which a screen of size s shows the
// cursor.
func (p PickList) First(s Size) int {
	if p.Cursor < 0 {
		return p.Offset
	}
	return min(max(p.Offset, p.Cursor-p.Room(s)+1), p.Cursor)
}

// Lines draws the list for a screen of size s.
func (p PickList) Lines(e Env, s Size) []string {
	th := e.Theme
	inner := p.inner(s)
	w := inner + 4
	all := p.text(e, inner)
	offset := min(max(p.First(s), 0), max(len(all)-p.Room(s), 0))
	end := min(offset+p.Room(s), len(all))
	lines := append([]string{}, all[offset:end]...)
	if len(p.Entries) == 0 {
		lines = append(lines, th.Dim.Paint("nothing matches"))
	}
	foot := p.Hint
	if p.Typing || p.Filter != "" {
		foot = "filter: " + p.Filter
		if p.Typing {
			foot += th.G.Caret
		}
	} else if end < len(all) || offset > 0 {
		foot = Count(int64(end)) + " of " + Count(int64(len(all))) + " lines " + th.G.Dot + " " + p.Hint
	}
	lines = append(lines, "", th.Dim.Paint(th.Cut(theme.Safe(foot), inner)))
	if len(lines) > s.H-3 { // the header stays visible above the list
		lines = lines[:max(s.H-3, 0)]
	}
	return box(e, p.Title, lines, w, th.Accent)
}

// Last returns the greatest scroll offset that still fills a screen of size s.
func (p PickList) Last(e Env, s Size) int {
	return max(len(p.text(e, p.inner(s)))-p.Room(s), 0)
}

func (p PickList) inner(s Size) int {
	return boxWidth(s, queue.Choose(p.Wide, 110, 72)) - 4
}

// text returns all lines. If the list has a cursor, each entry is one line; otherwise long entries
// are wrapped.
func (p PickList) text(e Env, w int) []string {
	var out []string
	for i, x := range p.Entries {
		if p.Cursor >= 0 || x.Text == "" {
			out = append(out, p.entry(e, w, i))
			continue
		}
		front := 1 + max(p.KeyCol, 4) + p.WordCol
		for n, part := range wrap(theme.Safe(x.Text), w-front) {
			if n == 0 {
				q := p
				q.Entries = []Entry{{Key: x.Key, Word: x.Word, Text: part, Off: x.Off}}
				out = append(out, q.entry(e, w, 0))
				continue
			}
			out = append(out, theme.Blank(front)+e.Theme.Dim.Paint(part))
		}
	}
	return out
}

func (p PickList) entry(e Env, w, i int) string {
	th, x := e.Theme, p.Entries[i]
	if x.Key == "" && x.Text == "" {
		return th.Title.Paint(th.Cut(theme.Safe(x.Word), w))
	}
	paint := theme.Style.Paint
	front := " "
	if i == p.Cursor {
		paint, front = theme.Style.PaintOn, th.G.Cursor
	}
	key, word, text := th.Accent, th.Strong, th.Dim
	words := theme.Safe(x.Text)
	if x.Off != "" {
		key, word = th.Dim, th.Dim
		words = "(off: " + theme.Safe(x.Off) + ")"
	}
	kc, wc := max(p.KeyCol, 4), p.WordCol
	rest := max(w-1-kc-wc, 0)
	return th.Cut(paint(th.Accent, front)+paint(key, th.Left(theme.Safe(x.Key), kc))+paint(word, th.Left(theme.Safe(x.Word), wc))+paint(text, th.Left(words, rest)), w)
}
