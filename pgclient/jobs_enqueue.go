package pgclient

// This file puts jobs into the queue and rings for them. An enqueueing statement
// silences the wake trigger: a signal inside a transaction costs every writer of
// the cluster a lock at its commit, a bell rung after it costs nobody.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	err := q.QueryRow(ctx, enqueueManySQL, jobs).Scan(&r)
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
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	return c.Ringer().put(ctx, job)
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
	pool *pgxpool.Pool
	mu   sync.Mutex
	rung map[string]*bell // the domains that rang in the last 5 ms

	gathering gathering
}

// bell is the bell of one domain; again: somebody asked for it since it rang.
type bell struct{ again bool }

// NewRinger makes a ringer that uses pool.
func NewRinger(pool *pgxpool.Pool) *Ringer { return &Ringer{pool: pool, rung: map[string]*bell{}} }

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
	b := &bell{}
	r.rung[domain] = b
	time.AfterFunc(ringEvery, func() { r.ring(domain, b) })
	return true
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
	if !b.again {
		delete(r.rung, domain)
		return false
	}
	b.again = false
	return true
}

const (
	// quietly silences the wake trigger for as long as the transaction lasts. A
	// condition without a table is seen to before what is selected.
	quietly        = " WHERE set_config('qtop.doorbell', 'on', true) = 'on'"
	ringSQL        = "SELECT public.fn_queue_doorbell($1)"
	enqueueManySQL = "SELECT public.fn_job_enqueue_many($1::jsonb)" + quietly
	enqueueSQL     = "SELECT public.fn_job_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9)" + quietly
)

// enqueue sends a job and the bell behind its commit in one go: the bell waits for
// no answer.
func (r *Ringer) enqueue(ctx context.Context, job JobSpec) (id string, created bool, err error) {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return "", false, translate(err)
	}
	defer conn.Release()
	statements := []statement{{enqueueSQL, job.arguments()}}
	rings := r.take(job.Domain)
	if rings {
		statements = append(statements, statement{ringSQL, [][]byte{[]byte(job.Domain)}})
	}
	answer, err := inOneGo(ctx, conn.Conn(), statements)
	if err != nil {
		return "", false, translate(err)
	}
	if !rings {
		r.Ring(job.Domain)
	}
	var a struct {
		refusal
		ID      string `json:"job_id"`
		Created bool   `json:"created"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return "", false, err
	}
	if a.Refused {
		return "", false, &queue.Error{Kind: queue.KindFailed, What: queue.Clean(a.Reason), Where: queue.Clean("fn_job_enqueue")}
	}
	return a.ID, a.Created, nil
}

// arguments are those of enqueueSQL, as text; nil takes the default.
func (j *JobSpec) arguments() [][]byte {
	args := [][]byte{[]byte(j.Kind), []byte(j.Domain), []byte(j.Executor), nil, nil, nil, nil, nil, nil}
	if len(j.Payload) > 0 {
		args[3] = j.Payload
	}
	if j.Priority != nil {
		args[4] = strconv.AppendInt(nil, int64(*j.Priority), 10)
	}
	if j.ProcessAfter != nil {
		args[5] = j.ProcessAfter.UTC().AppendFormat(nil, time.RFC3339Nano)
	}
	if j.IdempotencyKey != "" {
		args[6] = []byte(j.IdempotencyKey)
	}
	if j.MaxAttempts != 0 {
		args[7] = strconv.AppendInt(nil, int64(j.MaxAttempts), 10)
	}
	if j.Actor != "" {
		args[8] = []byte(j.Actor)
	}
	return args
}

// statement is one with its arguments as text.
type statement struct {
	sql  string
	args [][]byte
}

// inOneGo sends statements without waiting in between, each a transaction of its
// own, and gives the first value of the first; what becomes of the others is not
// told.
func inOneGo(ctx context.Context, conn *pgx.Conn, statements []statement) (value []byte, err error) {
	var names []string
	if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		for i, s := range statements {
			prepared, err := conn.Prepare(ctx, s.sql, s.sql) // once per connection
			if err != nil && i == 0 {
				return nil, err
			} else if err != nil {
				statements = statements[:i]
				break
			}
			names = append(names, prepared.Name)
		}
	}
	p := conn.PgConn().StartPipeline(ctx)
	for i, s := range statements {
		if names != nil {
			p.SendQueryPrepared(names[i], s.args, nil, nil)
		} else {
			p.SendQueryParams(s.sql, s.args, nil, nil, nil)
		}
		p.SendPipelineSync()
	}
	err = p.Flush()
	if err == nil {
		value, err = firstValue(p)
	}
	_ = p.Close() // reads the rest
	return value, err
}

// firstValue reads the first statement to the end of its transaction.
func firstValue(p *pgconn.Pipeline) (value []byte, err error) {
	results, err := p.GetResults()
	if err != nil {
		return nil, err
	}
	rows, ok := results.(*pgconn.ResultReader)
	if !ok {
		return nil, fmt.Errorf("no rows but %T", results)
	}
	if rows.NextRow() {
		value = bytes.Clone(rows.Values()[0])
	}
	if _, err := rows.Close(); err != nil {
		return nil, err
	}
	_, err = p.GetResults() // the commit
	return value, err
}
