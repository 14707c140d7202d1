package loop

import (
	"sync"
	"time"
)

// Pace counts what was done in the last few slots of time.
type Pace struct {
	length time.Duration

	mu      sync.Mutex
	buckets []int
	slot    int64
}

// NewPace counts over so many slots, the one that is under way with them.
func NewPace(length time.Duration, slots int) *Pace {
	return &Pace{length: length, buckets: make([]int, slots)}
}

// Add counts n at a time since some beginning.
func (p *Pace) Add(at time.Duration, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	p.buckets[p.slot%int64(len(p.buckets))] += n
}

// Recent is how much that is.
func (p *Pace) Recent(at time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	sum := 0
	for _, n := range p.buckets {
		sum += n
	}
	return sum
}

// turn empties the buckets of the slots that began since; mu is held.
func (p *Pace) turn(at time.Duration) {
	slot := int64(at / p.length)
	for i := max(p.slot+1, slot-int64(len(p.buckets))+1); i <= slot; i++ {
		p.buckets[i%int64(len(p.buckets))] = 0
	}
	p.slot = max(p.slot, slot)
}
