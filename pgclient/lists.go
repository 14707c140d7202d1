package pgclient

// This file answers List: the pages that are read on demand.

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// pageSize is how many rows a page has unless the query says otherwise.
const pageSize = 200

// List reads one page.
func (c *Client) List(ctx context.Context, q queue.Query) (queue.Page, error) {
	p, err := c.list(ctx, q)
	c.Note(err)
	return p, err
}

func (c *Client) list(ctx context.Context, q queue.Query) (queue.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
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
			p.Rows = &s
		}
	case queue.ListDeadLetters:
		err = c.deadLetters(ctx, q, &p)
	case queue.ListDeadLetter:
		p.Rows, err = c.deadLetter(ctx, q.ID, q.Whole)
	case queue.ListJobs:
		err = c.jobs(ctx, q, &p)
	case queue.ListJob:
		p.Rows, err = c.job(ctx, q.ID, q.Whole)
	case queue.ListOperations, queue.ListOperation:
		err = c.bulkOperations(ctx, q, &p)
	case queue.ListEndpoints, queue.ListEndpoint:
		err = c.endpoints(ctx, q, &p)
	case queue.ListLeases:
		p.Rows, err = c.webhookLeases(ctx, nil, q.Limit)
	case queue.ListNotify:
		err = c.notifications(ctx, q, &p)
	case queue.ListRules:
		err = c.subscriptions(ctx, q, &p)
	case queue.ListResolution:
		p.Rows, err = c.resolution(ctx, q)
	case queue.ListWhy:
		p.Rows, err = c.why(ctx, q.ID)
	case queue.ListRoutes:
		err = c.routes(ctx, &p)
	case queue.ListConsumers:
		err = c.consumers(ctx, &p)
	case queue.ListCron:
		p.Rows, err = c.cron(ctx)
	case queue.ListAudit:
		err = c.audit(ctx, q, &p, "")
	case queue.ListFlagHistory:
		err = c.audit(ctx, q, &p, q.ID)
	case queue.ListAlertHistory:
		err = c.alertHistory(ctx, q, &p)
	default:
		err = &queue.Error{Kind: queue.KindUsage, What: queue.Clean("there is no list " + string(q.Kind))}
	}
	return p, pgerror.Translate(err)
}

// audit reads audit rows newest first, of one target when target is given.
func (c *Client) audit(ctx context.Context, q queue.Query, p *queue.Page, target string) error {
	f, err := queue.ParseFilter(q.Filter, queue.AuditFields())
	if err != nil {
		return filtersql.Error(err)
	}
	b := filtersql.New(auditColumns, "a.at")
	b.Where(f)
	if target != "" {
		b.And("a.target = " + b.Arg(target))
	}
	count := b.Clone()
	if err := b.Before("a.id", q.After); err != nil {
		return err
	}
	rows, err := c.read.Query(ctx, "SELECT "+auditSelect+" FROM public.queue_operator_action a"+b.Clause()+
		" ORDER BY a.id DESC LIMIT "+strconv.Itoa(q.Limit), b.Args...)
	if err != nil {
		return err
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.AuditEntry, error) {
		var e queue.AuditEntry
		err := row.Scan(scanAudit(&e)...)
		return e, err
	})
	if err != nil {
		return err
	}
	p.Rows = entries
	if len(entries) == q.Limit {
		p.Next = strconv.FormatInt(entries[len(entries)-1].ID, 10)
	}
	if q.Bare {
		return nil
	}
	return c.count(ctx, "public.queue_operator_action a", count, p)
}

// auditSelect are the columns that scanAudit takes.
const auditSelect = `a.id, a.at, a.actor, a.db_role, host(a.client_addr), a.action, a.target, a.filter, a.frozen_count,
	a.reason, a.before, a.after, a.outcome, a.claimed`

func scanAudit(e *queue.AuditEntry) []any {
	return []any{
		&e.ID, &e.At, pgscan.Text(&e.Actor), pgscan.Text(&e.DBRole), pgscan.Text(&e.ClientAddr), pgscan.Text(&e.Action), pgscan.Text(&e.Target),
		pgscan.Text(&e.Filter), &e.FrozenCount, pgscan.Text(&e.Reason), (*[]byte)(&e.Before), (*[]byte)(&e.After), pgscan.Text(&e.Outcome),
		(*[]byte)(&e.Claimed),
	}
}

// count counts what a filter matches, up to the bound.
func (c *Client) count(ctx context.Context, from string, b *filtersql.Builder, p *queue.Page) error {
	err := c.read.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM "+from+b.Clause()+
		" LIMIT "+strconv.Itoa(filtersql.CountBound+1)+") s", b.Args...).Scan(&p.Total)
	if p.Total > filtersql.CountBound {
		p.Total, p.TotalBound = filtersql.CountBound, true
	}
	return err
}

func (c *Client) alertHistory(ctx context.Context, q queue.Query, p *queue.Page) error {
	rows, err := c.read.Query(ctx, "SELECT "+ackColumns+` FROM public.queue_alert_ack WHERE $1 = '' OR alert_key = $1 OR subject = $1 ORDER BY ack_id DESC LIMIT $2`, q.ID, q.Limit)
	if err != nil {
		return err
	}
	history, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.AlertAck, error) {
		var a queue.AlertAck
		err := row.Scan(scanAck(&a)...)
		return a, err
	})
	p.Rows, p.Total = history, int64(len(history))
	return err
}

// ackColumns are what scanAck takes; what expired a moment ago may not be cleared yet.
const ackColumns = `alert_key, acked_by, acked_at, comment, expires_at,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN expires_at ELSE cleared_at END,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN 'expired' ELSE cleared_reason END`

func scanAck(a *queue.AlertAck) []any {
	return []any{pgscan.Text(&a.AlertKey), pgscan.Text(&a.AckedBy), &a.AckedAt, pgscan.Text(&a.Comment), &a.ExpiresAt, &a.ClearedAt, pgscan.Text(&a.ClearedReason)}
}

var auditColumns = map[string]filtersql.Column{
	"actor": {Expr: "a.actor"}, "role": {Expr: "a.db_role"}, "action": {Expr: "a.action"},
	"target": {Expr: "a.target"}, "reason": {Expr: "a.reason"}, "outcome": {Expr: "a.outcome"},
	"at": {Expr: "a.at"}, "age": {Expr: "a.at"},
}
