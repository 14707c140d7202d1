package queue

// PaneID names a pane.
type PaneID string

// The panes.
const (
	PaneOverview      PaneID = "overview"
	PaneHealth        PaneID = "health"
	PaneAlerts        PaneID = "alerts"
	PaneExecutors     PaneID = "executors"
	PaneDead          PaneID = "dead"
	PaneOps           PaneID = "ops"
	PaneWebhooks      PaneID = "webhooks"
	PaneQueues        PaneID = "queues"
	PaneScheduler     PaneID = "scheduler"
	PaneFlags         PaneID = "flags"
	PaneNotify        PaneID = "notifications"
	PaneSubscriptions PaneID = "subscriptions"
	PaneHost          PaneID = "host"
	PaneActivity      PaneID = "activity"
	PaneAudit         PaneID = "audit"
)

// Pane holds the names of a pane.
type Pane struct {
	ID    PaneID
	Keys  string // "1", "gf"
	Title string
	Short string // used where the title does not fit; "" = Title
	From  string // the tables, views and functions that the pane reads
	Help  string
	Also  string // a second name on the command line
}
