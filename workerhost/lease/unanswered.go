package lease

import (
	"time"

	"github.com/qtop/qtop/pgclient/pgpool"
)

const (
	// repeatEvery is the least time between two releases after the first one that succeeded.
	repeatEvery = time.Second
	// lateFor is how long after the database has answered again a claim may still be committed: the
	// server ends each statement of a host after WorkTimeout, and a claim in the transaction of a
	// producer is two statements.
	lateFor = 2 * pgpool.WorkTimeout
)

// Unanswered says when a loop must hand back the work of claims that returned an error but may
// have been committed. One release is not enough: after a freeze of the server, the release can
// overtake the claim, which is committed later. So the release is repeated before claims, at most
// once a second, until one has succeeded that began lateFor after the first answer of the database.
type Unanswered struct {
	open     bool
	answered time.Time // when a release first succeeded after the last such claim; zero = none has
	released time.Time // when a release last succeeded
}

// Add records a claim that returned an error but may have been committed.
func (u *Unanswered) Add() { u.open, u.answered = true, time.Time{} }

// Open reports whether work of such a claim may still be leased.
func (u *Unanswered) Open() bool { return u.open }

// New reports whether no release has succeeded since the last such claim.
func (u *Unanswered) New() bool { return u.open && u.answered.IsZero() }

// Due reports whether the work must be released before the next claim.
func (u *Unanswered) Due(now time.Time) bool {
	return u.New() || u.open && now.Sub(u.released) >= repeatEvery
}

// Released records a release that succeeded; began is the time before it was sent.
func (u *Unanswered) Released(began, ended time.Time) {
	u.released = ended
	if u.answered.IsZero() {
		u.answered = ended
	}
	u.open = u.open && began.Before(u.answered.Add(lateFor))
}
