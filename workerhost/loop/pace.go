package loop

import (
	"sync"
	"time"
)

// Pace counts events in a sliding window: a ring of buckets, each for one slot of time. Times are
// durations since a moment that the caller chooses.
type Pace struct {
	length time.Duration

	mu      sync.Mutex
	buckets []int
	slot    int64
}

// NewPace returns a window of slots slots, each of the duration length. The current, incomplete
// slot is one of them.
func NewPace(length time.Duration, slots int) *Pace {
	return &Pace{length: length, buckets: make([]int, slots)}
}

// Add counts n events at the time at.
func (p *Pace) Add(at time.Duration, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(at)
	p.buckets[p.slot%int64(len(p.buckets))] += n
}

// Recent returns the number of events in the window that ends at the time at.
func (p *Pace) Recent(at time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(at)
	sum := 0
	for _, n := range p.buckets {
		sum += n
	}
	return sum
}

// advance empties the buckets of the slots that began since the last call. The caller
// holds mu.
func (p *Pace) advance(at time.Duration) {
	slot := int64(at / p.length)
	for i := max(p.slot+1, slot-int64(len(p.buckets))+1); i <= slot; i++ {
		p.buckets[i%int64(len(p.buckets))] = 0
	}
	p.slot = max(p.slot, slot)
}

// Following returns when the tick after one that began at started is due. Like the database, it
// counts the interval from start to start, so that a worker of one minute misses no minute. Ticks
// that take longer than their interval still leave a tenth of it between them.
func Following(started time.Time, every time.Duration) time.Time {
	next := started.Add(every)
	if earliest := time.Now().Add(every / 10); next.Before(earliest) {
		return earliest
	}
	return next
}
