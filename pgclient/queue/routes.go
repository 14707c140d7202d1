package queue

import "time"

// Route says whether and how the events of one domain are routed.
type Route struct {
	Domain       Text       `json:"event_domain"`
	Worker       Text       `json:"worker_name"` // the tick worker that routes the events
	Enabled      bool       `json:"enabled"`     // false = the events wait
	LastRunAt    *time.Time `json:"last_run_at"`
	EventsSeen   int64      `json:"events_seen"`      // events routed so far
	Attempts     int64      `json:"attempts_written"` // rows of iu_route_attempt written so far: one per event and recipient
	DeadLettered int64      `json:"dead_lettered"`    // events that could not be routed so far
	Waiting      int64      `json:"waiting"`          // exact up to 10,000; 10,001 means more
	OldestAt     *time.Time `json:"oldest_at"`        // of the waiting events; null = none waits
	UpdatedAt    time.Time  `json:"updated_at"`
	UpdatedBy    Text       `json:"updated_by"`
}

// EventType is a registered type of events.
type EventType struct {
	Domain      Text `json:"event_domain"`
	EventType   Text `json:"event_type"`
	Stream      Text `json:"event_stream"`  // the stream that each event of the type must have
	Lane        Text `json:"delivery_lane"` // immediate or delayed
	Worker      Text `json:"worker_name"`   // the route worker to which a wake signal is sent; empty = none
	Active      bool `json:"active"`        // false = its events are refused
	Description Text `json:"description"`
}

// ProducerRole says that the members of a role may enqueue for an executor kind. If Role is empty,
// everyone with the right to enqueue may use the executor kind.
type ProducerRole struct {
	Kind Text `json:"executor_kind"`
	Role Text `json:"producer_role"` // a PostgreSQL role; empty = no role is named
}

// Consumer is a row of consumer_registry: each event of its type makes a job.
type Consumer struct {
	ID        Text      `json:"consumer_id"`
	Domain    Text      `json:"event_domain"`
	EventType Text      `json:"event_type"`
	JobKind   Text      `json:"job_kind"`
	Executor  Text      `json:"executor"` // the executor kind of the jobs
	Enabled   bool      `json:"enabled"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy Text      `json:"updated_by"`
}
