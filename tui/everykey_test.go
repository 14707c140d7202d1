package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// everyKey returns the keys that the help lists, and the keys of all actions.
func everyKey(m *root) []string {
	keys := []string{
		"tab", "shift+tab", "0", "j", "k", "down", "up", "G", "end", "home", "pgdown", "pgup", "ctrl+f", "ctrl+b", "ctrl+d", "ctrl+u", "enter", "l", "right",
		"esc", "h", "left", "/", "n", "o", "p", "[", "]", "t", "x", "y", "m", "space", "v", "ctrl+a", ":", "?", "g", "g g",
	}
	for _, p := range Panes() {
		keys = append(keys, strings.Join(strings.Split(p.Keys, ""), " "))
	}
	for _, a := range m.actions {
		if a.Key != "" && !slices.Contains(keys, a.Key) {
			keys = append(keys, a.Key)
		}
	}
	return keys
}

// Every key of the help has a visible effect on every pane and page, with rows
// and without. If it has none, the status line says why.
func TestEveryKeyIsAnswered(t *testing.T) {
	for _, full := range []bool{true, false} {
		for _, pane := range Panes() {
			t.Run(fmt.Sprint(pane.ID, " full=", full), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWalker(t, walkSeed)
					if !full {
						w.close()
						w.store.snap, w.store.deadLetters, w.store.jobs, w.store.audit, w.store.subscriptions = viewstest.Empty(), nil, nil, nil, nil
						w.open(Options{Actor: "anna", Save: (&folder{}).save})
					}
					for _, page := range []bool{false, true} {
						for _, key := range everyKey(w.m) {
							w.m.over, w.m.line, w.m.chord, w.m.notice, w.m.saving = nil, prompt{}, false, notice{}, nil
							w.m.feed.paused = false
							w.m.feed.backToLive()
							w.m.panes[pane.ID].begin()
							w.exec(w.m.open(pane.ID))
							w.settle()
							if page {
								w.exec(w.m.enter())
								w.settle()
								w.m.notice, w.m.lastNotice = notice{}, notice{}
							}
							keys := strings.Split(key, " ")
							for _, k := range keys[:len(keys)-1] {
								w.press(keyOf(k))
							}
							was := ansi.Strip(w.m.frame())
							mouse := w.m.display.mouse
							w.press(keyOf(keys[len(keys)-1]))
							if len(keys) > 1 { // after g and its second key, the list of second keys is gone by itself
								was = ""
							}
							if ansi.Strip(w.m.frame()) == was && w.m.display.mouse == mouse || was == "" && w.m.notice.text == "" && w.m.at == pane.ID {
								t.Errorf("key %s, page %t: nothing is seen", key, page)
							}
						}
					}
					w.close()
				})
			})
		}
	}
}

// The page of a queue that does not exist reports that, instead of "reading" for
// ever.
func TestWhyOfAnUnknownName(t *testing.T) {
	s := newStore()
	run(t, setup{w: 120, h: 30, store: s}, func(c *console) {
		s.set(func(s *fakeStore) {
			s.err = nil
			s.unknown = queue.NewError(queue.KindFailed, "there is no queue nosuch", "", "")
		})
		c.press(":")
		c.typing("why nosuch")
		c.press("enter")
		c.sees("this could not be read: there is no queue nosuch")
		c.seesNot("reading")
	})
}

// Actions on the loops of this process are not audited, and the dialog shows
// that.
func TestLoopsOfThisProcessAreNotAudited(t *testing.T) {
	run(t, setup{w: 120, h: 40, host: newHost()}, func(c *console) {
		c.press("g", "w", "P")
		c.rest(time.Second)
		c.sees("not recorded")
	})
}

// A banner takes a line from the Overview. The row under the cursor must still
// be visible then.
func TestCursorIsShownWhenABannerComes(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, o: Options{Refresh: time.Hour}}, func(c *console) {
		c.press("G")
		shown := func() (ok bool) {
			c.model(func(m *root) { ok = slices.Contains(m.rowsOfBoard(m.pane().top()), m.pane().top().cursor) })
			return ok
		}
		for h := 24; h > 15; h-- {
			c.p.Send(tea.WindowSizeMsg{Width: 80, Height: h})
			c.press("G")
			s.set(func(s *fakeStore) { s.link = queue.Link{State: "lost"} })
			c.rest(1500 * time.Millisecond)
			if !shown() {
				t.Fatal("no cursor with the banner at height", h)
			}
			s.set(func(s *fakeStore) { s.link = queue.Link{State: "live"} })
			c.rest(1500 * time.Millisecond)
		}
	})
}
