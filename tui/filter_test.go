package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A filter that is opened again is the same filter, also if a quoted word has several blanks. A pasted command
// of several lines is one command, as in a shell.
func TestBlanksOfALineStay(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		const filter = `reason:"a  b"`
		applied := func() (text string) {
			c.model(func(m *root) { text = m.pane().top().grid.text })
			return text
		}
		c.press("g", "f", "/")
		c.typing(filter)
		c.press("enter", "/", "enter")
		require.Equal(t, filter, applied())
		c.press("/")
		c.model(func(m *root) { m.line.input.SetValue("") })
		c.p.Send(tea.PasteMsg{Content: "  " + filter + "\r\n"})
		c.press("enter")
		require.Equal(t, filter, applied())
		for _, end := range []string{"\n", "\r", "\r\n"} {
			c.press("5", ":")
			c.p.Send(tea.PasteMsg{Content: "qtop requeue --filter 'code:HTTP_503' \\" + end + "   --reason\u00a0'receiver  is back' \\" + end + "\t--yes" + end})
			c.press("enter")
			c.rest(quiet)
			require.Equal(t, "code:HTTP_503", last(s.asked()).Filter)
			require.Equal(t, "receiver  is back", last(s.asked()).Reason)
			c.press("esc")
		}
		c.press("?", "/")
		c.p.Send(tea.PasteMsg{Content: "rate of\n"})
		c.press("enter")
		c.sees("filter: rate of", "double and halve the rate of")
		c.seesNot("open what is under the cursor")
	})
}

// "All that match" and an open range end with the filter under which they were made, however it
// is dropped or changed: else an action would take rows that the operator has not seen.
func TestAFilterTakesItsSelectionWithIt(t *testing.T) {
	for name, keys := range map[string][]string{
		"esc":                      {"esc"},
		"another filter":           {"/", "code:X", "enter"},
		"another pane and back":    {"6", "5"},
		"tab and shift+tab":        {"tab", "shift+tab"},
		"a command and back":       {":", "ops", "enter", "5"},
		"the Overview and back":    {"1", "5"},
		"a filter and the old one": {"/", "code:X", "enter", "/", "esc", "esc", "/", "age>2h", "enter"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			press := func(c *console, keys []string) {
				for _, k := range keys {
					if len(k) > 1 && strings.ContainsAny(k, ":>") || k == "ops" {
						c.typing(k)
					} else {
						c.press(k)
					}
				}
			}
			run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
				press(c, []string{"5", "enter", "/", "age>2h", "enter", "ctrl+a", "ctrl+a"})
				c.sees("all 4,640 matching rows selected")
				press(c, keys)
				c.seesNot("all 4,640 selected")
				c.press("R")
				c.typing("x")
				c.press("enter")
				c.rest(quiet)
				require.Empty(t, last(s.asked()).Filter)
				require.NotEmpty(t, last(s.asked()).Targets)
			})
			run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
				press(c, []string{"5", "enter", "/", "age>2h", "enter", "v", "j"})
				press(c, keys)
				c.model(func(m *root) { require.Empty(t, m.pane().top().grid.anchor) })
			})
		})
	}
}

// ctrl+a twice claims all matching rows only where an action takes them: else the status line
// would name more rows, or others, than the key works on.
func TestAllThatMatchIsOnlyWhereActionsTakeIt(t *testing.T) {
	for name, x := range map[string]struct {
		to   []string
		all  bool
		says string
	}{
		"dead letters of a group": {[]string{"5", "enter"}, true, "all 4,640 matching rows selected"},
		"jobs of a lane":          {[]string{"8", "enter"}, true, "all 1,216 matching rows selected"},
		"groups":                  {[]string{"5"}, false, " selected"},
		"stuck leases":            {[]string{"8"}, false, " selected"},
		"webhook leases":          {[]string{"7"}, false, "3 selected"},
		"sessions":                {[]string{"g", "l"}, false, "6 selected"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setup{w: 120, h: 40}, func(c *console) {
				c.press(x.to...)
				c.press("ctrl+a")
				if !x.all {
					c.seesNot("ctrl+a again", "matching rows")
				}
				c.press("ctrl+a")
				c.sees(x.says)
				c.model(func(m *root) {
					at := m.scene()
					require.Equal(t, x.all, at.level.grid.all)
					require.NotEmpty(t, at.level.grid.selected)
					for _, a := range m.actions {
						find := at.target(a.ID)
						req := queue.Request{Args: map[string]string{}}
						if find == nil || !x.all || find(at, &req) != "" {
							continue
						}
						require.NotEmpty(t, req.Filter, a.ID)
						require.Empty(t, req.Targets, a.ID)
					}
				})
			})
		})
	}
}

// The list behind "other groups" has all dead letters of the database, which no filter matches and no action takes:
// ctrl+a does not promise them, and says what to do. With a filter it is a list like any other.
func TestOtherGroupsAreTakenWithAFilter(t *testing.T) {
	s := newStore()
	s.snap.DeadMore = queue.DeadMore{Groups: 850, Open: 984_123} // more than any group: it is the first row
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		req := func() (r queue.Request) {
			c.press("R")
			c.model(func(m *root) { r = m.over[0].(*dialog).req })
			c.press("esc")
			return r
		}
		c.press("5", "home", "enter")
		for range 2 {
			c.press("ctrl+a")
			c.sees("40 selected; all 4,640 need a filter: press / first")
		}
		require.Len(t, req().Targets, 40)
		c.press("/")
		c.typing("code:HTTP_503 state:resolved")
		c.press("enter", "ctrl+a", "ctrl+a")
		c.sees("all 4,640 matching rows selected")
		c.press("p", "p")
		c.seesNot("open dead letters")
		require.Equal(t, "code:HTTP_503 state:resolved", req().Filter)
	})
}

// esc in a filter that is being typed leaves the cursor on the row, and the page at the lines, where
// they were: else the next key would act on another row.
func TestEscInAFilterGoesBack(t *testing.T) {
	for _, keys := range [][]string{{"4"}, {"6"}, {"7"}, {"8"}, {"g", "f"}, {"g", "l"}} {
		run(t, setup{w: 120, h: 40}, func(c *console) {
			c.press(keys...)
			c.press("j", "j")
			subject := func() (id string) {
				c.model(func(m *root) { id = m.scene().subject() })
				return id
			}
			was := subject()
			require.NotEmpty(t, was, keys)
			c.press("/")
			c.typing("zzzz")
			c.press("esc")
			c.rest(time.Second)
			require.Equal(t, was, subject(), keys)
		})
	}
	run(t, setup{w: 80, h: 20}, func(c *console) {
		c.press("5", "enter", "enter", "j")
		offset := func() (n int) {
			c.model(func(m *root) { n = m.pane().top().offset })
			return n
		}
		c.press("/")
		c.typing("payload")
		require.Greater(t, offset(), 1)
		c.press("esc")
		require.Equal(t, 1, offset())

		c.press("/")
		c.typing("payload")
		c.press("enter", "/")
		c.typing("zz")
		c.press("esc")
		c.model(func(m *root) { require.Equal(t, "payload", m.pane().top().find) })
		c.press("esc", "esc")
		c.model(func(m *root) { require.Len(t, m.pane().levels, 2, "the search ends, then the page closes") })
	})
}

// The row may be one of a further page: the loaded rows are shown again with the filter, however many they are.
func TestEscInAFilterKeepsTheLoadedRows(t *testing.T) {
	for _, rows := range []int{450, 1300} { // a list of the second length is not read again by itself
		s := newStore()
		first := s.operations[0]
		s.operations = nil
		for i := range rows {
			first.ID = int64(10_000 - i)
			s.operations = append(s.operations, first)
		}
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press("6")
			loaded := func() (n int) {
				c.model(func(m *root) { n = m.pane().top().list.rows() })
				return n
			}
			for loaded() < rows {
				c.press("G")
				c.rest(time.Second)
			}
			c.press("k", "k", "k")
			subject := func() (id string) {
				c.model(func(m *root) { id = m.scene().subject() })
				return id
			}
			was := subject()
			require.NotEmpty(t, was)
			c.press("/")
			c.typing("zz")
			c.rest(time.Second)
			require.Equal(t, 1, loaded())
			c.press("esc")
			still := func() {
				t.Helper()
				require.Equal(t, was, subject())
				c.rest(time.Minute)
				require.Equal(t, was, subject())
				require.Equal(t, rows, loaded())
				c.seesNot("the cursor's row is")
			}
			still()
			c.press("/")
			c.typing("z")
			c.rest(time.Second)
			c.press("backspace")
			c.rest(time.Second)
			require.Less(t, loaded(), rows)
			c.press("esc")
			still()
		})
	}
}

// The status line reports that an order is one of the loaded rows only: its first row need not be the
// first of all.
func TestOrderOfAPartOfTheRows(t *testing.T) {
	run(t, setup{w: 120, h: 24}, func(c *console) {
		c.press("5", "enter")
		c.seesNot("of the loaded rows")
		c.press("o", "2")
		c.sees("failed, oldest first, of the loaded rows")
		c.press("o", "1")
		c.seesNot("of the loaded rows")
		c.press("7", "o", "2") // all of these are loaded
		c.seesNot("of the loaded rows")
	})
}
