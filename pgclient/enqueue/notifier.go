package enqueue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/work"
)

// notifySQL may run on a pool of the caller, with the caller's search_path: every name is qualified.
const notifySQL = "SELECT public.fn_queue_wake_signal($1::pg_catalog.text, 'job'::pg_catalog.text)"

// notifyEvery is the shortest time between two wake signals for one domain.
const notifyEvery = 2 * time.Millisecond

// owedFor is how long a claimer of this process that promised to look has until the listeners are
// woken for the jobs that it has not claimed. Its next claim may begin 5 ms after its last one.
const owedFor = 8 * time.Millisecond

// Notifier sends wake signals after commits: at most one per domain and 2 ms. One Notifier per
// process is enough; call Close before its pool is closed.
type Notifier struct {
	pool   conns
	mu     sync.Mutex
	recent map[string]*pending // the domains notified in the last 2 ms
	idle   chan struct{}       // closed when recent is empty; nil while no Close waits
}

// pending is the next wake signal of one domain, at least 2 ms after the last one. again: Notify
// was called since then, so the signal is sent. Otherwise it is sent only if a job in owed was
// enqueued owedFor ago and is still unclaimed, so a steady stream of jobs that are claimed at once
// sends no signals.
type pending struct {
	again bool
	owed  map[string]time.Time // when each job was enqueued
}

// conns is the pool on which wake signals are sent: a pgpool.Pool or a pgxpool.Pool.
type conns interface {
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// NewNotifier returns a notifier that uses the pool.
func NewNotifier(pool conns) *Notifier {
	return &Notifier{pool: pool, recent: map[string]*pending{}}
}

// Notify wakes the listeners of the domain, now or within 2 ms. It does not block and returns
// no error: a lost wake signal costs latency, never a job, because hosts also poll.
func (r *Notifier) Notify(domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.recent[domain]
	if b == nil {
		b = &pending{}
		r.recent[domain] = b
		go r.run(domain, b)
	}
	b.again = true
}

// Close waits until the wake signals that Notify was asked for are sent, or ctx ends. A program that
// ends after Notify calls it, since Notify does not wait. While other goroutines go on calling Notify,
// Close waits for their signals too.
func (r *Notifier) Close(ctx context.Context) {
	r.mu.Lock()
	if len(r.recent) == 0 {
		r.mu.Unlock()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// reserve reports whether the caller may send the wake signals of the domains itself now. If not (a
// signal was sent for one of them in the last 2 ms), the caller calls Notify instead.
func (r *Notifier) reserve(domains []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, domain := range domains {
		if r.recent[domain] != nil {
			return false
		}
	}
	for _, domain := range domains {
		r.later(domain)
	}
	return true
}

// later prepares a pending signal and starts a goroutine, which decides in 2 ms whether to send it.
// The caller holds mu.
func (r *Notifier) later(domain string) *pending {
	b := &pending{}
	r.recent[domain] = b
	time.AfterFunc(notifyEvery, func() { r.run(domain, b) })
	return b
}

// owe sends a wake signal for a job in 8 to 10 ms, unless this process has claimed it by then.
func (r *Notifier) owe(domain, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.recent[domain]
	if b == nil {
		b = r.later(domain)
	}
	if b.owed == nil {
		b.owed = map[string]time.Time{}
	}
	if _, already := b.owed[id]; !already { // the same key again
		b.owed[id] = time.Now()
	}
}

// claimed drops jobs that a worker host of this process has claimed: they need no wake signal.
func (r *Notifier) claimed(jobs []work.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range jobs {
		if b := r.recent[jobs[i].Domain]; b != nil && len(b.owed) > 0 {
			delete(b.owed, jobs[i].ID.String())
		}
	}
}

// run sends the wake signals of one domain, at most one per 2 ms, until none is pending any more.
func (r *Notifier) run(domain string, b *pending) {
	for {
		at := time.Now()
		now, later := r.advance(domain, b, at)
		if now {
			ctx, cancel := context.WithTimeout(context.Background(), pgpool.ReadTimeout)
			_, _ = r.pool.Exec(ctx, notifySQL, domain)
			cancel()
		} else if !later {
			return
		}
		// This goroutine does nothing else. While a signal is committed, the server lets no other session
		// commit one, so where commits are slow at least half of the time is left to others.
		time.Sleep(max(time.Until(at.Add(notifyEvery)), time.Since(at)))
	}
}

// advance returns whether to send a signal at this time, which covers all owed jobs; and if not,
// whether to call advance again in 2 ms. If both are false, the domain is removed from recent.
func (r *Notifier) advance(domain string, b *pending, at time.Time) (now, later bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now = b.again
	for _, since := range b.owed {
		now = now || at.Sub(since) >= owedFor
	}
	if now {
		b.again, b.owed = false, nil
	} else if len(b.owed) == 0 {
		delete(r.recent, domain)
		if len(r.recent) == 0 && r.idle != nil {
			close(r.idle)
			r.idle = nil
		}
	}
	return now, len(b.owed) > 0
}
