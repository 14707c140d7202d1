package pgclient

// This file puts jobs into the queue and rings for them. An enqueueing statement
// silences the wake trigger: a signal inside a transaction costs every writer of
// the cluster a lock at its commit, a bell rung after it costs nobody.

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/queue"
)

// JobSpec is a job to be enqueued. What is left empty takes its default.
type JobSpec struct {
	Kind           string          `json:"job_kind"`
	Domain         string          `json:"event_domain"`
	Executor       string          `json:"executor"` // an executor kind, such as DOT
	Payload        json.RawMessage `json:"payload,omitempty"`
	Priority       *int            `json:"priority,omitempty"`
	ProcessAfter   *time.Time      `json:"process_after,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	MaxAttempts    int             `json:"max_attempts,omitempty"`
	Actor          string          `json:"actor,omitempty"`
}

// Enqueued is what became of a batch.
type Enqueued struct {
	Made     int      `json:"enqueued"`
	Existing int      `json:"existing"` // jobs whose key was active already
	IDs      []string `json:"job_ids"`  // in the order given
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// EnqueueJobs puts jobs into the queue inside the caller's transaction, all or
// none. Nobody is woken: ring for their domains after the commit.
func EnqueueJobs(ctx context.Context, q Querier, jobs []JobSpec) (Enqueued, error) {
	var r struct {
		refusal
		Enqueued
	}
	// The setting lasts as long as the transaction.
	err := q.QueryRow(ctx, `WITH quiet AS MATERIALIZED (SELECT set_config('qtop.doorbell', 'on', true) AS v)
		SELECT public.fn_job_enqueue_many($1::jsonb) FROM quiet WHERE v = 'on'`, jobs).Scan(&r)
	switch {
	case err != nil:
		return Enqueued{}, translate(err)
	case r.Refused:
		return Enqueued{}, &queue.Error{Kind: queue.KindFailed, What: queue.Clean(r.Reason), Where: queue.Clean("fn_job_enqueue_many")}
	}
	return r.Enqueued, nil
}

// JobEnqueue puts one job into the queue and rings. created is false when its key
// was active already: id is then that job's.
func (c *Client) JobEnqueue(ctx context.Context, job JobSpec) (id string, created bool, err error) {
	e, err := c.JobEnqueueMany(ctx, []JobSpec{job})
	if err != nil {
		return "", false, err
	}
	return e.IDs[0], e.Made == 1, nil
}

// JobEnqueueMany puts jobs into the queue, all or none, and rings.
func (c *Client) JobEnqueueMany(ctx context.Context, jobs []JobSpec) (Enqueued, error) {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	pool := c.act
	if c.work != nil {
		pool = c.work
	}
	e, err := EnqueueJobs(ctx, pool, jobs)
	if err != nil {
		return e, err
	}
	rung := "" // most batches are of one domain
	for _, j := range jobs {
		if j.Domain != rung {
			rung = j.Domain
			c.Ringer().Ring(rung)
		}
	}
	return e, nil
}

// Ringer rings for the writers of this process.
func (c *Client) Ringer() *Ringer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ringer == nil {
		pool := c.act
		if c.work != nil {
			pool = c.work
		}
		c.ringer = NewRinger(pool)
	}
	return c.ringer
}

// ringEvery is the least time between two bells of one domain.
const ringEvery = 5 * time.Millisecond

// Ringer rings the doorbell of a domain after commits, at most once per 5 ms and
// domain. One is enough for a process.
type Ringer struct {
	pool    *pgxpool.Pool
	mu      sync.Mutex
	domains map[string]*bell
}

// bell is the bell of one domain.
type bell struct{ busy, again bool }

// NewRinger makes a ringer that uses pool.
func NewRinger(pool *pgxpool.Pool) *Ringer { return &Ringer{pool: pool, domains: map[string]*bell{}} }

// Ring wakes who listens to the domain, now or within 5 ms. It waits for nothing
// and tells of no failure: a bell that nobody hears costs latency, never work.
func (r *Ringer) Ring(domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.domains[domain]
	if b == nil {
		b = &bell{}
		r.domains[domain] = b
	}
	b.again = true
	if !b.busy {
		b.busy = true
		go r.ring(domain, b)
	}
}

// ring rings until nobody asked for it any more.
func (r *Ringer) ring(domain string, b *bell) {
	for r.wanted(domain, b) {
		next := time.Now().Add(ringEvery)
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		_, _ = r.pool.Exec(ctx, "SELECT public.fn_queue_doorbell($1)", domain)
		cancel()
		time.Sleep(time.Until(next)) // the pause between two bells, in a goroutine that is there for it alone
	}
}

// wanted takes the wish; without one the bell falls silent.
func (r *Ringer) wanted(domain string, b *bell) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !b.again {
		delete(r.domains, domain)
		return false
	}
	b.again = false
	return true
}
