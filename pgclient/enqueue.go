package pgclient

// This file puts one job into the queue for an operator who tries a lane: with
// the server's clock, and errors that name the flag. The trigger rings, for a
// process that ends at once cannot.

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// JobPut is a job as an operator puts it into the queue.
type JobPut struct {
	Kind, Domain, Executor string
	Payload                string // JSON, an object
	Priority               int
	After                  time.Duration // due so long from now, by the server's clock
	Key                    string        // idempotency key; empty = none
	MaxAttempts            int           // 0 = the flag queue.retry.max_attempts_default
}

// PutJob enqueues a job. It gives the id, whether the job is new (else it is the
// active one of its kind with that key), or the refusal.
func (c *Client) PutJob(ctx context.Context, j JobPut) (id string, created bool, refused string, err error) {
	if !slices.Contains(queue.ExecutorKinds(), j.Executor) {
		return "", false, "", pgerror.NotExecutorKind(j.Executor, "--executor")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(j.Payload), &object); err != nil || object == nil {
		return "", false, "", &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean("the payload is no JSON object"), Where: queue.Clean("--payload"),
			Do: queue.Clean(`write it like {"id": 1}`), Err: err,
		}
	}
	if j.Priority != int(int16(j.Priority)) { //nolint:gosec // the loss is what is looked for
		return "", false, "", &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean(fmt.Sprintf("the priority cannot be %d", j.Priority)), Where: queue.Clean("--priority"),
			Do: queue.Clean(fmt.Sprintf("use %d to %d", math.MinInt16, math.MaxInt16)),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	var a struct {
		pgscan.Refusal
		ID      string `json:"job_id"`
		Created bool   `json:"created"`
	}
	err = c.act.QueryRow(ctx, `SELECT public.fn_job_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::int, now() + make_interval(secs => $6), NULLIF($7, ''), NULLIF($8, 0), $9::text)`,
		j.Kind, j.Domain, j.Executor, j.Payload, j.Priority, j.After.Seconds(), j.Key, j.MaxAttempts, c.Actor()).Scan(&a)
	err = pgerror.Translate(pgerror.JobCheck(err))
	c.Note(err)
	return a.ID, a.Created, a.Reason, err
}
