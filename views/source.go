package views

// Source is the table of a pane: its columns, the texts of its rows, the id by which a row is found
// again after a refresh, and the fields by which rows are filtered and sorted.

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Source is the table of a pane for one snapshot. The method with fills in
// Columns, Len, ID, Row, Field and Export from Lists.
type Source struct {
	lists   []lines
	Columns []table.Column
	Len     int
	ID      func(i int) string // identifies a row across refreshes, for the cursor and marks
	Title   func(i int) string // names a row in a few words, for the dialogs of actions
	Row     func(i int, e Env) table.Row
	Fields  []queue.Field // the fields of the pane's filter
	Field   func(i int, name string) (any, bool)
	// Shown returns the text that the screen shows for row i in the column of
	// the filter field word; if word is "", the text of the whole row.
	Shown  func(i int, word string, e Env) string
	Stored bool     // the database applies the filter; it does not know the texts of the screen, so a filter on them would find other rows
	Sorts  []Sort   // the first is the default order
	Empty  []string // shown if there are no rows: first what that means, then what to do next
	Unread bool     // Empty says why no row could be read, whatever the filter is
	Note   string   // what the snapshot lacks for this table, and why
	Second Second
	// Export returns the name of the export list of row i, and its records there; nil = the rows
	// belong to no export list.
	Export func(i int) (list string, rows []any)
}

// Second is a second table below the first, with another kind of rows: those
// with index From or higher. Orders (Sorts) apply to the first table only.
type Second struct {
	Columns    []table.Column // nil = there is no second table
	From       int
	Selectable bool // rows of the second table can be selected, those of the first cannot
	AtLeast    int  // how many rows the second table would have at least, if not all were read; 0 = all were
}

// Heading returns the heading of the second table.
func (s Second) Heading() string {
	for _, c := range s.Columns {
		if c.Title != "" {
			return c.Title
		}
	}
	return ""
}

// Lower reports whether row i belongs to the second table.
func (s Source) Lower(i int) bool { return s.Second.Columns != nil && i >= s.Second.From }

// Sort is one order of a Source.
type Sort struct {
	Name   string
	Column string // the column whose title gets the arrow
	Desc   bool
	Less   func(i, j int) bool // nil = the original order
}

// Grid is a Source as the operator sees it: filtered, sorted, with a cursor.
// Order has the indices (into the Source) of the visible rows.
type Grid struct {
	Source   Source
	Order    []int
	Cursor   int  // index into Order; -1 = no cursor
	Gone     bool // the row of the cursor no longer exists
	Offset   int
	Low      int             // the scroll offset of the second table
	Selected map[string]bool // ids of the selected rows; nil: rows of this pane cannot be selected
	Sort     int
	Filter   string // the current filter, named in the text of an empty table
}

// Lines draws the grid into a body of size s.
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

// table returns the table with the rows Order[from:to].
func (g Grid) table(e Env, columns []table.Column, from, to, offset int) table.Table {
	return table.Table{
		Columns: columns, N: to - from, Cursor: g.Cursor - from, Gone: g.Gone, Offset: offset,
		Row:    func(i int) table.Row { return g.Source.Row(g.Order[from+i], e) },
		Sorted: -1, Stale: e.Stale, Fit: true,
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

// Need returns the number of lines in which all rows are visible.
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

// split divides h lines between the two tables. If both are long, the second
// (with a blank line and its heading) gets two fifths.
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

// window returns the scroll offset, nearest to the given one, at which a table
// of n rows fills its window of so many rows.
func window(offset, n, rows int) int { return min(max(offset, 0), max(n-max(rows, 0), 0)) }

// Rows returns how many rows of the table with the cursor are visible in a body of size s.
func (g Grid) Rows(e Env, s Size) int {
	upper, lower := g.split(s.H - len(noteLines(e, g.Source.Note, s.W)))
	if k := g.Upper(); g.Cursor >= k && k < len(g.Order) {
		return max(lower-2, 0)
	}
	return max(upper-1, 0)
}

// RowAt returns the index into Order of the row on line y of a body of size s; false if no row is
// there.
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
	if g.Filter != "" && !g.Source.Unread {
		n, among := g.Source.Len, ""
		if g.Source.Second.Columns != nil {
			n = min(n, g.Source.Second.From)
		}
		if n > 0 {
			among = " among " + Plural(int64(n), "row", "rows")
		}
		words = []string{"No row matches " + theme.Safe(g.Filter) + among + ".", "esc clears the filter."}
	}
	return Calm(e, words, s)
}

// Calm draws texts in the middle of an empty pane: first what the emptiness
// means, then, dim, what to do.
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
	const most = 5 // at 60 columns the remedy of a missing right is whole
	th := e.Theme
	lead := th.G.Warning + " "
	lines := wrap("not in this snapshot: "+theme.Safe(note), w-2-theme.Width(lead))
	if len(lines) > most {
		lines = append(lines[:most-1], strings.Join(lines[most-1:], " "))
	}
	for i, line := range lines {
		lines[i] = th.Cut(" "+th.Warning.Paint(th.Cut(lead+line, w-2)), w)
		lead = strings.Repeat(" ", theme.Width(lead))
	}
	return lines
}

// warningLine returns a line of w cells that says what is wrong with the lines below it.
func warningLine(e Env, text string, w int) string {
	th := e.Theme
	return th.Cut(" "+th.Warning.Paint(th.Cut(th.G.Warning+" "+theme.Safe(text), w-2)), w)
}

// missing returns the note about a section that could not be read for the snapshot.
func missing(s *queue.Snapshot, sections ...string) string {
	if s == nil {
		return ""
	}
	if why, ok := s.Missing["all"]; ok { // only the data about the server could be read
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

// Names reports whether the name of a queue (SOURCE:SUBJECT) ends in this
// subject.
func Names(queueName string, subject any) bool {
	s, ok := subject.(string)
	return ok && s != "" && (queueName == s || strings.HasSuffix(queueName, " "+s))
}
