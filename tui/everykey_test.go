package tui

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

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

// opened is what keys open in a pane, from its first row and from its last.
// The key ":why" stands for the page of that command.
var opened = [][]string{nil, {"enter"}, {"enter", "enter"}, {"G", "enter"}, {"G", "enter", "enter"}, {":why"}}

// visit opens a pane and, in it, what keys open. It reports false if the last
// key opens nothing that another visit does not open also.
func (w *walker) visit(pane queue.PaneID, keys []string) bool {
	m := w.m
	m.over, m.line, m.chord, m.notice, m.saving = nil, prompt{}, false, notice{}, nil
	m.feed.paused = false
	m.feed.backToLive()
	m.panes[pane].begin()
	w.exec(m.open(pane))
	w.settle()
	for i, k := range keys {
		levels, row := len(m.pane().levels), m.pane().top().grid.cursor
		switch k {
		case ":why":
			if pane != queue.PaneQueues {
				return false
			}
			w.exec(m.why("job import in uk"))
			w.settle()
		default:
			w.press(keyOf(k))
		}
		m.notice, m.lastNotice = notice{}, notice{}
		if k == "G" && m.pane().top().grid.cursor == row || k != "G" && i > 0 && (len(m.pane().levels) == levels || m.at != pane) {
			return false
		}
	}
	return true
}

// answersEveryKey presses every key of the help on a pane and its pages, with
// rows or without. Each has a visible effect; if it has none, the status line
// says why. No key alone carries out an action.
func answersEveryKey(t *testing.T, pane queue.Pane, full bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, walkSeed)
		if !full {
			w.close()
			w.store.empty()
			w.open(Options{Actor: "anna", Save: (&folder{}).save})
		}
		for _, page := range opened {
			for _, key := range everyKey(w.m) {
				keys := strings.Split(key, " ")
				if len(page) > 1 && len(keys) > 1 { // these keys depend on the pane alone
					continue
				}
				if !w.visit(pane.ID, page) {
					break
				}
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
					t.Errorf("key %s, after %v: nothing is seen", key, page)
				}
				if did := w.did(); len(did) > w.applied {
					t.Errorf("key %s, after %v: carried out without a dialog: %v", key, page, did)
					w.applied = len(did)
				}
			}
		}
		w.close()
	})
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

// What a person does with the loops of this process changes no row: the console sets a mark of it, once it is
// done, and says what became of the mark.
func TestLoopsOfThisProcessAreMarked(t *testing.T) {
	mark := func(s *fakeStore) (labels []string) {
		for _, p := range s.did() {
			require.Equal(t, queue.ActMark, p.Request.Action)
			labels = append(labels, p.Request.Actor+": "+p.Request.Args["label"])
		}
		return labels
	}
	act := func(c *console, key string) {
		c.press("g", "w", key)
		c.rest(time.Second)
	}
	confirm := func(c *console) {
		c.press("tab", "enter")
		c.rest(time.Second)
	}
	for _, x := range []struct{ key, name, past string }{{"P", "tick", "drained"}, {"X", "tick", "stopped"}, {"S", "sender", "started"}} {
		s := newStore()
		run(t, setup{w: 120, h: 40, store: s, host: newHost()}, func(c *console) {
			label := "anna " + x.past + " loop " + x.name + " on " + viewstest.Host().ID
			if x.key == "S" {
				c.press("g", "w", "j", "j", "j")
			}
			act(c, x.key)
			c.sees(`a mark: "` + label + `"`)
			require.Empty(t, mark(s), "nothing is marked before it is done")
			confirm(c)
			c.sees("Done", "#982, in Audit (ga): a mark")
			require.Equal(t, []string{"anna: " + label}, mark(s))
		})
	}

	// a mark that fails fails the action neither
	s, h := newStore(), newHost()
	run(t, setup{w: 120, h: 40, store: s, host: h}, func(c *console) {
		act(c, "P")
		s.set(func(s *fakeStore) {
			s.plan = func(queue.Request) (queue.Plan, error) {
				return queue.Plan{}, queue.NewError(queue.KindUnavailable, "connection refused", "", "")
			}
		})
		confirm(c)
		require.Equal(t, []string{"drain tick"}, h.said())
		c.sees("Done: drain tick.", "not recorded: connection refused")
	})

	// the same once more within a minute: the label has the time
	s = newStore()
	s.refuse = "anna set a mark with this label at 00:14:00Z"
	run(t, setup{w: 120, h: 40, store: s, host: newHost()}, func(c *console) {
		act(c, "P")
		confirm(c)
		require.Len(t, mark(s), 2)
		require.Regexp(t, ` at \d\d:\d\d:\d\dZ$`, mark(s)[1])
		c.sees("Done: drain tick.", "not recorded: anna set a mark")
	})

	// a login that may not mark
	s, h = newStore(), newHost()
	s.session.Rights[queue.ActMark] = false
	run(t, setup{w: 120, h: 40, store: s, host: h}, func(c *console) {
		act(c, "P")
		c.sees("not recorded: ")
		confirm(c)
		c.sees("Done: drain tick.", "not recorded: ")
		require.Equal(t, []string{"drain tick"}, h.said())
		require.Empty(t, s.did())
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
