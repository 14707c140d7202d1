package tui

import (
	"testing"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// The loops of this process have separate ages: while the database is gone the snapshot stands
// still, and a loop that no longer makes a pass must not look as if it had just made one.
func TestLoopsAgeWhileTheDatabaseIsGone(t *testing.T) {
	s, h := newStore(), newHost()
	start := time.Time{}
	now := func() time.Time { return viewstest.Now().Add(time.Since(start)) }
	h.st.Loops = h.st.Loops[:1]
	h.st.Loops[0].Every, h.st.Loops[0].LastTick = 7*time.Second, viewstest.Now()
	run(t, setup{store: s, host: h, w: 120, h: 40, o: Options{Now: func() time.Time {
		if start.IsZero() {
			start = time.Now()
		}
		return now()
	}}}, func(c *console) {
		c.press("g", "w")
		s.set(func(s *fakeStore) {
			s.link = queue.Link{State: "lost"}
			s.err = queue.NewError(queue.KindUnavailable, "connection refused", "", "")
		})
		c.rest(95 * time.Second)
		c.sees("LOST", "running           1m")
		c.press("enter")
		c.sees("1m ago")
		c.rest(2 * time.Minute)
		c.sees("3m ago")
		c.seesNot("1m ago", "0s ago")
	})
}

// The help lists every role of the login.
func TestHelpListsRoles(t *testing.T) {
	run(t, setup{w: 100, h: 60}, func(c *console) {
		c.press("?", "/")
		c.typing("queue_viewer")
		c.sees("queue_viewer")
		c.press("esc", "esc", "?", "/")
		c.typing("dead_letter_operator")
		c.sees("dead_letter_operator")
	})
}
