package pgclient

// This file puts one job into the queue for an operator who tries a lane: with
// the server's clock, and errors that name the flag. The trigger rings, for a
// process that ends at once cannot.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// JobPut is a job as an operator puts it into the queue.
type JobPut struct {
	Kind, Domain, Executor string
	Payload                string // JSON, an object; empty = {}
	Priority               int
	After                  time.Duration // due so long from now, by the server's clock
	Key                    string        // idempotency key; empty = none
	MaxAttempts            int           // 0 = the flag queue.retry.max_attempts_default
}

// PutJob enqueues a job. It gives the id, whether the job is new (else it is the
// active one of its kind with that key), or the refusal.
func (c *Client) PutJob(ctx context.Context, j JobPut) (id string, created bool, refused string, err error) {
	if !slices.Contains(queue.ExecutorKinds(), j.Executor) {
		return "", false, "", notExecutorKind(j.Executor, "--executor")
	}
	if strings.TrimSpace(j.Payload) == "" {
		j.Payload = "{}"
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(j.Payload), &object); err != nil || object == nil {
		return "", false, "", &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean("the payload is no JSON object"), Where: queue.Clean("--payload"),
			Do: queue.Clean(`write it like {"id": 1}`), Err: err,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	var a struct {
		refusal
		ID      string `json:"job_id"`
		Created bool   `json:"created"`
	}
	err = c.act.QueryRow(ctx, `SELECT public.fn_job_enqueue($1, $2, $3, $4::jsonb, $5, now() + make_interval(secs => $6), NULLIF($7, ''), NULLIF($8, 0), $9)`,
		j.Kind, j.Domain, j.Executor, j.Payload, j.Priority, j.After.Seconds(), j.Key, j.MaxAttempts, c.Actor()).Scan(&a)
	err = translate(jobCheck(err))
	c.note(err)
	return a.ID, a.Created, a.Reason, err
}

// jobCheck says which of the values a constraint of the queue refused.
func jobCheck(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	if name, _, _ := strings.Cut(pg.Message, " "); pg.Code == "22023" {
		flag := map[string]string{
			"p_job_kind": "--kind", "p_event_domain": "--domain", "p_payload": "--payload", "p_max_attempts": "--max-attempts", "p_idempotency_key": "--key",
		}[name]
		return &queue.Error{Kind: queue.KindUsage, What: queue.Clean(pg.Message), Where: queue.Clean(flag), Do: queue.Clean(pg.Hint), Err: err}
	}
	if pg.Code != "23514" && pg.Code != "23502" {
		return err
	}
	where, do := map[string][2]string{
		"chk_job_lane_kind":               {"--kind", "a letter, then letters, digits or _ . : - up to 100"},
		"chk_job_lane_domain":             {"--domain", "a small letter, then small letters, digits or _ up to 51"},
		"chk_job_queue_payload":           {"--payload", "an object of references: no member may be called body, content, raw, vector, embedding, secret, token, password, ssn or personal_data"},
		"job_queue_max_attempts_check":    {"--max-attempts", "1 to 1000"},
		"job_queue_idempotency_key_check": {"--key", "1 to 500 characters"},
	}[pg.ConstraintName], "see the constraint "+pg.ConstraintName
	if where[1] != "" {
		do = where[1]
	}
	return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the queue does not take this job"), Where: queue.Clean(where[0]), Do: queue.Clean(do), Err: err}
}

func notExecutorKind(kind, where string) error {
	return &queue.Error{
		Kind: queue.KindUsage, What: queue.Clean(fmt.Sprintf("%q is not an executor kind", kind)), Where: queue.Clean(where),
		Do: queue.Clean("use " + strings.Join(queue.ExecutorKinds(), ", ")),
	}
}
