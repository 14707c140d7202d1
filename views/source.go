package views

// Source is what a pane with a table consists of: it names the columns, says what a row shows, how
// the row is found again after a refresh, and by what it can be filtered and sorted.

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Source is the table of a pane for one snapshot. Columns, Len, ID, Row, Field and
// Export come from its lists.
type Source struct {
	lists   []lines
	Columns []table.Column
	Len     int
	ID      func(i int) string // what cursor and marks follow across refreshes
	Title   func(i int) string // the row in a few words, for the dialogs of actions
	Row     func(i int, e Env) table.Row
	Fields  []queue.Field // the words of its filter
	Field   func(i int, name string) (any, bool)
	// Shown is what the screen shows in the column of a filter word, in the whole row for "".
	Shown  func(i int, word string, e Env) string
	Stored bool     // its filter is also one of the database, which does not know what screens show: Shown is ""
	Sorts  []Sort   // the first is the default order
	Empty  []string // shown when there is no row: a calm text, and what to do next
	Note   string   // what is missing in the snapshot for this table, and why
	Second Second
	// Export returns what qtop export writes for row i: the name of its list and its rows
	// there. nil: the rows belong to no exported list.
	Export func(i int) (list string, rows []any)
}

// Second is a table of another kind of rows under the first: what the rows from
// index From on are. Sorts order the first alone.
type Second struct {
	Columns    []table.Column // nil: there is none
	From       int
	Selectable bool // its rows, and no others, can be marked
}

// Lower tells rows of the second table.
func (s Source) Lower(i int) bool { return s.Second.Columns != nil && i >= s.Second.From }

// Sort is one order of a Source.
type Sort struct {
	Name   string
	Column string // whose title carries the arrow
	Desc   bool
	Less   func(i, j int) bool // nil: as it comes
}

// Grid is a Source as the operator has it before him: filtered, sorted, with a
// cursor. Order holds indices into the Source.
type Grid struct {
	Source   Source
	Order    []int
	Cursor   int // index into Order, -1 none
	Offset   int
	Low      int             // the offset of the second table
	Selected map[string]bool // nil: the pane has no marks
	Sort     int
	Filter   string // the filter that stands, to explain an empty table
}

// Lines draws the grid.
func (g Grid) Lines(e Env, s Size) []string {
	note := noteLines(e, g.Source.Note, s.W)
	if len(note) > s.H {
		note = note[:max(s.H, 0)]
	}
	height := s.H - len(note)
	k := g.Upper()
	upper, lower := g.split(height)
	out := note
	if k == 0 {
		out = append(out, g.empty(e, Size{s.W, upper})...)
	} else {
		t := g.table(e, g.Source.Columns, 0, k, window(g.Offset, k, upper-1))
		t.Marks = g.Selected != nil && g.Source.Second.Columns == nil
		if g.Sort >= 0 && g.Sort < len(g.Source.Sorts) {
			t.Sorted, t.Desc = g.Source.column(g.Source.Sorts[g.Sort].Column), g.Source.Sorts[g.Sort].Desc
		}
		out = append(out, t.Lines(e.Theme, s.W, upper)...)
	}
	if lower < 2 {
		return out
	}
	for len(out) < len(note)+upper+1 {
		out = append(out, "")
	}
	t := g.table(e, g.Source.Second.Columns, k, len(g.Order), window(g.Low, len(g.Order)-k, lower-2))
	t.Marks = g.Selected != nil && g.Source.Second.Selectable
	return append(out, t.Lines(e.Theme, s.W, lower-1)...)
}

// table is the rows from index from of Order up to to.
func (g Grid) table(e Env, columns []table.Column, from, to, offset int) table.Table {
	return table.Table{
		Columns: columns, N: to - from, Cursor: g.Cursor - from, Offset: offset,
		Row:    func(i int) table.Row { return g.Source.Row(g.Order[from+i], e) },
		Sorted: -1, Stale: e.Stale,
		Marked: func(i int) bool { return g.Selected[g.Source.ID(g.Order[from+i])] },
	}
}

// Upper returns how many rows of Order belong to the first table.
func (g Grid) Upper() int {
	n := len(g.Order)
	for n > 0 && g.Source.Lower(g.Order[n-1]) {
		n--
	}
	return n
}

// Need is the lines on which all rows show.
func (g Grid) Need() int {
	n := len(g.Order) + 1
	if g.Upper() < len(g.Order) {
		n += 2
	}
	if g.Source.Note != "" {
		n++
	}
	return n
}

// split divides h lines: the second table, with a blank line and its head, has
// what it needs, or a good third where both are long.
func (g Grid) split(h int) (upper, lower int) {
	k := g.Upper()
	low := len(g.Order) - k
	if low == 0 {
		return h, 0
	}
	first := k + 1
	if k == 0 {
		first = min(4, h/2)
	}
	lower = min(low+2, max(h*2/5, h-first))
	return min(h-lower, first), lower
}

// window keeps a table full: n rows, of which rows show.
func window(offset, n, rows int) int { return min(max(offset, 0), max(n-max(rows, 0), 0)) }

// Rows is how many rows show, in a body of size s, of the table that the cursor
// is in.
func (g Grid) Rows(e Env, s Size) int {
	upper, lower := g.split(s.H - len(noteLines(e, g.Source.Note, s.W)))
	if k := g.Upper(); g.Cursor >= k && k < len(g.Order) {
		return max(lower-2, 0)
	}
	return max(upper-1, 0)
}

// RowAt is the index into Order of the row on line y of a body of size s.
func (g Grid) RowAt(e Env, s Size, y int) (int, bool) {
	note := len(noteLines(e, g.Source.Note, s.W))
	k := g.Upper()
	upper, lower := g.split(s.H - note)
	first := y - note - 1
	second := first - upper - 1
	switch {
	case first >= 0 && first < upper-1:
		i := window(g.Offset, k, upper-1) + first
		return i, i < k
	case second >= 0 && second < lower-2:
		i := k + window(g.Low, len(g.Order)-k, lower-2) + second
		return i, i < len(g.Order)
	}
	return 0, false
}

func (g Grid) empty(e Env, s Size) []string {
	words := g.Source.Empty
	if g.Source.Len > 0 && g.Filter != "" {
		words = []string{
			"No row matches " + theme.Safe(g.Filter) + " among " + Plural(int64(g.Source.Len), "row", "rows") + ".",
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
		style := e.Theme.Dim
		if i == 0 {
			style = e.Theme.Text
		}
		for _, line := range wrap(w, s.W-4) {
			out = append(out, e.Theme.Cut("   "+style.Paint(line), s.W))
		}
	}
	return out[:min(len(out), max(s.H, 0))]
}

func noteLines(e Env, note string, w int) []string {
	if note == "" {
		return nil
	}
	th := e.Theme
	return []string{th.Cut(" "+th.Warning.Paint(th.Cut(th.G.Warning+" not in this snapshot: "+theme.Safe(note), w-2)), w)}
}

// missing returns the note about a section that could not be read for the snapshot.
func missing(s *queue.Snapshot, sections ...string) string {
	if s == nil {
		return ""
	}
	if why, ok := s.Missing["all"]; ok { // only the server's own data was read
		return why.String()
	}
	for _, name := range sections {
		if why, ok := s.Missing[name]; ok {
			return name + ": " + why.String()
		}
	}
	return ""
}

func cell(text string, style theme.Style) table.Cell { return table.Cell{Text: text, Style: style} }

// Names reports whether the name of a queue ends in subject.
func Names(queueName string, subject any) bool {
	s, ok := subject.(string)
	return ok && s != "" && (queueName == s || strings.HasSuffix(queueName, " "+s))
}
