package tui

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
				c.model(func(m *root) { require.Negative(t, m.pane().top().grid.anchor) })
			})
		})
	}
}
