// Package table draws tables with fixed column widths, and only their visible rows. bubbles/table
// measures every cell of every row for every frame (9 ms per frame at 40 rows). Here the widths
// depend on the columns, and only in a short table also on its texts, so that a key press costs
// about the same with forty rows as with a hundred thousand.
package table

// Determines which columns are shown, and their widths.

import "github.com/qtop/qtop/views/theme"

// Column describes one column. Widths are in cells.
type Column struct {
	Title string
	Width int  // the smallest width of the column
	Want  int  // the width that it gets before optional columns are shown; 0 = Width
	Max   int  // the largest width, if there is room; 0 = Width
	Right bool // aligned to the right, for numbers
	// Lively says that the texts change by themselves: the column lends no cells to others, which
	// would move with every refresh.
	Lively bool
	// Drop says which columns are left out on a narrow screen: the column with the highest number
	// first, a column with 0 never.
	Drop int
	// LeadFor is the index of the column in whose absence the cells of this one begin with their Lead.
	LeadFor int
}

// Gap is the number of cells between two columns.
const Gap = 2

// luxury is the value of Drop from which on a column is shown only if the other columns have their
// Want.
const luxury = 4

// Widths returns the width of each column within avail cells; 0 = it is not shown. If even the
// columns with Drop 0 do not fit, they share the available cells.
func Widths(cols []Column, avail int) []int {
	w := make([]int, len(cols))
	for i, c := range cols {
		w[i] = max(c.Width, c.Want)
	}
	drop(cols, w, avail, luxury)
	if need(w) > avail {
		for i, c := range cols {
			w[i] = min(w[i], c.Width)
		}
	}
	drop(cols, w, avail, 1)
	if need(w) > avail {
		squeeze(w, avail)
		return w
	}
	grow(cols, w, avail-need(w))
	return w
}

// drop leaves out columns until the others fit: the highest Drop first, and none with a Drop below
// least.
func drop(cols []Column, w []int, avail, least int) {
	for need(w) > avail {
		victim := -1
		for i, c := range cols {
			if w[i] > 0 && c.Drop >= least && (victim < 0 || c.Drop >= cols[victim].Drop) {
				victim = i
			}
		}
		if victim < 0 {
			return
		}
		w[victim] = 0
	}
}

// need returns the number of cells that columns and the gaps between them take.
func need(w []int) int {
	n, shown := 0, 0
	for _, x := range w {
		if x > 0 {
			n += x
			shown++
		}
	}
	return n + max(0, shown-1)*Gap
}

// squeeze narrows the widest column until all fit or each is one cell wide; then it leaves out the
// last columns.
func squeeze(w []int, avail int) {
	for need(w) > max(avail, 0) {
		widest, last := -1, -1
		for i, x := range w {
			if x > 0 {
				last = i
				if x > 1 && (widest < 0 || x > w[widest]) {
					widest = i
				}
			}
		}
		switch {
		case widest >= 0:
			w[widest]--
		case last >= 0:
			w[last] = 0
		default:
			return
		}
	}
}

// grow distributes free cells, one per column in turn, so that every column gets some.
func grow(cols []Column, w []int, free int) {
	for free > 0 {
		given := false
		for i, c := range cols {
			if free > 0 && w[i] > 0 && w[i] < c.Max {
				w[i]++
				free--
				given = true
			}
		}
		if !given {
			return
		}
	}
}

// fit adjusts the widths w of columns within avail cells to the widest text of each column: a
// column whose texts are cut gets the cells that no column has, then those that other columns lend,
// the last column first.
func fit(cols []Column, w, widest []int, avail int) {
	free := max(avail-need(w), 0)
	for i := range cols {
		if w[i] == 0 {
			continue
		}
		given := min(free, max(widest[i]-w[i], 0))
		w[i], free = w[i]+given, free-given
		for k := len(cols) - 1; k >= 0 && widest[i] > w[i]; k-- {
			lent := min(spare(cols[k], w[k], widest[k]), widest[i]-w[i])
			w[i], w[k] = w[i]+lent, w[k]-lent
		}
	}
}

// spare returns how many of its w cells a column can lend if its widest text is that wide. Columns
// of numbers and those whose texts change by themselves lend nothing, so that a refresh does not
// move the columns beside them.
func spare(c Column, w, widest int) int {
	if w == 0 || c.Right || c.Lively {
		return 0
	}
	return max(w-max(widest, titleWidth(c)), 0)
}

// titleWidth returns the width of the title with the arrow of a sorted column.
func titleWidth(c Column) int { return theme.Width(c.Title) + 1 }
