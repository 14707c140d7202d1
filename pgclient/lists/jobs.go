package lists

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// jobColumnList lists the columns of a job that lists show, without its payload.
const jobColumnList = `q.job_id, q.job_kind, q.event_domain, q.executor, q.status, q.ready, q.priority, q.process_after, q.enqueued_at,
	q.picked_at, q.finished_at, q.lease_owner, q.lease_until, q.attempts, q.max_attempts, q.idempotency_key, q.failure_code, q.last_error`

// jobSelect lists jobColumnList's columns in the order of scanJob.
const jobSelect = `q.job_id::text, q.job_kind, q.event_domain, q.executor, q.status, q.ready, q.priority,
	q.process_after, q.enqueued_at, q.picked_at, q.finished_at, q.lease_owner, q.lease_until,
	COALESCE(q.lease_id::text, ''), q.attempts, q.max_attempts, q.idempotency_key, q.failure_code, q.last_error,
	greatest(floor(public.fn_age(` + filtersql.JobSince + `)), 0)::bigint`

func scanJob(j *queue.Job) []any {
	return []any{
		&j.ID, &j.Kind, &j.Domain, &j.Executor, &j.Status, &j.Ready, &j.Priority, &j.ProcessAfter, &j.EnqueuedAt,
		&j.PickedAt, &j.FinishedAt, &j.LeaseOwner, &j.LeaseUntil, &j.LeaseID, &j.Attempts, &j.MaxAttempts, &j.Key,
		&j.Code, &j.LastError, &j.AgeSeconds,
	}
}

// jobs reads a page of live jobs, earliest due first. It reads each queue lane and each priority
// separately from the claim index, so that the cost of a page does not depend on the size of the
// queue.
func jobs(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	b, f, err := filtersql.Jobs(q.Filter)
	if err != nil {
		return err
	}
	lane := ""
	if q.ID != "" {
		domain, kind, ok := strings.Cut(q.ID, "/")
		if !ok {
			return queue.NewError(queue.KindUsage, strconv.Quote(q.ID)+" is not a queue lane", "", "write it as domain/kind")
		}
		d, k := b.Arg(domain), b.Arg(kind)
		lane = " WHERE l.event_domain = " + d + " AND l.job_kind = " + k
		b.And("q.event_domain = " + d)
		b.And("q.job_kind = " + k)
	}
	count := b.Clone()
	if q.After != "" {
		at, id, ok := strings.Cut(q.After, "|")
		uuid, err := parseid.UUID(id, "job", "")
		if !ok || err != nil {
			return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the position of the next page cannot be read"), Do: queue.Clean("begin again with the first page"), Err: err}
		}
		b.And("(q.process_after, q.job_id) > (" + b.Arg(at) + "::text::timestamptz, " + b.Arg(uuid) + "::uuid)")
	}
	conds := ""
	if len(b.Conds) > 0 {
		conds = " AND " + strings.Join(b.Conds, " AND ")
	}
	limit := " ORDER BY q.process_after, q.job_id LIMIT " + strconv.Itoa(q.Limit+1)
	rows, err := db.Query(ctx, `WITH RECURSIVE lane AS MATERIALIZED (
			SELECT DISTINCT l.event_domain, l.job_kind FROM public.job_lane l`+lane+`
		), level (event_domain, job_kind, priority) AS (
			SELECT l.event_domain, l.job_kind, (SELECT x.priority FROM public.job_queue x WHERE x.event_domain = l.event_domain
				AND x.job_kind = l.job_kind AND x.ready ORDER BY x.priority DESC LIMIT 1) FROM lane l
			UNION ALL
			SELECT v.event_domain, v.job_kind, (SELECT x.priority FROM public.job_queue x WHERE x.event_domain = v.event_domain
				AND x.job_kind = v.job_kind AND x.ready AND x.priority < v.priority ORDER BY x.priority DESC LIMIT 1)
			FROM level v WHERE v.priority IS NOT NULL
		), page AS (
			SELECT r.* FROM level v CROSS JOIN LATERAL (SELECT `+jobColumnList+` FROM public.job_queue q WHERE q.event_domain = v.event_domain
				AND q.job_kind = v.job_kind AND q.priority = v.priority AND q.ready`+conds+limit+`) r
			UNION ALL
			(SELECT `+jobColumnList+` FROM public.job_queue q WHERE NOT q.ready`+conds+limit+`)
		)
		SELECT q.process_after::text || '|' || q.job_id, `+jobSelect+` FROM (SELECT p.*, (SELECT l.lease_id FROM public.v_leased_job l
			WHERE l.job_id = p.job_id) AS lease_id FROM page p`+strings.ReplaceAll(limit, "q.", "p.")+`) q`+limit, b.Args...)
	if err != nil {
		return err
	}
	var marks []string
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.Job, error) {
		var j queue.Job
		var mark string
		err := row.Scan(append([]any{&mark}, scanJob(&j)...)...)
		marks = append(marks, mark)
		return j, err
	})
	if err != nil {
		return err
	}
	if len(jobs) > q.Limit {
		jobs, p.Next = jobs[:q.Limit], marks[q.Limit-1]
	}
	p.Rows = jobs
	switch {
	case q.Bare:
		return nil
	case !f.Empty():
		return countRows(ctx, db, "public.job_queue q", count, p)
	}
	return db.QueryRow(ctx, `SELECT COALESCE(sum(b.queued + b.leased + b.in_progress + b.retry_waiting), 0)::bigint FROM public.fn_job_backlog() b
		WHERE $1 = '' OR b.event_domain || '/' || b.job_kind = $1`, q.ID).Scan(&p.Total)
}

// job reads one job, live or finished, with its payload as fn_payload_masked returns it.
func job(ctx context.Context, db *pgpool.Pool, q queue.Query) (*queue.JobDetail, error) {
	uuid, err := parseid.UUID(q.ID, "job", "")
	if err != nil {
		return nil, err
	}
	var j queue.JobDetail
	err = db.QueryRow(ctx, "SELECT "+jobSelect+`, COALESCE(q.from_status, ''), q.source_ref, q.target_ref, q.payload_ref, q.actor, q.correlation_id, q.lost_leases,
		CASE WHEN q.status IN ('queued', 'retry_waiting') THEN ceil(-public.fn_age(least(greatest(q.process_after, '0001-01-01Z'), '9999-12-31Z')))::bigint END
		FROM public.v_job q WHERE q.job_id = $1 LIMIT 1`, uuid).
		Scan(append(scanJob(&j.Job), &j.FromStatus, &j.SourceRef, &j.TargetRef, &j.PayloadRef,
			&j.Actor, &j.CorrelationID, &j.LostLeases, &j.DueIn)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, queue.NewError(queue.KindFailed, "there is no job "+uuid, "", "finished jobs are removed at the end of their retention")
	}
	if err != nil {
		return nil, err
	}
	if j.Status == "dead_letter" || j.FromStatus == "dead_letter" {
		err = db.QueryRow(ctx, `SELECT 'job:' || d.dead_letter_id FROM public.job_dead_letter d WHERE d.job_id = $1`, uuid).Scan(&j.DeadLetterID)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) && queue.KindOf(err) != queue.KindPermission {
			return nil, err
		}
	}
	if j.Status == "cleaned" {
		j.PayloadWhyNot = queue.Clean("retention has removed the payload")
		return &j, nil
	}
	x, err := payload(ctx, db, "job", uuid, q.Whole)
	j.Payload, j.PayloadWhyNot, j.PayloadSize = x.text, x.whyNot, x.size
	return &j, err
}
