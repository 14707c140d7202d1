package tui

import (
	"testing"

	"github.com/stretchr/testify/require"

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

// A filter decides which sessions are shown, selected and signalled. The page of a session names
// those that block it although the filter leaves them out.
func TestSessionsAreFiltered(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("g", "l", "/")
		c.typing("program:*work")
		c.press("enter")
		c.sees("filter program:*work", "qtop host work", "1 row")
		c.seesNot("etl@bi", "deploy")
		c.press("ctrl+a", "X")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, []string{viewstest.Sessions()[2].ID}, last(s.asked()).Targets)
		c.press("esc", "enter")
		c.sees("session 5233", "Blocked by", "deploy app migrate, idle in transaction")
	})
}
