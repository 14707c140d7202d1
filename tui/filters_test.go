package tui

import (
	"testing"
	"testing/synctest"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"
)

// Each pane declares which table enter opens from its rows. docs/keys.md lists
// the filter fields of that table.
func TestNestedTablesAreDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, walkSeed)
		defer w.close()
		w.send(tea.WindowSizeMsg{Width: 120, Height: 40})
		lists := 0
		for _, p := range Panes() {
			w.exec(w.m.open(p.ID))
			w.settle()
			pane := w.m.pane()
			var opened table
			for _, i := range pane.top().grid.order {
				if l := pane.top().table.under(w.m.scene(), i); l.table != nil {
					require.Equal(t, pane.nested, l.table, p.ID)
					opened = l.table
				}
			}
			if opened != nil {
				require.NotEmpty(t, opened.what(), p.ID)
				lists++
			}
		}
		require.GreaterOrEqual(t, lists, 2)
	})
}
