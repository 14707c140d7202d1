// Package lease is what the rooms of a worker host that claim have in common: a
// claim that outlives its loop, the pace of what is settled, and results that go to
// the database in batches. A claim commits before any work, every result is fenced
// by its lease token, and what is unfinished at the end is handed back at once.
package lease

import (
	"context"
	"strings"
	"sync"
	"time"
)

const (
	// HandBack of the grace, or a quarter of it where that is less, is kept for
	// handing back what the drain did not finish.
	HandBack = 5 * time.Second
	// Most is how many rows one statement claims or settles.
	Most = 1000
	// Unreadable is the cause of a failure of a row that the database cannot hand out:
	// the others of its claim go on.
	Unreadable = "as text the payload is longer than 64 MiB, or holds numbers of thousands of digits that make it so"
)

// Cloned tells the refusal of a database that is a copy.
func Cloned(refusal string) bool { return strings.HasPrefix(refusal, "CLONE OF ") }

// Outlive is ctx that ends only some time after it, so that a claim can. One that
// is cancelled in flight may have been committed: nobody would know of what it
// leased until that expires.
func Outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(HandBack/2, cancel) })
	return longer, func() { stop(); cancel() }
}

// Pace counts what was settled in the last 250 ms.
type Pace struct {
	mu      sync.Mutex
	buckets [6]int
	slot    int64
}

const paceSlot = 50 * time.Millisecond

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
	slot := int64(at / paceSlot)
	for i := max(p.slot+1, slot-int64(len(p.buckets))+1); i <= slot; i++ {
		p.buckets[i%int64(len(p.buckets))] = 0
	}
	p.slot = max(p.slot, slot)
}
