package queue

// Lists are read on demand, page by page; unlike the snapshot, they are not part of the live
// refresh.

import (
	"encoding/json"
	"strings"
	"time"
)

// ListKind names a list.
type ListKind string

// The lists, each with the type of its Page.Rows.
const (
	ListDeadLetters        ListKind = "dead_letters"        // []DeadLetter: open ones, newest first
	ListDeadGroups         ListKind = "dead_groups"         // []DeadGroup: every group of open dead letters, with an empty Trend
	ListDeadLetter         ListKind = "dead_letter"         // *DeadLetterDetail: one dead letter (Query.ID) with its attempts and lineage
	ListAudit              ListKind = "audit"               // []AuditEntry: newest first
	ListAlertHistory       ListKind = "alert_history"       // []AlertAck: acknowledgements of one alert key (Query.ID) or of all
	ListFlagHistory        ListKind = "flag_history"        // []AuditEntry: changes of one flag (Query.ID)
	ListSession            ListKind = "session"             // *Session: this login, its rights and its connection
	ListJobs               ListKind = "jobs"                // []Job: live jobs of one queue lane (Query.ID = "domain/kind") or of all, longest wait first
	ListJob                ListKind = "job"                 // *JobDetail: one job (Query.ID), live or finished, with its masked payload
	ListOperations         ListKind = "operations"          // []Operation: bulk operations, newest first
	ListOperation          ListKind = "operation"           // *OperationDetail: one operation (Query.ID) with a page of its items, latest first
	ListEndpoints          ListKind = "endpoints"           // EndpointList: webhook subscriptions, those with problems first, and the leases on their jobs
	ListEndpoint           ListKind = "endpoint"            // *EndpointDetail: one webhook subscription (Query.ID) with its latest attempts, its leases and its retry calendar
	ListLeases             ListKind = "webhook_leases"      // []WebhookLease: leases on webhook jobs, expired ones first
	ListNotify             ListKind = "notifications"       // *Notifications: staged rows, failed rows, runs of the worker
	ListWhy                ListKind = "why"                 // *Why: why a queue waits (Query.ID = its name)
	ListQuarantine         ListKind = "quarantine"          // []Quarantined: rows on which a step of a tick worker fails, those in quarantine first
	ListRoutes             ListKind = "routes"              // []Route: how the events of each domain are routed
	ListConsumers          ListKind = "consumers"           // []Consumer: which events make which jobs
	ListEventTypes         ListKind = "event_types"         // []EventType: the registered event types
	ListProducers          ListKind = "producers"           // []ProducerRole: who may enqueue, per executor kind
	ListCron               ListKind = "cron"                // *Cron: the pg_cron jobs that tick workers
	ListActivity           ListKind = "activity"            // []Activity: sessions that may block the queues, the holder of the oldest snapshot first
	ListEventSubscriptions ListKind = "event_subscriptions" // EventSubscriptionList: event subscriptions, and the broadcast share
	ListResolution         ListKind = "resolution"          // *Resolution: who receives an event of a type (Query.ID = domain/type[/stream])
)

// Query requests one page of a list.
type Query struct {
	Kind   ListKind
	Filter string // in the filter language (see Filter); an error names the column of the mistake
	ID     string // the row or the group of rows; each ListKind says what it takes
	After  string // Page.Next of the previous page; empty = the first page
	Limit  int    // rows per page; 0 = 200
	Whole  bool   // read the complete payload, however large; otherwise its first PayloadShown characters
	Bare   bool   // do not count the matching rows: Page.Total is 0
	Scope  Scope  // for ListResolution
}

// Scope narrows an event for ListResolution.
type Scope struct {
	SubjectTable, Payload string // Payload is JSON; empty = {}
}

// Page is the result of a Query.
type Page struct {
	Rows       any       // of the type that the ListKind documents; see Of
	Total      int64     // number of matching rows
	TotalBound bool      // true: at least Total rows match; counting stopped there
	Next       string    // Query.After of the next page; empty = this is the last page
	AsOf       time.Time // the server's time when the page was read
}

// Of returns the rows of a page as type T; the zero value if the page has no rows.
func Of[T any](p Page) T {
	rows, _ := p.Rows.(T)
	return rows
}

// OperationDetail is one bulk operation with a page of its items.
type OperationDetail struct {
	Operation
	Items []OperationItem `json:"items"`
}

// EndpointList is a page of endpoints with the leases on their jobs.
type EndpointList struct {
	Endpoints []Endpoint
	Leases    []WebhookLease
}

// EndpointDetail is one endpoint with further details, which lists do not read.
type EndpointDetail struct {
	Endpoint
	Attempts []Attempt      `json:"attempts"` // newest first
	Retries  []RetrySlot    `json:"retries"`  // soonest first
	Leases   []WebhookLease `json:"leases"`
	Why      *Why           `json:"why"` // why its deliveries wait
}

// EventSubscriptionList holds the event subscriptions and the broadcast share.
type EventSubscriptionList struct {
	Subscriptions []EventSubscription
	Broadcast     *Broadcast
}

// PayloadShown is how many characters of a payload are read for a screen.
const PayloadShown = 100_000

// LeasesShown is the largest number of webhook leases shown below the endpoints.
const LeasesShown = 200

// LineageShown is the largest number of generations before and after a dead letter in its lineage.
const LineageShown = 100

// DeadLetter is one dead letter. ID is a plain number for a webhook, otherwise job:UUID or
// event:UUID.
type DeadLetter struct {
	ID             string    `json:"id"`
	Source         string    `json:"source"` // webhook, job, event
	State          string    `json:"state"`  // open, requeued, resolved
	Code           Text      `json:"code"`
	Endpoint       Text      `json:"endpoint"`        // of a webhook its endpoint, of a job its kind, of an event its type
	Domain         Text      `json:"domain"`          // of a webhook always "webhook"
	SubscriptionID int64     `json:"subscription_id"` // the webhook subscription; 0 unless Source is webhook, as are EventID and SagaID
	EventID        int64     `json:"event_id"`
	EventType      Text      `json:"event_type"`
	SagaID         int64     `json:"saga_id"`
	Generation     int       `json:"generation"` // how many requeues or replays preceded it
	FailedAt       time.Time `json:"failed_at"`
	AgeSeconds     int64     `json:"age_seconds"` // seconds since FailedAt
	// ErasedAt is when the event of a webhook was erased, and its payload with it.
	ErasedAt *time.Time `json:"erased_at"`
	ErasedBy Text       `json:"erased_by"`
}

// DeadLetterDetail is one dead letter with all its details.
type DeadLetterDetail struct {
	DeadLetter
	Payload       Text          `json:"payload"`            // JSON as stored, secrets masked; empty if PayloadWhyNot is set
	PayloadWhyNot Text          `json:"payload_why_not"`    // why Payload is not shown
	PayloadSize   int64         `json:"payload_size"`       // in characters, including the part that was not read
	Revealed      int           `json:"revealed,omitempty"` // seconds until Payload is masked again; 0 = masked
	Attempts      []Attempt     `json:"attempts"`           // empty except for a webhook
	Lineage       []LineageStep `json:"lineage"`
	LineageLeft   int64         `json:"lineage_left,omitempty"` // generations that are not in Lineage
	RequeuedBy    Text          `json:"requeued_by"`
	RequeuedAt    *time.Time    `json:"requeued_at"`
	NewSagaID     int64         `json:"new_saga_id"` // the saga that a requeue made; 0 = none
	Resolution    Text          `json:"resolution"`  // abandoned, duplicate, or done or delivered otherwise; empty = not resolved
	ResolvedBy    Text          `json:"resolved_by"`
	ResolvedAt    *time.Time    `json:"resolved_at"`
	ResolvedNote  Text          `json:"resolved_note"`
	CallbackURL   Text          `json:"callback_url"`         // without the parts that may be secret: see SafeURL
	Unsigned      bool          `json:"unsigned"`             // the webhook subscription names no secret
	WebhookID     string        `json:"webhook_id,omitempty"` // the header webhook-id of every attempt; only for a webhook
	Worker        Text          `json:"worker,omitzero"`      // the route worker; only for an event
	RoutedID      string        `json:"routed_id,omitempty"`  // the id of the event; only for an event
	// The following fields are set only for a job's dead letter.
	JobID         string     `json:"job_id,omitempty"`
	ReplayedJobID string     `json:"replayed_job_id,omitempty"`
	Executor      Text       `json:"executor,omitzero"` // the executor kind
	Tries         int        `json:"tries,omitempty"`   // number of attempts
	LastError     Text       `json:"last_error,omitzero"`
	FirstFailedAt *time.Time `json:"first_failed_at,omitempty"`
}

// Attempt is one attempt of a delivery: a webhook job of the saga.
type Attempt struct {
	JobID      int64      `json:"job_id"`
	No         int        `json:"attempt_no"`
	Status     string     `json:"status"` // Pending, Leased, Completed or Failed
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	HTTPStatus *int       `json:"response_status"` // null = there was no answer
	Code       Text       `json:"error_code"`
	Worker     Text       `json:"worker_id"`        // the worker host that sent it: host id/start of its instance
	Excerpt    Text       `json:"response_excerpt"` // the start of the answer, masked; empty if this login may not read it
	Resets     int        `json:"lease_resets"`     // leases of this job that were lost
	WebhookID  string     `json:"webhook_id"`       // the header webhook-id with which it was sent
}

// LineageStep is one link of event → saga → jobs → dead letter → requeued saga, of
// job → dead letter → replayed job, or of event → attempts → dead letter.
type LineageStep struct {
	Kind       string     `json:"kind"` // event, saga, job, attempt, dead_letter, requeue, closed
	ID         Text       `json:"id"`
	Status     string     `json:"status"`
	At         *time.Time `json:"at"`         // of a saga or job when it ended or last changed, of the others when it was made
	By         Text       `json:"by"`         // the person who requeued or closed, who ran a job or enqueued it, the route worker; empty = nobody
	Generation int        `json:"generation"` // how many requeues or replays preceded this step
	Current    bool       `json:"current,omitempty"`
}

// AuditEntry is a row of queue_operator_action.
type AuditEntry struct {
	ID          int64           `json:"id"`
	At          time.Time       `json:"at"`
	Actor       Text            `json:"actor"`   // the person whom the caller named
	DBRole      Text            `json:"db_role"` // the login of the session, which the caller cannot forge
	ClientAddr  Text            `json:"client_addr"`
	Action      Text            `json:"action"`
	Target      Text            `json:"target"`
	Filter      Text            `json:"filter"`
	FrozenCount *int64          `json:"frozen_count"` // number of rows that were selected, that the action was about; null = not recorded. Changed has how many it changed
	Reason      Text            `json:"reason"`
	Before      json.RawMessage `json:"before"`
	After       json.RawMessage `json:"after"`
	Outcome     Text            `json:"outcome"` // done, asked (a signal that was sent afterwards), failed (it was tried), or refused with the rule
	Claimed     json.RawMessage `json:"claimed"` // who ran the caller's program, as the program claims; null = it claims nothing

	OperationID *int64     `json:"operation_id"` // the bulk operation that acted, or that the action was about
	Batches     *int64     `json:"batches"`      // not nil: the row stands for all batches of an operation, this is their number, and FrozenCount the number of their items
	LastAt      *time.Time `json:"last_at"`      // the time of the last batch; nil exactly if Batches is

	Changed *int64 `json:"changed"` // number of rows that the action changed; of a row about an operation, what the operation had done until then; null = not known
}

// Folded reports whether the row represents all batches of an operation.
func (a AuditEntry) Folded() bool { return a.Batches != nil }

// ByMachine reports whether no person did this: the brake, the end of a temporary value, the batches
// of an operation, and what a trigger recorded of a direct write.
func (a AuditEntry) ByMachine() bool {
	action := a.Action.String()
	return a.Folded() || action == "bulk_brake" || action == "flag_revert" || strings.HasSuffix(action, "_subscription_write")
}

// ByRunner reports whether the row is of a batch that the tick worker bulk_operation_runner carried out for
// the operation of Actor; DBRole is then the login that ran the tick worker. A person undoes an operation with the own login.
func (a AuditEntry) ByRunner() bool {
	action := a.Action.String()
	return a.OperationID != nil && !strings.HasPrefix(action, "bulk_") && !strings.HasSuffix(action, "_undo") && !strings.HasSuffix(action, "_reopen")
}

// AlertAck is a row of queue_alert_ack.
type AlertAck struct {
	AlertKey      Text       `json:"alert_key"`
	AckedBy       Text       `json:"acked_by"`
	AckedAt       time.Time  `json:"acked_at"`
	Comment       Text       `json:"comment"`
	ExpiresAt     *time.Time `json:"expires_at"`
	ClearedAt     *time.Time `json:"cleared_at"`     // when it ended; null = it is in force
	ClearedReason Text       `json:"cleared_reason"` // why it ended: see Alert.LastCleared
}

// JobDetail is one job with all its details.
type JobDetail struct {
	Job
	Payload       Text   `json:"payload"`            // JSON as stored, secrets masked; empty if PayloadWhyNot is set
	PayloadWhyNot Text   `json:"payload_why_not"`    // why Payload is not shown
	PayloadSize   int64  `json:"payload_size"`       // in characters, including the part that was not read
	Revealed      int    `json:"revealed,omitempty"` // seconds until Payload is masked again; 0 = masked
	FromStatus    string `json:"from_status"`        // the status before the final one; only of a finished job
	SourceRef     Text   `json:"source_ref"`
	TargetRef     Text   `json:"target_ref"`
	PayloadRef    Text   `json:"payload_ref"`
	Actor         Text   `json:"actor"`
	CorrelationID Text   `json:"correlation_id"`
	LostLeases    int    `json:"lost_leases"`
	DueIn         *int64 `json:"due_in_seconds"` // seconds until ProcessAfter, below 0 if it is past; nil unless the job waits
	DeadLetterID  string `json:"dead_id"`        // of a job that became one, as JobDeadLetterID returns it; empty = none, or this login may not read them
}

// AuditOperation is the filter field that selects the audit rows of a bulk operation. If a filter
// does not use it, the batches of an operation are one row per action.
const AuditOperation = "operation_id"

// AuditFields returns the fields of the audit pane's filter.
func AuditFields() []Field {
	return []Field{
		{Name: "actor", Kind: FieldText, Help: "the person claimed"},
		{Name: "role", Kind: FieldText, Help: "the database login"},
		{Name: "action", Kind: FieldText, Help: "what was done"},
		{Name: "target", Kind: FieldText, Help: "what it was done to"},
		{Name: "reason", Kind: FieldText, Help: "why"},
		{Name: "outcome", Kind: FieldText, Help: "done, failed, refused: …"},
		{Name: AuditOperation, Kind: FieldNumber, Help: "a bulk operation; its batches are listed one by one"},
		{Name: "at", Kind: FieldTime, Help: "when"},
		{Name: "age", Kind: FieldDuration, Help: "how long ago"},
	}
}
