package tui

import "time"

const (
	// quietFor is how long the operator must press no key before a dialog
	// accepts an answer.
	quietFor = 400 * time.Millisecond
	// quietMost is the time after which a dialog accepts answers even if keys
	// are still pressed: a key that is held down must not block it for ever.
	quietMost = 1500 * time.Millisecond
)

// keyGate drops keys that were typed before or while a dialog opened, so that
// they do not answer the dialog.
type keyGate struct {
	opened, last time.Time
	open         bool
}

func newKeyGate(now time.Time) keyGate { return keyGate{opened: now, last: now} }

// allows reports whether a key may answer the dialog. A dropped key restarts
// the quiet time.
func (g *keyGate) allows(now time.Time) bool {
	if !g.open && (now.Sub(g.last) >= quietFor || now.Sub(g.opened) >= quietMost) {
		g.open = true
	}
	if !g.open {
		g.last = now
	}
	return g.open
}

// closed reports whether the gate would still drop a key. Unlike allows, it
// does not restart the quiet time.
func (g keyGate) closed(now time.Time) bool {
	return !g.open && now.Sub(g.last) < quietFor && now.Sub(g.opened) < quietMost
}
