package tui

// This file keeps keys that were typed before or while a dialog opened from
// answering it.

import "time"

const (
	// quietFor is how long nothing must be typed before a dialog takes an answer.
	quietFor = 400 * time.Millisecond
	// quietMost is when it takes one whatever was typed: a key that repeats must
	// not lock it for ever.
	quietMost = 1500 * time.Millisecond
)

type gate struct {
	opened, last time.Time
	open         bool
}

func newGate(now time.Time) gate { return gate{opened: now, last: now} }

// passes tells whether a key may answer, and counts it as noise if not.
func (g *gate) passes(now time.Time) bool {
	if !g.open && (now.Sub(g.last) >= quietFor || now.Sub(g.opened) >= quietMost) {
		g.open = true
	}
	if !g.open {
		g.last = now
	}
	return g.open
}

// waits tells, without counting, whether answers are not taken yet.
func (g gate) waits(now time.Time) bool {
	return !g.open && now.Sub(g.last) < quietFor && now.Sub(g.opened) < quietMost
}
