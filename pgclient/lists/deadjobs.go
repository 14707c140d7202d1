package lists

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// deadJobGeneration is an SQL expression: how many replays preceded the dead letter's job.
const deadJobGeneration = `(WITH RECURSIVE up (job_id, n) AS (
	SELECT d.job_id, 0 UNION ALL
	SELECT e.job_id, up.n + 1 FROM up JOIN public.job_dead_letter e ON e.replayed_job_id = up.job_id WHERE up.n < 1000)
	SELECT max(up.n) FROM up)`

func jobDeadLetters(ctx context.Context, db *pgpool.Pool, b *filtersql.Builder, mark deadMark, limit int) ([]queue.DeadLetter, error) {
	if b.None() {
		return nil, nil
	}
	mark.job.after(b)
	return pgrow.All[queue.DeadLetter](ctx, db, `SELECT 'job:' || d.dead_letter_id, 'job', `+filtersql.DeadJobState+`, d.failure_code, d.job_kind,
		d.event_domain, 0, 0, '', 0, `+deadJobGeneration+`, d.last_failed_at, floor(public.fn_age(d.last_failed_at))::bigint,
		NULL::timestamptz, NULL::text FROM `+newest(b, limit)+` JOIN `+filtersql.DeadJobFrom+` USING (dead_letter_id)
		ORDER BY d.last_failed_at DESC, d.dead_letter_id DESC`, db.Planned(b.Args)...)
}

// newest returns the FROM item with the ids of a page of dead letters, newest first. It finds them
// by an index alone, because the rows themselves hold payloads and are expensive to read.
func newest(b *filtersql.Builder, limit int) string {
	return "(SELECT d.dead_letter_id FROM " + b.Rows + b.Clause() + " ORDER BY d.last_failed_at DESC, d.dead_letter_id DESC LIMIT " + strconv.Itoa(limit) + ") page"
}

func jobDeadLetter(ctx context.Context, db *pgpool.Pool, id string) (*queue.DeadLetterDetail, error) {
	uuid, err := parseid.UUID(id, "job dead letter", parseid.JobPrefix)
	if err != nil {
		return nil, err
	}
	d := queue.DeadLetterDetail{DeadLetter: queue.DeadLetter{ID: queue.JobDeadLetterID(uuid), Source: "job"}, Attempts: []queue.Attempt{}}
	var by, note, resolution queue.Text
	var at *time.Time
	err = db.QueryRow(ctx, `SELECT `+filtersql.DeadJobState+`, d.failure_code, d.job_kind, d.event_domain, `+deadJobGeneration+`,
		d.last_failed_at, floor(public.fn_age(d.last_failed_at))::bigint, d.job_id::text, COALESCE(d.replayed_job_id::text, ''),
		d.executor, d.attempts, d.last_error, d.first_failed_at, d.resolution, d.resolved_by, d.resolved_at, d.triage_note
		FROM public.job_dead_letter d WHERE d.dead_letter_id = $1`, uuid).
		Scan(&d.State, &d.Code, &d.Endpoint, &d.Domain, &d.Generation, &d.FailedAt, &d.AgeSeconds, &d.JobID,
			&d.ReplayedJobID, &d.Executor, &d.Tries, &d.LastError, &d.FirstFailedAt, &resolution,
			&by, &at, &note)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noJobDeadLetter(ctx, db, uuid)
	}
	if err != nil {
		return nil, err
	}
	setClosure(&d, resolution, by, at, note)
	err = jobLineage(ctx, db, &d, uuid)
	return &d, err
}

// noJobDeadLetter returns the error for an id that no dead letter of a job has. It may be the id of the job.
func noJobDeadLetter(ctx context.Context, db *pgpool.Pool, uuid string) error {
	what, do := "there is no dead letter "+queue.JobDeadLetterID(uuid), "qtop dlq lists those that are open; closed ones are removed by retention"
	var deadLetter string
	err := db.QueryRow(ctx, `SELECT COALESCE((SELECT d.dead_letter_id::text FROM public.job_dead_letter d WHERE d.job_id = $1), '')
		FROM public.v_job q WHERE q.job_id = $1
		UNION ALL SELECT d.dead_letter_id::text FROM public.job_dead_letter d WHERE d.job_id = $1 LIMIT 1`, uuid).Scan(&deadLetter)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return err
	case deadLetter == "":
		what, do = uuid+" is the id of a job, which has no dead letter", "qtop job show "+uuid
	default:
		what, do = uuid+" is the id of a job; its dead letter is "+queue.JobDeadLetterID(deadLetter), "qtop dlq show "+queue.JobDeadLetterID(deadLetter)
	}
	return queue.NewError(queue.KindFailed, what, "", do)
}
