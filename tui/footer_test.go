package tui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The keys that lead out of every place never fall off the footer, and acting keys are apart
// from looking keys.
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
