package tui

import (
	"testing"
	"testing/synctest"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// Enter on a row of the Overview leads to that row, although its pane has a filter that hides it
// and a page below which the filter was not cleared. The action key then takes that row.
func TestEnterOnTheOverviewFindsItsRow(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 60}, func(c *console) {
		c.press("5", "/")
		c.typing("code:HTTP_503")
		c.press("enter", "enter", "1")
		c.model(func(m *root) {
			l := m.pane().top()
			for _, to := range m.rowsOfBoard(l) {
				if to.Pane == queue.PaneDead && to.ID == views.GroupID(m.feed.snapshot.DeadGroups[1]) {
					l.target = to
				}
			}
			m.settle()
		})
		c.press("enter")
		c.sees("TIMEOUT api.slow.example")
		c.press("ctrl+a", "ctrl+a", "R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, "source=webhook code=TIMEOUT subscription=9 domain=iu", last(s.asked()).Filter)
	})
}

// Every row of the Overview leads to its own row in the pane that it comes from, whatever filter
// that pane had.
func TestEveryRowOfTheOverviewIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, walkSeed)
		defer w.close()
		w.send(tea.WindowSizeMsg{Width: 120, Height: 60})
		board := w.m.panes[home()].top()
		seen := map[queue.PaneID]int{}
		for _, to := range w.m.rowsOfBoard(board) {
			p := w.m.panes[to.Pane]
			if to.Pane == home() || p.localOnly {
				continue // it expands here, or its pane has no row for it
			}
			w.exec(w.m.open(to.Pane))
			w.settle()
			for len(p.levels) > 1 {
				w.exec(w.m.back())
				w.settle()
			}
			w.exec(w.m.setFilter("no-such-row"))
			w.settle()
			p.levels = append(p.levels, whyLevel("x")) // so that leaving clears another level
			w.exec(w.m.open(home()))
			board.target = to
			w.m.settle()
			require.True(t, board.armed, to)
			w.exec(w.m.enter())
			w.settle()
			l := &p.levels[0]
			require.Equal(t, to.Pane, w.m.at)
			seen[to.Pane]++
			if to.Pane == queue.PaneWebhooks || to.Pane == queue.PaneAudit { // these read the row; a mark has none
				require.Equal(t, queue.Choose(to.Pane == queue.PaneAudit, "", endpointFilter(to.ID)), l.grid.text)
				continue
			}
			i, ok := l.grid.current()
			require.True(t, ok, "%v: %s", to, w.m.notice.text)
			id := l.grid.src.ID(i)
			require.True(t, id == to.ID || p.matches != nil && p.matches(l.grid.src, i, to.ID), "%v: %s", to, id)
		}
		require.GreaterOrEqual(t, len(seen), 7, seen)
	})
}

// If the row has vanished when its pane opens, no page opens, and no key acts on the row that the
// cursor was on before.
func TestAFollowedRowThatIsGone(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		for _, pane := range []queue.PaneID{queue.PaneDead, queue.PaneAlerts} {
			c.model(func(m *root) {
				m.open(pane)
				m.moveTo(0)
				m.open(home())
				l := m.pane().top()
				l.target, l.armed = views.Target{Pane: pane, ID: "gone"}, true
				m.follow(l)
				require.Len(t, m.pane().levels, 1, "no page opens")
				_, ok := m.pane().top().grid.current()
				require.False(t, ok)
				require.Contains(t, m.notice.text, "has no row for this now")
			})
			c.press(map[queue.PaneID]string{queue.PaneDead: "R", queue.PaneAlerts: "A"}[pane])
			require.Zero(t, c.overlays())
			c.sees("the cursor's row is gone; move to another row first")
		}
		require.Empty(t, s.asked())
	})
}
