package queue

import "time"

// Quarantined is a row on which a step of a tick worker fails; the step processes all other rows
// without it. While SetAside is nil, the row is not in quarantine yet, and the step retries it at
// NextTry.
type Quarantined struct {
	ID          int64      `json:"quarantine_id"`
	Step        Text       `json:"step"`
	Target      Text       `json:"target"` // the row on which the step fails: an id, or a key that the step defines
	Attempts    int64      `json:"attempts"`
	Code        Text       `json:"code"` // SQLSTATE of the last failure
	Error       Text       `json:"error"`
	FirstFailed *time.Time `json:"first_failed_at"`
	LastFailed  *time.Time `json:"last_failed_at"`
	NextTry     *time.Time `json:"next_try_at"`
	SetAside    *time.Time `json:"set_aside_at"`
}
