package views

// This file says what a pane with a table is: a value. A pane is not code that
// draws; it names its columns, says what a row shows, how it is found again
// after a refresh, and what it can be filtered and sorted by.

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Source is the table of a pane over one picture.
type Source struct {
	Columns []table.Column
	Len     int
	ID      func(i int) string // what cursor and marks follow across refreshes
	Row     func(i int, e Env) table.Row
	Fields  []queue.Field // the words of its filter
	Field   func(i int, name string) (any, bool)
	Sorts   []Sort   // the first is how it comes
	Empty   []string // what is said when there is no row: calm, and what to do next
	Note    string   // what the picture lacks here, and why
}

// Sort is one order of a Source.
type Sort struct {
	Name   string
	Column int // whose title carries the arrow
	Desc   bool
	Less   func(i, j int) bool // nil: as it comes
}

// Grid is a Source as the operator has it before him: filtered, sorted, with a
// cursor. Order holds indices into the Source.
type Grid struct {
	Source Source
	Order  []int
	Cursor int // index into Order, -1 none
	Offset int
	Marks  map[string]bool // nil: the pane has no marks
	Sort   int
	Filter string // the filter that stands, to explain an empty table
}

// Lines draws the grid.
func (g Grid) Lines(e Env, s Size) []string {
	note := noteLines(e, g.Source.Note, s.W)
	if len(note) > s.H {
		note = note[:max(s.H, 0)]
	}
	height := s.H - len(note)
	if len(g.Order) == 0 {
		return append(note, g.empty(e, Size{s.W, height})...)
	}
	t := table.Table{
		Columns: g.Source.Columns, N: len(g.Order), Cursor: g.Cursor, Offset: g.Offset,
		Row:   func(i int) table.Row { return g.Source.Row(g.Order[i], e) },
		Marks: g.Marks != nil, Sorted: -1, Stale: e.Stale,
		Marked: func(i int) bool { return g.Marks[g.Source.ID(g.Order[i])] },
	}
	if g.Sort >= 0 && g.Sort < len(g.Source.Sorts) {
		t.Sorted, t.Desc = g.Source.Sorts[g.Sort].Column, g.Source.Sorts[g.Sort].Desc
	}
	return append(note, t.Lines(e.Theme, s.W, height)...)
}

// Rows is how many rows a grid shows in a body of height h.
func (g Grid) Rows(e Env, s Size) int {
	return max(s.H-1-len(noteLines(e, g.Source.Note, s.W)), 0)
}

func (g Grid) empty(e Env, s Size) []string {
	words := g.Source.Empty
	if g.Source.Len > 0 && g.Filter != "" {
		words = []string{
			"No row matches " + theme.Safe(g.Filter) + " among " + plural(int64(g.Source.Len), "row", "rows") + ".",
			"esc clears the filter.",
		}
	}
	return Calm(e, words, s)
}

// Calm says something in the middle of an empty body: first what is, then what
// to do, quietly.
func Calm(e Env, words []string, s Size) []string {
	out := make([]string, 0, max(s.H, 0))
	top := min(max((s.H-len(words))/3, 1), 6)
	for range min(top, s.H) {
		out = append(out, "")
	}
	for i, w := range words {
		if len(out) >= s.H {
			break
		}
		style := e.Theme.Dim
		if i == 0 {
			style = e.Theme.Text
		}
		out = append(out, e.Theme.Cut("   "+style.Paint(e.Theme.Cut(w, s.W-4)), s.W))
	}
	return out
}

func noteLines(e Env, note string, w int) []string {
	if note == "" {
		return nil
	}
	th := e.Theme
	return []string{th.Cut(" "+th.Warning.Paint(th.Cut(th.G.Warning+" this pane lacks "+theme.Safe(note), w-2)), w)}
}

// lacks is the note of a section that the picture could not contain.
func lacks(s *queue.Snapshot, sections ...string) string {
	if s == nil {
		return ""
	}
	for _, name := range sections {
		if why, ok := s.Missing[name]; ok {
			return name + ": " + why.String()
		}
	}
	return ""
}

func cell(text string, style theme.Style) table.Cell { return table.Cell{Text: text, Style: style} }

// Names tells whether the name of a queue ends in a subject.
func Names(queueName string, subject any) bool {
	s, ok := subject.(string)
	return ok && s != "" && (queueName == s || strings.HasSuffix(queueName, " "+s))
}
