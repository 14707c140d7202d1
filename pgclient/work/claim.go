package work

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgscan"
)

// Claim says which jobs to lease: at most Most jobs of the kinds, within the job subscriptions of
// the executor. In each queue lane, the search begins after the lane's key in After; without a key,
// at the beginning of the lane.
type Claim struct {
	Executor string   // the executor id as which to claim
	Kinds    []string // only these job kinds; nil = all
	Most     int      // 1 to 10,000
	After    JobKeys  // nil = search every queue lane from its beginning
	Refuse   Refusal  // which jobs to pass over
}

// Refusal says which jobs a claim passes over, because jobs that have lost leases must not run beside
// some others. They keep their place in the queue.
type Refusal string

const (
	RefuseNone      Refusal = ""
	RefuseLastLease Refusal = "last_lease" // jobs that the next lost lease makes dead letters
	RefuseLostLease Refusal = "lost_lease" // all jobs that have lost a lease
)

// after returns the value of p_after; nil if the claim refuses no jobs and searches from the beginning.
func (c *Claim) after() any {
	if c.Refuse == RefuseNone && len(c.After) == 0 {
		return nil
	}
	out := c.After.argument()
	if c.Refuse != RefuseNone {
		out["refuse"] = c.Refuse // no queue lane: their names contain a slash
	}
	return out
}

// ClaimedPayload is the largest payload, in bytes of text, that a claim returns; ClaimSQL
// contains the same number. Longer payloads are read with JobPayload and WebhookPayload, so
// that a host holds only a few of them in memory at a time.
const ClaimedPayload = 8192

// ClaimSQL is the statement that claims jobs; ReadClaimed reads its rows. If an idempotency key
// ends with the job's id, the producer did not give that key, and the job may be a replay:
// fn_job_key and fn_job_root return the original key and job. These functions are volatile, so that
// they see jobs that are newer than this statement, as the claim does.
const ClaimSQL = claimed + `CASE WHEN pg_column_compression(payload) IS NULL AND pg_column_size(payload) < 256 THEN payload
		WHEN pg_column_size(payload) > 8192 OR pg_column_size(jsonb_build_array(payload)) > 8192 THEN NULL
		WHEN public.fn_payload_fits(payload) THEN CASE WHEN octet_length(payload::text) > 8192 THEN NULL ELSE payload END END` + claiming

// bareClaimSQL is ClaimSQL without payloads: each is then read alone, so that one that the database
// cannot read fails alone.
const bareClaimSQL = claimed + "NULL::jsonb" + claiming

const claimed = `SELECT job_id, lease_token, job_kind, event_domain, executor, priority, process_after, attempts,
	max_attempts, enqueued_at, lease_until, picked_at, source_ref, target_ref, payload_ref,
	CASE WHEN right(idempotency_key, 36) = job_id::text
		THEN COALESCE(public.fn_job_key(job_id), idempotency_key) ELSE idempotency_key END,
	CASE WHEN idempotency_key = 'replay:' || job_id THEN public.fn_job_root(job_id) END,
	correlation_id, lost_leases, `

const claiming = `
	FROM public.fn_job_claim($1::text, $2::text[], $3::int, $4::jsonb)`

// JobClaim leases jobs. The claim is committed before the jobs are returned; otherwise a worker
// could finish a job before other sessions see its lease. If the database cannot read the payload of
// one of the jobs, none is returned with its payload.
func (c *Client) JobClaim(ctx context.Context, claim Claim) ([]Job, error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	jobs, err := c.claim(ctx, ClaimSQL, claim)
	if pgerror.ValueUnreadable(err) {
		jobs, err = c.claim(ctx, bareClaimSQL, claim)
	}
	return jobs, pgerror.Translate(err)
}

func (c *Client) claim(ctx context.Context, sql string, claim Claim) ([]Job, error) {
	rows, err := c.pool.Query(ctx, sql, claim.Executor, claim.Kinds, claim.Most, claim.after())
	if err != nil {
		return nil, err
	}
	return ReadClaimed(rows, claim.Most)
}

// Payload is a payload that was read separately from its claim.
type Payload struct {
	Bytes    int64  // length of the payload as text
	Text     []byte // nil: the payload is longer than the limit, or not readable
	Readable bool   // false: the database cannot return the payload as text
}

// JobPayload reads the payload of a leased job that was not returned with its claim. The text is
// nil if it has more than most bytes. held is false if the lease is lost.
func (c *Client) JobPayload(ctx context.Context, lease JobLease, most int64) (p Payload, held bool, err error) {
	p, err = c.payload(ctx, "SELECT bytes, payload FROM public.fn_job_payload($1::uuid, $2::uuid, $3::bigint)", lease.ID, lease.Token, most)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	return p, true, pgerror.Translate(err)
}

func (c *Client) payload(ctx context.Context, sql string, args ...any) (p Payload, err error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	var bytes *int64
	if err = c.pool.QueryRow(ctx, sql, args...).Scan(&bytes, &p.Text); err == nil && bytes != nil {
		p.Bytes, p.Readable = *bytes, true
	}
	return p, err
}

// ReadClaimed reads the rows of ClaimSQL; most is the limit of the claim.
func ReadClaimed(rows pgx.Rows, most int) ([]Job, error) {
	var jobs []Job
	var j Job
	var kind, domain, exec interned
	var source, target, ref, key, correlation optional
	var root pgtype.UUID
	var picked time.Time
	var enqueued pgtype.Timestamptz
	_, err := pgx.ForEachRow(rows, []any{&j.ID, &j.Token, &kind, &domain, &exec, &j.Priority, &j.ProcessAfter, &j.Attempts,
		&j.MaxAttempts, &enqueued, &j.LeaseUntil, &picked, &source, &target, &ref, &key, &root, &correlation, &j.LostLeases, &j.Payload}, func() error {
		j.Kind, j.Domain, j.Executor = kind.last, domain.last, exec.last
		j.SourceRef, j.TargetRef, j.PayloadRef, j.IdempotencyKey, j.CorrelationID = source.s, target.s, ref.s, key.s, correlation.s
		if j.Root = j.ID; root.Valid {
			j.Root = root
		}
		j.EnqueuedAt, j.Lease = pgscan.Calendar(enqueued), j.LeaseUntil.Sub(picked)
		if jobs == nil {
			jobs = make([]Job, 0, min(most, 32)) // most claims return one job or the maximum
		}
		jobs = append(jobs, j)
		j.Payload = nil
		return nil
	})
	return jobs, err
}

// Arguments returns the arguments of ClaimSQL as text.
func (c *Claim) Arguments(types *pgtype.Map) [][]byte {
	args := [][]byte{[]byte(c.Executor), nil, strconv.AppendInt(nil, int64(c.Most), 10), nil}
	if c.Kinds != nil {
		args[1], _ = types.Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, c.Kinds, nil) // encoding text cannot fail
	}
	if after := c.after(); after != nil {
		args[3], _ = json.Marshal(after)
	}
	return args
}
