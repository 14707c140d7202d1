package tui

import (
	"maps"
	"slices"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// grid is the state of a table: cursor, selection, order and filter. Cursor
// and selection hold the ids of rows, not positions: a refresh that adds or
// removes rows must not move them to another row. If the row under the cursor
// vanishes, the cursor is shown on the row that took its place, but no action
// works on that row until the operator moves the cursor.
type grid struct {
	src            views.Source
	order          []int  // indices into src of the rows that the filter keeps, sorted
	at             string // id under the cursor
	cursor         int    // index into order
	offset         int    // first visible row of the first table
	low            int    // first visible row of the second table
	gone           bool   // the row under the cursor no longer exists
	sort           int    // index into src.Sorts
	text           string // the filter as it was typed
	filter         *queue.Filter
	selected       map[string]bool // ids of the selected rows; nil: rows of this table cannot be selected
	anchor         string          // id of the row where a range began; "": no range is open
	selectedBefore map[string]bool // the selection when the range began
	all            bool            // the operator selected all matching rows of the database; every loaded one is in selected
}

func newGrid(marks bool) grid {
	if marks {
		return grid{selected: map[string]bool{}}
	}
	return grid{}
}

// refresh replaces the rows, then filters and sorts them again. The cursor
// stays on its row.
func (g *grid) refresh(src views.Source, e views.Env) {
	g.src = src
	var keep func(int) bool
	if g.filter != nil {
		keep = func(i int) bool {
			return g.filter.MatchShown(func(f string) (any, bool) { return src.Field(i, f) }, func(f string) string { return src.Shown(i, f, e) }, e.Now)
		}
	}
	g.order = views.Arrange(src, g.sort, keep)
	if g.all {
		g.markAll()
	}
	g.follow()
}

// follow moves the cursor to the current position of its row, or marks the row
// as gone.
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
	// The usual case: the row has not moved.
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

// index returns the position of the row with this id in the order, or -1.
func (g *grid) index(id string) int {
	return slices.IndexFunc(g.order, func(o int) bool { return g.src.ID(o) == id })
}

// prune drops from the selection the rows that vanished, and ends a range that
// began at one of them. It returns how many selected rows vanished.
func (g *grid) prune() (lost int) {
	if len(g.selected) == 0 && g.anchor == "" {
		return 0
	}
	here := make(map[string]bool, len(g.selected)+1)
	for i := range g.src.Len {
		if id := g.src.ID(i); g.selected[id] || id == g.anchor {
			here[id] = true
		}
	}
	gone := func(id string, _ bool) bool { return !here[id] }
	before := len(g.selected)
	maps.DeleteFunc(g.selected, gone)
	maps.DeleteFunc(g.selectedBefore, gone)
	if !here[g.anchor] {
		g.endRange()
	}
	return before - len(g.selected)
}

// current returns the index in src of the row under the cursor; ok is false if
// there is none, or if it vanished.
func (g *grid) current() (i int, ok bool) {
	if g.gone || g.cursor < 0 || g.cursor >= len(g.order) {
		return 0, false
	}
	return g.order[g.cursor], true
}

// move moves the cursor by d rows and scrolls so that it is visible. rows
// returns how many rows of the table with the cursor are visible. It is called
// after the move, because the cursor may have gone to the second table.
func (g *grid) move(d int, rows func() int) { g.place(g.cursor+d, rows) }

// place puts the cursor on position to of the order, or on the nearest one
// that exists.
func (g *grid) place(to int, rows func() int) {
	if len(g.order) == 0 {
		return
	}
	g.cursor = min(max(to, 0), len(g.order)-1)
	g.at, g.gone = g.src.ID(g.order[g.cursor]), false
	g.scroll(rows())
	g.extendRange()
}

// toFirst puts the cursor on the first row that the table has after its next refresh.
func (g *grid) toFirst() { g.at, g.gone, g.cursor = "", false, 0 }

// jump puts the cursor on the row with this id and reports whether there is one.
func (g *grid) jump(id string, rows func() int) bool {
	i := g.index(id)
	if i >= 0 {
		g.place(i, rows)
	}
	return i >= 0
}

// scroll scrolls the table with the cursor so that the cursor is visible.
func (g *grid) scroll(rows int) {
	k := g.view().Upper()
	if g.cursor >= k && k < len(g.order) {
		g.low = scrolled(g.low, g.cursor-k, len(g.order)-k, rows)
		return
	}
	g.offset = scrolled(g.offset, g.cursor, k, rows)
}

// scrolled returns the offset (first visible row), as near as possible to the
// given one, at which row at is visible. rows is the height of the window, n
// the number of rows of the table.
func scrolled(offset, at, n, rows int) int {
	rows = max(rows, 1)
	offset = min(offset, at)
	offset = max(offset, at-rows+1)
	return min(max(offset, 0), max(n-rows, 0))
}

// next moves the cursor to the next row for which has returns true. After the
// last row it goes on with the first. It reports whether there is such a row.
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
	return views.Grid{
		Source: g.src, Order: g.order, Cursor: g.cursor, Gone: g.gone, Offset: g.offset, Low: g.low,
		Selected: g.selected, Sort: g.sort, Filter: g.text,
	}
}

func cells(s string) int { return ansi.StringWidth(s) }
