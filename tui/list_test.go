package tui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A level has one read at a time. Leaving the level cancels the read, so that
// the database does no work that nobody needs.
func TestLeavingALevelEndsItsRead(t *testing.T) {
	for _, x := range []struct {
		name  string
		stuck queue.ListKind
		to    []string
		leave []string
	}{
		{"to another pane", queue.ListAudit, []string{"g", "a"}, []string{"2"}},
		{"a page with esc", queue.ListDeadLetter, []string{"5", "enter", "enter"}, []string{"esc"}},
		{"a table with esc", queue.ListJobs, []string{"8", "enter"}, []string{"esc"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newStore()
			s.stuck = x.stuck
			run(t, setup{store: s}, func(c *console) {
				c.press(x.to...)
				c.rest(3 * time.Second) // meanwhile refreshes and heartbeats happen
				running, begun := s.reading()
				require.Equal(t, []int{1, 1}, []int{running, begun}, "one read, however long it takes")
				c.press(x.leave...)
				running, _ = s.reading()
				require.Zero(t, running, "it ends with its level, not with its deadline")
				c.press(x.to...)
				running, begun = s.reading()
				require.Equal(t, []int{1, 2}, []int{running, begun}, "who comes back reads again")
			})
		})
	}
}
