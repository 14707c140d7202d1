package views

// The sections of the Overview. On a small screen each section still shows its worst row and says
// how many more there are; the remaining lines are divided between the sections.

import (
	"slices"
	"strconv"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Target is where enter leads from a row of the Overview: a pane, and the id
// of a row in it. Several rows can lead to the same one; only their Row, which
// the drawn Overview has, differs.
type Target struct {
	Pane queue.PaneID
	ID   string
	Row  string // the section, and from the second on the number among its rows that lead there
}

// item is one row of a section, with an optional second line that has the reason.
type item struct {
	target Target
	row    table.Row
	why    string
	cure   string // what to do about it, with the key that does it
}

// section is a block of the Overview with a title. Without rows (items) it is
// a single quiet line, or is left out.
type section struct {
	name    string         // identifies the section; "" = the title of its first column
	columns []table.Column // with their titles; nil = no heading line
	items   []item
	quiet   string
	lines   []string // finished lines that are drawn instead of items
	missing string
	gap     bool // a blank line above the section, if there is room
	wanted  bool // the operator has expanded it: it gets its lines before other sections get more than their minimum
	yields  bool // if lines are short, an expanded section may take some of its lines
	order   int  // the section with the lowest number gets lines first

	// rest is the number of rows that the snapshot leaves out, restBound whether there may be more.
	rest      int64
	restBound bool
}

// least returns the number of lines that the section needs to show its worst row.
func (s section) least() int {
	switch {
	case s.missing != "" || (len(s.items) == 0 && s.lines == nil):
		return s.head() + min(1, len(s.quiet)+len(s.missing))
	case s.lines != nil:
		return s.head() + len(s.lines)
	default:
		return s.head() + 1
	}
}

// most returns the number of lines that the section needs to show everything.
func (s section) most() int {
	if s.missing != "" || len(s.items) == 0 {
		return s.least()
	}
	n := s.head()
	for _, it := range s.items {
		n++
		if it.why != "" {
			n++
		}
	}
	return n
}

// target returns where row i leads, with its Row.
func (s section) target(i int) Target {
	t, n := s.items[i].target, 1
	for _, before := range s.items[:i] {
		if before.target == t {
			n++
		}
	}
	t.Row = s.name
	if t.Row == "" && len(s.columns) > 0 {
		t.Row = s.columns[0].Title
	}
	if n > 1 {
		t.Row += " " + strconv.Itoa(n)
	}
	return t
}

func (s section) head() int {
	if s.columns != nil {
		return 1
	}
	return 0
}

// divideLines divides h lines between sections, and reports above which a
// blank line fits. From top to bottom each first gets its minimum, while there
// are lines; then they get one more line each in turn, by their order; the
// rest becomes blank lines.
func divideLines(sections []section, h int) (lines []int, gaps []bool) {
	lines, gaps = make([]int, len(sections)), make([]bool, len(sections))
	spare := h
	for _, s := range sections {
		spare -= queue.Choose(s.wanted, s.most(), s.least())
	}
	for i, s := range sections {
		if s.yields && spare < 0 && slices.ContainsFunc(sections, func(s section) bool { return s.wanted }) {
			continue
		}
		n := min(s.least(), h)
		if n < s.least() && s.head() > 0 && n <= s.head() {
			n = 0 // a heading without a row below it is useless
		}
		lines[i] = n
		h -= n
	}
	for i, s := range sections {
		if s.wanted && lines[i] > 0 {
			more := min(s.most()-lines[i], h)
			lines[i], h = lines[i]+more, h-more
		}
	}
	for grew := true; grew && h > 0; {
		grew = false
		for order := 0; order <= 3; order++ {
			for i, s := range sections {
				if s.order == order && lines[i] > 0 && lines[i] < s.most() && h > 0 {
					lines[i]++
					h--
					grew = true
				}
			}
		}
	}
	for i, s := range sections {
		if s.gap && i > 0 && lines[i] > 0 && h > 0 {
			gaps[i] = true
			h--
		}
	}
	return lines, gaps
}

// drawn is a block of finished lines, with the rows in it that can be selected.
type drawn struct {
	lines   []string
	targets []placed
}

type placed struct {
	target Target
	line   int // the first of its lines
	high   int // how many lines it has
	cure   string
}

// stack draws sections one below the other.
func stack(sections []section, cursor mark, e Env, size Size) drawn {
	var d drawn
	lines, gaps := divideLines(sections, size.H)
	for i, s := range sections {
		if lines[i] == 0 {
			continue
		}
		if gaps[i] {
			d.lines = append(d.lines, theme.Blank(size.W))
		}
		s.draw(&d, lines[i], cursor, e, size.W)
	}
	return d
}

func (s section) draw(d *drawn, n int, cursor mark, e Env, w int) {
	th := e.Theme
	shown, budget := 0, n-s.head()
	for i := 0; i < len(s.items) && budget > 0; i++ {
		budget--
		shown++
		if s.items[i].why != "" && budget > 0 {
			budget--
		}
	}
	t := table.Table{Columns: s.columns, Sorted: -1, Cursor: -1, Stale: e.Stale}
	if s.columns != nil {
		head := t.Lines(th, w, 1)[0]
		if more := int64(len(s.items)-shown) + s.rest; more > 0 && s.missing == "" {
			words, at := moreBeside(head, t.Gutter(), more, queue.Choose(s.restBound, th.G.AtLeast, "+"))
			head = overlayCells(head, th.Dim.Paint(words), at, w)
		}
		d.lines = append(d.lines, head)
		n--
	}
	switch {
	case s.missing != "":
		d.lines = append(d.lines, th.Cut(" "+th.Warning.Paint(th.G.Warning+" not in this snapshot: "+theme.Safe(s.missing)), w))
		return
	case s.lines != nil:
		d.lines = append(d.lines, s.lines[:min(max(n, 0), len(s.lines))]...)
		return
	case len(s.items) == 0:
		if n > 0 {
			d.lines = append(d.lines, th.Cut(" "+th.Dim.Paint(th.G.Quiet+" "+s.quiet), w))
		}
		return
	}
	for i := 0; i < shown && n > 0; i++ {
		it, to := s.items[i], s.target(i)
		at := len(d.lines)
		one := table.Table{
			Columns: s.rowColumns(w), N: 1, Headless: true, Cursor: -1, Stale: e.Stale, Sorted: -1,
			Row: func(int) table.Row { return it.row },
		}
		if to == cursor.at && to != (Target{}) {
			one.Cursor, one.Gone = 0, cursor.gone
		}
		line := one.Lines(th, w, 1)[0]
		if s.columns == nil && i == shown-1 && len(s.items) > shown {
			line = overlayCells(line, th.Dim.Paint(" +"+Count(int64(len(s.items)-shown))+" more"), max(w-10, 0), w)
		}
		d.lines = append(d.lines, line)
		n--
		if it.why != "" && n > 0 {
			d.lines = append(d.lines, th.Cut("     "+th.Dim.Paint(th.G.Tee+" "+theme.Safe(it.why)), w))
			n--
		}
		d.targets = append(d.targets, placed{to, at, len(d.lines) - at, it.cure})
	}
}

// troubleWidth is the width of a row's label in cells: that of the longest, NOT TICKED.
const troubleWidth = 10

// rowColumns returns the columns of a section without a heading line: a label and the text.
func (s section) rowColumns(w int) []table.Column {
	if s.columns != nil {
		return s.columns
	}
	cure := 0
	for _, it := range s.items {
		if len(it.row.Cells) > 2 {
			cure = max(cure, theme.Width(it.row.Cells[2].Text))
		}
	}
	return []table.Column{{Width: troubleWidth}, {Width: 20, Max: w}, {Width: cure, Right: true}}[:queue.Choose(cure > 0, 3, 2)]
}

// moreBeside returns the text "+n more" for a heading, and the cell at which
// to write it; sign is written before n. The name of the first column begins at
// cell from. The text is put between that name and the next column's; if there
// is no room, over the end of that name.
func moreBeside(head string, from int, n int64, sign string) (words string, at int) {
	plain := []rune(ansi.Strip(head))
	end := from
	for end+1 < len(plain) && (plain[end] != ' ' || plain[end+1] != ' ') {
		end++
	}
	next := end
	for next < len(plain) && plain[next] == ' ' {
		next++
	}
	for _, words = range []string{sign + Count(n) + " more", sign + Count(n), sign + table.Short(n)} {
		if end+1+theme.Width(words) < next {
			return words, end + 1
		}
	}
	words = " " + words
	return words, max(next-1-theme.Width(words), from)
}
