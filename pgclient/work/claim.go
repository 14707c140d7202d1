package work

// This file leases jobs.

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgscan"
)

// Claim is what to lease: at most that many jobs of the kinds, within the
// subscriptions of the executor, behind the keys in After; nil sweeps each lane
// from its start.
type Claim struct {
	Executor string
	Kinds    []string
	Most     int
	After    JobKeys
}

// ClaimSQL is the statement that claims; ReadClaimed reads its rows. A key that ends with the
// job's id is not the one that was given, and its job may be a replay. The functions that
// look both up see jobs that are newer than this statement, as the claim does.
const ClaimSQL = `SELECT job_id, lease_token, job_kind, event_domain, executor, priority, process_after, attempts,
	max_attempts, enqueued_at, lease_until, picked_at, source_ref, target_ref, payload_ref,
	CASE WHEN right(idempotency_key, 36) = job_id::text
		THEN COALESCE(public.fn_job_key(job_id), idempotency_key) ELSE idempotency_key END,
	CASE WHEN idempotency_key = 'replay:' || job_id THEN public.fn_job_root(job_id) END,
	correlation_id,
	CASE WHEN pg_column_compression(payload) IS NULL AND pg_column_size(payload) < 256 OR public.fn_payload_fits(payload) THEN payload END
	FROM public.fn_job_claim($1::text, $2::text[], $3::int, $4::jsonb)`

// JobClaim leases jobs. The statement commits before anything is returned: a job
// handed out earlier could be finished before its lease shows.
func (c *Client) JobClaim(ctx context.Context, claim Claim) ([]Job, error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	rows, err := c.pool.Query(ctx, ClaimSQL, claim.Executor, claim.Kinds, claim.Most, claim.After.argument())
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	jobs, err := ReadClaimed(rows, claim.Most)
	return jobs, pgerror.Translate(err)
}

// ReadClaimed reads the rows of ClaimSQL.
func ReadClaimed(rows pgx.Rows, most int) ([]Job, error) {
	var jobs []Job
	var j Job
	var kind, domain, exec interned
	var source, target, ref, key, correlation optional
	var root pgtype.UUID
	var picked time.Time
	var enqueued pgtype.Timestamptz
	_, err := pgx.ForEachRow(rows, []any{&j.ID, &j.Token, &kind, &domain, &exec, &j.Priority, &j.ProcessAfter, &j.Attempts,
		&j.MaxAttempts, &enqueued, &j.LeaseUntil, &picked, &source, &target, &ref, &key, &root, &correlation, &j.Payload}, func() error {
		j.Kind, j.Domain, j.Executor = kind.last, domain.last, exec.last
		j.SourceRef, j.TargetRef, j.PayloadRef, j.IdempotencyKey, j.CorrelationID = source.s, target.s, ref.s, key.s, correlation.s
		if j.Root = j.ID; root.Valid {
			j.Root = root
		}
		j.EnqueuedAt, j.Lease = pgscan.Calendar(enqueued), j.LeaseUntil.Sub(picked)
		if jobs == nil {
			jobs = make([]Job, 0, min(most, 32)) // mostly either one or all
		}
		jobs = append(jobs, j)
		j.Payload = nil
		return nil
	})
	return jobs, err
}

// Arguments are those of ClaimSQL, as text.
func (c *Claim) Arguments(types *pgtype.Map) [][]byte {
	args := [][]byte{[]byte(c.Executor), nil, strconv.AppendInt(nil, int64(c.Most), 10), nil}
	if c.Kinds != nil {
		args[1], _ = types.Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, c.Kinds, nil) // texts always have a form
	}
	if after := c.After.argument(); after != nil {
		args[3], _ = json.Marshal(after)
	}
	return args
}
