package pgclient

// This file reads job dead letters: their part of the list, and one with its
// payload (masked by the database) and the chain of replays it stands in.

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

const jobPrefix = "job:"

func isJobLetter(id string) bool { return strings.HasPrefix(strings.TrimSpace(id), jobPrefix) }

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// uuidOf reads an id that is a uuid behind a prefix, in the form that the
// database gives back.
func uuidOf(id, what, prefix string) (string, error) {
	s := strings.TrimPrefix(strings.TrimSpace(id), prefix)
	if !uuidForm.MatchString(s) {
		return "", &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean("not the id of a " + what + ": " + id),
			Do: queue.Clean("it looks like " + prefix + "0190a1b2-1111-4222-8333-0123456789ab"),
		}
	}
	return strings.ToLower(s), nil
}

const deadJobFrom = "public.job_dead_letter d"

const deadJobState = "CASE d.triage_status WHEN 'open' THEN 'open' WHEN 'replayed' THEN 'requeued' ELSE 'resolved' END"

// deadJobGeneration counts the replays that led to the letter's job.
const deadJobGeneration = `(WITH RECURSIVE up (job_id, n) AS (
	SELECT d.job_id, 0 UNION ALL
	SELECT e.job_id, up.n + 1 FROM up JOIN public.job_dead_letter e ON e.replayed_job_id = up.job_id WHERE up.n < 1000)
	SELECT max(up.n) FROM up)`

var deadJobColumns = map[string]column{
	"id": {expr: "'job:' || d.dead_letter_id", number: "NULL::numeric"}, "code": {expr: "d.failure_code"}, "endpoint": {expr: "d.job_kind"},
	"subscription": {expr: "NULL::bigint"}, "domain": {expr: "d.event_domain"}, "kind": {expr: "d.job_kind"},
	"type": {expr: "NULL::text"}, "age": {expr: "d.last_failed_at"}, "failed": {expr: "d.last_failed_at"},
	"source": {expr: "'job'"}, "state": {expr: deadJobState},
}

func (c *Client) jobLetters(ctx context.Context, b *builder, mark deadMark, limit int) ([]queue.DeadLetter, error) {
	if mark.job != "" {
		b.and("(d.last_failed_at, d.dead_letter_id) < (" + b.arg(mark.at) + "::timestamptz, " + b.arg(mark.job) + "::uuid)")
	}
	rows, err := c.read.Query(ctx, `SELECT 'job:' || d.dead_letter_id, `+deadJobState+`, d.failure_code, d.job_kind, d.event_domain,
		`+deadJobGeneration+`, d.last_failed_at, floor(extract(epoch FROM now() - d.last_failed_at))::bigint
		FROM (SELECT d.* FROM (SELECT dead_letter_id, job_id, triage_status, failure_code, job_kind, event_domain, last_failed_at, resolved_at
			FROM public.job_dead_letter) d`+b.clause()+` ORDER BY d.last_failed_at DESC, d.dead_letter_id DESC LIMIT `+strconv.Itoa(limit)+`) d
		ORDER BY d.last_failed_at DESC, d.dead_letter_id DESC`, b.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.DeadLetter, error) {
		l := queue.DeadLetter{Source: "job"}
		err := row.Scan(&l.ID, &l.State, textInto(&l.Code), textInto(&l.Endpoint), textInto(&l.Domain), &l.Generation, &l.FailedAt, &l.AgeSeconds)
		return l, err
	})
}

func (c *Client) jobLetter(ctx context.Context, id string) (*queue.DeadLetterDetail, error) {
	uuid, err := uuidOf(id, "job dead letter", jobPrefix)
	if err != nil {
		return nil, err
	}
	d := queue.DeadLetterDetail{DeadLetter: queue.DeadLetter{ID: queue.JobLetter(uuid), Source: "job"}}
	var by, note, resolution queue.Text
	var at *time.Time
	err = c.read.QueryRow(ctx, `SELECT `+deadJobState+`, d.failure_code, d.job_kind, d.event_domain, `+deadJobGeneration+`,
		d.last_failed_at, floor(extract(epoch FROM now() - d.last_failed_at))::bigint, d.job_id::text, COALESCE(d.replayed_job_id::text, ''),
		d.executor, d.attempts, d.last_error, d.first_failed_at, d.resolution, d.resolved_by, d.resolved_at, d.triage_note
		FROM public.job_dead_letter d WHERE d.dead_letter_id = $1`, uuid).
		Scan(&d.State, textInto(&d.Code), textInto(&d.Endpoint), textInto(&d.Domain), &d.Generation, &d.FailedAt, &d.AgeSeconds, &d.JobID,
			&d.ReplayedJobID, textInto(&d.Executor), &d.Tries, textInto(&d.LastError), &d.FirstFailedAt, textInto(&resolution),
			textInto(&by), &at, textInto(&note))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("there is no dead letter " + d.ID)}
	}
	if err != nil {
		return nil, err
	}
	switch d.State {
	case "requeued":
		d.RequeuedBy, d.RequeuedAt = by, at
	case "resolved":
		d.Resolution, d.ResolvedBy, d.ResolvedAt, d.ResolvedNote = resolution, by, at, note
	}
	if d.Payload, d.PayloadWhyNot, err = c.payload(ctx, "job_dead_letter", uuid); err != nil {
		return nil, err
	}
	d.Lineage, err = c.jobLineage(ctx, uuid)
	return &d, err
}

// jobLineage walks the chain of replays from its first job to its last: job, dead
// letter, replay, job and so on. A job whose history was dropped is known by its
// letter alone.
func (c *Client) jobLineage(ctx context.Context, letter string) ([]queue.LineageStep, error) {
	rows, err := c.read.Query(ctx, `
		WITH RECURSIVE up (id, job_id, n) AS (
			SELECT d.dead_letter_id, d.job_id, 0 FROM public.job_dead_letter d WHERE d.dead_letter_id = $1
			UNION ALL
			SELECT e.dead_letter_id, e.job_id, up.n - 1 FROM up JOIN public.job_dead_letter e ON e.replayed_job_id = up.job_id WHERE up.n > -1000
		), down (id, replayed, n) AS (
			SELECT d.dead_letter_id, d.replayed_job_id, 0 FROM public.job_dead_letter d WHERE d.dead_letter_id = $1
			UNION ALL
			SELECT e.dead_letter_id, e.replayed_job_id, down.n + 1 FROM down JOIN public.job_dead_letter e ON e.job_id = down.replayed WHERE down.n < 1000
		), chain AS (
			SELECT d.dead_letter_id, d.job_id, d.failure_code, d.first_failed_at, d.last_failed_at, d.triage_status, d.triage_note,
				d.resolved_at, d.resolved_by, d.replayed_job_id, x.n
			FROM (SELECT id, n FROM up UNION SELECT id, n FROM down) x JOIN public.job_dead_letter d ON d.dead_letter_id = x.id
		), jobs (job_id, n, at) AS (
			SELECT job_id, n, first_failed_at FROM chain
			UNION ALL
			SELECT replayed_job_id, n + 1, resolved_at FROM chain c
			WHERE replayed_job_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chain x WHERE x.job_id = c.replayed_job_id)
		)
		SELECT kind, id, status, at, by FROM (
			SELECT 'job' AS kind, j.job_id::text AS id, COALESCE(v.status, 'its history was dropped') AS status,
				COALESCE(v.enqueued_at, j.at) AS at, v.actor AS by, j.n, 0 AS step
			FROM jobs j
			LEFT JOIN LATERAL (SELECT x.status, x.enqueued_at, x.actor FROM public.v_job x WHERE x.job_id = j.job_id LIMIT 1) v ON true
			UNION ALL
			SELECT 'dead_letter', 'job:' || dead_letter_id, failure_code, last_failed_at, NULL, n, 1 FROM chain
			UNION ALL
			SELECT 'requeue', replayed_job_id::text, triage_note, resolved_at, resolved_by, n, 2 FROM chain WHERE replayed_job_id IS NOT NULL
		) steps ORDER BY n, step`, letter)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.LineageStep, error) {
		var s queue.LineageStep
		var status queue.Text
		err := row.Scan(&s.Kind, &s.ID, textInto(&status), &s.At, textInto(&s.By))
		s.Status = status.String()
		return s, err
	})
}
