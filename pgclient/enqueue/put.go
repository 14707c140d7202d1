package enqueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// Put enqueues a job for an operator who tests a queue lane. The job becomes due after the
// given time, by the server's clock; errors name the flag to correct. If a job with the same
// idempotency key exists, existing is its status. The wake trigger sends the wake signal,
// because a short-lived process may end before it could send one itself.
func (p *Producer) Put(ctx context.Context, j Job, after time.Duration) (id, existing string, err error) {
	if !slices.Contains(queue.ExecutorKinds(), j.Executor) {
		return "", "", pgerror.NotExecutorKind(j.Executor, "--executor")
	}
	for _, f := range [...]struct{ name, text string }{
		{"--kind", j.Kind}, {"--domain", j.Domain}, {"--key", j.IdempotencyKey}, {"--scope", j.Scope},
	} {
		if err := queue.CheckUTF8(f.name, f.text); err != nil {
			return "", "", err
		}
	}
	if err := queue.CheckObject("--payload", string(j.Payload)); err != nil {
		return "", "", err
	}
	if n := j.Priority; n != nil && (*n < 0 || *n > 1000) { // also rejects numbers that do not fit an int4
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
	return a.ID, a.Status, pgerror.JobCheck(err)
}
