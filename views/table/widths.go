// Package table is a table of fixed column widths that draws only the rows one
// can see. bubbles/table measures every cell of every row on every frame (9 ms
// a frame at 40 rows); here a key costs the same whether the pane holds forty
// rows or a hundred thousand, because widths come from the columns alone.
package table

// Decides which columns are shown and how wide they are.

// Column describes one column. Widths are cells.
type Column struct {
	Title string
	Width int  // what it needs at least
	Want  int  // width that it gets before optional columns are shown; 0 = Width
	Max   int  // width up to which it grows where there is room; 0 = Width
	Right bool // numbers: aligned at their last digit
	// Drop orders columns by how dispensable they are: on a narrow screen the column with
	// the highest number is left out first, a column with 0 never.
	Drop int
}

// Gap is the space between two columns.
const Gap = 2

// luxury is the Drop from which on a column stands only where the others have
// what they want.
const luxury = 4

// Widths gives each column its width within avail cells; 0 = it is not shown.
// Where not even the columns that always stay fit, they share what there is.
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

// drop gives up columns until the others fit, the highest Drop first, none that
// is below least.
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

// need is the cells that columns and the gaps between them take.
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

// squeeze narrows the widest column until all fit or each is one cell wide;
// then it gives up the last ones.
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

// grow hands free cells out, one each in turn, so that no column starves.
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
