// Package views draws the console: values in, text out. Nothing here reads a
// clock, a file or a database; the time that ages are counted to, the size and
// the theme come in with the call. What a pane shows of a picture is a Source
// (its table as a value) or a Page (lines to scroll); the frame around it, the
// dialogs and the menus are functions of small state values.
package views

import (
	"time"

	"github.com/qtop/qtop/views/theme"
)

// Env is what every drawing needs to know.
type Env struct {
	Theme theme.Theme
	Now   time.Time      // server time as of the picture: ages are as old as the data
	Loc   *time.Location // in which times are shown
	Stale bool           // the picture is old: rows carry the sign
	Brief bool           // pages leave out what has to be read for them
}

// Size is a number of cells.
type Size struct{ W, H int }

// The smallest screen that is drawn on.
const (
	MinWidth  = 60
	MinHeight = 15
)
