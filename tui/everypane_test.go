//go:build !race

package tui

// The walks through every pane, with all their keys, run without the race
// detector, under which they take ten times as long. raced_test.go has shorter
// walks for it.

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func TestEveryKeyIsAnswered(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{true, false} {
		for _, pane := range Panes() {
			t.Run(fmt.Sprint(pane.ID, " full=", full), func(t *testing.T) {
				t.Parallel()
				answersEveryKey(t, pane, full)
			})
		}
	}
}

func TestRandomWalk(t *testing.T) {
	t.Parallel()
	n := 2_000
	if os.Getenv("QTOP_TEST_FULL") != "" {
		n = 100_000
	}
	seen, confirmed := randomWalk(t, n)
	require.Len(t, seen, len(Panes()), "panes that the walk has seen")
	require.Positive(t, confirmed, "actions that the walk confirmed")
}

func TestRandomResizes(t *testing.T) {
	t.Parallel()
	randomResizes(t, 1_000)
}

// In every pane, at every width, with rows and without, and also one and two
// levels deeper, from the first row and from the last: the footer shows each key once, action keys left of the separator
// and the others right of it, and never drops the keys that leave a view.
func TestFooterOfEveryPane(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{true, false} {
		s := setup{h: 24}
		if !full {
			s.store = newStore()
			s.store.empty()
		}
		run(t, s, func(c *console) {
			for _, p := range Panes() {
				depths := [][]string{nil, {"enter"}, {"enter", "enter"}, {"G", "enter"}, {"G", "enter", "enter"}}
				if os.Getenv("QTOP_TEST_FULL") == "" {
					depths = depths[:3]
				}
				for _, deeper := range depths {
					c.press(strings.Split(p.Keys, "")...)
					c.press(deeper...)
					for _, w := range queue.Choose(len(deeper) == 0, []int{60, 80, 100, 120, 160, 200}, []int{60, 120}) {
						c.p.Send(tea.WindowSizeMsg{Width: w, Height: 24})
						c.rest(time.Millisecond)
						var lines []string
						c.model(func(m *root) { lines = strings.Split(strings.TrimRight(ansi.Strip(m.frame()), "\n"), "\n") })
						foot := lines[len(lines)-1]
						requireFooter(t, foot, p.ID == home(), fmt.Sprint(w, " ", p.ID, " full=", full, " deeper=", deeper, ": ", foot))
					}
					c.press("esc", "esc", "esc")
				}
			}
		})
	}
}

// A key that the footer of a page offers has the row of the page as its target; one that the footer
// of a table offers has a row there, if the data of the test have such a row.
func TestOfferedKeysHaveARow(t *testing.T) {
	t.Parallel()
	for _, p := range Panes() {
		t.Run(string(p.ID), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWalker(t, walkSeed)
				defer w.close()
				// Every database has the tick worker that T runs in pane gn.
				notifier := queue.TickWorker{Name: queue.Clean("iu_notification_worker"), IntervalSeconds: 120, State: "ok"}
				w.store.set(func(s *fakeStore) { s.snap.Ticks = append(s.snap.Ticks, notifier) })
				if s := w.m.feed.snapshot; s != nil {
					s.Ticks = append(s.Ticks, notifier)
				}
				w.exec(w.m.open(p.ID))
				w.settle()
				l := w.m.pane().top()
				if l.table == nil {
					return
				}
				works := func(key string) string {
					a, _ := w.m.actionFor(key)
					at := w.m.scene().acting()
					find := at.target(a.ID)
					if find == nil {
						return ""
					}
					return find(at, &queue.Request{Args: map[string]string{}})
				}
				var acting []string
				for _, h := range w.m.hints() {
					if h.Acts {
						acting = append(acting, h.Key)
					}
				}
				able := map[string]string{}
				rows := len(l.grid.order)
				for i := range rows {
					w.m.panes[p.ID].begin()
					w.exec(w.m.open(p.ID))
					w.settle()
					g := &w.m.pane().top().grid
					g.at = g.src.ID(g.order[i])
					w.m.settle()
					for _, k := range acting {
						if why := works(k); able[k] == "" {
							able[k] = queue.Choose(why == "", "yes", "")
						}
					}
					w.exec(w.m.enter())
					w.settle()
					if w.m.pane().top().page == nil {
						continue
					}
					for _, h := range w.m.hints() {
						if h.Acts {
							require.Empty(t, works(h.Key), "page of row %d, key %s", i, h.Key)
						}
					}
				}
				for _, k := range acting {
					require.True(t, able[k] != "" || string(p.ID)+k == "alertsR", "key %s works on no row of %d", k, rows)
				}
			})
		})
	}
}
