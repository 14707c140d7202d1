package tui

import (
	"testing"

	"github.com/qtop/qtop/views/viewstest"
)

// C and X identify the session under the cursor by its pid and start time. A
// replication slot has no session. The page of an ended session stays open.
func TestSessionsAreSignalled(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("g", "l")
		c.sees("oldest snapshot")
		c.press("j", "C")
		c.sees("Cancel a session's statement")
		c.sees("deploy app migrate idle in transaction", "("+viewstest.Sessions()[1].ID[:5])
		c.press("esc", "j", "j", "X")
		c.sees("this row is not a session")
		c.press("k", "k", "enter")
		c.sees("session 5120", "Blocked sessions", "qtop host work")
	})
}
