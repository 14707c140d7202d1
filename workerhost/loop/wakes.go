package loop

import (
	"sync"
	"sync/atomic"
	"time"
)

// Spacing runs functions at most once per gap.
type Spacing struct {
	mu        sync.Mutex
	nextCall  time.Time
	scheduled bool
}

// After calls f now if the last gap is over, otherwise when it ends. While one call waits,
// further calls are dropped. gap is the least time from this call of f to the next.
func (s *Spacing) After(gap time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scheduled {
		return
	}
	wait := time.Until(s.nextCall)
	if wait <= 0 {
		s.nextCall = time.Now().Add(gap)
		f()
		return
	}
	s.scheduled = true
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		s.scheduled, s.nextCall = false, time.Now().Add(gap)
		s.mu.Unlock()
		f()
	})
}

// minWakeGap and MaxWakeGap bound the time between two checks for work that are caused by wake
// signals, while these checks find no work.
const (
	minWakeGap = 10 * time.Millisecond
	MaxWakeGap = 250 * time.Millisecond
)

// wakes makes a loop check for work. Any session of the database can send wake signals, so
// useless signals must not keep the loop busy: each check after a wake signal that finds no work
// doubles the gap to the next one, and a check that finds work sets the gap to zero.
type wakes struct {
	kick    chan struct{} // size 1: several kicks cause one check
	spacing Spacing
	gap     atomic.Int64 // a time.Duration
	byWake  atomic.Bool  // a wake signal caused the next check
}

// Kicked returns a channel that receives a value when the loop must check for work.
func (w *wakes) Kicked() <-chan struct{} { return w.kick }

// Kick makes the loop check for work now. Use Kick for work that this process knows of, and Wake
// for wake signals.
func (w *wakes) Kick() { Signal(w.kick) }

// Wake makes the loop check for work because of a wake signal, as soon as the gap allows it.
func (w *wakes) Wake() {
	w.spacing.After(time.Duration(w.gap.Load()), func() {
		w.byWake.Store(true)
		w.Kick()
	})
}

// RecordCheck records whether a check found work, which sets the gap for the next wake signals. A
// check that no wake signal caused and that found no work does not change the gap.
func (w *wakes) RecordCheck(found bool) {
	byWake := w.byWake.Swap(false)
	switch {
	case found:
		w.gap.Store(0)
	case byWake:
		w.gap.Store(int64(min(max(2*time.Duration(w.gap.Load()), minWakeGap), MaxWakeGap)))
	}
}

// Signal sends to c, a channel of size 1, unless a value is in it already.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
