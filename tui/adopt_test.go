package tui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

const cloneSays = "CLONE OF prod (recorded 2026-11-22 08:00:00Z): run qtop adopt --waiting keep|suspend|cancel --reason R; until then nothing is claimed or sent here"

// Every pane shows at its top that the database is a clone, with the command that adopts
// it; to adopt, the user types the name of the database.
func TestAdopt(t *testing.T) {
	s := newStore()
	s.snap.Server.CloneOf = queue.Clean(cloneSays)
	s.snap.Server.Unexpected = queue.Clean("UNEXPECTED SERVER: this is server copy on a local socket")
	s.session.Rights[queue.ActAdopt] = true
	run(t, setup{store: s}, func(c *console) {
		c.sees("CLONE OF  prod: nothing is claimed or sent here until you run :adopt (reco", "UNEXPECTED SERVER  this is server copy")
		c.press("5")
		c.sees("CLONE OF  prod")
		c.press(":")
		c.typing("adopt")
		c.press("enter")
		c.sees("Waiting work", "suspend", "Reason", "Preview")
		c.press("up", "up", "up", "right", "tab")
		c.typing("staging")
		c.press("tab", "tab")
		c.typing("a copy for tests")
		c.press("enter")
		c.sees("guard is missing: environment staging needs one")
		c.press("up")
		for range "staging" {
			c.press("backspace")
		}
		c.press("tab", "tab", "enter")
		c.rest(quiet)
		require.Equal(t, queue.ActAdopt, s.asked()[0].Action)
		require.Equal(t, map[string]string{"waiting": "cancel", "environment": "", "guard": ""}, s.asked()[0].Args)
		c.sees("Database", "Not now", "Adopt staging_copy")
		c.typing("prod")
		c.press("tab", "tab", "enter")
		c.sees("type staging_copy")
		require.Empty(t, s.did())
		c.press("backspace", "backspace", "backspace", "backspace")
		c.typing("staging_copy")
		c.press("tab", "tab", "enter")
		c.rest(time.Second)
		require.Len(t, s.did(), 1)
	})
}

func TestNothingToAdopt(t *testing.T) {
	s := newStore()
	s.session.Rights[queue.ActAdopt] = true
	run(t, setup{store: s}, func(c *console) {
		c.press(":")
		c.typing("adopt")
		c.press("enter")
		c.sees("this database is not a clone: there is nothing to adopt")
		require.Zero(t, c.overlays())
	})
}
