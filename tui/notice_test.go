package tui

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A message ends with the next key: if it stayed, it would seem to be the
// answer to that key.
func TestNoticeEndsWithTheNextKey(t *testing.T) {
	run(t, setup{w: 120, h: 30}, func(c *console) {
		c.press("2", "n")
		c.sees("no search text is set")
		c.press("t")
		c.seesNot("no search text is set")
	})
}

// A message that comes again has a count, so that the operator sees that the
// second key did something.
func TestNoticeCountsRepetitions(t *testing.T) {
	run(t, setup{w: 120, h: 30}, func(c *console) {
		c.press("2", "n")
		c.sees("no search text is set; / sets one ")
		c.seesNot("times)")
		c.press("n")
		c.sees("no search text is set; / sets one (2 times)")
		c.press("n")
		c.sees("(3 times)")
		c.press("y", "n")
		c.sees("no search text is set")
		c.seesNot("times)")
	})
}

// The message that an action is not available ends as soon as the reason does.
func TestNoticeEndsWhenItIsNoLongerTrue(t *testing.T) {
	s := newStore()
	s.delay = 3 * time.Second
	run(t, setup{w: 120, h: 30, store: s}, func(c *console) {
		c.press("5", "R")
		c.sees("Requeue is off: the database has not answered yet")
		c.rest(4 * time.Second)
		c.seesNot("has not answered")
		s.set(func(s *fakeStore) { s.link = queue.Link{State: "lost"} })
		c.rest(2 * time.Second)
		c.press("R")
		c.sees("Requeue is off: the connection to the database is lost")
		s.set(func(s *fakeStore) { s.link = queue.Link{State: "live"} })
		c.rest(2 * time.Second)
		c.seesNot("is off")
		c.sees("connected to the database again")
		s.set(func(s *fakeStore) { s.link = queue.Link{State: "lost"} })
		c.rest(2 * time.Second)
		c.seesNot("connected to the database again")
	})
}

// Over a slow line, esc and the next key arrive together, and are reported as
// one key with alt. The console handles them as two keys, except where an
// input has a meaning for the key with alt.
func TestEscAndTheNextKeyOverASlowLine(t *testing.T) {
	alt := func(c *console, r rune) {
		c.p.Send(tea.KeyPressMsg{Code: r, Mod: tea.ModAlt})
		c.rest(100 * time.Millisecond)
	}
	line := func(c *console) (p prompt) {
		c.model(func(m *root) { p = m.line })
		return p
	}
	run(t, setup{w: 120, h: 30}, func(c *console) {
		c.press("2", "/")
		c.typing("state:stale")
		alt(c, ':')
		require.Equal(t, promptCommand, line(c).kind)
		c.model(func(m *root) { require.Empty(t, m.pane().top().grid.text, "esc takes the filter back") })
		c.typing("why x")
		alt(c, 'b') // in an input, alt+b moves one word back
		p := line(c)
		require.Equal(t, promptCommand, p.kind)
		require.Equal(t, 4, p.input.Position())
		alt(c, '?')
		require.Equal(t, 1, c.overlays(), "the help is open above the pane")
		alt(c, '0')
		c.sees("enter opens, esc closes")
		require.Equal(t, 1, c.overlays())
	})
}
