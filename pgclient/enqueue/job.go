package enqueue

// Statements that enqueue disable the wake trigger (see noTrigger), all but those of a reserved signal: a
// transaction with a NOTIFY takes one lock of the whole cluster, which it holds until its commit has
// reached the disk, so with every commit the writers would wait for each other.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

// Job is a job to be enqueued. Kind, Domain and Executor are required; other fields that are
// empty get their defaults. docs/producers.md says what each may hold.
type Job struct {
	Kind     string `json:"job_kind"`     // selects the handler, such as mail.send; at most 100 characters
	Domain   string `json:"event_domain"` // the part of the business, such as mail
	Executor string `json:"executor"`     // an executor kind, such as external_worker; not the id of an executor
	// Payload is a JSON object of at most 256 KiB as text; empty or null = {}. It should hold
	// references and small facts, not documents.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Priority is 0 to 1000, higher is claimed first; default 100.
	Priority *int `json:"priority,omitempty"`
	// ProcessAfter is the earliest time at which the job may be claimed, by the server's clock;
	// default now.
	ProcessAfter *time.Time `json:"process_after,omitempty"`
	// IdempotencyKey makes the job safe to enqueue again: per scope and kind there is one job
	// with a key, which a second call returns. The same key with other content is refused.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Scope          string `json:"scope,omitempty"`        // the namespace of the key: a role of the login; empty = the login itself
	MaxAttempts    int    `json:"max_attempts,omitempty"` // 1 to 1000; default 20
	Actor          string `json:"actor,omitempty"`        // who caused the job, such as a person; at most 200 characters
}

// Made is the result of enqueueing a batch.
type Made struct {
	New      int      `json:"enqueued"` // jobs that were created
	Existing int      `json:"existing"` // jobs whose idempotency key was in use already
	IDs      []string `json:"job_ids"`  // in the order given
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// In enqueues 1 to 1,000,000 jobs inside the caller's transaction, all or none; none is an error. After
// an error the transaction can only be rolled back. In sends no wake signal for the jobs: after the
// commit, call [Producer.Notify] or [Notifier.Notify] for their domains. If q is a pool, the jobs are a
// separate transaction.
func In(ctx context.Context, q Querier, jobs []Job) (Made, error) {
	text, err := asJSON(jobs)
	if err != nil {
		return Made{}, err
	}
	var r answer
	err = q.QueryRow(ctx, inSQL, string(text)).Scan(&r, nil) // some modes of pgx do not know the type of the parameter, and can only send a text
	return r.Made, pgerror.Translate(err)
}

const (
	// noTrigger disables all triggers that send wake signals until the end of the transaction: it is
	// appended to a SELECT that calls the enqueueing function. A condition without a table is
	// evaluated before the function is called.
	noTrigger = " WHERE set_config('qtop.doorbell', 'on', true) = 'on'"
	// inSQL disables these triggers for its jobs alone. The other rows of the transaction are the
	// caller's, who does not send their signals. OFFSET 0 keeps the order: read the setting, change it,
	// call the function, restore it. Without the column was, the condition would be evaluated first.
	// The session is the caller's, and so is its search_path: every name is qualified, and there is no
	// operator.
	inSQL = `SELECT made.answer, pg_catalog.set_config('qtop.doorbell', made.was, true)
		FROM (SELECT public.fn_job_enqueue_many($1::pg_catalog.jsonb) AS answer, setting.was
			FROM (SELECT pg_catalog.current_setting('qtop.doorbell', true) AS was OFFSET 0) setting
			WHERE pg_catalog.set_config('qtop.doorbell', CASE WHEN setting.was IS NULL THEN 'on' ELSE 'on' END, true) IS NOT NULL
			OFFSET 0) made`
	// shortLockWait is appended to noTrigger; it limits each wait for a lock in the transaction to
	// claimLockTimeout.
	shortLockWait    = " AND set_config('lock_timeout', '" + claimLockTimeout + "', true) IS NOT NULL"
	claimLockTimeout = "100ms"
	enqueueManySQL   = "SELECT public.fn_job_enqueue_many($1::jsonb)"
	enqueueSQL       = "SELECT public.fn_job_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::int, $6::timestamptz, $7::text, $8::int, $9::text, $10::text)"
)

// answer is the result of the functions that enqueue: fn_job_enqueue for one job,
// fn_job_enqueue_many for several.
type answer struct {
	ID      string `json:"job_id"`
	Created bool   `json:"created"`
	Status  string `json:"status"` // set only for a job with a key
	Made
}

// arguments returns the arguments of enqueueSQL as text; nil means the default.
func (j *Job) arguments() [][]byte {
	args := [][]byte{[]byte(j.Kind), []byte(j.Domain), []byte(j.Executor), nil, nil, nil, nil, nil, nil, nil}
	if len(j.Payload) > 0 && string(bytes.Trim(j.Payload, " \t\r\n")) != "null" { // as fn_job_enqueue_many does
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

// asJSON returns the argument of fn_job_enqueue_many. The error names the first job that JSON cannot
// hold.
func asJSON(jobs []Job) ([]byte, error) {
	if err := checkTexts(jobs); err != nil {
		return nil, err
	}
	text, err := json.Marshal(jobs)
	if err == nil {
		return text, nil
	}
	for i := range jobs {
		if _, err := json.Marshal(&jobs[i]); err == nil {
			continue
		}
		what, do := "payload is not JSON", "make it with json.Marshal"
		if at := jobs[i].ProcessAfter; at != nil {
			if _, err := at.MarshalJSON(); err != nil {
				what, do = "process_after cannot be written as RFC 3339", "use a year from 1 to 9999, in UTC"
			}
		}
		return nil, queue.NewError(queue.KindUsage, fmt.Sprintf("p_jobs[%d].%s", i, what), "", "nothing was enqueued; "+do).Because(err)
	}
	return nil, pgerror.Translate(err)
}

// checkTexts refuses jobs with a text that is not UTF-8: [json.Marshal] would replace its bytes, and
// two idempotency keys could become one.
func checkTexts(jobs []Job) error {
	for i := range jobs {
		j := &jobs[i]
		for _, f := range [...]struct{ name, text string }{
			{"job_kind", j.Kind}, {"event_domain", j.Domain}, {"executor", j.Executor}, {"idempotency_key", j.IdempotencyKey}, {"scope", j.Scope}, {"actor", j.Actor},
		} {
			if !utf8.ValidString(f.text) {
				return queue.NewError(queue.KindUsage, fmt.Sprintf("p_jobs[%d].%s is not UTF-8", i, f.name), "", "nothing was enqueued; convert the text to UTF-8")
			}
		}
	}
	return nil
}

// clone returns a job that shares no memory with j.
func (j Job) clone() Job {
	j.Payload = bytes.Clone(j.Payload)
	if j.Priority != nil {
		j.Priority = new(*j.Priority)
	}
	if j.ProcessAfter != nil {
		j.ProcessAfter = new(*j.ProcessAfter)
	}
	return j
}

// domainsOf returns the domains of the jobs, each once.
func domainsOf(jobs []Job) (domains []string) {
	for i := range jobs {
		if !slices.Contains(domains, jobs[i].Domain) {
			domains = append(domains, jobs[i].Domain)
		}
	}
	return domains
}

// ids returns the ids of the jobs, in the order given.
func (a *answer) ids() []string {
	if a.ID != "" {
		return []string{a.ID}
	}
	return a.IDs
}

// within reports whether all jobs that were enqueued are among the claimed jobs.
func (a *answer) within(jobs []work.Job) bool {
	claimed := make(map[string]bool, len(jobs))
	for i := range jobs {
		claimed[jobs[i].ID.String()] = true
	}
	return !slices.ContainsFunc(a.ids(), func(id string) bool { return !claimed[id] })
}
