//go:build !race

package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// grown returns n rows: copies of the given ones, each with another name.
func grown[T any](rows []T, n int, name func(row *T, as queue.Text)) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = rows[i%len(rows)]
		name(&out[i], queue.Clean(fmt.Sprintf("row-%04d", i)))
	}
	return out
}

// On a tall screen the list and the page of a row (the detail) share the
// pane's area. Both are visible, however long the list is; no blank lines
// separate them, and the row under the cursor is always visible.
func TestListAndDetailBothShow(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 19, 41, 44, 200} {
		s := newStore()
		p := &s.snap
		p.Executors = grown(p.Executors, n, func(x *queue.Executor, as queue.Text) { x.ID = as })
		p.JobSubscriptions = nil
		p.Health = grown(p.Health, n, func(x *queue.HealthRow, as queue.Text) { x.Subject = as })
		p.Alerts = grown(p.Alerts[:1], n, func(x *queue.Alert, as queue.Text) { x.Subject, x.Key = as, as })
		p.Flags = grown(p.Flags, n, func(x *queue.Flag, as queue.Text) { x.Key = as })
		p.Queues = grown(p.Queues, n, func(x *queue.Lane, as queue.Text) { x.Kind = as })
		p.JobLeases = nil
		s.audit = grown(s.audit, n, func(x *queue.AuditEntry, as queue.Text) { x.Target = as })
		for i := range s.audit {
			s.audit[i].ID = int64(i + 1)
		}
		m := newStill(s, nil, Options{Actor: "anna"})
		for _, pane := range []string{"2", "3", "4", "8", "gf", "ga"} {
			for _, size := range [][2]int{{80, 24}, {120, 40}, {120, 48}, {200, 60}, {200, 90}} {
				m.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				m.keys("1")
				m.keys(strings.Split(pane, "")...)
				m.lists()
				m.keys("g", "g")
				for _, key := range []string{"", "pgdown", "j", "j", "G", "k", "pgup"} {
					if key != "" {
						m.keys(key)
					}
					what := fmt.Sprintf("%d rows, pane %s, %v, after %q", n, pane, size, key)
					lines := strings.Split(ansi.Strip(m.frame()), "\n")
					require.Len(t, lines, size[1], what)
					require.True(t, slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "▌") && strings.Contains(l, "row-") }), "no row has the cursor: %s\n%s", what, strings.Join(lines, "\n"))
					rule := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, " ─────") })
					if size[1] < 48 {
						require.True(t, n > 2 || pane == "8" || rule > 0, what)
						continue
					}
					require.Positive(t, rule, what)
					require.GreaterOrEqual(t, size[1]-2-rule, 13, what)
					require.Empty(t, strings.TrimSpace(lines[rule-1]), what)
					require.Contains(t, lines[rule-2], "row-", what)
				}
			}
		}
	}
}
