package queue

import "time"

// Route is the routing of one domain.
type Route struct {
	Domain       Text       `json:"event_domain"`
	Worker       Text       `json:"worker_name"`
	Enabled      bool       `json:"enabled"`
	LastRunAt    *time.Time `json:"last_run_at"`
	EventsSeen   int64      `json:"events_seen"`
	Attempts     int64      `json:"attempts_written"`
	DeadLettered int64      `json:"dead_lettered"`
	Waiting      int64      `json:"waiting"` // counted up to 10,001 rows
	OldestAt     *time.Time `json:"oldest_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	UpdatedBy    Text       `json:"updated_by"`
}

// Consumer gets a job of each event of its type.
type Consumer struct {
	ID        Text      `json:"consumer_id"`
	Domain    Text      `json:"event_domain"`
	EventType Text      `json:"event_type"`
	JobKind   Text      `json:"job_kind"`
	Executor  Text      `json:"executor"`
	Enabled   bool      `json:"enabled"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy Text      `json:"updated_by"`
}
