//go:build race

package tui

// Short forms of the walks of everypane_test.go: the race detector sees the
// commands of every pane beside the model.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func TestRandomWalkRaced(t *testing.T) {
	t.Parallel()
	seen, _ := randomWalk(t, 40*len(Panes())) // so that each pane is opened once, and some are left at once
	require.Greater(t, len(seen), len(Panes())/2, "panes that the walk has seen")
}

func TestRandomResizesRaced(t *testing.T) {
	t.Parallel()
	randomResizes(t, 100)
}

func TestEveryKeyIsAnsweredRaced(t *testing.T) {
	t.Parallel()
	for _, pane := range Panes() {
		if pane.ID == queue.PaneQueues { // the pane with the most pages
			answersEveryKey(t, pane, true)
		}
	}
}
