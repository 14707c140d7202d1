package enqueue

// This file puts one job into the queue for an operator who tries a lane: with
// the server's clock, and errors that name the flag. The trigger rings, for a
// process that ends at once cannot.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// Put enqueues a job that is due so long from now, by the server's clock. It gives the
// id and whether the job is new (else it is the active one of its kind with that key).
func (p *Producer) Put(ctx context.Context, j Job, after time.Duration) (id string, created bool, err error) {
	if !slices.Contains(queue.ExecutorKinds(), j.Executor) {
		return "", false, pgerror.NotExecutorKind(j.Executor, "--executor")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(j.Payload, &object); err != nil || object == nil {
		return "", false, queue.NewError(queue.KindUsage, "the payload is no JSON object", "--payload", `write it like {"id": 1}`).Because(err)
	}
	if n := j.Priority; n != nil && (*n < 0 || *n > 1000) { // also what is no int4
		return "", false, queue.NewError(queue.KindUsage, fmt.Sprintf("the priority cannot be %d", *n), "--priority", "use 0 to 1000")
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	var a answer
	err = p.pool.QueryRow(ctx, `SELECT public.fn_job_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::int, now() + make_interval(secs => $6), NULLIF($7, ''), NULLIF($8, 0), $9::text)`,
		j.Kind, j.Domain, j.Executor, string(j.Payload), j.Priority, after.Seconds(), j.IdempotencyKey, j.MaxAttempts, j.Actor).Scan(&a)
	return a.ID, a.Created, pgerror.Translate(pgerror.JobCheck(err))
}
