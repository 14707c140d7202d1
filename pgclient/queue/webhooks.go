package queue

// This file is webhooks as pane 7 reads them: each subscription with its gate and
// how it answers, the leases on its jobs, and when what waits is tried again.

import (
	"strings"
	"time"
)

// Endpoint is one subscription with what stands between it and its deliveries.
type Endpoint struct {
	ID          int64    `json:"subscription_id"`
	EventType   Text     `json:"event_type"`
	URL         Text     `json:"callback_url"` // without what may be a secret: credentials and query
	Endpoint    Text     `json:"endpoint"`     // host[:port]
	Gate        string   `json:"gate"`         // open, half_open, suspended, unverified, inactive
	Unsigned    bool     `json:"unsigned"`
	MaxAttempts *int     `json:"max_attempts"` // null: the flag webhook.max_attempts
	RateLimit   *float64 `json:"rate_limit_per_second"`

	Waiting    int64      `json:"waiting"` // sagas that are neither delivered nor dead
	OldestAt   *time.Time `json:"oldest_waiting_at"`
	AgeSeconds int64      `json:"age_seconds"` // of the oldest that is due
	DeadOpen   int64      `json:"dead_open"`
	// Sagas by state.
	Pending      int64 `json:"pending"`
	InProgress   int64 `json:"in_progress"`
	PendingRetry int64 `json:"pending_retry"`
	Completed    int64 `json:"completed"`
	DeadLettered int64 `json:"dead_lettered"`

	Leased      int64      `json:"leased"` // jobs in flight
	Expired     int64      `json:"expired"`
	NextAt      *time.Time `json:"next_attempt_at"` // of what waits
	SuspendedBy Text       `json:"suspended_by"`
	Reason      Text       `json:"suspended_reason"` // 410, circuit, operator
	Since       *time.Time `json:"suspended_since"`
	Until       *time.Time `json:"suspended_until"`
	// SlowStart is how many requests a second its endpoint gets now, with all its
	// subscriptions, after it was blocked; nil = no slow start.
	SlowStart *float64 `json:"slow_start_rate"`

	FailuresInRow int        `json:"consecutive_failures"`
	LastSuccessAt *time.Time `json:"last_success_at"`
	LastFailureAt *time.Time `json:"last_failure_at"`
	LastFailure   Text       `json:"last_failure_code"`
	// The last 50 settled attempts, fewer where there were fewer.
	Recent   int64    `json:"recent"`
	RecentOK int64    `json:"recent_ok"`
	P50MS    *float64 `json:"p50_ms"` // of those that a receiver answered or kept waiting
	P95MS    *float64 `json:"p95_ms"`
}

// Shut tells whether nothing is sent to it until something is done or time passes.
func (e Endpoint) Shut() bool { return e.Gate != "open" }

// EndpointFields are the words of the filter of endpoints.
func EndpointFields() []Field {
	return []Field{
		{Name: "id", Kind: FieldNumber, Help: "the subscription's number"},
		{Name: "endpoint", Kind: FieldText, Help: "host and port"},
		{Name: "type", Kind: FieldText, Help: "the event type"},
		{Name: "gate", Kind: FieldText, Help: "open, half_open, suspended, unverified, inactive"},
		{Name: "reason", Kind: FieldText, Help: "why it is suspended: 410, circuit, operator"},
		{Name: "waiting", Kind: FieldNumber, Help: "deliveries that wait"},
		{Name: "dead", Kind: FieldNumber, Help: "open dead letters"},
		{Name: "code", Kind: FieldText, Help: "the code of the last failure"},
	}
}

// WebhookLease is a webhook job that a worker has.
type WebhookLease struct {
	JobID          int64     `json:"job_id"`
	SagaID         int64     `json:"saga_id"`
	SubscriptionID int64     `json:"subscription_id"`
	Endpoint       Text      `json:"endpoint"`
	Worker         Text      `json:"worker_id"`
	AttemptNo      int       `json:"attempt_no"`
	StartedAt      time.Time `json:"started_at"`
	Until          time.Time `json:"lease_until"`
	Expired        bool      `json:"expired"`
	Resets         int       `json:"lease_resets"`
}

// RetrySlot is how much falls due within a span of time from now.
type RetrySlot struct {
	From  int64 `json:"from_seconds"` // negative: due already
	To    int64 `json:"to_seconds"`   // 0 in the last: without end
	N     int64 `json:"n"`
	Bound bool  `json:"n_bound"` // true: at least N
}

// SafeURL is a callback URL without what may be a secret: its credentials, query
// and fragment.
func SafeURL(raw string) Text {
	if scheme, rest, ok := strings.Cut(raw, "://"); ok {
		host := rest
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			host = rest[:end]
		}
		at := strings.LastIndex(host, "@")
		if _, port, ok := strings.Cut(host, ":"); ok && at < 0 && strings.Trim(port, "0123456789") != "" {
			at = strings.LastIndex(rest, "@") // no port: the beginning of a password that holds / ? or #
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
