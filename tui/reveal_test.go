package tui

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// revealed opens the page of a dead letter or a job and reveals its payload.
func revealed(c *console, keys ...string) {
	c.t.Helper()
	c.press(keys...)
	c.press("V")
	c.sees("Reveal", "Reason")
	c.typing("to see it")
	c.press("enter")
	c.rest(quiet)
	require.Equal(c.t, "to see it", last(c.store.asked()).Reason)
	c.press("tab", "enter")
	c.rest(100 * time.Millisecond)
	require.Zero(c.t, c.overlays(), "the payload is the answer")
}

func TestRevealCountsDownAndMasks(t *testing.T) {
	for name, keys := range map[string][]string{"dead letter": {"5", "enter", "enter"}, "job": {"8", "enter", "enter"}} {
		t.Run(name, func(t *testing.T) {
			run(t, setup{w: 120, h: 40}, func(c *console) {
				c.press(keys...)
				c.press("G")
				c.seesNot("hidden-key")
				revealed(c)
				c.sees("UNMASKED", "hidden-key", "12345678901234567890.10", "masked again in 30s")
				c.rest(10 * time.Second)
				c.sees("masked again in 2", "hidden-key")
				c.rest(21 * time.Second)
				c.seesNot("hidden-key", "UNMASKED")
				c.press("g", "g", "G")
				c.seesNot("hidden-key")
			})
		})
	}
}

// A page that a command opened, which knows only the id, erases the event of its dead letter as one that was
// opened from the list does.
func TestEraseOnAPageThatACommandOpened(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 30}, func(c *console) {
		c.press(":")
		c.typing("reveal 551")
		c.press("enter", "esc", "Z")
		c.sees("Erase an event", "Reason")
		c.typing("erasure request 18")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, queue.ActErase, last(s.asked()).Action)
		require.Equal(t, []string{"event:" + strconv.FormatInt(viewstest.Detail().EventID, 10)}, last(s.asked()).Targets)
	})
}

// The screen shows where the payload begins, also if the payload itself has the word of its heading.
func TestARevealedPayloadIsShownFromItsBeginning(t *testing.T) {
	s := newStore()
	s.payload = `{"n": [` + strings.Repeat(`1,`, 60) + `1], "status": "unmasked"}`
	run(t, setup{store: s, w: 120, h: 30}, func(c *console) {
		revealed(c, "5", "enter", "enter")
		c.sees("UNMASKED: masked again in")
		c.seesNot(`"unmasked"`)
	})
}

func TestRevealEndsWithItsPage(t *testing.T) {
	for name, leave := range map[string][]string{"back": {"esc", "enter", "G"}, "pane": {"1", "5", "G"}, "pause": {"p", "p"}} {
		t.Run(name, func(t *testing.T) {
			run(t, setup{w: 120, h: 40}, func(c *console) {
				revealed(c, "5", "enter", "enter")
				c.sees("hidden-key")
				c.press(leave...)
				c.rest(time.Second)
				c.seesNot("hidden-key")
				c.model(func(m *root) {
					for _, p := range m.panes {
						for _, l := range p.levels {
							require.True(t, l.revealed.Empty())
							require.NotContains(t, strings.Join(l.built.Lines, ""), "hidden-key")
						}
					}
				})
			})
		})
	}
}

func TestRevealIsOffWhereItMust(t *testing.T) {
	run(t, setup{o: Options{ReadOnly: true}}, func(c *console) {
		c.press("5", "enter", "enter", "V")
		c.sees("Reveal is off: this console is read-only")
		require.Zero(t, c.overlays())
	})
	s := newStore()
	s.session.Rights[queue.ActReveal] = false
	run(t, setup{store: s}, func(c *console) {
		c.press("5", "enter", "enter", "V")
		c.sees("lacks the role dead_letter_operator")
	})
	run(t, setup{}, func(c *console) {
		c.press("5", "V")
		c.sees("open a dead letter or a job first")
		require.Empty(t, c.store.asked())
	})
}

// The search finds text in a payload, also text that is split over two lines. A
// payload of any size scrolls at 80×24.
func TestPayloadIsSearched(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("5", "enter", "enter")
		c.model(func(m *root) {
			var rows []string
			for i := range 3000 {
				rows = append(rows, fmt.Sprintf(`{"row": %d, "text": "%s"}`, i, strings.Repeat("abcdefghij", 3)+fmt.Sprint("needle", i)+strings.Repeat("klmnopqrst", 6)))
			}
			d := viewstest.Detail()
			d.Payload, d.PayloadSize = queue.CleanLong("["+strings.Join(rows, ", ")+"]"), 5_000_000
			m.pane().top().list.page.Rows = &d
			m.revision++
			m.settle()
		})
		c.press("/")
		c.typing("needle21klmnopqrstklmnopqrstklmnopqrst")
		c.press("enter")
		c.sees("needle21k")
		c.press("/")
		for range 40 {
			c.press("backspace")
		}
		c.typing("first 100,000 of 5,000,000")
		c.press("enter")
		c.sees("the first 100,000 of 5,000,000 characters")
		started := time.Now()
		c.press("G")
		c.press("g", "g")
		t.Log(time.Since(started))
	})
}
