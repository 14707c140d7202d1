package views

// How missing values are shown.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// dashed returns *p formatted by say; a dash if p is nil.
func dashed[T any](e Env, p *T, say func(T) string) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return say(*p)
}

// orZero returns *p; the zero value if p is nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// oldest returns how long the oldest waiting item has been due; a dash if none is due.
func (e Env) oldest(at *time.Time, seconds int64) string {
	return queue.Choose(at == nil, e.Theme.G.Dash, Age(seconds))
}

// PlainOldest is oldest for the table of a verb.
func PlainOldest(at *time.Time, seconds int64) string {
	return queue.Choose(at == nil, "-", PlainAge(seconds))
}

// beatAge returns the seconds since the last heartbeat or run, to sort by; for one that never came,
// the largest number.
func beatAge(seconds *int64) int64 {
	return queue.Choose(seconds == nil, 1<<62, orZero(seconds))
}

// sinceBeat returns how long ago the last heartbeat or run was; "never" if there was none.
func sinceBeat(seconds *int64, say func(int64) string) string {
	return queue.Choose(seconds == nil, "never", say(orZero(seconds)))
}

// nobody returns the text for an alert or row without an owner.
func (e Env) nobody() string { return e.Theme.G.Dash + " nobody " + e.Theme.G.Dash }
