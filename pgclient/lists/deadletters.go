package lists

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// deadMark is where a page of dead letters ended, in the list of each source; the zero value means
// before the first row.
type deadMark struct {
	hook       int64
	job, event uuidMark
}

// uuidMark is a position in a list that is ordered by time and uuid.
type uuidMark struct {
	at time.Time
	id string
}

func (m uuidMark) String() string {
	if m.id == "" {
		return "- -"
	}
	return m.at.UTC().Format(time.RFC3339Nano) + " " + m.id
}

// after adds the condition for the rows of d that follow the mark, newest first.
func (m uuidMark) after(b *filtersql.Builder) {
	if m.id != "" {
		b.And("(d.last_failed_at, d.dead_letter_id) < (" + b.Arg(m.at) + "::timestamptz, " + b.Arg(m.id) + "::uuid)")
	}
}

// String encodes the mark for Page.Next.
func (m deadMark) String() string {
	return strconv.FormatInt(m.hook, 10) + " " + m.job.String() + " " + m.event.String()
}

func readDeadMark(text string) (m deadMark, err error) {
	parts := strings.Fields(text)
	bad := &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the position of the next page cannot be read"), Do: queue.Clean("begin again with the first page")}
	if len(parts) != 5 {
		return m, bad
	}
	m.hook, err = strconv.ParseInt(parts[0], 10, 64)
	for i, to := range []*uuidMark{&m.job, &m.event} {
		at, id := parts[2*i+1], parts[2*i+2]
		if err != nil || id == "-" {
			continue
		}
		if to.at, err = time.Parse(time.RFC3339Nano, at); err == nil {
			to.id, err = parseid.UUID(id, "dead letter", "")
		}
	}
	if err != nil {
		bad.Err = err
		return m, bad
	}
	return m, nil
}

// deadLetters merges the dead letters of all sources, newest first. Those of webhooks are read in
// the order of their ids; that differs from the order of their times only for concurrent
// transactions.
func deadLetters(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	s, err := filtersql.Dead(q.Filter)
	if err != nil {
		return err
	}
	var mark deadMark
	if strings.TrimSpace(q.After) != "" {
		if mark, err = readDeadMark(q.After); err != nil {
			return err
		}
	}
	var lists [3][]queue.DeadLetter
	if lists[0], err = webhookDeadLetters(ctx, db, s.Hooks.Clone(), mark, q.Limit+1); err != nil {
		return err
	}
	if lists[1], err = jobDeadLetters(ctx, db, s.Jobs.Clone(), mark, q.Limit+1); err != nil {
		return err
	}
	if lists[2], err = eventDeadLetters(ctx, db, s.Events.Clone(), mark, q.Limit+1); err != nil {
		return err
	}
	var dead []queue.DeadLetter
	for {
		next := -1
		for i, l := range lists {
			if len(l) > 0 && (next < 0 || l[0].FailedAt.After(lists[next][0].FailedAt)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		if len(dead) == q.Limit {
			p.Next = mark.String()
			break
		}
		l := lists[next][0]
		switch next {
		case 0:
			if mark.hook, err = parseid.Webhook(l.ID); err != nil {
				return err
			}
		case 1:
			mark.job = uuidMark{l.FailedAt, strings.TrimPrefix(l.ID, parseid.JobPrefix)}
		default:
			mark.event = uuidMark{l.FailedAt, strings.TrimPrefix(l.ID, parseid.EventPrefix)}
		}
		dead, lists[next] = append(dead, l), lists[next][1:]
	}
	p.Rows = dead
	switch {
	case q.Bare:
		return nil
	case s.All():
		return db.QueryRow(ctx, `SELECT COALESCE(sum(n), 0)::bigint FROM (
			SELECT n FROM public.queue_counter_rank WHERE scope IN ('open_dead_webhook', 'open_dead_job', 'open_dead_event')
			UNION ALL SELECT n FROM public.fn_queue_counter_unfolded('{dead_webhook,dead_job,dead_event}')) x`).Scan(&p.Total)
	}
	for _, b := range []*filtersql.Builder{s.Hooks, s.Jobs, s.Events} {
		if b.None() {
			continue
		}
		var part queue.Page
		if err := countRows(ctx, db, b.Rows, b, &part); err != nil {
			return err
		}
		p.Total, p.TotalBound = p.Total+part.Total, p.TotalBound || part.TotalBound
	}
	return nil
}

func webhookDeadLetters(ctx context.Context, db *pgpool.Pool, b *filtersql.Builder, mark deadMark, limit int) ([]queue.DeadLetter, error) {
	if b.None() {
		return nil, nil
	}
	if mark.hook != 0 {
		b.And(b.Key + " < " + b.Arg(mark.hook))
	}
	return pgrow.All[queue.DeadLetter](ctx, db, `WITH page AS MATERIALIZED (SELECT `+b.Key+` AS id FROM `+b.Rows+b.Clause()+`
			ORDER BY 1 DESC LIMIT `+strconv.Itoa(limit)+`)
		SELECT d.id::text, 'webhook', `+filtersql.DeadState+`, d.final_error_code, s.endpoint, 'webhook',
		d.subscription_id, d.event_id, s.event_type, d.saga_id, COALESCE(g.requeue_generation, 0), d.failed_at, floor(public.fn_age(d.failed_at))::bigint,
		(SELECT w.erased_at FROM public.webhook_erasure w WHERE w.event_id = d.event_id), (SELECT w.erased_by FROM public.webhook_erasure w WHERE w.event_id = d.event_id)
		FROM page JOIN `+filtersql.DeadFrom+` ON d.id = page.id ORDER BY d.id DESC`, db.Planned(b.Args)...)
}

// webhookID is an SQL expression: the header webhook-id of the deliveries of saga g, as fn_webhook_job_claim hands it out.
const webhookID = "COALESCE(g.webhook_id::text, 'qtop_' || g.event_id || '_' || g.subscription_id)"

func deadLetter(ctx context.Context, db *pgpool.Pool, q queue.Query) (*queue.DeadLetterDetail, error) {
	d, err := deadLetterRow(ctx, db, q.ID)
	if err != nil {
		return nil, err
	}
	kind, key, err := parseid.Payload(d.ID)
	if err != nil {
		return nil, err
	}
	if d.ErasedAt != nil {
		d.PayloadWhyNot = queue.Clean("the payload was erased")
		return d, nil
	}
	x, err := payload(ctx, db, kind, key, q.Whole)
	d.Payload, d.PayloadWhyNot, d.PayloadSize = x.text, x.whyNot, x.size
	return d, err
}

// deadLetterRow reads a dead letter (id: NUMBER, job:UUID or event:UUID) without its payload.
func deadLetterRow(ctx context.Context, db *pgpool.Pool, id string) (*queue.DeadLetterDetail, error) {
	switch {
	case parseid.IsJobDeadLetter(id):
		return jobDeadLetter(ctx, db, id)
	case parseid.IsEventDeadLetter(id):
		return eventDeadLetter(ctx, db, id)
	}
	n, err := parseid.Webhook(id)
	if err != nil {
		return nil, err
	}
	var d queue.DeadLetterDetail
	var url string
	d.Source, d.Domain = "webhook", queue.Clean("webhook")
	err = db.QueryRow(ctx, `SELECT d.id::text, `+filtersql.DeadState+`, d.final_error_code, s.endpoint, d.subscription_id, d.event_id,
		e.event_type, d.saga_id, g.requeue_generation, d.failed_at, floor(public.fn_age(d.failed_at))::bigint,
		`+webhookID+`, public.fn_webhook_url(s.id), s.secret_ref IS NULL, r.requeued_by, r.requeued_at, COALESCE(r.new_saga_id, 0),
		x.resolution::text, x.by, x.at, x.note, w.erased_at, w.erased_by
		FROM `+filtersql.DeadFrom+`
		JOIN (SELECT id, event_type FROM public.events) e ON e.id = d.event_id
		LEFT JOIN public.dead_letter_requeues r ON r.dead_letter_id = d.id
		LEFT JOIN public.dead_letter_resolutions x ON x.dead_letter_id = d.id
		LEFT JOIN public.webhook_erasure w ON w.event_id = d.event_id WHERE d.id = $1`, n).
		Scan(&d.ID, &d.State, &d.Code, &d.Endpoint, &d.SubscriptionID, &d.EventID, &d.EventType,
			&d.SagaID, &d.Generation, &d.FailedAt, &d.AgeSeconds, &d.WebhookID, &url, &d.Unsigned,
			&d.RequeuedBy, &d.RequeuedAt, &d.NewSagaID, &d.Resolution, &d.ResolvedBy,
			&d.ResolvedAt, &d.ResolvedNote, &d.ErasedAt, &d.ErasedBy)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("there is no dead letter " + id), Do: queue.Clean("qtop dlq lists those that are open; closed ones are removed by retention")}
	}
	if err != nil {
		return nil, err
	}
	d.CallbackURL = queue.SafeURL(url)
	if d.Attempts, err = attempts(ctx, db, "j.saga_id = $1 ORDER BY j.attempt_no", d.SagaID); err != nil {
		return nil, err
	}
	err = hookLineage(ctx, db, &d)
	return &d, err
}

// setClosure sets who closed the dead letter of a job or an event, when and how.
func setClosure(d *queue.DeadLetterDetail, resolution, by queue.Text, at *time.Time, note queue.Text) {
	switch d.State {
	case "requeued":
		d.RequeuedBy, d.RequeuedAt = by, at
	case "resolved":
		d.Resolution, d.ResolvedBy, d.ResolvedAt, d.ResolvedNote = resolution, by, at, note
	}
}

// attempts reads webhook jobs j as attempts. which is their condition, in which $1 is id, and an
// ORDER BY clause.
func attempts(ctx context.Context, db *pgpool.Pool, which string, id int64) ([]queue.Attempt, error) {
	// The response excerpt is text of the receiver and may contain anything, so reading it is a
	// separate right.
	excerpt := "j.response_excerpt"
	var may bool
	err := db.QueryRow(ctx, "SELECT has_column_privilege('public.webhook_delivery_jobs', 'response_excerpt', 'SELECT')").Scan(&may)
	if err != nil {
		return nil, err
	}
	if !may {
		excerpt = "NULL::text"
	}
	return pgrow.All[queue.Attempt](ctx, db, `SELECT j.id, j.attempt_no, j.status::text, COALESCE(j.started_at, j.attempt_at), j.finished_at, j.response_status, j.error_code,
		j.worker_id, `+excerpt+`, j.lease_resets, `+webhookID+` FROM public.webhook_delivery_jobs j JOIN public.webhook_delivery_sagas g ON g.id = j.saga_id
		WHERE `+which, id)
}
