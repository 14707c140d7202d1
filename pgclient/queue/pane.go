package queue

// PaneID names a pane.
type PaneID string

// The panes that exist.
const (
	PaneOverview  PaneID = "overview"
	PaneHealth    PaneID = "health"
	PaneAlerts    PaneID = "alerts"
	PaneExecutors PaneID = "executors"
	PaneDead      PaneID = "dead"
	PaneOps       PaneID = "ops"
	PaneWebhooks  PaneID = "webhooks"
	PaneQueues    PaneID = "queues"
	PaneScheduler PaneID = "scheduler"
	PaneFlags     PaneID = "flags"
	PaneNotify    PaneID = "notifications"
	PaneRules     PaneID = "subscriptions"
	PaneHost      PaneID = "host"
	PaneAudit     PaneID = "audit"
)

// Pane is a registry entry of a pane.
type Pane struct {
	ID    PaneID
	Keys  string // "1", "gf"
	Title string
	From  string // tables and views it reads
	Help  string
	Also  string // another name of it on the command line
}

// Panes lists the panes in menu order.
func Panes() []Pane {
	return []Pane{
		{PaneOverview, "1", "Overview", "all", "what is off or held, who is silent, what waits longest, what is dead, the flow", ""},
		{PaneHealth, "2", "Health", "v_queue_health", "every source and row, stale first", ""},
		{PaneAlerts, "3", "Alerts", "v_queue_alert", "silences with who has them; acknowledge", ""},
		{PaneExecutors, "4", "Executors", "queue_heartbeat, job_subscription", "working, idle, stuck, stale, dead; register; what each may claim", ""},
		{PaneDead, "5", "Dead letters", "dead_letters, job_dead_letter, iu_route_dead_letter", "groups, letters, detail; requeue, close, reveal", "dlq"},
		{PaneOps, "6", "Operations", "queue_bulk_operation", "frozen selections: start, rate, pause, brake, abort, undo, what became of each", ""},
		{PaneWebhooks, "7", "Webhooks", "subscriptions, webhook_delivery_sagas, webhook_delivery_jobs", "endpoints with gate, success, pace and retries, leases in flight; suspend, resume, release", ""},
		{PaneQueues, "8", "Queues", "job_queue, job_history", "jobs per kind and domain, oldest wait and why, stuck leases, dead rows; cancel", ""},
		{PaneScheduler, "9", "Scheduler", "v_queue_scheduler_status", "tick workers with cadence, last run and result, who ticks; tick now, interval, pause", ""},
		{PaneFlags, "gf", "Flags", "dot_config", "flip or edit with reason and expiry", ""},
		{PaneRules, "gs", "Subscriptions", "event_subscription, v_subscription_broadcast_share", "who reads which events, what reaches nobody against its line, a type step by step; mute, new rule", ""},
		{PaneNotify, "gn", "Notifications", "iu_notification_pending, iu_notification_worker_log", "what is staged, what it will be told as, what failed, what the worker did; requeue", ""},
		{PaneHost, "gw", "Worker host", "queue_host, this process", "loops, hosts, the wake stream; start, drain, stop", "worker"},
		{PaneAudit, "ga", "Audit", "queue_operator_action", "who did what, why, before and after", ""},
	}
}
