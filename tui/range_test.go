package tui

import (
	"fmt"
	"slices"
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

// Rows that come before the selected ones do not push these out of the loaded rows. Where they come faster
// than the list is read, the rows that were pushed out are not called gone, and are not taken.
func TestSelectedRowsStayLoaded(t *testing.T) {
	for _, x := range []struct {
		newer, selected int
		says            string
	}{
		{10, 200, "200 selected, 400 of 610 rows"},
		{300, 100, "100 selected rows are gone or not loaded now; still selected: 100"},
	} {
		s := newStore()
		s.pages, s.deadLetters = true, viewstest.DeadLetters(600)
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press("5", "enter", "ctrl+a")
			c.sees("200 selected; ctrl+a again selects all 600 matching rows")
			s.set(func(s *fakeStore) { s.deadLetters = append(newest(x.newer), s.deadLetters...) })
			c.rest(8 * time.Second) // longer than the message shows, with one read of the list
			c.sees(x.says)
			c.press("R")
			c.model(func(m *root) { require.Len(t, m.over[0].(*dialog).req.Targets, x.selected) })
			c.press("esc")
			c.sees(fmt.Sprint(x.selected, " selected, "))
			c.press("esc")
			before := len(s.listed())
			c.rest(10 * time.Second)
			reads := 0
			for _, q := range s.listed()[before:] {
				if q.Kind == queue.ListDeadLetters {
					require.Equal(t, 400, q.Limit, "without selected rows the list does not grow")
					reads++
				}
			}
			require.NotZero(t, reads)
		})
	}
}

// A selection that newer rows push beyond those that are read at an interval does not stop the reading of
// the list.
func TestASelectionDoesNotStopTheReading(t *testing.T) {
	s := newStore()
	older := viewstest.DeadLetters(600)
	s.pages, s.deadLetters = true, older
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "enter", "j", "space", "home")
		for n := 100; n <= 1200; n += 100 {
			s.set(func(s *fakeStore) { s.deadLetters = append(newest(n), older...) })
			c.rest(8 * time.Second)
		}
		c.press("home")
		c.sees(" 92200 ")
	})
}

// After ctrl+a twice every row that is read looks selected, as an action takes it; keys that select
// single rows do not make it fewer.
func TestAllThatMatchLookSelected(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "enter", "ctrl+a", "ctrl+a")
		s.set(func(s *fakeStore) { s.deadLetters = append(newest(3), s.deadLetters[:39]...) })
		c.rest(10 * time.Second)
		c.seesNot("gone")
		c.sees("all 4,642 selected")
		for _, k := range []string{"space", "v", "space"} {
			c.press(k)
			c.sees("all 4,642 matching rows are selected; esc clears the selection")
			c.model(func(m *root) {
				g := m.pane().top().grid
				require.True(t, g.all)
				require.Len(t, g.order, 42)
				for _, i := range g.order {
					require.True(t, g.view().Selected[g.src.ID(i)], g.src.ID(i))
				}
			})
		}
		c.press("R")
		c.model(func(m *root) {
			require.NotEmpty(t, m.over[0].(*dialog).req.Filter)
			require.Empty(t, m.over[0].(*dialog).req.Targets)
		})
		c.press("esc", "esc")
		c.seesNot(" selected")
	})
}

// An action on the selected rows ends the selection; one on other rows leaves it as it is.
func TestASelectionEndsWithItsAction(t *testing.T) {
	two := []string{"5", "enter", "space", "space"}
	leases := []string{"7", "G", "k", "k", "space", "space"}
	for _, x := range []struct {
		to   []string
		line string // a typed command; "": the key R
		left int
	}{
		{two, "", 0}, {append(slices.Clone(two), "k", "k"), "", 0}, {two, "requeue", 0}, {[]string{"5", "space", "space"}, "", 0}, {leases, "lease release", 0},
		{two, "mark deploy", 2}, {two, "requeue 90990 --reason x", 2}, {append(slices.Clone(leases), "g", "g"), "endpoint suspend", 2},
	} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press(x.to...)
			c.sees("2 selected")
			if x.line == "" {
				c.press("R")
			} else {
				c.press(":")
				c.typing(x.line)
				c.press("enter")
			}
			c.model(func(m *root) {
				require.Len(t, m.over, 1, "%v %s", x, m.notice.text)
				if d := m.over[0].(*dialog); d.stage == stageForm {
					d.focus = len(d.form) - 1
				}
			})
			c.typing("x")
			c.press("enter")
			c.rest(quiet)
			c.model(func(m *root) { // past what must be typed to confirm
				d := m.over[0].(*dialog)
				require.Equal(t, stagePreview, d.stage, x)
				d.typed, d.focus = nil, 1
			})
			c.press("enter")
			require.Len(t, s.did(), 1, x)
			c.model(func(m *root) { require.Len(t, m.pane().top().grid.selected, x.left, x) })
		})
	}
}
