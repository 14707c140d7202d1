package queue

import (
	"encoding/json"
	"strings"
	"time"
)

// Snapshot is the state of the queue at TakenAt (server time), as fn_queue_picture returns it. All
// live panes of all consoles show one snapshot. Every age is computed with the server's clock.
type Snapshot struct {
	TakenAt time.Time `json:"taken_at"`
	TookMS  float64   `json:"took_ms"` // milliseconds that the database took to compute it
	Shared  bool      `json:"shared"`  // true: the snapshot was stored by an earlier call; false: it was computed for this one
	Server  Server    `json:"server"`

	Flags      []Flag       `json:"flags"`
	Health     []HealthRow  `json:"health"`
	Alerts     []Alert      `json:"alerts"`
	Executors  []Executor   `json:"executors"`
	DeadGroups []DeadGroup  `json:"dead_groups"` // the largest groups of each source, and the groups of the newest dead letters
	DeadMore   DeadMore     `json:"dead_more"`   // the groups that DeadGroups leaves out
	Waiting    []Waiting    `json:"waiting"`     // queues with waiting work, the oldest due item first
	Operations []Operation  `json:"operations"`  // planned, running and paused operations, running ones first
	Hosts      []Host       `json:"hosts"`
	Held       []Held       `json:"held"`      // open transactions that delay the routing of their events
	Suspended  []Suspension `json:"suspended"` // suspended endpoints and open circuits
	Ticks      []TickWorker `json:"ticks"`     // the tick workers
	Flow       Flow         `json:"flow"`
	Marks      []Mark       `json:"marks"`   // of the last hour, newest first, at most 20
	Actions    []Recent     `json:"actions"` // actions of the last hour, newest first, at most 10

	Queues           []Lane            `json:"queues"` // the queue lane with the oldest wait first
	JobTable         JobTable          `json:"job_table"`
	JobLeases        []JobLease        `json:"job_leases"` // at most 50: expired ones, and those that will soon expire
	JobSubscriptions []JobSubscription `json:"job_subscriptions"`

	// Missing says which sections this snapshot lacks, by name, and why: a view is not installed,
	// or a right is missing.
	Missing map[string]Text `json:"missing,omitempty"`

	// Refused is why no section could be read, with its kind and its remedy; Missing has its text
	// under "all". nil = sections were read.
	Refused *Error `json:"-"`

	// MonitoringOff is true if a flag with a threshold of silence is 1,000,000 s or more: silence
	// then raises no alert, and every pane shows a warning (source document DP4 §7).
	MonitoringOff bool `json:"monitoring_off"`
}

// leasesShown is how many leases the snapshot has at most.
const leasesShown = 50

// MoreLeases reports whether leases may be missing in JobLeases, and how many rows it would have
// at least.
func (s *Snapshot) MoreLeases() (more bool, atLeast int64) {
	n := int64(len(s.JobLeases))
	return n >= leasesShown && s.JobTable.Leases > n, max(n, s.JobTable.LeasesExpired)
}

// Server describes the server from which the snapshot was read.
type Server struct {
	Version          Text     `json:"version"`
	Database         Text     `json:"database"`
	CloneOf          Text     `json:"clone_of"`           // the database of which this one is a copy, and what to do; empty = it is no copy
	Unexpected       Text     `json:"-"`                  // warning about this connection: the server is not one of expect_server; empty = it is, or any server is accepted
	Address          Text     `json:"-"`                  // of this connection: host:port of the server that answered, or "local socket"
	Behind           Text     `json:"-"`                  // of this connection: the server behind the pooler, by cluster_name or address; empty without a pooler
	InRecovery       bool     `json:"in_recovery"`        // the server is a standby
	ReplayLagSeconds *float64 `json:"replay_lag_seconds"` // how far a standby is behind its primary; null on a primary
}

// Flag is a row of dot_config, with the time at which it reverts.
type Flag struct {
	Key         Text       `json:"key"`
	Value       Text       `json:"value"`
	Description Text       `json:"description"`
	Kind        string     `json:"kind"` // boolean, integer, mode, schedule, environment
	UpdatedAt   time.Time  `json:"updated_at"`
	UpdatedBy   Text       `json:"updated_by"`
	Reason      Text       `json:"reason"`     // of the last change
	Off         bool       `json:"off"`        // a switch is off although its default is on
	Invalid     bool       `json:"invalid"`    // the value is not valid; the safe value applies instead
	RevertsAt   *time.Time `json:"reverts_at"` // when a temporary value ends; null = it is permanent
	RevertsTo   Text       `json:"reverts_to"` // the value to which it reverts
	Overdue     bool       `json:"overdue"`    // the temporary value has ended but was not reverted yet
}

// HealthRow is a row of v_queue_health (source document DP4 §3.3).
type HealthRow struct {
	Source          Text       `json:"source"` // what the row is about; it decides what Subject and the counts mean: see v_queue_health
	Subject         Text       `json:"subject"`
	Domain          Text       `json:"domain"`
	LastSeenAt      *time.Time `json:"last_seen_at"`
	AgeSeconds      *int64     `json:"age_seconds"`
	EventsSeen      *int64     `json:"events_seen"`
	AttemptsWritten *int64     `json:"attempts_written"`
	DeadLettered    *int64     `json:"dead_lettered"`
	StatusHint      Text       `json:"status_hint"` // stale, fresh, unwatched, open, held, …; may be empty
}

// Alert is a row of v_queue_alert: a silence, a broadcast share over its limit, a suspended
// endpoint, a row in quarantine, loops that no host runs, a queue lane whose jobs no live executor
// can claim, a backlog or a circuit that stays open. An alert exists whether or not an event was
// emitted for it.
type Alert struct {
	Key          Text       `json:"alert_key"`
	Kind         string     `json:"kind"`        // one of the Alert… constants
	Subject      Text       `json:"subject"`     // what it is about: an executor id, or the kind of alert and a name, such as backlog:QUEUE
	Severity     string     `json:"severity"`    // warning, critical
	Since        *time.Time `json:"since"`       // for a silence, the last heartbeat
	AgeSeconds   int64      `json:"age_seconds"` // seconds since Since
	Ratio        float64    `json:"ratio"`       // age ÷ expected cadence of a silence; for other kinds, share or age ÷ its threshold
	EventIDs     []string   `json:"event_ids"`   // ids of the events that were emitted for it
	State        string     `json:"state"`       // open, acked
	AckedBy      Text       `json:"acked_by"`
	AckedAt      *time.Time `json:"acked_at"`
	Comment      Text       `json:"comment"` // of the acknowledgement, as are AckedBy, AckedAt and AckExpiresAt
	AckExpiresAt *time.Time `json:"ack_expires_at"`
	// LastCleared says how the previous acknowledgement of this alert ended: "", expired,
	// beat_returned, rose_to_critical, unacked, share_fell, resumed, deregistered, ended.
	LastCleared string `json:"last_cleared"`
	// Cause is the subject of the alert that causes this one and is shown instead of it;
	// empty = this alert is a cause.
	Cause  Text `json:"cause"`
	Detail Text `json:"detail"` // the condition in one line; may be empty
}

// The kinds of alerts.
const (
	AlertSilence    = "silence"    // an executor or tick worker without a heartbeat
	AlertBroadcast  = "broadcast"  // a share of broadcast events above its threshold
	AlertFailing    = "failing"    // an endpoint that was suspended because it kept failing
	AlertQuarantine = "quarantine" // a row in quarantine
	AlertNoHost     = "no_host"    // loops and executors that no live host runs
	AlertUnclaimed  = "unclaimed"  // a queue lane whose jobs no live executor can claim
	AlertBacklog    = "backlog"    // work that has been due for a long time
	AlertCircuit    = "circuit"    // a circuit that has been open for a long time
)

// Causes returns the alerts without a Cause: one per cause.
func Causes(all []Alert) []Alert {
	out := make([]Alert, 0, len(all))
	for _, a := range all {
		if a.Cause.Empty() {
			out = append(out, a)
		}
	}
	return out
}

// Parts returns the alerts whose cause is a.
func (a Alert) Parts(all []Alert) []Alert {
	var out []Alert
	for _, x := range all {
		if x.Cause == a.Subject && !x.Cause.Empty() {
			out = append(out, x)
		}
	}
	return out
}

// Receiver returns the endpoint of an open circuit, which fn_queue_alert_rows has in its detail; empty
// for other kinds of alerts.
func (a Alert) Receiver() string {
	of, ok := strings.CutPrefix(a.Detail.String(), "circuit of ")
	if a.Kind != AlertCircuit || !ok {
		return ""
	}
	host, _, _ := strings.Cut(of, ", ")
	return host
}

// Queue returns the queue of a backlog or of an unclaimed queue lane, by the name that fn_queue_why
// takes; empty for other kinds of alerts.
func (a Alert) Queue() string {
	if name, ok := strings.CutPrefix(a.Subject.String(), "backlog:"); ok {
		return name
	}
	if lane, ok := strings.CutPrefix(a.Subject.String(), "unclaimed:"); ok {
		domain, kind, _ := strings.Cut(lane, "/")
		return "job " + kind + " in " + domain
	}
	return ""
}

// Executor is a row of queue_heartbeat.
type Executor struct {
	ID               Text       `json:"executor_id"`
	Kind             Text       `json:"executor_kind"`
	Domains          []Text     `json:"domain_scope"`
	State            string     `json:"state"` // working, idle, stuck, silent, unwatched (late while monitoring is off), stopped, deregistered
	LastBeatAt       *time.Time `json:"last_beat_at"`
	AgeSeconds       *int64     `json:"age_seconds"`              // null = it has never sent a heartbeat
	CadenceSeconds   int64      `json:"expected_cadence_seconds"` // longest normal time between two heartbeats
	ThresholdSeconds int64      `json:"stale_threshold_seconds"`  // silent after this long without a heartbeat; from 1,000,000 on it is not watched
	Ratio            float64    `json:"ratio"`                    // AgeSeconds ÷ CadenceSeconds
	Severity         string     `json:"severity"`                 // of its silence: warning, critical; empty = it is not silent
	InFlight         *int64     `json:"in_flight"`                // as its last heartbeat said, like DoneTotal and LastWorkAt; null = not said
	DoneTotal        *int64     `json:"done_total"`
	LastWorkAt       *time.Time `json:"last_work_at"`
	OwnerRole        Text       `json:"owner_role"` // only members of this role may act as it; empty = any dot_executor
	AckedBy          Text       `json:"acked_by"`   // who acknowledged its silence; empty = nobody
	AckExpiresAt     *time.Time `json:"ack_expires_at"`
	RegisteredAt     time.Time  `json:"registered_at"`
	RegisteredBy     Text       `json:"registered_by"`
	DeregisteredAt   *time.Time `json:"deregistered_at"`
	DeregisteredBy   Text       `json:"deregistered_by"`
	TickWorker       bool       `json:"tick_worker"` // true: its heartbeats are written by the ticks of the tick worker of this name
	InstanceID       Text       `json:"instance_id"` // the sender of the last heartbeat: HOST/INSTANCE of a worker host
}

// UnmarshalJSON decodes an executor of the snapshot. The database sends the state dead for a silence
// that is critical, and stale for one that is not yet; both become "silent", and Severity tells
// them apart.
func (x *Executor) UnmarshalJSON(raw []byte) error {
	type plain Executor
	if err := json.Unmarshal(raw, (*plain)(x)); err != nil {
		return err
	}
	if x.State == "stale" || x.State == "dead" {
		x.State = "silent"
	}
	return nil
}

// DeadGroup is a group of open dead letters with the same fingerprint.
type DeadGroup struct {
	Source         string    `json:"source"` // webhook, job, event
	Code           Text      `json:"code"`
	Endpoint       Text      `json:"endpoint"`        // of a webhook its endpoint, of a job its kind, of an event its type
	Domain         Text      `json:"domain"`          // of a webhook always "webhook"
	SubscriptionID int64     `json:"subscription_id"` // the webhook subscription; 0 for jobs and events
	Open           int64     `json:"open"`            // how many are open
	FirstAt        time.Time `json:"first_at"`        // when the first of the open ones failed, as LastAt the last
	LastAt         time.Time `json:"last_at"`
	Trend          []int64   `json:"trend"` // new dead letters per 5 minutes, oldest first, 12 buckets
}

// DeadMore counts the groups of open dead letters that a snapshot leaves out, possibly hundreds of
// thousands.
type DeadMore struct {
	Groups      int64 `json:"groups"`
	GroupsBound bool  `json:"groups_bound"` // true: there are at least Groups
	Open        int64 `json:"open"`         // exact number of dead letters in those groups
}

// Waiting is one queue with waiting work.
type Waiting struct {
	Queue           Text       `json:"queue"`   // "webhook hooks.acme", "job kg.reindex"
	Source          string     `json:"source"`  // webhook, event, job
	Subject         Text       `json:"subject"` // endpoint, route worker or job kind, by Source
	Domain          Text       `json:"domain"`
	OldestAt        *time.Time `json:"oldest_at"`
	AgeSeconds      int64      `json:"age_seconds"`           // seconds since the oldest item became due; 0 = none is due
	Waiting         int64      `json:"waiting"`               // number of waiting items
	WaitingBound    bool       `json:"waiting_bound"`         // true: more than Waiting items wait
	InPerSecond     *float64   `json:"in_per_s"`              // arrivals, mean of the last 4 to 5 minutes (of jobs 5 to 10); null = not counted
	OutPerSecond    *float64   `json:"out_per_s"`             // finished work, mean of the same time; null = not counted, as of events
	ClearsInSeconds *int64     `json:"clears_in_seconds"`     // until nothing waits, at these rates; null = the backlog does not shrink, or a rate is not known
	Why             Text       `json:"why"`                   // why it waits, as the first blocking link of fn_queue_why says; empty = nothing blocks
	WhyCode         string     `json:"why_code" derived:"go"` // WhyCode of Why
}

// Stuck reports whether the work is never done at the current rates. Where it is not known how much
// is done, only work that something blocks is stuck.
func (w Waiting) Stuck() bool {
	return (w.OutPerSecond != nil || !w.Why.Empty()) && stuck(w.ClearsInSeconds, w.Waiting, w.AgeSeconds)
}

// newWork is the age in seconds below which work does not count as waiting:
// the next poll of a host will claim it.
const newWork = 5

// stuck is the rule of Waiting.Stuck and Lane.Stuck. Work that is not due yet has age 0.
func stuck(clearsInSeconds *int64, waiting, age int64) bool {
	return clearsInSeconds == nil && waiting > 0 && age >= newWork
}

// Host is a row of queue_host: a worker host of this process or of another.
type Host struct {
	ID         Text                `json:"host_id"`
	Instance   string              `json:"instance"` // one UUID per process
	StartedAt  time.Time           `json:"started_at"`
	LastSeenAt time.Time           `json:"last_seen_at"`
	StoppedAt  *time.Time          `json:"stopped_at"`
	AgeSeconds int64               `json:"age_seconds"` // seconds since its last heartbeat
	Alive      bool                `json:"alive"`       // its last heartbeat is younger than 15 s, and it has not stopped
	Version    Text                `json:"version"`
	Loops      []Text              `json:"loops"`
	LastLoops  []Text              `json:"last_loops"`  // the loops that it last ran; kept after it stopped
	StopReason Text                `json:"stop_reason"` // a signal, or who stopped it; empty = not recorded, or not stopped
	InFlight   int64               `json:"in_flight"`
	Progress   map[string]LoopMark `json:"progress"` // by loop
}

// LoopMark is the state of one loop, as its host reports it.
type LoopMark struct {
	State    string     `json:"state"` // running, draining, failed
	LastTick *time.Time `json:"last_tick"`
	Done     int64      `json:"done"` // items since the host started
	Errors   int64      `json:"errors"`
	// Executor and Kinds are set only for the job executor: the executor as which it claims, and
	// the kinds for which it has handlers.
	Executor string   `json:"executor,omitempty"`
	Kinds    []string `json:"kinds,omitempty"`
	// Unsigned and Secrets are set only for the webhook sender: the subscriptions whose requests it
	// cannot sign, and the names of the secrets with which it can sign now; nil = its release does
	// not report them.
	Unsigned []Unsigned `json:"unsigned,omitempty"`
	Secrets  *[]string  `json:"secrets,omitempty"`
}

// Held is a transaction that has been open for over a minute. Events that it has written cannot be
// routed until it ends; other events are not delayed.
type Held struct {
	Worker     Text   `json:"worker"`      // the tick worker that will route its events
	Domain     Text   `json:"domain"`      // empty = unknown until the transaction ends
	AgeSeconds int64  `json:"age_seconds"` // seconds since the transaction began
	Pid        *int64 `json:"pid"`         // null = a prepared transaction
	Program    Text   `json:"program"`
	User       Text   `json:"user"`
}

// Holder returns the oldest of the transactions that delay the events of this row; nil if the row
// is not about such transactions.
func (s *Snapshot) Holder(r HealthRow) *Held {
	if r.Source.String() != "cursor_held" {
		return nil
	}
	for i, h := range s.Held {
		if h.Worker.String() == r.Subject.String() && h.Domain.String() == r.Domain.String() {
			return &s.Held[i]
		}
	}
	return nil
}

// Suspension is a webhook endpoint to which nothing is sent at present.
type Suspension struct {
	SubscriptionID int64      `json:"subscription_id"`
	Endpoint       Text       `json:"endpoint"`
	Reason         Text       `json:"reason"` // 410, circuit, failing, operator
	Since          time.Time  `json:"since"`
	Until          *time.Time `json:"until"` // null = until an operator resumes it
	By             Text       `json:"by"`
	Note           Text       `json:"note"` // the reason that the operator gave, or what the worker found; empty = none, or of an older release
}

// TickWorker is a row of v_queue_scheduler_status (source document DP1 §10).
type TickWorker struct {
	Name            Text            `json:"worker_name"`
	IntervalSeconds int64           `json:"configured_interval_seconds"` // 0 = switched off
	LastRunAt       *time.Time      `json:"last_run_at"`                 // when the last full run that succeeded began
	AgeSeconds      *int64          `json:"age_seconds"`                 // seconds since LastRunAt; null = it never ran
	Stale           bool            `json:"stale"`                       // its last success is longer ago than ThresholdSeconds
	Mode            Text            `json:"mode"`                        // the flag queue.scheduler.mode: one of SchedulerModes
	State           string          `json:"state"`                       // off, failed, stale, stopped, unwatched (late while monitoring is off), ok
	NextDueAt       *time.Time      `json:"next_due_at"`                 // start of the last run plus the interval; null = off or never ran
	LastSource      Text            `json:"last_source"`                 // who requested the last run: external (a host), pg_cron, wake, operator
	LastResult      json.RawMessage `json:"last_result"`                 // what the SQL function returned: see work.TickResult
	LastAttemptAt   *time.Time      `json:"last_attempt_at"`             // when the last run began, also if it failed
	LastWorkAt      *time.Time      `json:"last_work_at"`                // the last run that found something to do, to the second
	DoneTotal       int64           `json:"done_total"`                  // items over all runs
	FlagKey         Text            `json:"flag_key"`                    // the flag that switches the worker off; empty = no flag does
	CronJob         Text            `json:"cron_job"`                    // the pg_cron job that can run the worker; empty = none
	CronSchedule    Text            `json:"cron_schedule"`
	CronRunAs       Text            `json:"cron_run_as"` // the login as which the job runs; empty = not installed
	// ThresholdSeconds is the silence after which the worker is stale, according to the current
	// flags; from 1,000,000 on the worker is unwatched.
	ThresholdSeconds int64 `json:"stale_threshold_seconds"`
	Why              Text  `json:"why"` // why the worker does not run, or that nothing runs it; empty = it runs, or is switched off
}

// TickInterval returns the name of the flag that holds the interval of a tick worker.
func TickInterval(worker string) string { return "queue.tick." + worker + ".interval_seconds" }

// SchedulerMode is the flag that says what runs the tick workers.
const SchedulerMode = "queue.scheduler.mode"

// SchedulerModes returns the values of SchedulerMode.
func SchedulerModes() []string { return []string{"external", "pg_cron", "hybrid"} }

// Cron holds the pg_cron jobs of the queue that this login may see.
type Cron struct {
	Lacks Text      `json:"lacks"` // why this login cannot use pg_cron, with the remedy; empty = it can
	Jobs  []CronJob `json:"jobs"`
}

// CronJob is a row of fn_queue_cron_jobs.
type CronJob struct {
	Name        Text       `json:"job_name"`
	Worker      Text       `json:"worker_name"`
	Schedule    Text       `json:"schedule"` // a cron expression
	RunAs       Text       `json:"run_as"`   // the login as which it runs; empty = not installed
	InstalledAt *time.Time `json:"installed_at"`
	InstalledBy Text       `json:"installed_by"`
	Found       *bool      `json:"found"`  // whether it exists in pg_cron; nil = this login may not see that
	Active      *bool      `json:"active"` // whether pg_cron runs it; nil = this login may not see that, as LastStartAt
	LastStartAt *time.Time `json:"last_start_at"`
	LastStatus  Text       `json:"last_status"` // how its last run ended, as pg_cron says
	LastMessage Text       `json:"last_message"`
}

// Mark is a label on the history lines, such as a deploy.
type Mark struct {
	At    time.Time `json:"at"`
	Label Text      `json:"label"`
	By    Text      `json:"by"`
}

// Recent is an action of a person within the last hour: one audit row, or several with the same
// action, person and reason.
type Recent struct {
	AuditID int64     `json:"audit_id"` // of the newest row
	At      time.Time `json:"at"`       // of the newest row
	By      Text      `json:"by"`
	Action  Text      `json:"action"`
	Target  Text      `json:"target"` // of the newest row
	Reason  Text      `json:"reason"`
	Rows    int64     `json:"rows"` // number of audit rows
}

// Flow is the last hour in 60 buckets of one minute, oldest first; the last bucket is the current,
// incomplete minute.
type Flow struct {
	Delivered  []int64 `json:"delivered"`   // webhooks
	Dead       []int64 `json:"dead"`        // new dead letters of all sources
	Jobs       []int64 `json:"jobs"`        // finished jobs, with any outcome
	HostsAlive int64   `json:"hosts_alive"` // hosts with a heartbeat younger than 15 s
	DeadOpen   int64   `json:"dead_open"`   // all open dead letters, now
}
