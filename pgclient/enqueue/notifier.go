package enqueue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/work"
)

// notifySQL may run on a pool of the caller, with the caller's search_path: every name is qualified.
const notifySQL = "SELECT public.fn_queue_wake_signal($1::pg_catalog.text, 'job'::pg_catalog.text)"

// notifyEvery is the shortest time between two wake signals for one domain. Where commits are slow,
// it is longer: see pauseAfter.
const notifyEvery = 2 * time.Millisecond

// longestPause bounds the pause after a wake signal.
const longestPause = 20 * time.Millisecond

// pauseAfter returns how long no wake signal for a domain follows one whose statement took this long.
// While a signal is committed, the server lets no other session commit one, so where commits are
// slow half of the time is left to others.
func pauseAfter(took time.Duration) time.Duration {
	return max(notifyEvery-took, min(took, longestPause))
}

// owedFor is how long a claimer of this process that promised to look has until the listeners are
// woken for the jobs that it has not claimed. Its next claim may begin 5 ms after its last one
// (minClaimGap of the worker host's claimer).
const owedFor = 8 * time.Millisecond

// Notifier sends wake signals after commits: at most one per domain and notifyEvery. One Notifier per
// process is enough; call Close before its pool is closed.
type Notifier struct {
	pool   conns
	signal func(ctx context.Context, domain string) (took time.Duration, err error)
	mu     sync.Mutex
	recent map[string]*pending // the domains whose last signal is being sent or followed by its pause
	idle   chan struct{}       // closed when recent is empty; nil while no Close waits
}

// pending is the next wake signal of one domain, after the pause of the last one. again: Notify
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
}

// NewNotifier returns a notifier that uses the pool.
func NewNotifier(pool conns) *Notifier {
	return &Notifier{pool: pool, signal: signalOn(pool), recent: map[string]*pending{}}
}

// signalOn returns the function that sends one wake signal. took is without the wait for a connection.
func signalOn(pool conns) func(ctx context.Context, domain string) (took time.Duration, err error) {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return 0, err
		}
		defer conn.Release()
		began := time.Now()
		_, err = conn.Exec(ctx, notifySQL, domain)
		return time.Since(began), err
	}
}

// Notify wakes the listeners of the domain, now or within 2 ms, later where commits are slow. It does
// not block and returns no error: a lost wake signal costs latency, never a job, because hosts also poll.
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

// reserve reports whether the caller may send the wake signals of the domains now, with its own
// statement, after which it calls ended. If not (the pause after the last signal of one of them is
// not over), the caller calls Notify instead. While the statement waits for something else than its
// commit, other signals of these domains wait for longestPause at most.
func (r *Notifier) reserve(domains []string) (ended func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, domain := range domains {
		if r.recent[domain] != nil {
			return nil, false
		}
	}
	var next []*time.Timer
	for _, domain := range domains {
		_, timer := r.later(domain, longestPause)
		next = append(next, timer)
	}
	began := time.Now()
	return func() {
		pause := pauseAfter(time.Since(began))
		for _, timer := range next {
			if timer.Stop() {
				timer.Reset(pause)
			}
		}
	}, true
}

// later prepares a pending signal. When the timer fires, a goroutine decides whether to send it. The
// caller holds mu.
func (r *Notifier) later(domain string, in time.Duration) (*pending, *time.Timer) {
	b := &pending{}
	r.recent[domain] = b
	return b, time.AfterFunc(in, func() { r.run(domain, b) })
}

// owe sends a wake signal for a job after owedFor, unless this process has claimed it by then.
func (r *Notifier) owe(domain, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.recent[domain]
	if b == nil {
		b, _ = r.later(domain, notifyEvery)
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

// run sends the wake signals of one domain, each after the pause of the last one, until none is
// pending any more.
func (r *Notifier) run(domain string, b *pending) {
	for {
		pause := notifyEvery
		now, later := r.advance(domain, b, time.Now())
		if now {
			ctx, cancel := context.WithTimeout(context.Background(), pgpool.ReadTimeout)
			if took, err := r.signal(ctx, domain); err == nil {
				pause = pauseAfter(took)
			}
			cancel()
		} else if !later {
			return
		}
		time.Sleep(pause) // this goroutine does nothing else
	}
}

// advance returns whether to send a signal at this time, which covers all owed jobs; and if not,
// whether to call advance again later. If both are false, the domain is removed from recent.
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
