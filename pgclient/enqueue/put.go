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
// id and, where that is the first job with the key and not a new one, its status.
func (p *Producer) Put(ctx context.Context, j Job, after time.Duration) (id, existing string, err error) {
	if !slices.Contains(queue.ExecutorKinds(), j.Executor) {
		return "", "", pgerror.NotExecutorKind(j.Executor, "--executor")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(j.Payload, &object); err != nil || object == nil {
		return "", "", queue.NewError(queue.KindUsage, "the payload is no JSON object", "--payload", `write it like {"id": 1}`).Because(err)
	}
	if n := j.Priority; n != nil && (*n < 0 || *n > 1000) { // also what is no int4
		return "", "", queue.NewError(queue.KindUsage, fmt.Sprintf("the priority cannot be %d", *n), "--priority", "use 0 to 1000")
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	var a answer
	err = p.pool.QueryRow(ctx, `SELECT public.fn_job_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::int, now() + make_interval(secs => $6), NULLIF($7, ''), NULLIF($8, 0), $9::text, NULLIF($10, ''))`,
		j.Kind, j.Domain, j.Executor, string(j.Payload), j.Priority, after.Seconds(), j.IdempotencyKey, j.MaxAttempts, j.Actor, j.Scope).Scan(&a)
	if a.Created {
		a.Status = ""
	}
	return a.ID, a.Status, pgerror.Translate(pgerror.JobCheck(err))
}
