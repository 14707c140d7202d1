// Package views draws the console, and the tables of the verbs: it turns values into text. Nothing
// here reads a clock, a file or a database; time, size and theme are arguments.
//
//   - A Source is the data of a table: columns, rows, orders and filter fields. It is made of
//     one or two Lists, whose Columns also serve verbs and exports. A Grid is a Source with
//     cursor, selection and filter.
//   - A Page is lines to scroll and search, such as the details of one row.
//   - Overview, Dialog, PickList, Header and Status are drawn from small state values. Screen
//     draws them around a body.
//
// Every drawing function returns lines of exactly the requested width, made of safe text: nothing
// from the database reaches the terminal as an escape sequence.
package views

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Env is what every drawing function needs besides its data: theme, time and
// time zone.
type Env struct {
	Theme theme.Theme
	Now   time.Time         // server time of the snapshot, to which ages are relative
	Here  time.Time         // time of this process, to which the ages of its loops are relative; zero = Now
	Loc   *time.Location    // time zone of displayed times
	Stale bool              // the snapshot is too old, which every row shows by a sign
	Brief bool              // pages leave out the parts that need another read of the database
	Host  *queue.HostStatus // the worker host of this process; nil = not known
	Exact bool              // times are RFC 3339 with date and zone: the text is for a program, not for a screen
}

// Size is a size in cells.
type Size struct{ W, H int }

// The size of the smallest screen on which the console is drawn.
const (
	MinWidth  = 60
	MinHeight = 15
)
