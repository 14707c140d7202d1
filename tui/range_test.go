package tui

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// newest returns n dead letters that are newer than those of viewstest.DeadLetters.
func newest(n int) []queue.DeadLetter {
	out := viewstest.DeadLetters(n)
	for i := range out {
		out[i].ID = fmt.Sprint(91000 + n - i)
		out[i].FailedAt = out[i].FailedAt.Add(time.Hour)
	}
	return out
}

// An open range begins at its row wherever that row goes: rows that arrive above it, or another
// order, do not come into the range.
func TestARangeBeginsAtItsRow(t *testing.T) {
	for name, x := range map[string]struct {
		between func(c *console)
		then    string
		wanted  []string
	}{
		"rows arrive above": {
			func(c *console) {
				c.store.set(func(s *fakeStore) { s.deadLetters = append(newest(3), s.deadLetters...) })
				c.rest(10 * time.Second)
				c.sees("2 selected, 43 of 4,643 rows")
			},
			"j", []string{"90998", "90997", "90996"},
		},
		"another order": {
			func(c *console) { c.press("o", "down", "enter"); c.seesNot("range open") },
			"j", []string{"90998", "90997"},
		},
		"its row vanishes": {
			func(c *console) {
				c.store.set(func(s *fakeStore) { s.deadLetters = append(s.deadLetters[:2:2], s.deadLetters[3:]...) })
				c.rest(10 * time.Second)
				c.sees("1 selected row is gone", "still selected: 1")
				c.press("k")
				c.seesNot("range open")
			},
			"k", []string{"90997"},
		},
		"space takes one row out": {
			func(c *console) { c.press("space"); c.seesNot("range open") },
			"j", []string{"90998"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
				c.press("5", "enter", "j", "j", "v", "j")
				c.sees("2 selected, 40 of 4,640 rows, range open")
				x.between(c)
				c.press(x.then, "R")
				c.typing("x")
				c.press("enter")
				c.rest(quiet)
				require.ElementsMatch(t, x.wanted, last(s.asked()).Targets)
			})
		})
	}
}

// A selected row that vanished is reported once, and is not selected again by an open range.
func TestAVanishedRowDoesNotComeBackIntoTheRange(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "enter", "space", "j", "v", "j")
		c.sees("3 selected")
		s.set(func(s *fakeStore) { s.deadLetters = s.deadLetters[1:] })
		c.rest(10 * time.Second)
		c.sees("1 selected row is gone", "still selected: 2")
		c.press("j")
		c.sees("3 selected, 39 of")
		c.rest(10 * time.Second)
		c.seesNot("gone")
		c.sees("3 selected, 39 of")
	})
}

// Rows are not gone because the login may not read them for a while: they stay selected, and are when
// it may again.
func TestRowsThatCannotBeReadStaySelected(t *testing.T) {
	for _, keys := range [][]string{{"5", "space", "space"}, {"8", "G", "space"}} {
		run(t, setup{w: 120, h: 40}, func(c *console) {
			selected := func() (ids []string) {
				c.model(func(m *root) { ids = m.pane().top().grid.selectedIDs() })
				return ids
			}
			c.press(keys...)
			was, full := selected(), c.store.snap
			require.NotEmpty(t, was)
			c.store.set(func(s *fakeStore) { // as pgclient answers
				s.snap = queue.Snapshot{TakenAt: full.TakenAt, Server: full.Server, Missing: map[string]queue.Text{"all": queue.Clean("this login needs queue_viewer")}}
			})
			c.rest(3 * time.Second)
			c.sees("needs queue_viewer")
			c.seesNot("selected row is gone", "selected rows are gone")
			c.store.set(func(s *fakeStore) { s.snap = full })
			c.rest(3 * time.Second)
			require.Equal(t, was, selected())
		})
	}
}
