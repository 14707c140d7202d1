package views

// This file reads values that may be absent: a view that does not know a number
// says so with a dash, which is not zero.

import "time"

func orZero(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

func (e Env) ageOrDash(p *int64) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return Age(*p)
}

func (e Env) countOrDash(p *int64) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return Count(*p)
}

func (e Env) clockOrDash(p *time.Time) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return e.Clock(*p)
}

func (e Env) stampOrDash(p *time.Time) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return e.Stamp(*p)
}

// nobody says that something has no owner.
func (e Env) nobody() string { return e.Theme.G.Dash + " nobody " + e.Theme.G.Dash }
