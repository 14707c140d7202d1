package enqueue

// This file is the bell that is rung after a commit of jobs.

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/work"
)

const ringSQL = "SELECT public.fn_queue_wake_signal($1::text, 'job'::text)"

// ringEvery is the least time between two bells of one domain.
const ringEvery = 5 * time.Millisecond

// Ringer rings the doorbell of a domain after commits, at most once per 5 ms and
// domain. One is enough for a process.
type Ringer struct {
	pool conns
	mu   sync.Mutex
	rung map[string]*bell // the domains that rang in the last 5 ms
}

// bell is the bell of one domain. again: somebody asked for it since it rang. It
// rings for the jobs in due too, unless they are claimed first; those in owed are due
// 5 ms later, so that jobs that come all the time and are claimed ring no bell.
type bell struct {
	again     bool
	owed, due map[string]bool
}

// conns is a Pool or a pgxpool.Pool.
type conns interface {
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// NewRinger makes a ringer that uses pool.
func NewRinger(pool conns) *Ringer {
	return &Ringer{pool: pool, rung: map[string]*bell{}}
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
	r.later(domain)
	return true
}

// later looks after the bell in 5 ms; mu is held.
func (r *Ringer) later(domain string) *bell {
	b := &bell{}
	r.rung[domain] = b
	time.AfterFunc(ringEvery, func() { r.ring(domain, b) })
	return b
}

// owe rings for a job in 5 to 10 ms, unless this process has claimed it by then.
func (r *Ringer) owe(domain, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.rung[domain]
	if b == nil {
		b = r.later(domain)
	}
	if b.owed == nil {
		b.owed = map[string]bool{}
	}
	b.owed[id] = true
}

// claimed says what a worker host of this process has claimed.
func (r *Ringer) claimed(jobs []work.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range jobs {
		if b := r.rung[jobs[i].Domain]; b != nil && len(b.owed)+len(b.due) > 0 {
			id := jobs[i].ID.String()
			delete(b.owed, id)
			delete(b.due, id)
		}
	}
}

// ring rings until nobody asked for it any more.
func (r *Ringer) ring(domain string, b *bell) {
	for {
		next := time.Now().Add(ringEvery)
		now, later := r.wanted(domain, b)
		if now {
			ctx, cancel := context.WithTimeout(context.Background(), pgpool.ReadTimeout)
			_, _ = r.pool.Exec(ctx, ringSQL, domain)
			cancel()
		} else if !later {
			return
		}
		time.Sleep(time.Until(next)) // the pause between two bells, in a goroutine that is there for it alone
	}
}

// wanted takes the wish. Without one, now or later, the bell falls silent.
func (r *Ringer) wanted(domain string, b *bell) (now, later bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, later = b.again || len(b.due) > 0, len(b.owed) > 0
	b.again, b.due, b.owed = false, b.owed, nil
	if now { // for those as well
		b.due = nil
	} else if !later {
		delete(r.rung, domain)
	}
	return now, later
}
