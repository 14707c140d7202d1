package queue

import "time"

// Quarantined is a row that makes a step of a tick worker fail; everything else goes
// on without it. While SetAside is nil it is tried again by itself at NextTry.
type Quarantined struct {
	ID          int64      `json:"quarantine_id"`
	Step        Text       `json:"step"`
	Target      Text       `json:"target"` // what the step fails on: an id, or a key of the step's own
	Attempts    int64      `json:"attempts"`
	Code        Text       `json:"code"` // SQLSTATE
	Error       Text       `json:"error"`
	FirstFailed *time.Time `json:"first_failed_at"`
	LastFailed  *time.Time `json:"last_failed_at"`
	NextTry     *time.Time `json:"next_try_at"`
	SetAside    *time.Time `json:"set_aside_at"`
}
