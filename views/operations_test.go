package views_test

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// An operation that has ended and whose first attempts failed does not look fine, at any width.
func TestEndedOperationShowsFailedFirstAttempts(t *testing.T) {
	o := queue.Operation{ID: 1, Kind: "requeue_webhook", Filter: queue.Clean("code:HTTP_503"), State: queue.BulkCompleted, Frozen: 286, Requeued: 286, Sent: 286, Done: 286, FirstFailed: 286, Rate: 20}
	e := env(theme.Options{Depth: theme.Sixteen})
	for _, w := range []int{80, 100, 120, 160, 200} {
		src := views.Operations([]queue.Operation{o})
		all := strings.Join(views.Grid{Source: src, Order: []int{0}, Cursor: -1}.Lines(e, views.Size{W: w, H: 5}), "\n")
		require.Contains(t, ansi.Strip(all), "0 ok / 286 failed", w)
		require.Contains(t, all, e.Theme.Critical.Paint("completed"), w)
	}
	page := strings.Join(views.OperationPage(o, nil, e, 80).Lines, "\n")
	require.Contains(t, ansi.Strip(page), "0 ok / 286 failed")
	o.FirstOK, o.FirstFailed = 286, 0
	src := views.Operations([]queue.Operation{o})
	all := strings.Join(views.Grid{Source: src, Order: []int{0}, Cursor: -1}.Lines(e, views.Size{W: 80, H: 5}), "\n")
	require.NotContains(t, ansi.Strip(all), "failed")
}
