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
const notifyEvery = 5 * time.Millisecond

// Notifier sends wake signals after commits: at most one per domain and 5 ms. One Notifier per
// process is enough; call Close before its pool is closed.
type Notifier struct {
	pool   conns
	mu     sync.Mutex
	recent map[string]*pending // the domains notified in the last 5 ms
	idle   chan struct{}       // closed when recent is empty; nil while no Close waits
}

// pending is the next wake signal of one domain, at least 5 ms after the last one. again: Notify
// was called since then, so the signal is sent. Otherwise it is sent only if a job in due is still
// unclaimed. Jobs in owed move to due 5 ms later, so a steady stream of jobs that are claimed at
// once sends no signals.
type pending struct {
	again     bool
	owed, due map[string]bool
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

// Notify wakes the listeners of the domain, now or within 5 ms. It does not block and returns
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
// signal was sent for one of them in the last 5 ms), the caller calls Notify instead.
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

// later prepares a pending signal and starts a goroutine, which decides in 5 ms whether to send it.
// The caller holds mu.
func (r *Notifier) later(domain string) *pending {
	b := &pending{}
	r.recent[domain] = b
	time.AfterFunc(notifyEvery, func() { r.run(domain, b) })
	return b
}

// owe sends a wake signal for a job in 5 to 10 ms, unless this process has claimed it by then.
func (r *Notifier) owe(domain, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.recent[domain]
	if b == nil {
		b = r.later(domain)
	}
	if b.owed == nil {
		b.owed = map[string]bool{}
	}
	b.owed[id] = true
}

// claimed drops jobs that a worker host of this process has claimed: they need no wake signal.
func (r *Notifier) claimed(jobs []work.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range jobs {
		if b := r.recent[jobs[i].Domain]; b != nil && len(b.owed)+len(b.due) > 0 {
			id := jobs[i].ID.String()
			delete(b.owed, id)
			delete(b.due, id)
		}
	}
}

// run sends the wake signals of one domain, at most one per 5 ms, until none is pending any more.
func (r *Notifier) run(domain string, b *pending) {
	for {
		next := time.Now().Add(notifyEvery)
		now, later := r.advance(domain, b)
		if now {
			ctx, cancel := context.WithTimeout(context.Background(), pgpool.ReadTimeout)
			_, _ = r.pool.Exec(ctx, notifySQL, domain)
			cancel()
		} else if !later {
			return
		}
		time.Sleep(time.Until(next)) // this goroutine does nothing else
	}
}

// advance returns whether to send a signal now, and whether to call advance again in 5 ms, and
// moves owed jobs to due. If both are false, the domain is removed from recent.
func (r *Notifier) advance(domain string, b *pending) (now, later bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, later = b.again || len(b.due) > 0, len(b.owed) > 0
	b.again, b.due, b.owed = false, b.owed, nil
	if now { // one signal also covers the jobs moved to due
		b.due = nil
	} else if !later {
		delete(r.recent, domain)
		if len(r.recent) == 0 && r.idle != nil {
			close(r.idle)
			r.idle = nil
		}
	}
	return now, later
}
