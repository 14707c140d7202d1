package viewstest

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// Tabs returns a line of tabs for drawing whole screens. It resembles that of
// the console; a new pane need not be added here.
func Tabs(s *queue.Snapshot, open queue.PaneID) []views.Tab {
	var tabs []views.Tab
	for _, p := range []struct {
		queue.Pane
		badge views.Badge
	}{
		{queue.Pane{ID: queue.PaneOverview, Keys: "1", Title: "Overview", Short: "Over"}, nil},
		{queue.Pane{ID: queue.PaneHealth, Keys: "2", Title: "Health"}, nil},
		{queue.Pane{ID: queue.PaneAlerts, Keys: "3", Title: "Alerts"}, views.AlertsBadge},
		{queue.Pane{ID: queue.PaneExecutors, Keys: "4", Title: "Executors", Short: "Exec"}, nil},
		{queue.Pane{ID: queue.PaneDead, Keys: "5", Title: "Dead letters", Short: "Dead"}, views.DeadBadge},
		{queue.Pane{ID: queue.PaneOps, Keys: "6", Title: "Operations", Short: "Ops"}, views.OperationsBadge},
		{queue.Pane{ID: queue.PaneWebhooks, Keys: "7", Title: "Webhooks", Short: "Hooks"}, views.WebhooksBadge},
		{queue.Pane{ID: queue.PaneQueues, Keys: "8", Title: "Queues", Short: "Queue"}, views.QueuesBadge},
		{queue.Pane{ID: queue.PaneScheduler, Keys: "9", Title: "Scheduler", Short: "Sch"}, views.SchedulerBadge},
		{queue.Pane{ID: queue.PaneFlags, Keys: "gf", Title: "Flags"}, views.FlagsBadge},
		{queue.Pane{ID: queue.PaneSubscriptions, Keys: "gs", Title: "Subscriptions", Short: "Subs"}, views.EventSubscriptionsBadge},
		{queue.Pane{ID: queue.PaneNotify, Keys: "gn", Title: "Notifications", Short: "Notify"}, views.NotificationsBadge},
		{queue.Pane{ID: queue.PaneHost, Keys: "gw", Title: "Worker host", Short: "Host"}, nil},
		{queue.Pane{ID: queue.PaneAudit, Keys: "ga", Title: "Audit"}, nil},
	} {
		tabs = append(tabs, views.NewTab(p.Pane, p.ID == open, p.badge, s))
	}
	return tabs
}
