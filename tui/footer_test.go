package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
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

// In every pane, at every width, with rows and without, and also one level
// deeper: the footer shows each key once, action keys left of the separator
// and the others right of it, and never drops the keys that leave a view.
func TestFooterOfEveryPane(t *testing.T) {
	for _, full := range []bool{true, false} {
		s := setup{h: 24}
		if !full {
			s.store = newStore()
			s.store.snap, s.store.deadLetters, s.store.jobs, s.store.audit, s.store.subscriptions = viewstest.Empty(), nil, nil, nil, nil
		}
		run(t, s, func(c *console) {
			for _, p := range Panes() {
				for _, deeper := range []bool{false, true} {
					c.press(strings.Split(p.Keys, "")...)
					if deeper {
						c.press("enter")
					}
					for _, w := range []int{60, 80, 100, 120, 160, 200} {
						c.p.Send(tea.WindowSizeMsg{Width: w, Height: 24})
						c.rest(time.Millisecond)
						var lines []string
						c.model(func(m *root) { lines = strings.Split(strings.TrimRight(ansi.Strip(m.frame()), "\n"), "\n") })
						foot := lines[len(lines)-1]
						requireFooter(t, foot, p.ID == home(), fmt.Sprint(w, " ", p.ID, " full=", full, " deeper=", deeper, ": ", foot))
					}
					c.press("esc", "esc")
				}
			}
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
