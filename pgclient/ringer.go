package pgclient

// This file is the bell that is rung after a commit of jobs.

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const ringSQL = "SELECT public.fn_queue_doorbell($1)"

// ringEvery is the least time between two bells of one domain.
const ringEvery = 5 * time.Millisecond

// Ringer rings the doorbell of a domain after commits, at most once per 5 ms and
// domain. One is enough for a process.
type Ringer struct {
	pool  *pgxpool.Pool
	mu    sync.Mutex
	rung  map[string]*bell // the domains that rang in the last 5 ms
	taker Taker

	gathering gathering
}

// bell is the bell of one domain. again: somebody asked for it since it rang. It
// rings for the jobs in owed too, unless they are claimed first.
type bell struct {
	again bool
	owed  map[string]bool
}

// NewRinger makes a ringer that uses pool.
func NewRinger(pool *pgxpool.Pool) *Ringer {
	return &Ringer{pool: pool, rung: map[string]*bell{}, taker: nobody{}}
}

// Ring wakes who listens to the domain, now or within 5 ms. It waits for nothing
// and tells of no failure: a bell that nobody hears costs latency, never work.
func (r *Ringer) Ring(domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.rung[domain]
	if b == nil {
		b = &bell{}
		r.rung[domain] = b
		go r.ring(domain, b)
	}
	b.again = true
}

// take lets the caller ring the domain itself; false: it rang a moment ago.
func (r *Ringer) take(domain string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rung[domain] != nil {
		return false
	}
	r.later(domain, ringEvery)
	return true
}

// later looks after the bell; mu is held.
func (r *Ringer) later(domain string, wait time.Duration) *bell {
	b := &bell{}
	r.rung[domain] = b
	time.AfterFunc(wait, func() { r.ring(domain, b) })
	return b
}

// owe rings for a job in 10 ms at the latest, unless this process has claimed it by
// then.
func (r *Ringer) owe(domain, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.rung[domain]
	if b == nil {
		b = r.later(domain, 2*ringEvery) // the taker looks within one
	}
	if b.owed == nil {
		b.owed = map[string]bool{}
	}
	b.owed[id] = true
}

// Claimed says what a worker host of this process has claimed.
func (r *Ringer) Claimed(jobs []Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range jobs {
		if b := r.rung[jobs[i].Domain]; b != nil && len(b.owed) > 0 {
			delete(b.owed, jobs[i].ID.String())
		}
	}
}

// ring rings until nobody asked for it any more.
func (r *Ringer) ring(domain string, b *bell) {
	for r.wanted(domain, b) {
		next := time.Now().Add(ringEvery)
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		_, _ = r.pool.Exec(ctx, ringSQL, domain)
		cancel()
		time.Sleep(time.Until(next)) // the pause between two bells, in a goroutine that is there for it alone
	}
}

// wanted takes the wish; without one the bell falls silent.
func (r *Ringer) wanted(domain string, b *bell) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !b.again && len(b.owed) == 0 {
		delete(r.rung, domain)
		return false
	}
	b.again, b.owed = false, nil
	return true
}
