package queue

// PaneID names a pane.
type PaneID string

// The panes.
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
	PaneActivity  PaneID = "activity"
	PaneAudit     PaneID = "audit"
)

// Pane holds the names of a pane.
type Pane struct {
	ID    PaneID
	Keys  string // "1", "gf"
	Title string
	Short string // used if the title does not fit; "" = the title
	From  string // the tables, views and functions that it reads
	Help  string
	Also  string // a second name on the command line
}
