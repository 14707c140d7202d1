package queue

import "time"

// Lane is a queue lane: one domain and kind of job_queue, with the outcomes of its jobs in the
// last hour.
type Lane struct {
	Kind            Text       `json:"job_kind"`
	Domain          Text       `json:"event_domain"`
	Queued          int64      `json:"queued"`    // including jobs that are due later
	Scheduled       int64      `json:"scheduled"` // the part of Queued that is due later
	Leased          int64      `json:"leased"`
	InProgress      int64      `json:"in_progress"`
	RetryWaiting    int64      `json:"retry_waiting"`
	Executor        Text       `json:"executor"`     // the executor kind of the oldest due job
	OldestAt        *time.Time `json:"oldest_at"`    // when the oldest due job became due
	AgeSeconds      *int64     `json:"age_seconds"`  // seconds since OldestAt; null = no job is due
	NewestAt        *time.Time `json:"newest_at"`    // when the newest due job was enqueued
	InPerSecond     float64    `json:"in_per_s"`     // arrivals, mean of the last 5 to 10 minutes
	OutPerSecond    float64    `json:"out_per_s"`    // finished jobs, mean of the same time
	Succeeded       int64      `json:"succeeded_1h"` // in the last 50 to 60 minutes, as Failed, Dead and Cancelled
	Failed          int64      `json:"failed_1h"`
	Dead            int64      `json:"dead_1h"` // jobs that became dead letters
	Cancelled       int64      `json:"cancelled_1h"`
	ClearsInSeconds *int64     `json:"clears_in_seconds"`     // until nothing waits, at these rates; null = the backlog does not shrink
	Why             Text       `json:"why"`                   // why its jobs wait, as the first blocking link of fn_queue_why says; empty = nothing blocks
	WhyCode         string     `json:"why_code" derived:"go"` // WhyCode of Why
}

// QueuedDue returns how many jobs are queued and due: the number that every text calls queued.
func (l Lane) QueuedDue() int64 { return l.Queued - l.Scheduled }

// Waiting returns how many jobs are not claimed, also those that are due later.
func (l Lane) Waiting() int64 { return l.Queued + l.RetryWaiting }

// Stuck reports whether the lane never becomes empty at the current rates.
func (l Lane) Stuck() bool {
	return l.AgeSeconds != nil && stuck(l.ClearsInSeconds, l.Waiting(), *l.AgeSeconds)
}

// JobTable is the state of the table job_queue. A transaction with an old snapshot keeps vacuum
// from removing dead rows, which makes claims slower.
type JobTable struct {
	LiveRows              int64      `json:"live_rows"` // of job_queue, by PostgreSQL's statistics, as DeadRows
	DeadRows              int64      `json:"dead_rows"`
	LastVacuum            *time.Time `json:"last_vacuum"`
	Leases                int64      `json:"leases"` // number of leases
	LeasesExpired         int64      `json:"leases_expired"`
	OldestSnapshotSeconds *int64     `json:"oldest_snapshot_seconds"` // age of the transaction that has held back vacuum the longest; null = there is none, or this login may not see it
	OldestSnapshotPid     *int64     `json:"oldest_snapshot_pid"`     // the session of that transaction
	OldestSnapshotProgram Text       `json:"oldest_snapshot_program"`
}

// JobLease is a lease that has expired, or that has not been renewed for two thirds of its
// length.
type JobLease struct {
	ID        string    `json:"lease_id"`    // not secret: a result also needs the token
	Owner     Text      `json:"lease_owner"` // the executor
	Kind      Text      `json:"job_kind"`    // kind of the first job under the lease
	Domain    Text      `json:"event_domain"`
	Live      int64     `json:"live"` // jobs that still have this lease
	ClaimedAt time.Time `json:"claimed_at"`
	Until     time.Time `json:"lease_until"`
	Expired   bool      `json:"expired"` // nobody has returned its jobs yet
}

// JobSubscription is a row of job_subscription: what an executor may claim (source document DP6
// §3.3).
type JobSubscription struct {
	ID            string    `json:"subscription_id"` // a UUID
	ExecutorID    Text      `json:"executor_id"`
	ExecutorKind  Text      `json:"executor_kind"`
	JobKind       Text      `json:"job_kind"`       // empty = all kinds
	Domain        Text      `json:"event_domain"`   // empty = all domains
	PriorityFloor int64     `json:"priority_floor"` // jobs of this priority and above
	MaxParallel   int64     `json:"max_parallel"`   // the most jobs leased at once
	Enabled       bool      `json:"enabled"`
	Notes         Text      `json:"notes"`
	InFlight      int64     `json:"in_flight"` // jobs leased through it now
	RegisteredBy  Text      `json:"registered_by"`
	RegisteredAt  time.Time `json:"registered_at"`
}

// LiveJobStatuses returns the statuses of a job that is not finished.
func LiveJobStatuses() []string {
	return []string{"queued", "leased", "in_progress", "retry_waiting"}
}

// JobDeadLetterID returns the id of a job's dead letter as lists show it and verbs accept it.
func JobDeadLetterID(uuid string) string { return "job:" + uuid }

// EventDeadLetterID returns the id of the dead letter of an event that could not be routed.
func EventDeadLetterID(uuid string) string { return "event:" + uuid }

// Job is a row of v_job, without the job's payload.
type Job struct {
	ID           string     `json:"job_id"`
	Kind         Text       `json:"job_kind"`
	Domain       Text       `json:"event_domain"`
	Executor     Text       `json:"executor"` // an executor kind, not an executor id
	Status       string     `json:"status"`   // one of LiveJobStatuses, or succeeded, failed, dead_letter, cancelled, cleaned
	Ready        bool       `json:"ready"`    // false = due later, or waiting for a retry
	Priority     int64      `json:"priority"`
	ProcessAfter time.Time  `json:"process_after"` // not claimed before this time
	EnqueuedAt   time.Time  `json:"enqueued_at"`
	PickedAt     *time.Time `json:"picked_at"` // when it was last claimed
	FinishedAt   *time.Time `json:"finished_at"`
	LeaseOwner   Text       `json:"lease_owner"` // the executor that holds it; empty = nobody
	LeaseUntil   *time.Time `json:"lease_until"`
	LeaseID      string     `json:"lease_id"` // not secret, as in JobLease
	Attempts     int        `json:"attempts"` // finished attempts
	MaxAttempts  int        `json:"max_attempts"`
	Key          Text       `json:"idempotency_key"` // as stored: see job_queue.idempotency_key
	Code         Text       `json:"failure_code"`    // why its last attempt failed; empty = no failure
	LastError    Text       `json:"last_error"`      // the error of its last attempt, masked
	AgeSeconds   int64      `json:"age_seconds"`     // seconds since it became due, was claimed, or finished; 0 if DueLater
}

// Again reports whether the job waits for another attempt after one that ended.
func (j Job) Again() bool {
	return j.FinishedAt == nil && j.LeaseUntil == nil && j.Attempts > 0
}

// DueLater reports whether the job waits for its due time, so that it has no age yet.
func (j Job) DueLater() bool {
	return j.FinishedAt == nil && j.LeaseID == "" && !j.Ready && j.AgeSeconds <= 0
}
