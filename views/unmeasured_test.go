package views_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// A value that was never measured is a dash on the screen and in the table of a verb, never a 0,
// which would look fast, young or slow.
func TestUnmeasuredIsADash(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	x := queue.Executor{ID: queue.Clean("new"), State: "idle"}
	for name, c := range map[string]struct {
		src  views.Source
		list string
		want map[string]string // by title: the text on the screen, and the text in the table
	}{
		"endpoint": {views.Webhooks([]queue.Endpoint{{Endpoint: queue.Clean("a.example"), Gate: "open"}}, nil), "webhooks", map[string]string{
			"oldest": "–/OLDEST", "p50": "–/P50", "p95": "–/P95", "last success": "–/LAST SUCCESS", "rate": "–/RATE"}},
		"executor": {views.Executors(&queue.Snapshot{Executors: []queue.Executor{x}}), "executors", map[string]string{
			"last beat": "never/LAST BEAT", "×cadence": "–/RATIO", "in flight": "–/IN FLIGHT", "done": "–/DONE"}},
		"lane": {views.Lanes(&queue.Snapshot{Queues: []queue.Lane{{Kind: queue.Clean("k")}}}, 200), "queues", map[string]string{"oldest": "–/OLDEST", "clears in": "–/CLEARS IN"}},
		"loop": {views.Loops(&queue.HostStatus{Loops: []queue.LoopStatus{{Name: "l", State: "stopped"}}}), "", map[string]string{"last tick": "–/", "rate/s": "–/"}},
	} {
		row := c.src.Row(0, e)
		heads, rows := c.src.Table(c.list)
		for title, want := range c.want {
			screen, head, _ := strings.Cut(want, "/")
			k := -1
			for i, col := range c.src.Columns {
				if col.Title == title {
					require.Equal(t, screen, ansi.Strip(row.Cells[i].Text), "%s, %s", name, title)
					k = i
				}
			}
			require.GreaterOrEqual(t, k, 0, "%s has no column %s", name, title)
			if at := slices.Index(heads, head); at >= 0 {
				require.Equal(t, "-", rows[0][at], "%s, %s of the table", name, head)
			}
		}
	}
}
