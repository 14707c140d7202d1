package views_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
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
	require.Contains(t, ansi.Strip(page), "286 requeued, 0 skipped, 0 failed, 0 undone, 0 left")
	o.FirstOK, o.FirstFailed = 286, 0
	src := views.Operations([]queue.Operation{o})
	all := strings.Join(views.Grid{Source: src, Order: []int{0}, Cursor: -1}.Lines(e, views.Size{W: 80, H: 5}), "\n")
	require.NotContains(t, ansi.Strip(all), "failed")
}

// An item that is requeued and whose first attempt is not settled has no sign of success; of an
// operation that closes dead letters, one that is closed has it. The brake is described as
// fn_queue_bulk_halt works.
func TestItemOfOperationSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	o := queue.Operation{ID: 1, Kind: "requeue_webhook", State: queue.BulkRunning, Frozen: 2, Requeued: 1, Brake: 100}
	items := []queue.OperationItem{{No: 1, Target: queue.Clean("90"), Outcome: "done", NewID: queue.Clean("120")}}
	page := plain(views.OperationPage(o, items, e, 120).Lines)
	require.Regexp(t, "◌ 1 +90  requeued, first attempt not settled → 120", page)
	require.Contains(t, page, "pauses when 100 % of the last 10 to 50 first attempts failed")
	items[0].FirstResult = "ok"
	require.Regexp(t, "✓ 1 +90  requeued, first attempt ok → 120", plain(views.OperationPage(o, items, e, 120).Lines))
	items[0].Why = queue.Clean(strings.Repeat("a long reason of the receiver ", 8) + "and its end")
	for _, w := range []int{60, 80, 200} {
		require.Contains(t, strings.Join(strings.Fields(plain(views.OperationPage(o, items, e, w).Lines)), " "), items[0].Why.String()+" → 120", "%d columns: nothing is cut", w)
	}
	items[0].Why = queue.Text{}
	o.Kind, items[0].FirstResult = queue.BulkResolve, ""
	page = plain(views.OperationPage(o, items, e, 120).Lines)
	require.Regexp(t, "✓ 1 +90  closed → 120", page)
	require.NotContains(t, page, "not settled")
}

// Of a selection of many filters the texts of an operation have the first ones and how many more
// there are; only the end of its page lists all.
func TestSelectionOfManyFiltersIsShort(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	r := queue.Request{}
	var all []string
	for i := range 73 {
		all = append(all, fmt.Sprintf("source=webhook subscription=%d", i+1))
	}
	r.Select(all)
	o := queue.Operation{ID: 1, Kind: "requeue_webhook", Filter: queue.Clean(r.Selection()), State: queue.BulkRunning, Frozen: 80}
	require.Equal(t, all, o.Filters())
	const short = "(source=webhook subscription=1) or (source=webhook subscription=2) or (source=webhook subscription=3) … and 70 more"
	require.Equal(t, short, o.Selected())
	require.Equal(t, "requeue 80 dead letters: "+short, o.Title(views.Count(o.Frozen)))
	s := viewstest.Empty()
	s.Operations = []queue.Operation{o}
	require.Contains(t, plainText(views.PlainLines(&s, e)), short)
	page := plain(views.OperationPage(o, nil, e, 200).Lines)
	require.Contains(t, page, short+" (as stated when planned")
	require.Greater(t, strings.Index(page, "subscription=73"), strings.Index(page, "Items, latest first"))
	for _, n := range []int{1, 2, 4} {
		r.Select(all[:n])
		o.Filter = queue.Clean(r.Selection())
		require.Equal(t, r.Selection(), o.Selected())
		require.Equal(t, all[:n], o.Filters())
	}
}
