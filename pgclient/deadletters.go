package pgclient

// This file reads dead letters: the list of both sources with its filter, and
// one of a webhook with its attempts, payload (masked by the database) and
// lineage.

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

const deadFrom = `public.dead_letters d
	JOIN public.subscriptions s ON s.id = d.subscription_id
	JOIN public.webhook_delivery_sagas g ON g.id = d.saga_id`

const deadState = `CASE WHEN EXISTS (SELECT 1 FROM public.dead_letter_open o WHERE o.dead_letter_id = d.id) THEN 'open'
	WHEN EXISTS (SELECT 1 FROM public.dead_letter_requeues r WHERE r.dead_letter_id = d.id) THEN 'requeued' ELSE 'resolved' END`

var deadColumns = map[string]column{
	"id": {expr: "d.id"}, "code": {expr: "d.final_error_code"}, "endpoint": {expr: "s.endpoint"},
	"subscription": {expr: "d.subscription_id"}, "domain": {expr: "'webhook'"}, "kind": {expr: "'webhook'"},
	"type": {expr: "s.event_type"}, "age": {expr: "d.failed_at"}, "failed": {expr: "d.failed_at"},
	"source": {expr: "'webhook'"}, "state": {expr: deadState},
}

// deadSelection is a filter over the dead letters of both sources.
type deadSelection struct {
	filter      *queue.Filter
	hooks, jobs *builder
}

// deadWhere compiles a filter over dead letters; without a state it means the
// open ones.
func deadWhere(text string) (deadSelection, error) { return deadWhereAt(text, time.Time{}) }

// deadWhereAt means the letters that had died by then, judged as of then; the zero
// time is now.
func deadWhereAt(text string, at time.Time) (deadSelection, error) {
	f, err := queue.ParseFilter(text, queue.DeadLetterFields())
	if err != nil {
		return deadSelection{}, filterError(err)
	}
	s := deadSelection{filter: f, hooks: newBuilder(deadColumns, "d.id"), jobs: newBuilder(deadJobColumns, "d.last_failed_at")}
	if !at.IsZero() {
		for b, died := range map[*builder]string{s.hooks: "d.failed_at", s.jobs: "d.last_failed_at"} {
			b.now = b.arg(at) + "::timestamptz"
			b.and(died + " <= " + b.now)
		}
	}
	s.hooks.where(f)
	s.jobs.where(f)
	for _, t := range f.Terms {
		if t.Field == "state" {
			return s, nil
		}
	}
	s.hooks.and("EXISTS (SELECT 1 FROM public.dead_letter_open o WHERE o.dead_letter_id = d.id)")
	s.jobs.and("d.resolved_at IS NULL")
	return s, nil
}

// deadMark is where a page ended in each of the two lists that it merges; the
// zero value is before both.
type deadMark struct {
	hook int64
	at   time.Time
	job  string
}

// String is the mark as Page.Next carries it.
func (m deadMark) String() string {
	s := strconv.FormatInt(m.hook, 10)
	if m.job != "" {
		s += " " + m.at.UTC().Format(time.RFC3339Nano) + " " + m.job
	}
	return s
}

func readDeadMark(text string) (m deadMark, err error) {
	parts := strings.Fields(text)
	if m.hook, err = strconv.ParseInt(parts[0], 10, 64); err == nil && len(parts) == 3 {
		if m.at, err = time.Parse(time.RFC3339Nano, parts[1]); err == nil {
			m.job, err = uuidOf(parts[2], "dead letter", "")
		}
	}
	if err != nil || len(parts) == 2 || len(parts) > 3 {
		return m, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the page mark cannot be read"), Err: err}
	}
	return m, nil
}

// deadLetters merges the letters of both sources, newest first. Webhook letters
// come in the order of their ids, which is that of their times but for those of
// transactions that ran side by side.
func (c *Client) deadLetters(ctx context.Context, q queue.Query, p *queue.Page) error {
	s, err := deadWhere(q.Filter)
	if err != nil {
		return err
	}
	var mark deadMark
	if strings.TrimSpace(q.After) != "" {
		if mark, err = readDeadMark(q.After); err != nil {
			return err
		}
	}
	hooks, err := c.hookLetters(ctx, s.hooks.clone(), mark, q.Limit+1)
	if err != nil {
		return err
	}
	jobs, err := c.jobLetters(ctx, s.jobs.clone(), mark, q.Limit+1)
	if err != nil {
		return err
	}
	for len(hooks)+len(jobs) > 0 {
		if len(p.DeadLetters) == q.Limit {
			p.Next = mark.String()
			break
		}
		if len(jobs) == 0 || len(hooks) > 0 && !hooks[0].FailedAt.Before(jobs[0].FailedAt) {
			if mark.hook, err = webhookID(hooks[0].ID); err != nil {
				return err
			}
			p.DeadLetters, hooks = append(p.DeadLetters, hooks[0]), hooks[1:]
			continue
		}
		mark.at, mark.job = jobs[0].FailedAt, strings.TrimPrefix(jobs[0].ID, jobPrefix)
		p.DeadLetters, jobs = append(p.DeadLetters, jobs[0]), jobs[1:]
	}
	if s.filter.Empty() {
		return c.read.QueryRow(ctx, "SELECT COALESCE(sum(n), 0)::bigint FROM public.v_queue_counter WHERE scope IN ('dead_webhook', 'dead_job')").Scan(&p.Total)
	}
	var jobPage queue.Page
	if err := c.count(ctx, deadFrom, s.hooks, p); err != nil {
		return err
	}
	if err := c.count(ctx, deadJobFrom, s.jobs, &jobPage); err != nil {
		return err
	}
	p.Total, p.TotalBound = p.Total+jobPage.Total, p.TotalBound || jobPage.TotalBound
	return nil
}

func (c *Client) hookLetters(ctx context.Context, b *builder, mark deadMark, limit int) ([]queue.DeadLetter, error) {
	if mark.hook != 0 {
		b.and("d.id < " + b.arg(mark.hook))
	}
	rows, err := c.read.Query(ctx, `SELECT d.id::text, `+deadState+`, d.final_error_code, s.endpoint, d.subscription_id, d.event_id,
		s.event_type, d.saga_id, g.requeue_generation, d.failed_at, floor(extract(epoch FROM now() - d.failed_at))::bigint
		FROM `+deadFrom+b.clause()+" ORDER BY d.id DESC LIMIT "+strconv.Itoa(limit), b.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.DeadLetter, error) {
		l := queue.DeadLetter{Source: "webhook", Domain: queue.Clean("webhook")}
		err := row.Scan(&l.ID, &l.State, textInto(&l.Code), textInto(&l.Endpoint), &l.SubscriptionID, &l.EventID,
			textInto(&l.EventType), &l.SagaID, &l.Generation, &l.FailedAt, &l.AgeSeconds)
		return l, err
	})
}

// webhookID reads a dead-letter id: a bare number.
func webhookID(id string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 64)
	if err != nil || n <= 0 {
		return 0, &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean("not a dead-letter id: " + id),
			Do: queue.Clean("a webhook dead letter has a bare number, one of a job is job:UUID, as qtop dlq prints them"),
		}
	}
	return n, nil
}

func (c *Client) deadLetter(ctx context.Context, id string) (*queue.DeadLetterDetail, error) {
	if isJobLetter(id) {
		return c.jobLetter(ctx, id)
	}
	n, err := webhookID(id)
	if err != nil {
		return nil, err
	}
	var d queue.DeadLetterDetail
	d.Source, d.Domain = "webhook", queue.Clean("webhook")
	err = c.read.QueryRow(ctx, `SELECT d.id::text, `+deadState+`, d.final_error_code, s.endpoint, d.subscription_id, d.event_id,
		e.event_type, d.saga_id, g.requeue_generation, d.failed_at, floor(extract(epoch FROM now() - d.failed_at))::bigint,
		s.callback_url, s.secret_ref IS NULL, r.requeued_by, r.requeued_at, COALESCE(r.new_saga_id, 0),
		x.resolution::text, x.by, x.at, x.note
		FROM `+deadFrom+`
		JOIN (SELECT id, event_type FROM public.events) e ON e.id = d.event_id
		LEFT JOIN public.dead_letter_requeues r ON r.dead_letter_id = d.id
		LEFT JOIN public.dead_letter_resolutions x ON x.dead_letter_id = d.id WHERE d.id = $1`, n).
		Scan(&d.ID, &d.State, textInto(&d.Code), textInto(&d.Endpoint), &d.SubscriptionID, &d.EventID, textInto(&d.EventType),
			&d.SagaID, &d.Generation, &d.FailedAt, &d.AgeSeconds, textInto(&d.CallbackURL), &d.Unsigned,
			textInto(&d.RequeuedBy), &d.RequeuedAt, &d.NewSagaID, textInto(&d.Resolution), textInto(&d.ResolvedBy),
			&d.ResolvedAt, textInto(&d.ResolvedNote))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("there is no dead letter " + id)}
	}
	if err != nil {
		return nil, err
	}
	if d.Payload, d.PayloadWhyNot, err = c.payload(ctx, "dead_letter", strconv.FormatInt(n, 10)); err != nil {
		return nil, err
	}
	if d.Attempts, err = c.attempts(ctx, "saga_id = $1 ORDER BY attempt_no", d.SagaID); err != nil {
		return nil, err
	}
	d.Lineage, err = c.lineage(ctx, &d)
	return &d, err
}

// payload is what fn_payload_masked gives, with the numbers as stored, or why
// there is none.
func (c *Client) payload(ctx context.Context, kind, id string) (text, whyNot queue.Text, err error) {
	var raw *string
	err = c.read.QueryRow(ctx, "SELECT public.fn_payload_masked($1, $2)::text", kind, id).Scan(&raw)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42501":
		return text, queue.Clean("this login may not read payloads: it needs the role queue_viewer"), nil
	case err != nil:
		return text, whyNot, err
	case raw == nil:
		return text, queue.Clean("the payload is empty"), nil
	}
	return queue.Clean(*raw), whyNot, nil
}

// attempts reads webhook jobs, by a condition on $1 and in its order.
func (c *Client) attempts(ctx context.Context, which string, id int64) ([]queue.Attempt, error) {
	// The excerpt comes from the receiver and may hold anything: not everybody
	// may read it.
	excerpt := "response_excerpt"
	var may bool
	err := c.read.QueryRow(ctx, "SELECT has_column_privilege('public.webhook_delivery_jobs', 'response_excerpt', 'SELECT')").Scan(&may)
	if err != nil {
		return nil, err
	}
	if !may {
		excerpt = "NULL::text"
	}
	rows, err := c.read.Query(ctx, `SELECT id, attempt_no, status::text, COALESCE(started_at, attempt_at), finished_at, response_status, error_code,
		worker_id, `+excerpt+`, lease_resets FROM public.webhook_delivery_jobs WHERE `+which, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.Attempt, error) {
		var a queue.Attempt
		err := row.Scan(&a.JobID, &a.No, &a.Status, &a.StartedAt, &a.FinishedAt, &a.HTTPStatus, textInto(&a.Code),
			textInto(&a.Worker), textInto(&a.Excerpt), &a.Resets)
		return a, err
	})
}

// lineage walks every saga of the event and subscription: first, dead letters,
// requeues, in the order they came.
func (c *Client) lineage(ctx context.Context, d *queue.DeadLetterDetail) ([]queue.LineageStep, error) {
	rows, err := c.read.Query(ctx, `
		SELECT 'event', e.id::text, e.event_type, e.created_at, NULL FROM (SELECT id, event_type, created_at FROM public.events) e WHERE e.id = $1
		UNION ALL
		SELECT 'saga', g.id::text, g.status::text, g.created_at, NULL FROM public.webhook_delivery_sagas g
		WHERE g.event_id = $1 AND g.subscription_id = $2
		UNION ALL
		SELECT 'dead_letter', l.id::text, l.final_error_code, l.failed_at, NULL FROM public.dead_letters l
		WHERE l.event_id = $1 AND l.subscription_id = $2
		UNION ALL
		SELECT 'requeue', r.new_saga_id::text, r.reason, r.requeued_at, r.requeued_by FROM public.dead_letter_requeues r
		JOIN public.dead_letters l ON l.id = r.dead_letter_id WHERE l.event_id = $1 AND l.subscription_id = $2
		ORDER BY 4, 1`, d.EventID, d.SubscriptionID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.LineageStep, error) {
		var s queue.LineageStep
		var at time.Time
		var status queue.Text
		err := row.Scan(&s.Kind, &s.ID, textInto(&status), &at, textInto(&s.By))
		s.At, s.Status = &at, status.String()
		return s, err
	})
}
