package views_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The head says whether the share is over its limit, and whether resolution is off. A share above 0
// is not shown as 0.
func TestEventSubscriptionsTop(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	for _, c := range []struct {
		b    queue.Broadcast
		says string
	}{
		{queue.Broadcast{On: true, Line: 5, Shares: []queue.BroadcastShare{{}}}, "· BROADCAST no event in 24 h"},
		{queue.Broadcast{On: true, Line: 5, Shares: []queue.BroadcastShare{{Events: 100_000, Broadcast: 1}}}, "<0.01 % of 100,000 events in 24 h · not over the limit of 5 %"},
		{queue.Broadcast{On: true, Line: 5, Shares: []queue.BroadcastShare{{Events: 100}}}, "every event reaches a subscriber"},
		{queue.Broadcast{On: true, Line: 5, Shares: []queue.BroadcastShare{{Events: 100, Broadcast: 6, Over: true}}}, "▲ BROADCAST 6 % of 100 events in 24 h · OVER the limit of 5 %"},
		{queue.Broadcast{Line: 5, Shares: []queue.BroadcastShare{{Events: 100, Broadcast: 100, Over: true}}}, "OFF: queue.subscription_resolution.enabled is off"},
	} {
		lines := views.BroadcastHead(&c.b, e, 120)
		require.Len(t, lines, views.BroadcastHeadLines)
		require.Contains(t, plain(lines), c.says)
	}
	require.Contains(t, plain(views.BroadcastHead(nil, e, 120)), "reading")
}

// The Overview has one row for all shares over their limit, and shows a share without an owner in
// it.
func TestOverviewHasOneRowOfBroadcast(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	alert := func(subject, state string) queue.Alert {
		return queue.Alert{Key: queue.Clean(subject + ":x"), Kind: "broadcast", Subject: queue.Clean(subject), Severity: "warning", Ratio: 3, AgeSeconds: 60, State: state, AckedBy: queue.Clean("ben")}
	}
	s := viewstest.Empty()
	s.Alerts = []queue.Alert{alert("broadcast:kg", "open"), alert("broadcast", "open"), alert("broadcast:iu", "open")}
	got := plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40}).Lines)
	require.Contains(t, got, "▲ BROADCAST   all events · 3.0× the limit · for 1m · – nobody –")
	require.NotContains(t, got, "events of kg")
	s.Alerts = []queue.Alert{alert("broadcast:kg", "open"), alert("broadcast", "acked")}
	require.Contains(t, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40}).Lines), "BROADCAST   events of kg")
	s.Alerts = s.Alerts[1:]
	require.Contains(t, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40}).Lines), "all events · 3.0× the limit · for 1m · owner ben")
}
