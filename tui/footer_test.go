package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// The footer names select, order and export only where the table can do that.
func TestKeysOfATableAreOfferedWhereTheyWork(t *testing.T) {
	for keys, want := range map[string]string{
		"5": "space o x", "5 enter": "space o x", "8 enter": "space o x", "4": "o x", "g a": "x", "g a enter": "x", "g n": "x", "g w": "o", "g l": "space o x", "7": "space o x",
	} {
		s := newStore()
		op, n := int64(12), int64(3)
		s.audit[0].OperationID, s.audit[0].Batches, s.audit[0].LastAt = &op, &n, &s.audit[0].At
		m := newStill(s, newHost(), Options{Actor: "anna"})
		m.keys(strings.Fields(keys)...)
		l := m.pane().top()
		require.NotNil(t, l.table, keys)
		var shown []string
		for _, h := range m.hints() {
			if slices.Contains([]string{"space", "o", "x"}, h.Key) {
				shown = append(shown, h.Key)
			}
		}
		require.Equal(t, want, strings.Join(shown, " "), keys)
		m.keys("o")
		require.Equal(t, slices.Contains(shown, "o"), len(m.over) > 0, keys)
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

// The number of selected rows is in the status line however long the title of the list is.
func TestSelectedRowsAreCountedBesideALongTitle(t *testing.T) {
	for _, w := range []int{60, 80} {
		s := newStore()
		s.snap.DeadGroups[0].Endpoint = queue.Clean("hooks.a-customer-with-a-very-long-name.eu-central-1.example.com:8443")
		run(t, setup{store: s, w: w, h: 24}, func(c *console) {
			c.press("5", "enter", "space", "space")
			c.sees("Dead letters → ", "… · 2 selected, 40 of 4,640")
			c.press("g", "g")
			s.set(func(s *fakeStore) { s.deadLetters = s.deadLetters[1:] })
			c.rest(time.Minute)                                    // the message that a selected row is gone has ended
			c.sees("the cursor's row is not loaded", "1 selected") // 40 of 4,639 are loaded
		})
	}
}
