package tui

import (
	"fmt"
	"testing"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// Several troubles of one kind are one row of the Overview. Enter shows them
// all, and hides them again. The status line says what to do about the row
// under the cursor.
func TestEnterExpandsTroublesOfOneKind(t *testing.T) {
	s := newStore()
	s.snap.Flags, s.snap.Held, s.snap.Suspended = nil, nil, nil
	for i := range 9 {
		s.snap.Suspended = append(s.snap.Suspended, queue.Suspension{SubscriptionID: int64(100 + i), Endpoint: queue.Clean(fmt.Sprintf("hook%d.example", i)), Reason: queue.Clean("circuit"), Since: viewstest.Now()})
	}
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("g", "g")
		for range 4 {
			var at queue.PaneID
			c.model(func(m *root) { at = m.pane().top().target.Pane })
			if at == queue.PaneOverview {
				break
			}
			c.press("j")
		}
		c.sees("9 circuits open", "enter shows all 9")
		c.seesNot("hook8.example")
		c.press("A")
		c.sees("enter opens a row that several share")
		c.press("enter")
		c.sees("hook8.example", "enter folds the rows")
		c.press("j")
		c.sees("resume · 7 D")
		c.press("k", "enter")
		c.seesNot("hook8.example")
	})
}
