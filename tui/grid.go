package tui

// This file is a table under an operator's hands: cursor, marks, order, filter.
// Cursor and marks hold ids, so that a refresh that adds or removes rows never
// moves them to another row. When the row under the cursor vanishes the place is
// kept and the grid is disarmed until the cursor moves.

import (
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

type grid struct {
	src    views.Source
	order  []int
	at     string // id under the cursor
	cursor int
	offset int
	low    int  // the offset of the second table
	gone   bool // the row that was under the cursor is no more
	sort   int
	text   string // the filter as it was typed
	filter *queue.Filter
	marks  map[string]bool // nil: this table has none
	anchor int             // where a range began, -1: none
	before map[string]bool // the marks when it began
	all    bool            // all that match, not only what is loaded
}

func newGrid(marks bool) grid {
	g := grid{anchor: -1}
	if marks {
		g.marks = map[string]bool{}
	}
	return g
}

// refresh takes new rows in. It returns how many marked rows have vanished.
func (g *grid) refresh(src views.Source, now time.Time) (lost int) {
	g.src = src
	var keep func(int) bool
	if g.filter != nil {
		keep = func(i int) bool {
			return g.filter.Match(func(f string) (any, bool) { return src.Field(i, f) }, now)
		}
	}
	g.order = views.Arrange(src, g.sort, keep)
	g.follow()
	return g.prune()
}

// follow finds the row again that the cursor was on.
func (g *grid) follow() {
	if len(g.order) == 0 {
		g.gone = g.at != ""
		g.cursor, g.offset = 0, 0
		return
	}
	if g.at == "" && !g.gone {
		g.cursor = min(g.cursor, len(g.order)-1)
		g.at = g.src.ID(g.order[g.cursor])
		return
	}
	// Mostly the row is where it was.
	if g.cursor < len(g.order) && g.src.ID(g.order[g.cursor]) == g.at {
		g.gone = false
		return
	}
	i := g.index(g.at)
	if g.gone = i < 0; g.gone {
		i = min(g.cursor, len(g.order)-1)
	}
	g.cursor = i
}

// index is where the row of this id stands in the order, -1 where it does not.
func (g *grid) index(id string) int {
	return slices.IndexFunc(g.order, func(o int) bool { return g.src.ID(o) == id })
}

func (g *grid) prune() (lost int) {
	if len(g.marks) == 0 {
		return 0
	}
	here := make(map[string]bool, len(g.marks))
	for i := range g.src.Len {
		if id := g.src.ID(i); g.marks[id] {
			here[id] = true
		}
	}
	lost = len(g.marks) - len(here)
	g.marks = here
	return lost
}

// current is the index in the source of the row under the cursor.
func (g *grid) current() (i int, ok bool) {
	if g.gone || g.cursor < 0 || g.cursor >= len(g.order) {
		return 0, false
	}
	return g.order[g.cursor], true
}

// move puts the cursor by d rows, and the window so that it shows. rows is asked
// after the cursor has moved: it is of the table that the cursor is in.
func (g *grid) move(d int, rows func() int) { g.place(g.cursor+d, rows) }

func (g *grid) place(to int, rows func() int) {
	if len(g.order) == 0 {
		return
	}
	g.cursor = min(max(to, 0), len(g.order)-1)
	g.at, g.gone = g.src.ID(g.order[g.cursor]), false
	g.scroll(rows())
	g.stretch()
}

// jump puts the cursor on an id.
func (g *grid) jump(id string, rows func() int) bool {
	i := g.index(id)
	if i >= 0 {
		g.place(i, rows)
	}
	return i >= 0
}

// scroll keeps the cursor in the window of its table.
func (g *grid) scroll(rows int) {
	k := g.view().Upper()
	if g.cursor >= k && k < len(g.order) {
		g.low = scrolled(g.low, g.cursor-k, len(g.order)-k, rows)
		return
	}
	g.offset = scrolled(g.offset, g.cursor, k, rows)
}

// scrolled is the offset of a window of so many rows of n, that the row at is in.
func scrolled(offset, at, n, rows int) int {
	rows = max(rows, 1)
	offset = min(offset, at)
	offset = max(offset, at-rows+1)
	return min(max(offset, 0), max(n-rows, 0))
}

// next goes to the next row that the text of the filter is in, around the end.
func (g *grid) next(has func(i int) bool, rows func() int) bool {
	for d := 1; d <= len(g.order); d++ {
		to := (g.cursor + d) % len(g.order)
		if has(g.order[to]) {
			g.place(to, rows)
			return true
		}
	}
	return false
}

func (g grid) view() views.Grid {
	v := views.Grid{
		Source: g.src, Order: g.order, Cursor: g.cursor, Offset: g.offset, Low: g.low,
		Marks: g.marks, Sort: g.sort, Filter: g.text,
	}
	if g.gone {
		v.Cursor = -1
	}
	return v
}

func cells(s string) int { return ansi.StringWidth(s) }
