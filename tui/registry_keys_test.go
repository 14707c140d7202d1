package tui

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// E changes the event type under the cursor, O the producers of the executor's
// kind.
func TestRegistriesFromTheScreen(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("g", "s")
		x.sees("REACHES NOBODY")
		x.press("G", "k", "k", "k", "E")
		x.sees("kg/node.updated", "Stream")
		x.press("up", "up", "up", "up", "up") // the focus is on Reason, the only required input that is empty
		x.typing("graph")
		x.press("enter", "enter", "enter", "enter", "enter")
		x.typing("one stream")
		x.press("enter")
		x.rest(quiet)
		got := last(s.asked())
		require.Equal(t, queue.ActEventTypeSet, got.Action)
		require.Equal(t, []string{"kg/node.updated"}, got.Targets)
		require.Equal(t, "graph", got.Args["stream"])
	})
	s = newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("4")
		x.sees("iu_outbound_default")
		x.press("O")
		x.sees("Producers of an executor kind", "Role")
		x.typing("shop")
		x.press("enter", "enter")
		x.typing("they alone")
		x.press("enter")
		x.rest(quiet)
		got := last(s.asked())
		require.Equal(t, queue.ActProducerSet, got.Action)
		require.Equal(t, []string{"PG_worker"}, got.Targets)
		require.Equal(t, "shop", got.Args["role"])
	})
}
