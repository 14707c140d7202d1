package queue

// The types of actions. Package actions declares each action as one value, and plans and applies
// it. The footer, the help, the command palette, the read-only checks, the verbs and docs/keys.md
// are all generated from these declarations.

import "time"

// ActionID names an action in the registry, in rights and in the audit.
type ActionID string

// The actions.
const (
	ActAck                     ActionID = "ack"
	ActUnack                   ActionID = "unack"
	ActRequeue                 ActionID = "requeue"
	ActResolve                 ActionID = "resolve"
	ActReopen                  ActionID = "reopen"
	ActUndoRequeue             ActionID = "requeue_undo"
	ActReveal                  ActionID = "reveal"
	ActErase                   ActionID = "erase"
	ActFlagSet                 ActionID = "flag_set"
	ActExecRegister            ActionID = "executor_register"
	ActExecOwner               ActionID = "executor_owner"
	ActExecDeregister          ActionID = "executor_deregister"
	ActJobSubscribe            ActionID = "job_subscribe"
	ActJobSubscriptionOff      ActionID = "job_rule_disable"
	ActJobSubscriptionOn       ActionID = "job_rule_enable"
	ActJobCancel               ActionID = "job_cancel"
	ActLeaseRelease            ActionID = "lease_release"
	ActBulkPlan                ActionID = "bulk_plan"
	ActBulkRun                 ActionID = "bulk_run"
	ActBulkPause               ActionID = "bulk_pause"
	ActBulkResume              ActionID = "bulk_resume"
	ActBulkAbort               ActionID = "bulk_abort"
	ActBulkRate                ActionID = "bulk_rate"
	ActBulkUndo                ActionID = "bulk_undo"
	ActSuspend                 ActionID = "endpoint_suspend"
	ActResume                  ActionID = "endpoint_resume"
	ActWebhookAdd              ActionID = "webhook_subscription_add"
	ActWebhookVerify           ActionID = "webhook_subscription_verify"
	ActWebhookRotate           ActionID = "webhook_secret_rotate"
	ActWebhookLimit            ActionID = "webhook_rate_limit_set"
	ActWebhookOff              ActionID = "webhook_subscription_disable"
	ActWebhookOn               ActionID = "webhook_subscription_enable"
	ActNotifyRequeue           ActionID = "notification_requeue"
	ActEventSubscriptionAdd    ActionID = "event_subscription_add"
	ActEventSubscriptionMute   ActionID = "event_subscription_mute"
	ActEventSubscriptionUnmute ActionID = "event_subscription_unmute"
	ActTick                    ActionID = "tick"
	ActTickPause               ActionID = "tick_pause"
	ActTickResume              ActionID = "tick_resume"
	ActCronInstall             ActionID = "scheduler_install"
	ActCronRemove              ActionID = "scheduler_remove"
	ActMark                    ActionID = "mark"
	ActRecount                 ActionID = "recount"
	ActQuarantineRetry         ActionID = "quarantine_retry"
	ActRouteSet                ActionID = "route_set"
	ActConsumerSet             ActionID = "consumer_set"
	ActEventTypeSet            ActionID = "event_type_set"
	ActProducerSet             ActionID = "executor_producer_set"
	ActAdopt                   ActionID = "adopt"
	ActEnvironment             ActionID = "environment_set"
	ActHostStart               ActionID = "host_start"
	ActHostDrain               ActionID = "host_drain"
	ActHostStop                ActionID = "host_stop"

	ActSessionCancel    ActionID = "session_cancel" // ends the statement of a session
	ActSessionTerminate ActionID = "session_terminate"
)

// Danger says how an action must be confirmed.
type Danger int

// The confirmations, by blast radius.
const (
	DangerLocal    Danger = iota // affects this process only: one confirmation
	DangerOne                    // affects one row: one confirmation
	DangerMany                   // one row: one confirmation; several: type their number
	DangerDatabase               // affects the whole database: type its name
)

// ActionTimeout is how long the preview of an action, and the action itself, may take.
const ActionTimeout = time.Minute

// Action is a registry entry: the complete declaration of an action. Its command line, verb,
// form, checks, title, buttons, footer, help and docs are derived from it.
type Action struct {
	ID    ActionID
	Key   string   // the capital letter that starts the action; "" = command line only
	Panes []PaneID // the panes in which the key works
	Words string   // the words of the action on the command line: "ops plan"
	Group string   // what the verbs of this group do, for the help; set in the first action of the group
	Verb  string   // "Requeue": the text of the action's button, before the count
	Noun  string   // what the action works on, for the title and the button: "job"
	Help  string   // one line
	// Example is a complete command line of the action's verb, for --help; "" if the action has no
	// verb.
	Example string
	// Twin is the command line that does the same as an action without a separate verb; "" = the
	// command that Words, Targets and Args make.
	Twin string
	// Spellings are alternatives to Words that the console's command line accepts. A flag in a
	// spelling may be anywhere on the line: "dlq show --reveal".
	Spellings []string
	Opposite  ActionID // the action that reverses this one
	Makes     string   // the kind of ids (Targets.Of) that the positional argument names, if the action makes what Opposite removes
	Undo      string   // in words: how to reverse the action, or what Opposite does not reverse; without both it cannot be undone

	Title  string // title of the dialog; "" = Verb and Noun
	Button string // text of the button that applies the action, with {targets}, {count}, {things} and arguments filled in; "" = Verb, with the count if there can be several targets
	Safe   string // text of the button that changes nothing; "" = Keep
	Leave  string // text of the button that leaves the form; "" = Cancel
	Past   string // what the person did, for the mark that the console sets of an action that changes no row: "started"; "" = the action writes its own audit row
	Hint   string // the action's word in the footer; "" = the first word of Verb

	Danger Danger
	// Function is the SQL function whose EXECUTE right the action needs, as a regprocedure; "" = no
	// right needed, because the action changes this process only.
	Function string
	Role     string // the role that has the right; named if the right is missing
	Reason   bool   // a reason is required
	Why      bool   // a reason may be given
	Open     bool   // true: the name of a guarded database need not be typed
	Long     bool   // preview and implementation take as long as they need; false = within ActionTimeout
	Targets  Targets
	Args     []Arg
}

// TakesReason reports whether a reason of the action is recorded in the audit.
func (a Action) TakesReason() bool { return a.Reason || a.Why }

// Targets says what an action works on.
type Targets struct {
	Name string // placeholder of the command: "OPERATION"; "" = the action has no target
	Many bool   // the action takes several targets
	// Instead is the flag that selects rows without naming ids: "filter" or "all".
	Instead string
	List    string // the verb that lists possible targets, such as "dlq"
	Of      string // the kind of ids to complete, such as "executor" or "flag"; "" = no completion
}

// RevealFor is how long a revealed payload remains on a screen.
const RevealFor = 30 * time.Second

// Registry is the list of all actions in a stable order.
type Registry []Action

// ByID returns the registry entry with this id; the zero value if there is none.
func (r Registry) ByID(id ActionID) Action {
	for _, a := range r {
		if a.ID == id {
			return a
		}
	}
	return Action{}
}

// ExecutorKinds returns the executor kinds that source document DP6 §3.4 allows. The document
// excludes the kind MOT.
func ExecutorKinds() []string {
	return []string{"DOT", "Agent", "Hermes", "Codex", "PG_worker", "external_worker", "future_Kestra_adapter"}
}
