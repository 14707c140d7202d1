package pgclient

// This file puts jobs into the queue. An enqueueing statement silences the wake
// trigger: a signal inside a transaction costs every writer of the cluster a lock
// at its commit, a bell rung after it costs nobody.

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
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
	var r putAnswer
	err := q.QueryRow(ctx, enqueueManySQL, jobs).Scan(&r)
	switch {
	case err != nil:
		return Enqueued{}, pgerror.Translate(err)
	case r.Refused:
		return Enqueued{}, &queue.Error{Kind: queue.KindFailed, What: queue.Clean(r.Reason), Where: queue.Clean("fn_job_enqueue_many")}
	}
	return r.Enqueued, nil
}

// JobEnqueue puts one job into the queue and rings. created is false when its key
// was active already: id is then that job's. A worker host that runs on this client
// claims in the same transaction, where it has a place.
func (c *Client) JobEnqueue(ctx context.Context, job JobSpec) (id string, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	return c.Ringer().put(ctx, job)
}

// JobEnqueueMany puts jobs into the queue, all or none, and rings.
func (c *Client) JobEnqueueMany(ctx context.Context, jobs []JobSpec) (Enqueued, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
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

const (
	// quietly silences the wake trigger for as long as the transaction lasts. A
	// condition without a table is seen to before what is selected.
	quietly = " WHERE set_config('qtop.doorbell', 'on', true) = 'on'"
	// patiently, after it, has the transaction wait for no lock longer than claimPatience.
	patiently      = " AND set_config('lock_timeout', '" + claimPatience + "', true) IS NOT NULL"
	claimPatience  = "100ms"
	enqueueManySQL = "SELECT public.fn_job_enqueue_many($1::jsonb)" + quietly
	enqueueSQL     = "SELECT public.fn_job_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::int, $6::timestamptz, $7::text, $8::int, $9::text)" + quietly
)

// putAnswer is what the functions that enqueue say: fn_job_enqueue of one job,
// fn_job_enqueue_many of several.
type putAnswer struct {
	pgscan.Refusal
	ID      string `json:"job_id"`
	Created bool   `json:"created"`
	Enqueued
}

// enqueue puts one job into the queue.
func (r *Ringer) enqueue(ctx context.Context, job JobSpec) (id string, created bool, err error) {
	a, err := r.commit(ctx, statement{enqueueSQL, job.arguments()}, []JobSpec{job})
	switch {
	case err != nil:
		return "", false, pgerror.Translate(err)
	case a.Refused:
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
