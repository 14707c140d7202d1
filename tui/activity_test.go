package tui

import (
	"testing"

	"github.com/qtop/qtop/views/viewstest"
)

// C (cancel) and X (terminate) name the session under the cursor by its pid
// and start time, because PostgreSQL uses a pid again. A replication slot has
// no session to signal. The page of a session stays open after the session has
// ended.
func TestSessionsAreSignalled(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("g", "l")
		c.sees("oldest snapshot")
		c.press("j", "C")
		c.sees("no statement to cancel: X or qtop session terminate ends the session")
		c.press("j", "C")
		c.sees("Cancel a session's statement")
		c.sees("worker qtop host work active", "("+viewstest.Sessions()[2].ID[:5])
		c.press("esc", "j", "X")
		c.sees("this row is not a session")
		c.press("k", "k", "enter")
		c.sees("session 5120", "Blocked sessions", "qtop host work")
	})
}
