package enqueue

// This file is a job as it is put into the queue, and the statements that do it. They
// silence the wake trigger: a signal inside a transaction costs every writer of the
// cluster a lock at its commit, a bell rung after it costs nobody.

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
)

// Job is a job to be enqueued. What is left empty takes its default.
type Job struct {
	Kind           string          `json:"job_kind"`
	Domain         string          `json:"event_domain"`
	Executor       string          `json:"executor"` // an executor kind, such as DOT
	Payload        json.RawMessage `json:"payload,omitempty"`
	Priority       *int            `json:"priority,omitempty"`
	ProcessAfter   *time.Time      `json:"process_after,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	Scope          string          `json:"scope,omitempty"` // whose key it is: a role of the login; empty = the login
	MaxAttempts    int             `json:"max_attempts,omitempty"`
	Actor          string          `json:"actor,omitempty"`
}

// Made is what became of a batch.
type Made struct {
	New      int      `json:"enqueued"`
	Existing int      `json:"existing"` // jobs whose key stood for one already
	IDs      []string `json:"job_ids"`  // in the order given
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// In puts jobs into the queue inside the caller's transaction, all or
// none. Nobody is woken: ring for their domains after the commit.
func In(ctx context.Context, q Querier, jobs []Job) (Made, error) {
	var r answer
	err := q.QueryRow(ctx, enqueueManySQL, jobs).Scan(&r)
	return r.Made, pgerror.Translate(err)
}

const (
	// quietly silences the wake trigger for as long as the transaction lasts. A
	// condition without a table is seen to before what is selected.
	quietly = " WHERE set_config('qtop.doorbell', 'on', true) = 'on'"
	// patiently, after it, has the transaction wait for no lock longer than claimPatience.
	patiently      = " AND set_config('lock_timeout', '" + claimPatience + "', true) IS NOT NULL"
	claimPatience  = "100ms"
	enqueueManySQL = "SELECT public.fn_job_enqueue_many($1::jsonb)" + quietly
	enqueueSQL     = "SELECT public.fn_job_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::int, $6::timestamptz, $7::text, $8::int, $9::text, $10::text)" + quietly
)

// answer is what the functions that enqueue say: fn_job_enqueue of one job,
// fn_job_enqueue_many of several.
type answer struct {
	ID      string `json:"job_id"`
	Created bool   `json:"created"`
	Status  string `json:"status"` // of a job with a key
	Made
}

// arguments are those of enqueueSQL, as text; nil takes the default.
func (j *Job) arguments() [][]byte {
	args := [][]byte{[]byte(j.Kind), []byte(j.Domain), []byte(j.Executor), nil, nil, nil, nil, nil, nil, nil}
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
	if j.Scope != "" {
		args[9] = []byte(j.Scope)
	}
	return args
}

// domainsOf names each once.
func domainsOf(jobs []Job) (domains []string) {
	for i := range jobs {
		if !slices.Contains(domains, jobs[i].Domain) {
			domains = append(domains, jobs[i].Domain)
		}
	}
	return domains
}

// ids are those of the jobs, in the order given.
func (a *answer) ids() []string {
	if a.ID != "" {
		return []string{a.ID}
	}
	return a.IDs
}

// within tells whether each job of the answer is among those.
func (a *answer) within(jobs []work.Job) bool {
	claimed := make(map[string]bool, len(jobs))
	for i := range jobs {
		claimed[jobs[i].ID.String()] = true
	}
	return !slices.ContainsFunc(a.ids(), func(id string) bool { return !claimed[id] })
}
