// Package views draws the console, and the tables of the verbs: values in, text out. Nothing
// here reads a clock, a file or a database; time, size and theme are arguments.
//
//   - A Source is a table as a value: columns, rows, orders and filter fields. It is made of
//     one or two Lists, whose Columns also serve verbs and exports. A Grid is a Source with
//     cursor, selection and filter.
//   - A Page is lines to scroll and search, such as the details of one row.
//   - Overview, Dialog, PickList, Header and Status are drawn from small state values. Screen
//     puts everything together.
//
// Every drawing function returns lines of exactly the requested width, made of safe text:
// nothing from the database reaches the terminal as an escape sequence.
package views

import (
	"time"

	"github.com/qtop/qtop/views/theme"
)

// Env is the theme, time and zone of a drawing.
type Env struct {
	Theme theme.Theme
	Now   time.Time      // server time of the snapshot, to which ages are counted
	Loc   *time.Location // zone of displayed times
	Stale bool           // the snapshot is old: rows are marked with the sign for it
	Brief bool           // pages leave out the parts that need a query
}

// Size is a size in cells.
type Size struct{ W, H int }

// The smallest screen on which the console is drawn.
const (
	MinWidth  = 60
	MinHeight = 15
)
