package tui

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The input line shows the part of a long text that has the caret, and marks where it is cut.
func TestTheInputLineScrolls(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press(":")
		c.typing("requeue " + strings.Repeat("12345 ", 20) + "the-end")
		c.sees("the-end▏")
		c.seesNot(":requeue")
		c.press("home")
		c.sees(":▏requeue 12345")
		c.seesNot("the-end")
		for range len("requeue 12345 12345 ") {
			c.press("right")
		}
		c.sees(":requeue 12345 12345 ▏12345")
		c.press("esc")
	})
	run(t, setup{}, func(c *console) {
		c.press("2", "/")
		c.typing(strings.Repeat("source:実時間 ", 8) + "nosuch:1")
		c.sees("nosuch:1▏")
		lines := strings.Split(c.screen(), "\n")
		for i, line := range lines {
			if before, _, ok := strings.Cut(line, "nosuch:1▏"); ok {
				require.Equal(t, cells(before), cells(strings.Split(lines[i+1], "^")[0]), "the mark is below the word\n%s\n%s", line, lines[i+1])
				return
			}
		}
		require.Fail(t, "no input line")
	})
}
