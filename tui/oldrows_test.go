package tui

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
)

// After an action of this console its list is read again, however many rows are loaded. Without
// one, a list of that length is not read again by itself, and the status line has its time.
func TestALongListIsReadAfterAnAction(t *testing.T) {
	s := newStore()
	s.deadLetters = viewstest.DeadLetters(1200)
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "enter")
		c.sees("1,200 of 5,800 rows", "read at")
		before := len(s.listed())
		c.rest(time.Minute)
		require.NotContains(t, kinds(s.listed()[before:]), queue.ListDeadLetters, "to spare the database")
		c.press("R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		s.set(func(s *fakeStore) { s.deadLetters = s.deadLetters[1:] })
		before = len(s.listed())
		c.press("tab", "enter")
		require.Len(t, s.did(), 1)
		c.rest(quiet)
		again := s.listed()[before:]
		require.Equal(t, 1, count(kinds(again), queue.ListDeadLetters))
		for _, q := range again {
			if q.Kind == queue.ListDeadLetters {
				require.Equal(t, 1200, q.Limit, "the place in the list stays")
			}
		}
		c.press("enter")
		c.sees("1,199 of 5,799 rows")
	})
}

// An action on a page reads also the list below it, when the operator goes back to it.
func TestALongListIsReadAfterAnActionOnAPage(t *testing.T) {
	s := newStore()
	s.deadLetters = viewstest.DeadLetters(1200)
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "enter", "enter", "R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		c.press("tab", "enter")
		require.Len(t, s.did(), 1)
		c.rest(quiet)
		s.set(func(s *fakeStore) { s.deadLetters = s.deadLetters[1:] })
		c.press("enter", "esc")
		c.sees("1,199 of 5,799 rows")
	})
}

func kinds(all []queue.Query) (out []queue.ListKind) {
	for _, q := range all {
		out = append(out, q.Kind)
	}
	return out
}

func count(all []queue.ListKind, kind queue.ListKind) (n int) {
	for _, k := range all {
		if k == kind {
			n++
		}
	}
	return n
}

// A page whose row or whose read is gone says since when its lines are old.
func TestOldPagesHaveANote(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 24}, func(c *console) {
		c.press("3", "enter")
		c.seesNot("not listed at")
		alerts := s.snap.Alerts
		s.set(func(s *fakeStore) { s.snap.Alerts = nil })
		c.rest(5 * time.Second)
		c.sees("not listed at", "this page shows the row as it was last read")
		c.press("G")
		c.sees("not listed at")
		s.set(func(s *fakeStore) { s.snap.Alerts = alerts })
		c.rest(5 * time.Second)
		c.seesNot("not listed at")
	})
	run(t, setup{store: s, w: 120, h: 24}, func(c *console) {
		c.press("6", "enter")
		c.seesNot("last read in full")
		s.set(func(s *fakeStore) { s.err = errors.New("permission denied") })
		c.rest(10 * time.Second)
		c.sees("last read in full at", "permission denied")
		s.set(func(s *fakeStore) { s.err = nil })
		c.rest(10 * time.Second)
		c.seesNot("last read in full")
	})
}

// A page whose row is gone is drawn for the screen as it is now, from what was read last.
func TestOldPagesFollowTheScreen(t *testing.T) {
	for keys, end := range map[string]func(*fakeStore){
		"3 enter":   func(s *fakeStore) { s.snap.Alerts = nil },
		"7 G enter": func(s *fakeStore) { s.leases = nil },
		"g l enter": func(s *fakeStore) { s.sessions = nil },
	} {
		t.Run(keys, func(t *testing.T) {
			run(t, setup{w: 120, h: 24}, func(c *console) {
				built := func(w int) (page views.Page) {
					c.p.Send(tea.WindowSizeMsg{Width: w, Height: 24})
					c.rest(100 * time.Millisecond)
					c.model(func(m *root) { page = m.pane().top().built })
					return page
				}
				c.press(strings.Fields(keys)...)
				c.rest(2 * rereadGap)
				narrow, wide := built(70), built(120)
				require.NotEqual(t, narrow.Lines, wide.Lines)
				require.Empty(t, wide.Note)
				c.store.set(end)
				c.rest(2 * rereadGap)
				for _, x := range []struct {
					w    int
					want views.Page
				}{{120, wide}, {70, narrow}, {120, wide}} {
					now := built(x.w)
					require.Contains(t, now.Note, "not listed at")
					require.Equal(t, x.want.Lines, now.Lines, x.w)
				}
			})
		})
	}
}

// While a further page is read, the last loaded row is not called the last row.
func TestTheLastLoadedRowIsNotTheLast(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 24}, func(c *console) {
		c.press("5", "enter")
		s.set(func(s *fakeStore) { s.stuck = queue.ListDeadLetters })
		c.press("G", "j")
		c.sees("more rows are being read")
		c.seesNot("this is the last row")
	})
}

// Every key that moves the cursor reads further rows, and so does a click: else the last loaded row
// would be the last one for space and n.
func TestEveryMoveReadsFurtherRows(t *testing.T) {
	for name, move := range map[string]func(c *console){
		"j":     func(c *console) { c.press("j") },
		"space": func(c *console) { c.press("space") },
		"n":     func(c *console) { c.press("n") },
		"click": func(c *console) {
			rows := strings.Split(c.screen(), "\n")
			for y, row := range rows {
				if strings.Contains(row, "90995") {
					c.p.Send(tea.MouseClickMsg{X: 5, Y: y, Button: tea.MouseLeft})
					c.rest(100 * time.Millisecond)
					return
				}
			}
			t.Fatal(rows)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			run(t, setup{store: s, w: 120, h: 24}, func(c *console) {
				further := func() (n int) {
					for _, q := range s.listed() {
						if q.After != "" {
							n++
						}
					}
					return n
				}
				c.press("5", "enter", "/")
				c.typing("age>1h")
				c.press("enter")
				require.Zero(t, further())
				move(c)
				require.Equal(t, 1, further())
			})
		})
	}
}

// While further matches are read, n does not begin again with the first one.
func TestTheNextMatchIsBeingRead(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 24}, func(c *console) {
		c.press("5", "enter", "/")
		c.typing("age>1h")
		c.press("enter")
		s.set(func(s *fakeStore) { s.stuck = queue.ListDeadLetters })
		c.press("G", "n")
		c.sees("more rows are being read")
		c.model(func(m *root) { require.NotZero(t, m.pane().top().grid.cursor) })
	})
}
