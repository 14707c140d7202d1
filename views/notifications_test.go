package views_test

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The tab counts notifications that failed, but not those that wait.
func TestTabCountsFailedNotifications(t *testing.T) {
	t.Parallel()
	count := func(failed int64) views.Tab {
		s := viewstest.Empty()
		s.Health = append(s.Health, queue.HealthRow{Source: queue.Clean("notification_pending"), DeadLettered: &failed})
		for _, tab := range viewstest.Tabs(&s, queue.PaneOverview) {
			if tab.Keys == "gn" {
				return tab
			}
		}
		require.Fail(t, "there is no gn")
		return views.Tab{}
	}
	require.EqualValues(t, 3, count(3).Count)
	require.Zero(t, count(0).Count)
}

// The head says if the worker never ran, is off or is late.
func TestNotificationHead(t *testing.T) {
	t.Parallel()
	head := func(change func(*queue.Notifications)) string {
		n := viewstest.Notifications()
		change(&n)
		return ansi.Strip(strings.Join(views.NotificationHead(&n, env(theme.Options{}), 120), "\n"))
	}
	require.Contains(t, head(func(*queue.Notifications) {}), "3 failed · the notification worker ran 34s ago · every 2m")
	require.Contains(t, head(func(n *queue.Notifications) { n.LastRunAt = nil }), "the notification worker has never run")
	require.Contains(t, head(func(n *queue.Notifications) { n.IntervalSeconds = 0 }), "switched OFF")
	require.Contains(t, head(func(n *queue.Notifications) { n.Stale = true }), "STALE")
	require.NotContains(t, head(func(n *queue.Notifications) { n.Failed = 0 }), "failed")
	require.Contains(t, head(func(n *queue.Notifications) { n.DebouncingBound = true }), "≥37 in the debounce")
	n := viewstest.Notifications()
	n.Stale, n.IntervalSeconds, n.Failed = true, 0, 1200
	narrow := ansi.Strip(strings.Join(views.NotificationHead(&n, env(theme.Options{}), 60), "\n"))
	require.Contains(t, narrow, "1,200 failed · STALE · switched OFF", "what is wrong is not cut")
	require.Empty(t, views.NotificationHead(nil, env(theme.Options{}), 80))
}

// The row of a group shows the event that the tick worker would make of its
// due rows.
func TestStagedGroupTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		g    queue.StagedGroup
		kind string
		n    int64
	}{
		{queue.StagedGroup{Keyed: true, Pieces: 5}, "document_imported", 1},
		{queue.StagedGroup{Keyed: true, Pieces: 5, Due: 1}, "new_piece_created", 1},
		{queue.StagedGroup{Keyed: true, Pieces: 5, Due: 2}, "document_imported", 1},
		{queue.StagedGroup{Keyed: true, Pieces: 1}, "new_piece_created", 1},
		{queue.StagedGroup{Pieces: 5, Due: 3}, "new_piece_created", 3},
	} {
		kind, n := c.g.Told(2)
		require.Equal(t, c.kind, kind, c.g)
		require.Equal(t, c.n, n, c.g)
	}
}

// The page of a group that is not due says once in how long the group is due.
func TestPageOfAGroupThatIsNotDue(t *testing.T) {
	t.Parallel()
	n := queue.Notifications{DebounceSeconds: 60, Threshold: 2, Groups: []queue.StagedGroup{{Key: queue.Clean("doc"), Keyed: true, Document: true, Pieces: 5, OldestAt: viewstest.Now().Add(-33 * time.Second)}}}
	page, ok := views.NotificationPage(&n, views.Notifications(&n).ID(0), env(theme.Options{}), 100)
	require.True(t, ok)
	require.Contains(t, plain(page.Lines), "due in 27s, then at the next run")
}
