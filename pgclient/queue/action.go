package queue

// This file is the one registry of what an operator can do. The footer, the
// help, the command palette, read-only gating, the headless verbs and
// docs/keys.md are all made of it.

import (
	"strings"
	"time"
)

// ActionID names an action everywhere: in the registry, rights and audit.
type ActionID string

// The actions.
const (
	ActAck            ActionID = "ack"
	ActUnack          ActionID = "unack"
	ActRequeue        ActionID = "requeue"
	ActResolve        ActionID = "resolve"
	ActReopen         ActionID = "reopen"
	ActUndoRequeue    ActionID = "requeue_undo"
	ActReveal         ActionID = "reveal"
	ActFlagSet        ActionID = "flag_set"
	ActExecRegister   ActionID = "executor_register"
	ActExecOwner      ActionID = "executor_owner"
	ActExecDeregister ActionID = "executor_deregister"
	ActJobSubscribe   ActionID = "job_subscribe"
	ActJobRuleOff     ActionID = "job_rule_disable"
	ActJobRuleOn      ActionID = "job_rule_enable"
	ActJobCancel      ActionID = "job_cancel"
	ActLeaseRelease   ActionID = "lease_release"
	ActBulkPlan       ActionID = "bulk_plan"
	ActBulkRun        ActionID = "bulk_run"
	ActBulkPause      ActionID = "bulk_pause"
	ActBulkResume     ActionID = "bulk_resume"
	ActBulkAbort      ActionID = "bulk_abort"
	ActBulkRate       ActionID = "bulk_rate"
	ActBulkUndo       ActionID = "bulk_undo"
	ActSuspend        ActionID = "endpoint_suspend"
	ActResume         ActionID = "endpoint_resume"
	ActNotifyRequeue  ActionID = "notification_requeue"
	ActRuleAdd        ActionID = "event_subscription_add"
	ActRuleMute       ActionID = "event_subscription_mute"
	ActRuleUnmute     ActionID = "event_subscription_unmute"
	ActTick           ActionID = "tick"
	ActTickPause      ActionID = "tick_pause"
	ActTickResume     ActionID = "tick_resume"
	ActCronInstall    ActionID = "scheduler_install"
	ActCronRemove     ActionID = "scheduler_remove"
	ActMark           ActionID = "mark"
	ActRouteSet       ActionID = "route_set"
	ActConsumerSet    ActionID = "consumer_set"
	ActAdopt          ActionID = "adopt"
	ActHostStart      ActionID = "host_start"
	ActHostDrain      ActionID = "host_drain"
	ActHostStop       ActionID = "host_stop"
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

// Action is a registry entry.
type Action struct {
	ID     ActionID
	Key    string   // the capital that starts it; "" = command line only
	Panes  []PaneID // where the key works
	Verb   string   // "Requeue": what its button says, before the count
	Undo   string   // how to take it back, in words; "" = cannot be undone
	Help   string   // one line
	Twin   string   // headless form: "qtop requeue ID…"
	Danger Danger
	// Function is the SQL function whose EXECUTE right this needs, as a
	// regprocedure; "" = none (this process only).
	Function string
	Role     string // the role that carries the right, named where it is missing
	Reason   bool   // a reason must be given
	Args     []Arg
}

// Arg is one input of an action's form.
type Arg struct {
	Name     string // key in Request.Args and name of the headless flag
	Label    string
	Default  string
	Required bool
	Choices  []string // nil = free text
	Help     string
}

// Hint says what may be given: the help, or else the choices.
func (a Arg) Hint() string {
	if a.Help == "" {
		return strings.Join(a.Choices, " or ")
	}
	return a.Help
}

// RevealFor is how long a revealed payload stands on a screen.
const RevealFor = 30 * time.Second

// Actions lists the registry in a stable order.
func Actions() []Action {
	return []Action{
		{
			ID: ActAck, Key: "A", Panes: []PaneID{PaneOverview, PaneAlerts, PaneExecutors}, Verb: "Acknowledge", Undo: "qtop unack",
			Help: "say that you have this alert, with a comment and for how long", Twin: "qtop ack EXECUTOR|ALERT --comment C --for 30m",
			Danger: DangerOne, Function: "public.fn_queue_alert_ack(text,text,text,interval)", Role: "workflow_admin",
			Args: []Arg{
				{Name: "comment", Label: "Comment", Required: true, Help: "what you are doing about it"},
				{Name: "for", Label: "For", Default: "30m", Required: true, Help: "after this it is open again, such as 30m or 2h"},
			},
		},
		{
			ID: ActUnack, Key: "A", Panes: []PaneID{PaneAlerts}, Verb: "Give up", Undo: "qtop ack",
			Help: "open an acknowledged alert again", Twin: "qtop unack EXECUTOR|ALERT --comment C",
			Danger: DangerOne, Function: "public.fn_queue_alert_unack(text,text,text)", Role: "workflow_admin",
			Args: []Arg{{Name: "comment", Label: "Comment", Required: true, Help: "why you no longer have it"}},
		},
		{
			ID: ActRequeue, Key: "R", Panes: []PaneID{PaneDead}, Verb: "Requeue", Undo: "qtop undo ID… (until the first attempt; an event stays routed)",
			Help: "make one new saga or job per dead letter, or route its event once more", Twin: "qtop requeue ID… | --filter F",
			Danger: DangerMany, Function: "public.fn_dead_letter_requeue(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActResolve, Key: "C", Panes: []PaneID{PaneDead}, Verb: "Close", Undo: "qtop reopen",
			Help: "close a dead letter with a resolution, without sending it", Twin: "qtop resolve ID… --resolution abandoned",
			Danger: DangerMany, Function: "public.fn_dead_letter_resolve(bigint[],text,text,text,boolean)", Role: "dead_letter_operator", Reason: true,
			Args: []Arg{{
				Name: "resolution", Label: "Resolution", Default: "abandoned", Required: true,
				Choices: []string{"abandoned", "delivered_otherwise", "duplicate"}, Help: "why it need not be sent",
			}},
		},
		{
			ID: ActReopen, Panes: []PaneID{PaneDead}, Verb: "Reopen", Undo: "qtop resolve",
			Help: "open a closed dead letter again", Twin: "qtop reopen ID…",
			Danger: DangerMany, Function: "public.fn_dead_letter_reopen(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActUndoRequeue, Key: "U", Panes: []PaneID{PaneDead}, Verb: "Undo requeue of", Undo: "qtop requeue",
			Help: "recall a requeued letter whose saga has no job yet", Twin: "qtop undo ID…",
			Danger: DangerMany, Function: "public.fn_dead_letter_requeue_undo(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActReveal, Key: "V", Panes: []PaneID{PaneDead, PaneQueues}, Verb: "Reveal",
			Help: "show a payload with its secrets for 30 seconds; the audit says so first", Twin: "qtop dlq show ID --reveal --reason R",
			Danger: DangerOne, Function: "public.fn_payload_reveal(text,text,text,text)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActFlagSet, Key: "E", Panes: []PaneID{PaneFlags, PaneOverview, PaneScheduler}, Verb: "Set", Undo: "set it back, or give it an expiry",
			Help: "flip or edit a flag, with a reason and an optional expiry", Twin: "qtop flag set KEY VALUE --reason R [--for 30m]",
			Danger:   DangerOne,
			Function: "public.fn_dot_config_set(text,text,text,text,timestamptz,timestamptz)", Role: "workflow_admin", Reason: true,
			Args: []Arg{
				{Name: "value", Label: "New value", Required: true},
				{Name: "for", Label: "For", Help: "comes back by itself after this; empty = stays"},
			},
		},
		{
			ID: ActExecRegister, Key: "N", Panes: []PaneID{PaneExecutors}, Verb: "Register", Undo: "qtop executor deregister",
			Help: "register an executor, so that its silence is seen", Twin: "qtop executor register ID --owner-role R --kind K --domains a,b --cadence 60s --stale-after 5m",
			Danger:   DangerOne,
			Function: "public.fn_queue_executor_register(text,text,text[],integer,integer,text,text)", Role: "workflow_admin",
			Args: []Arg{
				{Name: "id", Label: "Executor id", Required: true},
				{Name: "owner-role", Label: "Owner role", Required: true, Help: "login or group of its hosts; only members work as this executor"},
				{Name: "kind", Label: "Kind", Default: "external_worker", Required: true, Choices: ExecutorKinds()},
				{Name: "domains", Label: "Domains", Help: "event domains it covers, separated by commas"},
				{Name: "cadence", Label: "Cadence", Default: "60s", Required: true, Help: "it beats this often"},
				{Name: "stale-after", Label: "Stale after", Help: "empty = the flag queue.heartbeat.stale_threshold_seconds"},
			},
		},
		{
			ID: ActExecDeregister, Verb: "Deregister", Undo: "qtop executor register",
			Panes: []PaneID{PaneExecutors},
			Help:  "take an executor off the watch; it stays listed as a tombstone", Twin: "qtop executor deregister ID --reason R",
			Danger: DangerOne, Function: "public.fn_queue_heartbeat_deregister(text,text,text)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActExecOwner, Verb: "Set owner", Undo: "set it back",
			Panes: []PaneID{PaneExecutors},
			Help:  "give an executor to another login or group; only its members work as it", Twin: "qtop executor owner ID --owner-role R --reason R",
			Danger: DangerOne, Function: "public.fn_queue_executor_owner_set(text,text,text,text)", Role: "workflow_admin", Reason: true,
			Args: []Arg{{Name: "owner-role", Label: "Owner role", Required: true, Help: "login or group of its hosts"}},
		},
		{
			ID: ActJobSubscribe, Key: "E", Panes: []PaneID{PaneExecutors}, Verb: "Save", Undo: "save it again as it was, or with enabled=false",
			Help: "make or change what an executor may claim", Twin: "qtop executor subscribe ID [--kind K] [--domain D] --floor N --parallel N --enabled=true --reason R",
			Danger:   DangerOne,
			Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []Arg{
				{Name: "kind", Label: "Job kind", Help: "empty = every kind"},
				{Name: "domain", Label: "Domain", Help: "empty = every domain"},
				{Name: "floor", Label: "Priority floor", Default: "0", Required: true, Help: "jobs of this priority or higher"},
				{Name: "parallel", Label: "At once", Default: "1", Required: true, Help: "jobs it may hold at once, over all its hosts"},
				{Name: "enabled", Label: "Enabled", Default: "true", Required: true, Choices: []string{"true", "false"}},
				{Name: "notes", Label: "Notes"},
			},
		},
		{
			ID: ActJobRuleOff, Key: "D", Panes: []PaneID{PaneExecutors}, Verb: "Disable", Undo: "qtop executor enable",
			Help: "disable a rule of what an executor may claim; what it has claimed stays with it", Twin: "qtop executor disable RULE --reason R",
			Danger:   DangerOne,
			Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActJobRuleOn, Key: "D", Panes: []PaneID{PaneExecutors}, Verb: "Enable", Undo: "qtop executor disable",
			Help: "enable a rule of what an executor may claim", Twin: "qtop executor enable RULE --reason R",
			Danger:   DangerOne,
			Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActJobCancel, Key: "C", Panes: []PaneID{PaneQueues}, Verb: "Cancel",
			Help: "cancel live jobs; a worker that has one is told at its next report", Twin: "qtop job cancel ID… | --kind K --domain D [--status S]",
			Danger: DangerMany, Function: "public.fn_job_cancel(uuid[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActLeaseRelease, Key: "L", Panes: []PaneID{PaneQueues, PaneWebhooks}, Verb: "Release",
			Help: "take the jobs of an expired lease back now", Twin: "qtop lease release TOKEN|WEBHOOK-JOB…",
			Danger: DangerMany, Function: "public.fn_job_lease_release(uuid[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActBulkPlan, Key: "N", Panes: []PaneID{PaneDead}, Verb: "Freeze", Undo: "qtop ops abort",
			Help:   "freeze a selection of dead letters, to be requeued, replayed or closed at a rate",
			Twin:   "qtop ops plan ID… | --filter F --rate N --brake PERCENT --canary N",
			Danger: DangerMany, Function: "public.fn_queue_bulk_plan(text,text[],text,numeric,integer,integer,text,text)",
			Role: "dead_letter_operator", Reason: true,
			Args: []Arg{
				{Name: "what", Label: "What", Default: "requeue", Required: true, Choices: []string{"requeue", "resolve"}, Help: "requeue, or resolve as abandoned"},
				{Name: "rate", Label: "Rate", Default: "20", Required: true, Help: "items per second, 0.01 to 1000"},
				{Name: "brake", Label: "Brake", Default: "20", Required: true, Help: "percent of failed first tries, of the last 50, that pauses it; 0 = none"},
				{Name: "canary", Label: "Canary", Default: "5", Required: true, Help: "this many go first and must succeed; 0 = none"},
			},
		},
		{
			ID: ActBulkRun, Key: "S", Panes: []PaneID{PaneOps}, Verb: "Start", Undo: "qtop ops pause, then undo",
			Help: "start a planned bulk operation, its canary first", Twin: "qtop ops run OPERATION", Danger: DangerMany,
			Function: "public.fn_queue_bulk_run(bigint,text)", Role: "dead_letter_operator",
		},
		{
			ID: ActBulkPause, Key: "P", Panes: []PaneID{PaneOps}, Verb: "Pause", Undo: "qtop ops resume",
			Help: "pause a bulk operation between two items", Twin: "qtop ops pause OPERATION", Danger: DangerOne,
			Function: "public.fn_queue_bulk_pause(bigint,text)", Role: "dead_letter_operator",
		},
		{
			ID: ActBulkResume, Key: "P", Panes: []PaneID{PaneOps}, Verb: "Resume", Undo: "qtop ops pause",
			Help: "go on with a paused bulk operation; after a brake the canary goes first again", Twin: "qtop ops resume OPERATION",
			Danger: DangerMany, Function: "public.fn_queue_bulk_resume(bigint,text)", Role: "dead_letter_operator",
		},
		{
			ID: ActBulkAbort, Key: "X", Panes: []PaneID{PaneOps}, Verb: "Abort",
			Help: "end a bulk operation for good; what was not attempted stays as it is", Twin: "qtop ops abort OPERATION", Danger: DangerOne,
			Function: "public.fn_queue_bulk_abort(bigint,text)", Role: "dead_letter_operator",
		},
		{
			ID: ActBulkRate, Key: "+", Panes: []PaneID{PaneOps}, Verb: "Rate", Undo: "set it back",
			Help: "change the rate of a bulk operation, also while it runs", Twin: "qtop ops rate OPERATION --rate N", Danger: DangerOne,
			Function: "public.fn_queue_bulk_set_rate(bigint,numeric,text)", Role: "dead_letter_operator",
			Args: []Arg{{Name: "rate", Label: "Rate", Required: true, Help: "items per second, 0.01 to 1000"}},
		},
		{
			ID: ActBulkUndo, Key: "U", Panes: []PaneID{PaneOps}, Verb: "Undo", Undo: "qtop requeue",
			Help: "take back what a bulk operation did and nobody has attempted yet", Twin: "qtop ops undo OPERATION", Danger: DangerMany,
			Function: "public.fn_queue_bulk_undo(bigint,text)", Role: "dead_letter_operator",
		},
		{
			ID: ActSuspend, Key: "D", Panes: []PaneID{PaneWebhooks}, Verb: "Suspend", Undo: "qtop endpoint resume",
			Help: "send nothing to an endpoint until it is resumed, or for a time; what waits spends no attempt", Twin: "qtop endpoint suspend SUBSCRIPTION… --reason R [--for 30m]",
			Danger: DangerMany, Function: "public.fn_endpoint_suspend(bigint,text,text,interval)", Role: "dead_letter_operator", Reason: true,
			Args: []Arg{{Name: "for", Label: "For", Help: "it is resumed by itself after this, such as 30m or 2h; empty = until somebody resumes it"}},
		},
		{
			ID: ActResume, Key: "D", Panes: []PaneID{PaneWebhooks}, Verb: "Resume", Undo: "qtop endpoint suspend",
			Help: "lift a suspension or close a circuit; what waited is due at once", Twin: "qtop endpoint resume SUBSCRIPTION… --reason R",
			Danger: DangerMany, Function: "public.fn_endpoint_resume(bigint,text,text,timestamptz)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActNotifyRequeue, Key: "R", Panes: []PaneID{PaneNotify}, Verb: "Requeue",
			Help: "let staged notifications that failed wait again, once what was wrong is mended", Twin: "qtop notifications requeue ID… | --all",
			Danger: DangerMany, Function: "public.fn_iu_notification_requeue(uuid[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		},
		{
			ID: ActRuleAdd, Key: "N", Panes: []PaneID{PaneRules}, Verb: "Make", Undo: "qtop subscription mute",
			Help: "make a rule of who reads which events", Twin: "qtop subscription add RECIPIENT [--domain D] [--type T] [--stream S] --reason R",
			Danger: DangerOne, Function: "public.fn_event_subscription_add(text,text,text,text,text,jsonb,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []Arg{
				{Name: "recipient", Label: "Recipient", Required: true, Help: "role:NAME, agency:NAME, user:NAME or agent:NAME"},
				{Name: "domain", Label: "Domain", Help: "empty = every domain"},
				{Name: "type", Label: "Type", Help: "empty = every type"},
				{Name: "stream", Label: "Stream", Help: "empty = every stream"},
				{Name: "table", Label: "Subject table", Help: "only events about this table; empty = every one"},
				{Name: "payload", Label: "Payload", Help: "only events whose payload contains this JSON object; empty = every one"},
			},
		},
		{
			ID: ActRuleMute, Key: "D", Panes: []PaneID{PaneRules}, Verb: "Mute", Undo: "qtop subscription unmute",
			Help: "let a rule count as absent; what it alone reached goes to broadcast", Twin: "qtop subscription mute RULE --reason R",
			Danger: DangerOne, Function: "public.fn_event_subscription_mute(bigint,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActRuleUnmute, Key: "D", Panes: []PaneID{PaneRules}, Verb: "Unmute", Undo: "qtop subscription mute",
			Help: "let a muted rule count again", Twin: "qtop subscription unmute RULE --reason R",
			Danger: DangerOne, Function: "public.fn_event_subscription_mute(bigint,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActTick, Key: "T", Panes: []PaneID{PaneHost, PaneScheduler, PaneNotify}, Verb: "Tick",
			Help: "run a tick worker now, whatever its interval", Twin: "qtop tick WORKER",
			Danger: DangerOne, Function: "public.fn_queue_tick_now(text,text,text)", Role: "workflow_admin",
			Args: []Arg{{Name: "worker", Label: "Tick worker", Required: true}},
		},
		{
			ID: ActTickPause, Key: "P", Panes: []PaneID{PaneScheduler}, Verb: "Pause", Undo: "qtop scheduler resume",
			Help: "set the interval of a tick worker to 0, for a time or until it is resumed", Twin: "qtop scheduler pause WORKER --reason R [--for 30m]",
			Danger:   DangerOne,
			Function: "public.fn_dot_config_set(text,text,text,text,timestamptz,timestamptz)", Role: "workflow_admin", Reason: true,
			Args: []Arg{{Name: "for", Label: "For", Default: "30m", Help: "it goes on by itself after this; empty = until somebody resumes it"}},
		},
		{
			ID: ActTickResume, Key: "P", Panes: []PaneID{PaneScheduler}, Verb: "Resume", Undo: "qtop scheduler pause",
			Help: "give a paused tick worker the interval back that it had", Twin: "qtop scheduler resume WORKER --reason R",
			Danger:   DangerOne,
			Function: "public.fn_dot_config_set(text,text,text,text,timestamptz,timestamptz)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActCronInstall, Panes: []PaneID{PaneScheduler}, Verb: "Install", Undo: "qtop scheduler remove",
			Help: "make the pg_cron jobs that tick from inside the database; they run as this login", Twin: "qtop scheduler install --reason R",
			Danger: DangerOne, Function: "public.fn_queue_scheduler_install(text,text,boolean)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActCronRemove, Panes: []PaneID{PaneScheduler}, Verb: "Remove", Undo: "qtop scheduler install",
			Help: "unschedule the pg_cron jobs of the queue", Twin: "qtop scheduler remove --reason R",
			Danger: DangerOne, Function: "public.fn_queue_scheduler_remove(text,text,boolean)", Role: "workflow_admin", Reason: true,
		},
		{
			ID: ActMark, Panes: []PaneID{PaneOverview}, Verb: "Mark",
			Help: "put a label on every history line, such as a deploy", Twin: "qtop mark LABEL",
			Danger: DangerOne, Function: "public.fn_queue_mark(text,text)", Role: "dead_letter_operator",
			Args: []Arg{{Name: "label", Label: "Label", Required: true, Help: "what happened, such as deploy 4.2"}},
		},
		{
			ID: ActRouteSet, Verb: "Save", Undo: "set it back", Help: "switch the routing of a domain's events; while it is off they wait, none is lost",
			Twin: "qtop route set DOMAIN --enabled=false --reason R", Danger: DangerOne,
			Function: "public.fn_iu_outbound_route_set(text,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []Arg{{Name: "enabled", Label: "Enabled", Required: true, Choices: []string{"true", "false"}}},
		},
		{
			ID: ActConsumerSet, Verb: "Save", Undo: "qtop consumer disable, or set it back",
			Help: "make or change a consumer, which gets a job of each event of a type", Twin: "qtop consumer set ID --domain D --type T --kind K --executor X --enabled=true --reason R",
			Danger: DangerOne, Function: "public.fn_consumer_set(text,text,text,text,text,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []Arg{
				{Name: "domain", Label: "Domain", Help: "of the events; empty = as it stands"},
				{Name: "type", Label: "Event type", Help: "empty = as it stands"},
				{Name: "kind", Label: "Job kind", Help: "of the jobs that are made; empty = as it stands"},
				{Name: "executor", Label: "Executor kind", Help: "who is to work on them: " + strings.Join(ExecutorKinds(), ", ") + "; empty = as it stands"},
				{Name: "enabled", Label: "Enabled", Default: "true", Required: true, Choices: []string{"true", "false"}},
			},
		},
		{
			ID: ActAdopt, Verb: "Adopt",
			Help: "make this copy of a database one of its own, and say what becomes of the work that came with it", Twin: "qtop adopt --waiting keep|suspend|cancel --confirm DATABASE --reason R",
			Danger: DangerDatabase, Function: "public.fn_queue_adopt(text,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []Arg{{
				Name: "waiting", Label: "Waiting work", Required: true, Choices: []string{"suspend", "cancel", "keep"}, // a form begins with the one that does least
				Help: "keep: it goes on here; suspend: endpoints, jobs and routes stand still; cancel: jobs are cancelled, endpoints and routes stand still",
			}},
		},
		{
			ID: ActHostStart, Key: "S", Panes: []PaneID{PaneHost}, Verb: "Start", Undo: "P drains it",
			Help: "start a loop of the worker host in this process", Twin: "qtop worker --loops LOOP", Danger: DangerLocal,
		},
		{
			ID: ActHostDrain, Key: "P", Panes: []PaneID{PaneHost}, Verb: "Drain", Undo: "S starts it again",
			Help: "let a loop finish what it has and take nothing new", Twin: "SIGTERM to qtop worker", Danger: DangerLocal,
		},
		{
			ID: ActHostStop, Key: "X", Panes: []PaneID{PaneHost}, Verb: "Stop", Undo: "S starts it again",
			Help: "stop a loop at once; what it had is handed back", Twin: "SIGTERM twice to qtop worker", Danger: DangerLocal,
		},
	}
}

// ActionByID finds a registry entry.
func ActionByID(id ActionID) (Action, bool) {
	for _, a := range Actions() {
		if a.ID == id {
			return a, true
		}
	}
	return Action{}, false
}

// ExecutorKinds is the whitelist of DP6 §3.4. MOT is not an executor.
func ExecutorKinds() []string {
	return []string{"DOT", "Agent", "Hermes", "Codex", "PG_worker", "external_worker", "future_Kestra_adapter"}
}
