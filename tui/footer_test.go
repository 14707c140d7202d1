package tui

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// In a narrow window the footer drops some hints, but never the keys that
// leave a view. Action keys are left of a separator, the others right of it.
func TestFooterKeepsTheWayOut(t *testing.T) {
	for _, w := range []int{60, 80, 120, 200} {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			run(t, setup{w: w, h: 24}, func(c *console) {
				foot := func() string {
					lines := strings.Split(strings.TrimRight(c.screen(), "\n"), "\n")
					return lines[len(lines)-1]
				}
				require.Regexp(t, `A ack.*│.* \?( help)? +:( command)? +q`, foot())
				for _, keys := range [][]string{{"3"}, {"5"}, {"enter"}, {"enter"}, {"6"}, {"7"}, {"8"}, {"9"}, {"g", "f"}, {"g", "w"}} {
					c.press(keys...)
					require.Regexp(t, ` esc( back)? +\?( help)? +:( command)? +q( quit)? *$`, foot(), "%d wide, after %v", w, keys)
				}
			})
		})
	}
}

// In every pane, at every width, with rows and without, and also one and two
// levels deeper, from the first row and from the last: the footer shows each key once, action keys left of the separator
// and the others right of it, and never drops the keys that leave a view.
func TestFooterOfEveryPane(t *testing.T) {
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

// A key that no row of the open level can have is neither in the footer nor among the keys that act
// in this pane; pressed nevertheless, it says where it works.
func TestKeysThatWorkElsewhereAreNotOffered(t *testing.T) {
	for _, x := range []struct {
		keys []string
		not  string
	}{
		{[]string{"5"}, "VZU"}, {[]string{"5", "enter"}, "VZ"}, {[]string{"5", "enter", "enter"}, ""}, {[]string{"8"}, "V"}, {[]string{"8", "enter"}, "V"},
		{[]string{"8", "G", "enter"}, "VC"}, {[]string{"9", "G", "enter"}, "TP"},
	} {
		run(t, setup{w: 200, h: 60}, func(c *console) {
			c.press(x.keys...)
			c.model(func(m *root) {
				help := m.help().(*picker).all
				there := slices.IndexFunc(help, func(e views.Entry) bool { return e.Word == "Act elsewhere" })
				for _, a := range m.actions {
					if a.Key == "" || !worksIn(a, m.at) {
						continue
					}
					offered := slices.ContainsFunc(m.hints(), func(h views.Hint) bool { return h.Key == a.Key })
					i := slices.IndexFunc(help, func(e views.Entry) bool { return e.Key == a.Key && strings.HasPrefix(e.Text, a.Help) })
					require.GreaterOrEqual(t, i, 0, "%v %s in the help", x.keys, a.Key)
					require.Equal(t, !strings.Contains(x.not, a.Key), offered, "%v %s in the footer", x.keys, a.Key)
					require.Equal(t, !strings.Contains(x.not, a.Key), i < there, "%v %s in the help", x.keys, a.Key)
				}
			})
			for _, k := range x.not {
				c.press(string(k))
				require.Zero(t, c.overlays(), "%v %c", x.keys, k)
				c.model(func(m *root) { require.NotEmpty(t, m.notice.text, "%v %c", x.keys, k) })
			}
		})
	}
}

// A key that the footer of a page offers has the row of the page as its target; one that the footer
// of a table offers has a row there, if the data of the test have such a row.
func TestOfferedKeysHaveARow(t *testing.T) {
	for _, p := range Panes() {
		t.Run(string(p.ID), func(t *testing.T) {
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

func requireFooter(t *testing.T, foot string, atHome bool, at string) {
	t.Helper()
	if !atHome || strings.Contains(foot, " esc") {
		require.Regexp(t, ` esc( back)? +\?( help)? +:( command)? +q( quit)? *$`, foot, at)
	}
	require.Regexp(t, ` \?( help)? +:( command)? +q( quit)? *$`, foot, at)
	acting, looking, ok := strings.Cut(foot, "│")
	if !ok {
		acting, looking = "", foot
	}
	seen := map[string]bool{}
	for side, text := range map[string]string{"acting": acting, "looking": looking} {
		for hint := range strings.SplitSeq(strings.TrimSpace(text), "  ") {
			key, _, _ := strings.Cut(strings.Trim(hint, " ()"), " ")
			if key == "" {
				continue
			}
			require.False(t, seen[key], "%s twice: %s", key, at)
			seen[key] = true
			capital := key == "+" || len(key) == 1 && key >= "A" && key <= "Z"
			require.Equal(t, side == "acting", capital, "%s: %s", key, at)
		}
	}
}

// Below an overlay the footer has its key alone, as the keys of the pane do nothing; above it the
// header still shows whether the database answers.
func TestOverlayLeavesTheHeader(t *testing.T) {
	for _, h := range []int{15, 24, 60} {
		run(t, setup{w: 80, h: h}, func(c *console) {
			for _, keys := range [][]string{{"?"}, {"0"}, {"5", "o"}, {"5", "R"}, {"5", "ctrl+a", "N"}, {"3", "A"}} {
				c.press(keys...)
				require.Equal(t, 1, c.overlays(), keys)
				lines := strings.Split(strings.TrimRight(c.screen(), "\n"), "\n")
				require.Contains(t, lines[0], "live", "%d high, after %v", h, keys)
				if h > 15 {
					require.Equal(t, " esc close", strings.TrimRight(lines[h-1], " "), "after %v", keys)
				}
				c.press("esc")
			}
		})
	}
}

// A list that was not read before the database was lost does not claim to be read now.
func TestLostListIsNotBeingRead(t *testing.T) {
	t.Parallel()
	says := func(at scene) string {
		at.level = &level{}
		at.level.list.reading = 7
		return listSource(at, views.Source{}).Empty[0]
	}
	require.Equal(t, "Reading", says(scene{}))
	require.Contains(t, says(scene{lost: true}), "was not read before the database was lost")
}
