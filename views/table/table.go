package table

// Draws the heading and the rows of a table.

import (
	"strings"

	"github.com/qtop/qtop/views/theme"
)

// Cell is one value with its style. Its text is made safe when it is drawn.
type Cell struct {
	Text  string
	Style theme.Style
	// Tail is the end of Text that stays if Text is cut, such as the id that distinguishes two
	// endpoints of one host.
	Tail string
	// Lead is put before Text while the column LeadFor is left out.
	Lead string
}

// Row is one line of the table.
type Row struct {
	Sign  Cell // one glyph before the first column: the state
	Cells []Cell
}

// Table describes a table to draw. It does not hold the rows, but calls Row for those that are
// visible.
type Table struct {
	Columns  []Column
	N        int
	Row      func(i int) Row
	Cursor   int  // -1 = no cursor
	Gone     bool // the row of the cursor no longer exists: its place is marked, and no row is the one that keys act on
	Offset   int
	Marks    bool // a column shows which rows are selected
	Marked   func(i int) bool
	Sorted   int  // index of the column that the rows are sorted by; -1 = none
	Desc     bool // sorted in descending order
	Stale    bool // the rows are old: each has the sign for that
	Headless bool // the table has no heading
	Fit      bool // columns lend cells to a column whose texts are cut; only in a table of at most fitRows rows
}

// fitRows is the number of rows up to which Fit looks at the texts of all rows: those that are
// visible now would give other widths after a scroll.
const fitRows = 200

// Gutter returns the number of cells before the first column.
func (t Table) Gutter() int {
	if t.Marks {
		return 5
	}
	return 3
}

// Lines draws the table into width × height cells; each line is exactly width wide. The heading
// takes one of the lines.
func (t Table) Lines(th theme.Theme, width, height int) []string {
	if width <= 0 || height <= 0 {
		return nil
	}
	ws := t.widths(width - t.Gutter() - 1)
	out := make([]string, 0, height)
	if !t.Headless {
		out = append(out, t.head(th, ws, width))
	}
	for i := t.Offset; i < t.N && len(out) < height; i++ {
		out = append(out, t.line(th, ws, width, i))
	}
	return out
}

func (t Table) widths(avail int) []int {
	ws := Widths(t.Columns, avail)
	if !t.Fit || t.N > fitRows {
		return ws
	}
	widest, cut := make([]int, len(ws)), false
	for i := range t.N {
		for c, x := range t.Row(i).Cells {
			if c < len(ws) && ws[c] > 0 {
				widest[c] = max(widest[c], theme.Width(theme.Safe(t.led(x, c, ws).Text)))
				cut = cut || widest[c] > ws[c]
			}
		}
	}
	if cut {
		fit(t.Columns, ws, widest, avail)
	}
	return ws
}

func (t Table) head(th theme.Theme, ws []int, width int) string {
	var b strings.Builder
	b.WriteString(theme.Blank(t.Gutter()))
	first := true
	for i, c := range t.Columns {
		if ws[i] == 0 {
			continue
		}
		if !first {
			b.WriteString(theme.Blank(Gap))
		}
		first = false
		title := c.Title
		if i == t.Sorted {
			title = t.sorted(th, title, ws[i])
		}
		b.WriteString(align(th, title, ws[i], c.Right))
	}
	return th.Title.Paint(th.Left(b.String(), width))
}

// sorted returns the title of the column that the rows are sorted by, in at most w cells. The mark
// stays when the title is cut. In ASCII, where an arrow is drawn as v or ^, it is a word if there is room.
func (t Table) sorted(th theme.Theme, title string, w int) string {
	mark, word := th.G.Up, " (asc)"
	if t.Desc {
		mark, word = th.G.Down, " (desc)"
	}
	if th.ASCII {
		mark = " " + mark
		if theme.Width(title)+theme.Width(word) <= w {
			mark = word
		}
	}
	return th.Cut(title, max(w-theme.Width(mark), 0)) + mark
}

func (t Table) line(th theme.Theme, ws []int, width, i int) string {
	row := t.Row(i)
	on := i == t.Cursor && !t.Gone
	paint := theme.Style.Paint
	if on {
		paint = theme.Style.PaintOn
	}
	var b strings.Builder
	used := 0
	put := func(s string, st theme.Style, w int) {
		b.WriteString(paint(st, s))
		used += w
	}
	switch {
	case on:
		put(th.G.Cursor, th.Accent, 1)
	case i == t.Cursor:
		put(th.G.Cursor, th.Dim, 1)
	case t.Stale:
		put(th.G.Stale, th.Dim, 1)
	default:
		put(" ", th.Text, 1)
	}
	if t.Marks {
		mark := " "
		if t.Marked != nil && t.Marked(i) {
			mark = th.G.Mark
		}
		put(mark, th.Accent, 1)
		put(" ", th.Text, 1)
	}
	put(th.Left(row.Sign.Text, 1), row.Sign.Style, 1)
	put(" ", th.Text, 1)
	first := true
	for c, col := range t.Columns {
		if ws[c] == 0 || c >= len(row.Cells) {
			continue
		}
		if !first {
			put(theme.Blank(Gap), th.Text, Gap)
		}
		first = false
		text := t.led(row.Cells[c], c, ws).within(th, ws[c])
		if col.Right {
			text = shortened(text, ws[c])
		}
		put(align(th, text, ws[c], col.Right), row.Cells[c].Style, ws[c])
	}
	if used < width {
		put(theme.Blank(width-used), th.Text, width-used)
	}
	if used > width { // only if the cells before the first column need more than the width
		return th.Cut(b.String(), width)
	}
	return b.String()
}

// led returns the cell x of column c with its lead before the text, if the lead is due.
func (t Table) led(x Cell, c int, ws []int) Cell {
	if x.Lead != "" && ws[t.Columns[c].LeadFor] == 0 {
		x.Text = x.Lead + x.Text
	}
	return x
}

// within returns the text of a cell for w cells: if it is cut, its tail stays where at least half of
// the cells are left for the beginning.
func (c Cell) within(th theme.Theme, w int) string {
	text := theme.Safe(c.Text)
	tail := theme.Safe(c.Tail)
	n := theme.Width(tail)
	if n == 0 || theme.Width(text) <= w || n > w/2 || !strings.HasSuffix(text, tail) {
		return text
	}
	return th.Cut(strings.TrimSuffix(text, tail), w-n) + tail
}

func align(th theme.Theme, s string, w int, right bool) string {
	if right {
		return th.Right(s, w)
	}
	return th.Left(s, w)
}
