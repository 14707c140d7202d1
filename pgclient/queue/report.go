package queue

import "time"

// Report is what the database recorded between Since and Until. Lists are limited; More has the
// number of rows left out, by the name of the list.
type Report struct {
	Database Text      `json:"database"`
	Version  Text      `json:"version"`
	Login    Text      `json:"login"`
	Actor    Text      `json:"actor"` // the person who asked for the report
	AsOf     time.Time `json:"as_of"` // server time
	Since    time.Time `json:"since"` // the span that the report covers
	Until    time.Time `json:"until"` // the report ends before this time

	Silences []Silence `json:"silences"`
	// Suspensions has the circuits that opened, too: for them reason is circuit.
	Suspensions []SuspendedTime `json:"suspensions"`

	Flags      []FlagChange   `json:"flags"`
	Operations []Operation    `json:"operations"`
	Dead       []DeadStory    `json:"dead"`
	Marks      []Mark         `json:"marks"`
	Curves     []Curve        `json:"curves"`
	CurveStep  int64          `json:"curve_step_seconds"` // time that one point of a curve covers
	Actions    []AuditEntry   `json:"actions"`
	More       map[string]int `json:"more"`

	// DeadBound is true if more rows became dead letters than the report reads: the counts then
	// cover only the newest.
	DeadBound bool `json:"dead_bound"`
}

// How a silence ended; empty = it has not ended.
const (
	SilenceLasts   = ""
	SilenceBeat    = "beat_returned"
	SilenceGone    = "deregistered"
	SilenceSampled = "last_seen" // EndedAt is the time of the last sample in which the executor was silent
	SilenceUnknown = "unknown"
)

// Silence is one silence of an executor with its acknowledgements.
type Silence struct {
	Alert          Text       `json:"alert_key"`
	Executor       Text       `json:"executor_id"`
	LastBeatAt     *time.Time `json:"last_beat_at"`      // the last heartbeat before the silence
	EndedAt        *time.Time `json:"ended_at"`          // null = it lasts
	Ended          string     `json:"ended"`             // how it ended: one of the Silence… constants
	WorstSeconds   int64      `json:"worst_age_seconds"` // the longest silence within the span of the report
	CadenceSeconds int64      `json:"expected_cadence_seconds"`
	Acks           []AlertAck `json:"acks" db:"-"`
}

// How a suspension ended; empty = it has not ended. A circuit that closed is SuspensionSeen.
const (
	SuspensionLasts   = ""
	SuspensionResumed = "resumed"   // an operator resumed the endpoint, or closed the circuit
	SuspensionExpired = "expired"   // its time was over
	SuspensionSeen    = "last_seen" // EndedAt is the time of the last stored snapshot that has it
	SuspensionUnknown = "unknown"
)

// SuspendedTime is a time in which nothing was sent to a webhook subscription, because its circuit was
// open or its endpoint was suspended.
type SuspendedTime struct {
	SubscriptionID int64      `json:"subscription_id"`
	Endpoint       Text       `json:"endpoint"`
	Reason         string     `json:"reason"` // circuit, operator, 410, failing
	Since          time.Time  `json:"since"`
	By             Text       `json:"by"`
	Note           Text       `json:"note"`
	EndedAt        *time.Time `json:"ended_at"`
	Ended          string     `json:"ended"`
	EndedBy        Text       `json:"ended_by"`
}

// FlagChange is a change of a flag, by an operator or by its expiry.
type FlagChange struct {
	At        time.Time  `json:"at"`
	Key       Text       `json:"key"`
	Before    Text       `json:"before"`
	After     Text       `json:"after"`
	RevertsAt *time.Time `json:"reverts_at"` // null = permanent
	By        Text       `json:"by"`
	Reason    Text       `json:"reason"`
}

// DeadStory describes the dead letters of one fingerprint that died in the span, and how many of
// them were in which state when the report was made.
type DeadStory struct {
	Source    string    `json:"source"`
	Code      Text      `json:"code"`     // failure code
	Endpoint  Text      `json:"endpoint"` // the endpoint of a webhook, or the kind of a job
	Domain    Text      `json:"domain"`
	Arose     int64     `json:"arose"` // how many
	Open      int64     `json:"open"`  // of these, how many were open when the report was made, as Requeued and Closed
	Requeued  int64     `json:"requeued"`
	Delivered *int64    `json:"delivered"` // how many of the requeued ones were delivered; nil unless Source is webhook
	Closed    int64     `json:"closed"`    // resolved without a requeue
	FirstAt   time.Time `json:"first_at"`  // when the first of them failed, as LastAt the last
	LastAt    time.Time `json:"last_at"`
}

// Curve is one metric over the span. Each point is the highest value within one step; nil if
// nothing was sampled in it.
type Curve struct {
	Metric string     `json:"metric"` // name in queue_metric_sample
	Name   Text       `json:"name"`   // of the queue, executor or source; empty if the metric has only one curve
	Points []*float64 `json:"points"`
	Min    float64    `json:"min"`
	Max    float64    `json:"max"`
	Last   float64    `json:"last"`
}
