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
	Cursor   int // -1 = no cursor
	Offset   int
	Marks    bool // a column shows which rows are selected
	Marked   func(i int) bool
	Sorted   int  // index of the column that the rows are sorted by; -1 = none
	Desc     bool // sorted in descending order
	Stale    bool // the rows are old: each has the sign for that
	Headless bool // the table has no heading
}

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
	ws := Widths(t.Columns, width-t.Gutter()-1)
	out := make([]string, 0, height)
	if !t.Headless {
		out = append(out, t.head(th, ws, width))
	}
	for i := t.Offset; i < t.N && len(out) < height; i++ {
		out = append(out, t.line(th, ws, width, i))
	}
	return out
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
			arrow := th.G.Up
			if t.Desc {
				arrow = th.G.Down
			}
			title += arrow
		}
		b.WriteString(align(th, title, ws[i], c.Right))
	}
	return th.Title.Paint(th.Left(b.String(), width))
}

func (t Table) line(th theme.Theme, ws []int, width, i int) string {
	row := t.Row(i)
	on := i == t.Cursor
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
		put(align(th, theme.Safe(row.Cells[c].Text), ws[c], col.Right), row.Cells[c].Style, ws[c])
	}
	if used < width {
		put(theme.Blank(width-used), th.Text, width-used)
	}
	if used > width { // only if the cells before the first column need more than the width
		return th.Cut(b.String(), width)
	}
	return b.String()
}

func align(th theme.Theme, s string, w int, right bool) string {
	if right {
		return th.Right(s, w)
	}
	return th.Left(s, w)
}
