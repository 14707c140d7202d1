package lists

import (
	"context"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// audit reads audit rows, newest first.
func audit(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	return auditOf(ctx, db, q, p, "")
}

// flagHistory reads the audit rows of one flag.
func flagHistory(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	return auditOf(ctx, db, q, p, q.ID)
}

func auditOf(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page, target string) error {
	b, _, err := filtersql.Parse(q.Filter, queue.AuditFields(), auditColumns)
	if err != nil {
		return err
	}
	if target != "" {
		b.And("a.target = " + b.Arg(target))
	}
	return readByNumber(ctx, db, q, p, b, "public.queue_operator_action a", "a.id", func(e queue.AuditEntry) int64 { return e.ID },
		func(rest string) ([]queue.AuditEntry, error) {
			return pgrow.All[queue.AuditEntry](ctx, db, "SELECT "+auditSelect+" FROM public.queue_operator_action a"+rest, b.Args...)
		})
}

// auditSelect lists the columns of a queue.AuditEntry.
const auditSelect = `a.id, a.at, a.actor, a.db_role, host(a.client_addr), a.action, a.target, a.filter, a.frozen_count,
	a.reason, a.before, a.after, a.outcome, a.claimed`

func alertHistory(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	history, err := pgrow.All[queue.AlertAck](ctx, db, "SELECT "+ackColumns+` FROM public.queue_alert_ack WHERE $1 = '' OR alert_key = $1 OR subject = $1 ORDER BY ack_id DESC LIMIT $2`, q.ID, q.Limit)
	p.Rows, p.Total = history, int64(len(history))
	return err
}

// ackColumns lists the columns of a queue.AlertAck; an acknowledgement that has just expired may not be marked as cleared yet.
const ackColumns = `alert_key, acked_by, acked_at, comment, expires_at,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN expires_at ELSE cleared_at END,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN 'expired' ELSE cleared_reason END`

var auditColumns = map[string]filtersql.Column{
	"actor": {Expr: "a.actor"}, "role": {Expr: "a.db_role"}, "action": {Expr: "a.action"},
	"target": {Expr: "a.target"}, "reason": {Expr: "a.reason"}, "outcome": {Expr: "a.outcome"},
	"at": {Expr: "a.at"}, "age": {Expr: "a.at"},
}
