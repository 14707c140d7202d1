package loop

// This file spaces the looks that signals ask for. A signal is a hint from
// anybody: those that find nothing are followed by ever fewer looks.

import (
	"sync"
	"sync/atomic"
	"time"
)

// Spacing calls at most once per gap, the last time at its end.
type Spacing struct {
	mu   sync.Mutex
	next time.Time
	set  bool
}

// After calls f now or at the end of the gap, which a call that waits serves as well.
func (s *Spacing) After(gap time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set {
		return
	}
	wait := time.Until(s.next)
	if wait <= 0 {
		s.next = time.Now().Add(gap)
		f()
		return
	}
	s.set = true
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		s.set, s.next = false, time.Now().Add(gap)
		s.mu.Unlock()
		f()
	})
}

// leastWakeGap and MostWakeGap bound the time between two looks of a loop that signals ask for.
const (
	leastWakeGap = 10 * time.Millisecond
	MostWakeGap  = 250 * time.Millisecond
)

// wakes is why a loop looks. Looks that signals ask for are spaced: one that finds
// work ends the gap, each that finds none doubles it.
type wakes struct {
	kick    chan struct{} // size 1: kicks coalesce
	spacing Spacing
	gap     atomic.Int64 // of time.Duration
	woken   atomic.Bool  // a signal asked for the next look
}

// Kicked is told when the loop is to look.
func (w *wakes) Kicked() <-chan struct{} { return w.kick }

// Kick makes the loop look now, for what this process knows.
func (w *wakes) Kick() { Signal(w.kick) }

// Wake makes the loop look for a signal, as soon as the gap allows it.
func (w *wakes) Wake() {
	w.spacing.After(time.Duration(w.gap.Load()), func() {
		w.woken.Store(true)
		w.Kick()
	})
}

// Looked records what a look found. One that no signal asked for, and that found
// nothing, says nothing about signals.
func (w *wakes) Looked(found bool) {
	woken := w.woken.Swap(false)
	switch {
	case found:
		w.gap.Store(0)
	case woken:
		w.gap.Store(int64(min(max(2*time.Duration(w.gap.Load()), leastWakeGap), MostWakeGap)))
	}
}

// Signal tells c, which has room for one, unless it has been told already.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
