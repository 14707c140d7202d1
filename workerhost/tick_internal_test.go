// Tests of the catalogue's hand-offs between loops.
package workerhost

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/lease"
)

// Each hand-off of the catalogue names an existing loop and wakes only that loop.
func TestHandOffs(t *testing.T) {
	t.Parallel()
	all := newLoops(slog.New(slog.DiscardHandler))
	kicked := func() (names []string) {
		for _, l := range all {
			select {
			case <-l.Kicked():
				names = append(names, l.Name)
			default:
			}
		}
		return names
	}
	handOffs := 0
	for _, w := range catalogue() {
		require.NotEmpty(t, queue.Purpose(w.name), w.name)
		next := map[string][]string{}
		for _, h := range w.next {
			handOffs++
			require.Contains(t, LoopNames(), h.next, w.name)
			next[h.count] = append(next[h.count], h.next)
		}
		for count, names := range next {
			all.notifyNext(w.name, map[string]int64{count: 0, "other": 1})
			require.Empty(t, kicked(), "%s found nothing", w.name)
			all.notifyNext(w.name, map[string]int64{count: 1})
			require.ElementsMatch(t, names, kicked(), "%s found %s", w.name, count)
		}
		all.notifyNext(w.name, map[string]int64{"other": lease.MaxBatch})
		require.Equal(t, []string{w.name}, kicked(), "more work remains")
		all.notifyNext(w.name, map[string]int64{"held": lease.MaxBatch, "waiting": lease.MaxBatch, "in_flight": lease.MaxBatch, "checked": lease.MaxBatch, "total": lease.MaxBatch})
		require.Empty(t, kicked(), "%s did nothing", w.name)
	}
	require.Positive(t, handOffs)
}
