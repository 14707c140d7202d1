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
	PaneActivity  PaneID = "activity"
	PaneAudit     PaneID = "audit"
)

// Pane is how a pane is called; each is declared with what it does.
type Pane struct {
	ID    PaneID
	Keys  string // "1", "gf"
	Title string
	Short string // where the title does not fit; "" = the title
	From  string // tables, views and functions it reads
	Help  string
	Also  string // another name of it on the command line
}
