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

// wakes spaces the looks of one loop that signals ask for: a look that finds work
// ends the gap, each that finds none doubles it.
type wakes struct {
	Spacing
	gap   atomic.Int64 // of time.Duration
	woken atomic.Bool  // a signal asked for the next look
}

// ask has f called for a signal, as soon as the gap allows it.
func (w *wakes) ask(f func()) {
	w.After(time.Duration(w.gap.Load()), func() {
		w.woken.Store(true)
		f()
	})
}

// looked records what a look found. One that no signal asked for, and that found
// nothing, says nothing about signals.
func (w *wakes) looked(found bool) {
	woken := w.woken.Swap(false)
	switch {
	case found:
		w.gap.Store(0)
	case woken:
		w.gap.Store(int64(min(max(2*time.Duration(w.gap.Load()), leastWakeGap), MostWakeGap)))
	}
}
