//go:build !race

package tui

import (
	"testing"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Many minutes of virtual time, in which the goroutines are those of TestALongListIsReadAfterAnAction.

// Rows that are much older than the snapshot have the sign of old rows, and their time is in the
// status line: after a return to a pane until its list is read, while the reads of the list fail,
// and in a pause.
func TestRowsOfAnOldListAreMarked(t *testing.T) {
	for name, x := range map[string]struct {
		old  func(c *console)
		live bool
	}{
		"being read": {func(c *console) {
			c.press("1")
			c.rest(2 * time.Minute)
			c.store.set(func(s *fakeStore) { s.stuck = queue.ListEndpoints })
			c.press("7")
		}, true},
		"not readable": {func(c *console) {
			c.store.set(func(s *fakeStore) { s.stuck = queue.ListEndpoints })
			c.rest(2 * time.Minute)
			c.sees("newer rows:")
		}, true},
		"paused": {func(c *console) {
			c.press("1")
			c.rest(2 * time.Minute)
			c.press("p", "7")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setup{w: 120, h: 24}, func(c *console) {
				c.press("7")
				c.rest(time.Minute)
				c.seesNot("read at", "┊")
				x.old(c)
				c.sees("read at", "┊")
				if x.live { // the snapshot is
					c.sees("● live")
				} else {
					c.press("p")
				}
				c.store.set(func(s *fakeStore) { s.stuck = "" })
				c.rest(20 * time.Second)
				c.seesNot("read at", "┊")
			})
		})
	}
	run(t, setup{w: 120, h: 24}, func(c *console) {
		c.press("6", "enter")
		c.rest(time.Minute)
		c.seesNot("last read in full")
		c.press("1")
		c.rest(2 * time.Minute)
		c.press("p", "6")
		c.sees("last read in full at", "┊")
	})
}
