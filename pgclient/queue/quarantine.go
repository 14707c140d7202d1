package queue

import "time"

// Quarantined is a row on which a step of a tick worker fails; the step processes all other rows
// without it. While SetAside is nil, the row is not in quarantine yet, and the step retries it at
// NextTry.
type Quarantined struct {
	ID          int64      `json:"quarantine_id"`
	Step        Text       `json:"step"`     // name of the step, as in fn_step_NAME
	Target      Text       `json:"target"`   // the row on which the step fails: an id, or a key that the step defines
	Attempts    int64      `json:"attempts"` // failures of the row alone, since it was added or retried
	Code        Text       `json:"code"`     // SQLSTATE of the last failure
	Error       Text       `json:"error"`    // the error message of PostgreSQL, masked
	FirstFailed *time.Time `json:"first_failed_at"`
	LastFailed  *time.Time `json:"last_failed_at"`
	NextTry     *time.Time `json:"next_try_at"`
	SetAside    *time.Time `json:"set_aside_at"` // when it was put into quarantine; null = not yet
}
