package queue

import (
	"strings"
	"time"
)

// Endpoint is one webhook subscription with its gate, its backlog and its recent results.
type Endpoint struct {
	ID          int64    `json:"subscription_id"`
	EventType   Text     `json:"event_type"`
	URL         Text     `json:"callback_url"`          // without parts that may be secret: credentials and query
	Endpoint    Text     `json:"endpoint"`              // host[:port]
	Gate        string   `json:"gate"`                  // whether anything is sent: open, half_open (one probe), suspended, unverified, inactive
	Unsigned    bool     `json:"unsigned"`              // it names no secret: deliveries carry no signature
	MaxAttempts *int     `json:"max_attempts"`          // null = the flag webhook.max_attempts applies
	RateLimit   *float64 `json:"rate_limit_per_second"` // null = no limit

	Waiting    int64      `json:"waiting"`           // sagas that are neither completed nor dead-lettered
	OldestAt   *time.Time `json:"oldest_waiting_at"` // when the oldest due delivery became due
	AgeSeconds *int64     `json:"age_seconds"`       // seconds since the oldest due one became due; null = none is due
	DeadOpen   int64      `json:"dead_open"`         // open dead letters
	// The numbers of sagas by state.
	Pending      int64 `json:"pending"`
	InProgress   int64 `json:"in_progress"`
	PendingRetry int64 `json:"pending_retry"`
	Completed    int64 `json:"completed"`
	DeadLettered int64 `json:"dead_lettered"`

	Leased      int64      `json:"leased"`          // jobs that hosts have leased
	Expired     int64      `json:"expired"`         // leases that have expired and are not reset yet
	NextAt      *time.Time `json:"next_attempt_at"` // of the waiting sagas; null = none waits
	SuspendedBy Text       `json:"suspended_by"`
	Reason      Text       `json:"suspended_reason"` // 410, circuit, failing, operator; empty = not suspended
	Note        Text       `json:"suspended_note"`   // the reason that the operator gave, or what the worker found; empty = none
	Since       *time.Time `json:"suspended_since"`
	Until       *time.Time `json:"suspended_until"` // null = until an operator resumes it
	// SlowStart is the current rate limit in requests per second, which the endpoint and all its
	// subscriptions share after a block; nil = no slow start.
	SlowStart *float64 `json:"slow_start_rate"`

	FailuresInRow int        `json:"consecutive_failures"` // failed attempts since the last success
	LastSuccessAt *time.Time `json:"last_success_at"`
	LastFailureAt *time.Time `json:"last_failure_at"`
	LastFailure   Text       `json:"last_failure_code"` // code of the last failure
	// Statistics of the last 50 settled attempts, or of all if there are fewer.
	Recent   int64    `json:"recent"`    // settled attempts in the sample
	RecentOK int64    `json:"recent_ok"` // those that were delivered
	P50MS    *float64 `json:"p50_ms"`    // median duration in milliseconds, of attempts that the receiver answered or that timed out
	P95MS    *float64 `json:"p95_ms"`
}

// Shut reports whether nothing is sent to the endpoint until an operator acts or time passes.
func (e Endpoint) Shut() bool { return e.Gate != "open" }

// EndpointFields returns the fields that a filter of endpoints may name.
func EndpointFields() []Field {
	return []Field{
		{Name: "id", Kind: FieldNumber, Help: "the subscription's number"},
		{Name: "endpoint", Kind: FieldText, Help: "host and port"},
		{Name: "type", Kind: FieldText, Help: "the event type"},
		{Name: "gate", Kind: FieldText, Help: "open, half_open, suspended, unverified, inactive"},
		{Name: "reason", Kind: FieldText, Help: "why it is suspended: 410, circuit, operator"},
		{Name: "waiting", Kind: FieldNumber, Help: "waiting deliveries"},
		{Name: "dead", Kind: FieldNumber, Help: "open dead letters"},
		{Name: "code", Kind: FieldText, Help: "the code of the last failure"},
	}
}

// WebhookLease is a webhook job that a worker has leased.
type WebhookLease struct {
	JobID          int64     `json:"job_id"`
	SagaID         int64     `json:"saga_id"`
	SubscriptionID int64     `json:"subscription_id"`
	Endpoint       Text      `json:"endpoint"`
	Worker         Text      `json:"worker_id"` // the worker host: host id/start of its instance
	AttemptNo      int       `json:"attempt_no"`
	StartedAt      time.Time `json:"started_at"`
	Until          time.Time `json:"lease_until"`
	Expired        bool      `json:"expired"`
	Resets         int       `json:"lease_resets"` // leases of this job that were lost before
}

// RetrySlot is the number of retries that become due within a span of time from now.
type RetrySlot struct {
	From  int64 `json:"from_seconds"` // seconds from now; negative = due already
	To    int64 `json:"to_seconds"`   // seconds from now; 0 = the slot has no end
	N     int64 `json:"n"`            // number of retries
	Bound bool  `json:"n_bound"`      // true: N or more; counting stopped
}

// SafeURL returns a callback URL without credentials, query and fragment, which may be secret. The
// path remains: receivers put tokens there too, so a URL that was read raw needs fn_mask_url, or
// fn_webhook_url, which mask those.
func SafeURL(raw string) Text {
	if scheme, rest, ok := strings.Cut(raw, "://"); ok {
		host := rest
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			host = rest[:end]
		}
		at := strings.LastIndex(host, "@")
		if _, port, ok := strings.Cut(host, ":"); ok && at < 0 && strings.Trim(port, "0123456789") != "" {
			at = strings.LastIndex(rest, "@") // the text is no port: it is the beginning of a password that contains / ? or #
		}
		if at >= 0 {
			rest = "•••@" + rest[at+1:]
		}
		raw = scheme + "://" + rest
	}
	if at := strings.IndexAny(raw, "?#"); at >= 0 {
		raw = raw[:at+1] + "•••"
	}
	return Clean(raw)
}
