package queue

// This file says which lists there are beside the picture, and holds the rows of dead
// letters, the audit and one job. They are read on demand, never by the live refresh.

import (
	"encoding/json"
	"time"
)

// ListKind names what List reads.
type ListKind string

// The lists, each with the type that its Page.Rows has.
const (
	ListDeadLetters  ListKind = "dead_letters"   // []DeadLetter: open ones, newest first
	ListDeadLetter   ListKind = "dead_letter"    // *DeadLetterDetail: one, with timeline and lineage (Query.ID)
	ListAudit        ListKind = "audit"          // []AuditEntry: newest first
	ListAlertHistory ListKind = "alert_history"  // []AlertAck: acknowledgements of one alert key or all
	ListFlagHistory  ListKind = "flag_history"   // []AuditEntry: of one flag (Query.ID)
	ListSession      ListKind = "session"        // *Session: of this login
	ListJobs         ListKind = "jobs"           // []Job: live ones of Query.ID = "domain/kind", or of all, those that wait longest first
	ListJob          ListKind = "job"            // *JobDetail: one, live or finished, with its masked payload (Query.ID)
	ListOperations   ListKind = "operations"     // []Operation: bulk operations, newest first
	ListOperation    ListKind = "operation"      // *OperationDetail: one with its items, those attempted last first (Query.ID)
	ListEndpoints    ListKind = "endpoints"      // EndpointList: subscriptions, those in trouble first, and the leases on their jobs
	ListEndpoint     ListKind = "endpoint"       // *EndpointDetail: one with its latest attempts, its leases and when what waits is due (Query.ID)
	ListLeases       ListKind = "webhook_leases" // []WebhookLease: on webhook jobs, those that expired first
	ListNotify       ListKind = "notifications"  // *Notifications: what is staged, what failed, the worker's log
	ListWhy          ListKind = "why"            // *Why: why a queue waits (Query.ID = its name)
	ListQuarantine   ListKind = "quarantine"     // []Quarantined: rows that a step fails on, those that are set aside first
	ListRoutes       ListKind = "routes"         // []Route: of events, per domain
	ListConsumers    ListKind = "consumers"      // []Consumer: of events, per type
	ListCron         ListKind = "cron"           // *Cron: the pg_cron jobs, and what keeps this login from them
	ListActivity     ListKind = "activity"       // []Activity: sessions that may hold queues up, what holds the oldest snapshot first
	ListRules        ListKind = "rules"          // EventSubscriptionList: who reads which events, and the broadcast share
	ListResolution   ListKind = "resolution"     // *Resolution: how a type is resolved (Query.ID = domain/type[/stream])
)

// Query asks for one page.
type Query struct {
	Kind   ListKind
	Filter string // the filter language; errors point at the column
	ID     string
	After  string // Page.Next of the page before
	Limit  int    // 0 = 200
	Whole  bool   // of a payload: all of it, however large; else its first PayloadShown characters
	Bare   bool   // without the count: Page.Total stays 0
	Scope  Scope  // of a resolution
}

// Scope is what of an event a rule may be narrowed to.
type Scope struct {
	SubjectTable, Payload string // Payload is JSON; empty = {}
}

// Page is the answer to a Query.
type Page struct {
	Rows       any   // of the type that stands with its ListKind; Of takes it out
	Total      int64 // rows that match
	TotalBound bool  // true: at least Total, the count was bounded
	Next       string
	AsOf       time.Time
}

// Of is the rows of a page as what its list has; the zero value where nothing was
// read.
func Of[T any](p Page) T {
	rows, _ := p.Rows.(T)
	return rows
}

// OperationDetail is one bulk operation with a page of its items.
type OperationDetail struct {
	Operation
	Items []OperationItem `json:"items"`
}

// EndpointList is endpoints and the leases on their jobs.
type EndpointList struct {
	Endpoints []Endpoint
	Leases    []WebhookLease
}

// EndpointDetail is one endpoint with what is read of it alone.
type EndpointDetail struct {
	Endpoint
	Attempts []Attempt      `json:"attempts"` // newest first
	Retries  []RetrySlot    `json:"retries"`  // soonest first
	Leases   []WebhookLease `json:"leases"`
	Why      *Why           `json:"why"`
}

// EventSubscriptionList is who reads which events, with the broadcast share.
type EventSubscriptionList struct {
	Subscriptions []EventSubscription
	Broadcast     *Broadcast
}

// PayloadShown is how much of a payload is read for a screen, in characters.
const PayloadShown = 100_000

// LeasesShown is how many leases on webhook jobs stand under the endpoints.
const LeasesShown = 200

// LineageShown is how many generations before and after a letter its lineage has.
const LineageShown = 100

// DeadLetter is one open dead letter. ID is a bare number for a webhook,
// job:UUID or event:UUID otherwise.
type DeadLetter struct {
	ID             string    `json:"id"`
	Source         string    `json:"source"`
	State          string    `json:"state"` // open, requeued, resolved
	Code           Text      `json:"code"`
	Endpoint       Text      `json:"endpoint"`
	Domain         Text      `json:"domain"`
	SubscriptionID int64     `json:"subscription_id"`
	EventID        int64     `json:"event_id"`
	EventType      Text      `json:"event_type"`
	SagaID         int64     `json:"saga_id"`
	Generation     int       `json:"generation"` // how many requeues led here
	FailedAt       time.Time `json:"failed_at"`
	AgeSeconds     int64     `json:"age_seconds"`
	// Of a webhook whose event was erased: it has no payload any more.
	ErasedAt *time.Time `json:"erased_at"`
	ErasedBy Text       `json:"erased_by"`
}

// DeadLetterDetail is one dead letter with all that is known of it.
type DeadLetterDetail struct {
	DeadLetter
	Payload       Text          `json:"payload"` // JSON as stored, secrets masked; empty with PayloadWhyNot set
	PayloadWhyNot Text          `json:"payload_why_not"`
	PayloadSize   int64         `json:"payload_size"`       // characters, also of what was left out
	Revealed      int           `json:"revealed,omitempty"` // seconds for which Payload still stands with its secrets; 0 = masked
	Attempts      []Attempt     `json:"attempts"`           // of a webhook's letter
	Lineage       []LineageStep `json:"lineage"`
	LineageLeft   int64         `json:"lineage_left,omitempty"` // generations that are not in Lineage
	RequeuedBy    Text          `json:"requeued_by"`
	RequeuedAt    *time.Time    `json:"requeued_at"`
	NewSagaID     int64         `json:"new_saga_id"`
	Resolution    Text          `json:"resolution"`
	ResolvedBy    Text          `json:"resolved_by"`
	ResolvedAt    *time.Time    `json:"resolved_at"`
	ResolvedNote  Text          `json:"resolved_note"`
	CallbackURL   Text          `json:"callback_url"` // as SafeURL leaves it
	Unsigned      bool          `json:"unsigned"`
	Worker        Text          `json:"worker,omitzero"`     // of an event's letter: the route worker
	RoutedID      string        `json:"routed_id,omitempty"` // of an event's letter: the event
	// Of a job's letter.
	JobID         string     `json:"job_id,omitempty"`
	ReplayedJobID string     `json:"replayed_job_id,omitempty"`
	Executor      Text       `json:"executor,omitzero"` // the executor kind it was meant for
	Tries         int        `json:"tries,omitempty"`   // how often it was tried
	LastError     Text       `json:"last_error,omitzero"`
	FirstFailedAt *time.Time `json:"first_failed_at,omitempty"`
}

// Attempt is one job of the saga.
type Attempt struct {
	JobID      int64      `json:"job_id"`
	No         int        `json:"attempt_no"`
	Status     string     `json:"status"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	HTTPStatus *int       `json:"response_status"`
	Code       Text       `json:"error_code"`
	Worker     Text       `json:"worker_id"`
	Excerpt    Text       `json:"response_excerpt"`
	Resets     int        `json:"lease_resets"`
}

// LineageStep is one link of event → saga → jobs → dead letter → requeued saga, of
// job → dead letter → replayed job, or of event → attempts → dead letter.
type LineageStep struct {
	Kind       string     `json:"kind"` // event, saga, job, attempt, dead_letter, requeue, closed
	ID         Text       `json:"id"`
	Status     string     `json:"status"`
	At         *time.Time `json:"at"`
	By         Text       `json:"by"`
	Generation int        `json:"generation"` // how many requeues lie before it
	Current    bool       `json:"current,omitempty"`
}

// AuditEntry is a row of queue_operator_action.
type AuditEntry struct {
	ID          int64           `json:"id"`
	At          time.Time       `json:"at"`
	Actor       Text            `json:"actor"`
	DBRole      Text            `json:"db_role"`
	ClientAddr  Text            `json:"client_addr"`
	Action      Text            `json:"action"`
	Target      Text            `json:"target"`
	Filter      Text            `json:"filter"`
	FrozenCount *int64          `json:"frozen_count"`
	Reason      Text            `json:"reason"`
	Before      json.RawMessage `json:"before"`
	After       json.RawMessage `json:"after"`
	Outcome     Text            `json:"outcome"`
	Claimed     json.RawMessage `json:"claimed"` // what the caller's program says about who runs it; null = nothing
}

// AlertAck is a row of queue_alert_ack.
type AlertAck struct {
	AlertKey      Text       `json:"alert_key"`
	AckedBy       Text       `json:"acked_by"`
	AckedAt       time.Time  `json:"acked_at"`
	Comment       Text       `json:"comment"`
	ExpiresAt     *time.Time `json:"expires_at"`
	ClearedAt     *time.Time `json:"cleared_at"`
	ClearedReason Text       `json:"cleared_reason"`
}

// JobDetail is one job with what is known of it.
type JobDetail struct {
	Job
	Payload       Text   `json:"payload"` // JSON as stored, secrets masked; empty with PayloadWhyNot set
	PayloadWhyNot Text   `json:"payload_why_not"`
	PayloadSize   int64  `json:"payload_size"`       // characters, also of what was left out
	Revealed      int    `json:"revealed,omitempty"` // seconds for which Payload still stands with its secrets; 0 = masked
	FromStatus    string `json:"from_status"`        // of a finished one: where it stood before
	SourceRef     Text   `json:"source_ref"`
	TargetRef     Text   `json:"target_ref"`
	PayloadRef    Text   `json:"payload_ref"`
	Actor         Text   `json:"actor"`
	CorrelationID Text   `json:"correlation_id"`
	LostLeases    int    `json:"lost_leases"`
}

// AuditFields are the fields of the audit pane's filter.
func AuditFields() []Field {
	return []Field{
		{Name: "actor", Kind: FieldText, Help: "the person claimed"},
		{Name: "role", Kind: FieldText, Help: "the database login"},
		{Name: "action", Kind: FieldText, Help: "what was done"},
		{Name: "target", Kind: FieldText, Help: "what it was done to"},
		{Name: "reason", Kind: FieldText, Help: "why"},
		{Name: "outcome", Kind: FieldText, Help: "done, refused: …"},
		{Name: "at", Kind: FieldTime, Help: "when"},
		{Name: "age", Kind: FieldDuration, Help: "how long ago"},
	}
}
