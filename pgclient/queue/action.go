package queue

// This file is what an action says of itself. The actions are declared where they are
// planned and applied, one value each; the footer, the help, the command palette,
// read-only gating, the headless verbs and docs/keys.md are all made of it.

import "time"

// ActionID names an action everywhere: in the registry, rights and audit.
type ActionID string

// The actions.
const (
	ActAck             ActionID = "ack"
	ActUnack           ActionID = "unack"
	ActRequeue         ActionID = "requeue"
	ActResolve         ActionID = "resolve"
	ActReopen          ActionID = "reopen"
	ActUndoRequeue     ActionID = "requeue_undo"
	ActReveal          ActionID = "reveal"
	ActErase           ActionID = "erase"
	ActFlagSet         ActionID = "flag_set"
	ActExecRegister    ActionID = "executor_register"
	ActExecOwner       ActionID = "executor_owner"
	ActExecDeregister  ActionID = "executor_deregister"
	ActJobSubscribe    ActionID = "job_subscribe"
	ActJobRuleOff      ActionID = "job_rule_disable"
	ActJobRuleOn       ActionID = "job_rule_enable"
	ActJobCancel       ActionID = "job_cancel"
	ActLeaseRelease    ActionID = "lease_release"
	ActBulkPlan        ActionID = "bulk_plan"
	ActBulkRun         ActionID = "bulk_run"
	ActBulkPause       ActionID = "bulk_pause"
	ActBulkResume      ActionID = "bulk_resume"
	ActBulkAbort       ActionID = "bulk_abort"
	ActBulkRate        ActionID = "bulk_rate"
	ActBulkUndo        ActionID = "bulk_undo"
	ActSuspend         ActionID = "endpoint_suspend"
	ActResume          ActionID = "endpoint_resume"
	ActWebhookAdd      ActionID = "webhook_subscription_add"
	ActNotifyRequeue   ActionID = "notification_requeue"
	ActRuleAdd         ActionID = "event_subscription_add"
	ActRuleMute        ActionID = "event_subscription_mute"
	ActRuleUnmute      ActionID = "event_subscription_unmute"
	ActTick            ActionID = "tick"
	ActTickPause       ActionID = "tick_pause"
	ActTickResume      ActionID = "tick_resume"
	ActCronInstall     ActionID = "scheduler_install"
	ActCronRemove      ActionID = "scheduler_remove"
	ActMark            ActionID = "mark"
	ActRecount         ActionID = "recount"
	ActQuarantineRetry ActionID = "quarantine_retry"
	ActRouteSet        ActionID = "route_set"
	ActConsumerSet     ActionID = "consumer_set"
	ActEventTypeSet    ActionID = "event_type_set"
	ActProducerSet     ActionID = "executor_producer_set"
	ActAdopt           ActionID = "adopt"
	ActEnvironment     ActionID = "environment_set"
	ActHostStart       ActionID = "host_start"
	ActHostDrain       ActionID = "host_drain"
	ActHostStop        ActionID = "host_stop"

	ActSessionCancel    ActionID = "session_cancel" // ends the statement of a session
	ActSessionTerminate ActionID = "session_terminate"
)

// Danger says how an action is guarded.
type Danger int

// The guards, by blast radius.
const (
	DangerLocal    Danger = iota // this process only: one confirm
	DangerOne                    // one row: one confirm
	DangerMany                   // as One for one row; many: type the count
	DangerDatabase               // all of the database: type its name
)

// Action is a registry entry: all that is said of an action anywhere. Its command
// line, verb, form, checks, title, buttons, footer, help and docs are derived from it.
type Action struct {
	ID    ActionID
	Key   string   // the capital that starts it; "" = command line only
	Panes []PaneID // where the key works
	Words string   // of its command: "ops plan"
	Group string   // of the first whose words begin a group of verbs: what those do
	Verb  string   // "Requeue": what its button says, before the count
	Noun  string   // what it works on, for the title and the button: "job"
	Help  string   // one line
	// Twin is the headless form of an action that has no verb of its own; "" = the
	// command that Words, Targets and Args make.
	Twin     string
	Opposite ActionID // what takes it back
	Undo     string   // how to take it back, in words; "" = by Opposite, else it cannot be undone

	Title  string // of its dialog; "" = Verb and Noun
	Button string // that acts, with {targets}, {count}, {things} and arguments filled in; "" = Verb, with the count where there may be many
	Safe   string // the button that changes nothing, where Keep would be said of the effect
	Leave  string // the button that leaves the form, where Cancel would be said of the effect
	Hint   string // word of the footer; "" = the first of Verb

	Danger Danger
	// Function is the SQL function whose EXECUTE right this needs, as a
	// regprocedure; "" = none (this process only).
	Function string
	Role     string // the role that carries the right, named where it is missing
	Reason   bool   // a reason must be given
	Open     bool   // in production too it needs no name typed
	Targets  Targets
	Args     []Arg
}

// Targets says on what an action works.
type Targets struct {
	Name string // placeholder of the command: "OPERATION"; "" = the action has no target
	Many bool
	// Instead is the flag that selects in place of ids: "filter" or "all".
	Instead string
	List    string // the verb that lists what may be named: "dlq"
	Of      string // whose ids complete it: "executor", "flag"; "" = none
}

// RevealFor is how long a revealed payload stands on a screen.
const RevealFor = 30 * time.Second

// Registry is all actions in a stable order.
type Registry []Action

// ByID finds a registry entry; the zero value where there is none.
func (r Registry) ByID(id ActionID) Action {
	for _, a := range r {
		if a.ID == id {
			return a
		}
	}
	return Action{}
}

// Undo says how an action is taken back; "" = it cannot be undone.
func (r Registry) Undo(a Action) string {
	if a.Undo != "" || a.Opposite == "" {
		return a.Undo
	}
	return "qtop " + r.ByID(a.Opposite).Words
}

// ExecutorKinds is the whitelist of DP6 §3.4. MOT is not an executor.
func ExecutorKinds() []string {
	return []string{"DOT", "Agent", "Hermes", "Codex", "PG_worker", "external_worker", "future_Kestra_adapter"}
}
