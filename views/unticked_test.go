package views_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The Overview has one row for each reason why tick workers do not run. A tick
// worker whose last run failed does run. If no host is alive, another row says
// that.
func TestOverviewNamesWhatNobodyTicks(t *testing.T) {
	t.Parallel()
	tick := func(name, state, why string) queue.TickWorker {
		return queue.TickWorker{Name: queue.Clean(name), IntervalSeconds: 60, State: state, Why: queue.Clean(why)}
	}
	s := viewstest.RichWorld().Snapshot
	s.Ticks = []queue.TickWorker{
		tick("a", "ok", "no live host runs it"), tick("b", "stale", "its lease is held by pid 7, login eve"), tick("c", "ok", "no live host runs it"),
		tick("d", "failed", "its last run failed: x"), tick("e", "ok", ""),
	}
	said := func() (rows []string) {
		for _, line := range views.PlainLines(&s, env(theme.Options{})) {
			if strings.HasPrefix(line.Text, "NOT TICKED ") {
				rows = append(rows, line.Text)
			}
		}
		return rows
	}
	require.Equal(t, []string{"NOT TICKED a +1 more in 9, no live host runs it", "NOT TICKED b, its lease is held by pid 7, login eve"}, said())
	s.Flow.HostsAlive = 0
	require.Equal(t, []string{"NOT TICKED b, its lease is held by pid 7, login eve"}, said())
}
