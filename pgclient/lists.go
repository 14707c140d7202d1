package pgclient

// This file answers List: the pages that are read on demand.

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// pageSize is how many rows a page has unless the query says otherwise.
const pageSize = 200

// countBound bounds the count of a filtered list: beyond it the total is shown
// as a bound.
const countBound = 100_000

// List reads one page.
func (c *Client) List(ctx context.Context, q queue.Query) (queue.Page, error) {
	p, err := c.list(ctx, q)
	c.note(err)
	return p, err
}

func (c *Client) list(ctx context.Context, q queue.Query) (queue.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if q.Limit <= 0 || q.Limit > queue.MostPage {
		q.Limit = pageSize
	}
	p := queue.Page{AsOf: time.Now()}
	var err error
	switch q.Kind {
	case queue.ListSession:
		var s queue.Session
		if s, err = c.Session(ctx); err == nil {
			p.Session = &s
		}
	case queue.ListDeadLetters:
		err = c.deadLetters(ctx, q, &p)
	case queue.ListDeadLetter:
		p.Detail, err = c.deadLetter(ctx, q.ID, q.Whole)
	case queue.ListJobs:
		err = c.jobs(ctx, q, &p)
	case queue.ListJob:
		p.Job, err = c.job(ctx, q.ID, q.Whole)
	case queue.ListOperations, queue.ListOperation:
		err = c.bulkOperations(ctx, q, &p)
	case queue.ListEndpoints, queue.ListEndpoint:
		err = c.endpoints(ctx, q, &p)
	case queue.ListLeases:
		p.Leases, err = c.webhookLeases(ctx, nil, q.Limit)
	case queue.ListNotify:
		err = c.notifications(ctx, q, &p)
	case queue.ListRules:
		err = c.subscriptions(ctx, q, &p)
	case queue.ListResolution:
		p.Resolution, err = c.resolution(ctx, q)
	case queue.ListWhy:
		p.Why, err = c.why(ctx, q.ID)
	case queue.ListRoutes:
		err = c.routes(ctx, &p)
	case queue.ListConsumers:
		err = c.consumers(ctx, &p)
	case queue.ListCron:
		p.Cron, err = c.cron(ctx)
	case queue.ListAudit:
		err = c.audit(ctx, q, &p, "")
	case queue.ListFlagHistory:
		err = c.audit(ctx, q, &p, q.ID)
	case queue.ListAlertHistory:
		err = c.alertHistory(ctx, q, &p)
	default:
		err = &queue.Error{Kind: queue.KindUsage, What: queue.Clean("there is no list " + string(q.Kind))}
	}
	return p, translate(err)
}

// audit reads audit rows newest first, of one target when target is given.
func (c *Client) audit(ctx context.Context, q queue.Query, p *queue.Page, target string) error {
	f, err := queue.ParseFilter(q.Filter, AuditFields())
	if err != nil {
		return FilterError(err)
	}
	b := newBuilder(auditColumns, "a.at")
	b.where(f)
	if target != "" {
		b.and("a.target = " + b.arg(target))
	}
	count := b.clone()
	if err := b.before("a.id", q.After); err != nil {
		return err
	}
	rows, err := c.read.Query(ctx, "SELECT "+auditSelect+" FROM public.queue_operator_action a"+b.clause()+
		" ORDER BY a.id DESC LIMIT "+strconv.Itoa(q.Limit), b.args...)
	if err != nil {
		return err
	}
	p.Audit, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.AuditEntry, error) {
		var e queue.AuditEntry
		err := row.Scan(scanAudit(&e)...)
		return e, err
	})
	if err != nil {
		return err
	}
	if len(p.Audit) == q.Limit {
		p.Next = strconv.FormatInt(p.Audit[len(p.Audit)-1].ID, 10)
	}
	if q.Bare {
		return nil
	}
	return c.count(ctx, "public.queue_operator_action a", count, p)
}

// before is the condition of what follows a mark in a list whose numbers fall.
func (b *builder) before(number, mark string) error {
	if mark == "" {
		return nil
	}
	n, err := strconv.ParseInt(mark, 10, 64)
	if err != nil {
		return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the page mark cannot be read"), Err: err}
	}
	b.and(number + " < " + b.arg(n))
	return nil
}

// auditSelect are the columns that scanAudit takes.
const auditSelect = `a.id, a.at, a.actor, a.db_role, host(a.client_addr), a.action, a.target, a.filter, a.frozen_count,
	a.reason, a.before, a.after, a.outcome, a.claimed`

func scanAudit(e *queue.AuditEntry) []any {
	return []any{
		&e.ID, &e.At, textInto(&e.Actor), textInto(&e.DBRole), textInto(&e.ClientAddr), textInto(&e.Action), textInto(&e.Target),
		textInto(&e.Filter), &e.FrozenCount, textInto(&e.Reason), (*[]byte)(&e.Before), (*[]byte)(&e.After), textInto(&e.Outcome),
		(*[]byte)(&e.Claimed),
	}
}

// count counts what a filter matches, up to the bound.
func (c *Client) count(ctx context.Context, from string, b *builder, p *queue.Page) error {
	err := c.read.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM "+from+b.clause()+
		" LIMIT "+strconv.Itoa(countBound+1)+") s", b.args...).Scan(&p.Total)
	if p.Total > countBound {
		p.Total, p.TotalBound = countBound, true
	}
	return err
}

func (c *Client) alertHistory(ctx context.Context, q queue.Query, p *queue.Page) error {
	rows, err := c.read.Query(ctx, "SELECT "+ackColumns+` FROM public.queue_alert_ack WHERE $1 = '' OR alert_key = $1 OR subject = $1 ORDER BY ack_id DESC LIMIT $2`, q.ID, q.Limit)
	if err != nil {
		return err
	}
	p.AlertHistory, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.AlertAck, error) {
		var a queue.AlertAck
		err := row.Scan(scanAck(&a)...)
		return a, err
	})
	p.Total = int64(len(p.AlertHistory))
	return err
}

// ackColumns are what scanAck takes; what expired a moment ago may not be cleared yet.
const ackColumns = `alert_key, acked_by, acked_at, comment, expires_at,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN expires_at ELSE cleared_at END,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN 'expired' ELSE cleared_reason END`

func scanAck(a *queue.AlertAck) []any {
	return []any{textInto(&a.AlertKey), textInto(&a.AckedBy), &a.AckedAt, textInto(&a.Comment), &a.ExpiresAt, &a.ClearedAt, textInto(&a.ClearedReason)}
}
