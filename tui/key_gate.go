package tui

import "time"

const (
	// quietFor is how long no key must be pressed before a dialog accepts an answer.
	quietFor = 400 * time.Millisecond
	// quietMost is when a dialog accepts answers in any case: a key that repeats must not
	// block it forever.
	quietMost = 1500 * time.Millisecond
)

// keyGate drops keys that were typed before a dialog opened or while it opened, so that they
// do not answer it.
type keyGate struct {
	opened, last time.Time
	open         bool
}

func newKeyGate(now time.Time) keyGate { return keyGate{opened: now, last: now} }

// allows reports whether a key may answer. A key that may not restarts the quiet time.
func (g *keyGate) allows(now time.Time) bool {
	if !g.open && (now.Sub(g.last) >= quietFor || now.Sub(g.opened) >= quietMost) {
		g.open = true
	}
	if !g.open {
		g.last = now
	}
	return g.open
}

// closed reports whether answers are not accepted yet. It does not count as a key.
func (g keyGate) closed(now time.Time) bool {
	return !g.open && now.Sub(g.last) < quietFor && now.Sub(g.opened) < quietMost
}
