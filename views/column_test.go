// Tests of columns: one declaration (type Column) makes the column of the
// pane, that of a verb's table, and the member of the export.

package views_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// tables returns the lists that verbs print, each with its Source.
func tables(w viewstest.World) map[string]views.Source {
	s := &w.Snapshot
	out := map[string]views.Source{
		"audit": views.Audit(w.Audit), "dlq": views.DeadLetters(w.DeadLetters), "jobs": views.Jobs(w.Jobs, 0), "ops": views.Operations(w.Operations),
		"operation-items": views.OperationItems(w.Operations[2], w.Items), "webhooks": views.Webhooks(w.Endpoints, w.Leases), "webhook-leases": views.Webhooks(nil, w.Leases),
		"notifications": views.Notifications(w.Notifications), "notification-log": views.Notifications(w.Notifications),
		"subscriptions": views.EventSubscriptions(w.EventSubscriptions, w.Broadcast), "unrouted": views.EventSubscriptions(nil, w.Broadcast),
		"routes":      views.Routes([]queue.Route{{Domain: queue.Clean("iu"), Waiting: 10_001}}),
		"consumers":   views.Consumers([]queue.Consumer{{ID: queue.Clean("c"), Enabled: true}}),
		"event-types": views.EventTypes([]queue.EventType{{Domain: queue.Clean("iu"), EventType: queue.Clean("made"), Active: true}}),
		"producers":   views.Producers([]queue.ProducerRole{{Kind: queue.Clean("DOT")}}),
	}
	for _, list := range []string{"alerts", "dlq-groups", "executors", "executor-rules", "flags", "health", "hosts", "job-leases", "queues", "scheduler", "waiting"} {
		out[list] = views.SnapshotTable(list, s)
	}
	return out
}

// Every row of every list has a value for each heading, no two headings are equal, and the list of
// an exported row is one of the known export lists.
func TestTablesOfVerbs(t *testing.T) {
	t.Parallel()
	for list, src := range tables(viewstest.RichWorld()) {
		heads, rows := src.Table(list)
		require.NotEmpty(t, rows, list)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(heads))), len(heads), "%s: %v", list, heads)
		for _, r := range rows {
			require.Len(t, r, len(heads), list)
		}
		l, err := queue.ExportListNamed(list)
		require.NoError(t, err)
		name, of := src.Export(0)
		if name == list {
			require.Equal(t, reflect.TypeOf(l.Row), reflect.TypeOf(of[0]), list)
		}
	}
}

// The table of a verb shortens nothing: ids are complete, times are RFC 3339, ages have their two
// largest units.
func TestTablesShortenNothing(t *testing.T) {
	t.Parallel()
	w := viewstest.RichWorld()
	cell := func(list, head string) string {
		heads, rows := tables(w)[list].Table(list)
		require.Contains(t, heads, head)
		return rows[0][slices.Index(heads, head)]
	}
	require.Equal(t, w.Jobs[0].ID, cell("jobs", "ID"))
	require.Equal(t, views.PlainTime(&w.DeadLetters[0].FailedAt), cell("dlq", "FAILED"))
	require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, cell("dlq", "FAILED"))
	require.Equal(t, views.PlainAge(w.Snapshot.Alerts[0].AgeSeconds), cell("alerts", "FOR"))
	require.Equal(t, "≥10000", cell("routes", "WAITING"))
	screen := strings.Join(grid(views.Jobs(w.Jobs, 80), nil).Lines(env(theme.Options{}), views.Size{W: 80, H: 20}), "\n")
	require.NotContains(t, screen, w.Jobs[0].ID, "a pane does")
}
