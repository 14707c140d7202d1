package tui

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"
)

// A console that ends while an action is in progress leaves its result unshown, however it ends. Nothing
// is left once the result was on the screen.
func TestEndDuringAnAction(t *testing.T) {
	start := func(t *testing.T, s setup, takes time.Duration, then func(*console)) {
		t.Helper()
		s.store = newStore()
		s.store.acting = takes
		run(t, s, func(c *console) {
			c.press("3", "A")
			c.typing("on it")
			c.press("tab", "enter")
			c.rest(quiet)
			require.Empty(t, c.unshown(), "nothing is sent yet")
			c.press("tab", "enter")
			require.Len(t, c.store.did(), 1)
			then(c)
		})
	}
	for name, end := range map[string]func(*console){
		"ctrl+c": func(c *console) { c.press("ctrl+c") },
		"a signal": func(c *console) { // the context of Run ends, and Run calls Quit
			c.m.cancel()
			c.rest(time.Second) // the end of the call reaches the console first
			c.p.Quit()
		},
		"q in a terminal that became too small": func(c *console) {
			c.p.Send(tea.WindowSizeMsg{Width: 20, Height: 5})
			c.press("q")
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, setup{}, time.Hour, func(c *console) {
				c.sees("action in progress")
				end(c)
				require.True(t, c.ended())
				require.Equal(t, "Acknowledge an alert", c.m.unshown)
			})
		})
	}
	t.Run("the result arrives behind the drain of the loops", func(t *testing.T) {
		h := newHost()
		start(t, setup{host: h}, 10*time.Second, func(c *console) {
			h.wait = make(chan struct{})
			c.press("ctrl+c")
			c.sees("Draining")
			c.rest(time.Minute)
			close(h.wait)
			require.True(t, c.ended())
			require.Equal(t, "Acknowledge an alert", c.m.unshown)
		})
	})
	t.Run("shown", func(t *testing.T) {
		start(t, setup{}, time.Second, func(c *console) {
			c.rest(time.Second)
			c.sees("Done", "#982")
			c.press("ctrl+c")
			require.True(t, c.ended())
			require.Empty(t, c.m.unshown)
		})
	})
}

func (c *console) unshown() (title string) {
	c.model(func(m *root) { title = m.unshown })
	return title
}
