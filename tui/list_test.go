package tui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
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

// If the database finds no row under a filter, the pane says that no row matches, not what an empty
// list means: there may be thousands. The reason why a list could not be read ends with its filter.
func TestNoRowUnderAFilter(t *testing.T) {
	var levels [][]string
	for _, p := range newStill(newStore(), newHost(), Options{}).panes {
		if keys := strings.Split(p.Keys, ""); p.list.queried() {
			levels = append(levels, keys)
		}
	}
	require.Greater(t, len(levels), 4)
	for _, keys := range append(levels, []string{"5", "enter"}, []string{"8", "enter"}) {
		m := newStill(newStore(), newHost(), Options{Actor: "anna"})
		m.keys(keys...)
		l := m.pane().top()
		require.True(t, l.list.queried(), keys)
		answer := func(err error) string {
			m.send(pageMsg{read: l.list.reading, err: err})
			return ansi.Strip(m.View().Content)
		}
		m.setFilter("at:zzz")
		frame := answer(nil)
		require.Contains(t, frame, "No row matches at:zzz", keys)
		require.NotContains(t, frame, l.table.rows(m.scene()).Empty[0], keys)

		m.setFilter("slow")
		frame = answer(errors.New("the filter took too long"))
		require.Contains(t, frame, "This could not be read", keys)
		require.NotContains(t, frame, "No row matches", keys)
		m.setFilter("quick")
		require.NotContains(t, ansi.Strip(m.View().Content), "took too long", "%s: that was another filter", keys)
		m.setFilter("")
		frame = answer(nil)
		require.NotContains(t, frame, "No row matches", keys)
		require.NotContains(t, frame, "Reading", keys)
	}
}
