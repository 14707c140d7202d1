package lists

import (
	"context"
	"maps"
	"slices"

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
	f, err := queue.ParseFilter(q.Filter, queue.AuditFields())
	if err != nil {
		return filtersql.Error(err)
	}
	selected, columns := auditSelect, auditColumns
	folded := !slices.ContainsFunc(f.Terms, func(t queue.Term) bool { return t.Field == queue.AuditOperation && !t.Negate })
	if folded {
		selected, columns = foldedSelect, foldedColumns
	}
	b, _, err := filtersql.Parse(q.Filter, queue.AuditFields(), columns)
	if err != nil {
		return err
	}
	if folded {
		b.And("COALESCE(a.batch, 1) = 1")
	}
	if target != "" {
		b.And("a.target = " + b.Arg(target))
	}
	return readByNumber(ctx, db, q, p, b, "public.queue_operator_action a", "a.id", func(e queue.AuditEntry) int64 { return e.ID },
		func(rest string) ([]queue.AuditEntry, error) {
			return pgrow.All[queue.AuditEntry](ctx, db, "SELECT "+selected+" FROM public.queue_operator_action a"+queue.Choose(folded, lastBatch, "")+rest, b.Args...)
		})
}

// auditSelect lists the columns of a queue.AuditEntry.
const auditSelect = `a.id, a.at, a.actor, a.db_role, host(a.client_addr), a.action, a.target, a.filter, a.frozen_count,
	a.reason, a.before, a.after, a.outcome, a.claimed, a.operation_id, NULL::bigint, NULL::timestamptz`

// lastBatch joins the audit row of an operation's last batch to that of its first batch: a folded
// list shows the first row for all batches, with the totals of the last. foldedSelect lists the
// columns of such a row.
const (
	lastBatch = ` LEFT JOIN LATERAL (SELECT x.batch, x.batch_items, x.at, x.outcome FROM public.queue_operator_action x
		WHERE a.batch = 1 AND x.operation_id = a.operation_id AND x.action = a.action AND x.batch IS NOT NULL ORDER BY x.id DESC LIMIT 1) l ON true`
	foldedSelect = `a.id, a.at, a.actor, a.db_role, host(a.client_addr), a.action, ` + foldedTarget + `, a.filter, COALESCE(l.batch_items, a.frozen_count),
	a.reason, a.before, CASE WHEN a.batch = 1 THEN jsonb_build_object('batches', l.batch, 'items', l.batch_items) ELSE a.after END,
	CASE WHEN l.outcome ~ '^(refused|failed)' THEN a.outcome ELSE COALESCE(l.outcome, a.outcome) END, a.claimed, a.operation_id, l.batch, l.at`
	foldedTarget = `CASE WHEN a.batch = 1 THEN 'operation ' || a.operation_id ELSE a.target END`
)

func alertHistory(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	history, err := pgrow.All[queue.AlertAck](ctx, db, "SELECT "+ackColumns+` FROM public.queue_alert_ack WHERE $1 = '' OR alert_key = $1 OR subject = $1 ORDER BY ack_id DESC LIMIT $2`, q.ID, q.Limit)
	p.Rows, p.Total, p.TotalBound = history, int64(len(history)), len(history) == q.Limit
	return err
}

// ackColumns lists the columns of a queue.AlertAck; an acknowledgement that has just expired may
// not be marked as cleared yet.
const ackColumns = `alert_key, acked_by, acked_at, comment, expires_at,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN expires_at ELSE cleared_at END,
	CASE WHEN cleared_at IS NULL AND expires_at <= now() THEN 'expired' ELSE cleared_reason END`

var auditColumns = map[string]filtersql.Column{
	"actor": {Expr: "a.actor"}, "role": {Expr: "a.db_role"}, "action": {Expr: "a.action", Shown: "replace(regexp_replace(a.action, '^iu_route_', ''), '_', ' ')"}, // with the words of queue.AuditWords
	"target": {Expr: "a.target", Shown: shownTarget("a.target")}, "reason": {Expr: "a.reason"}, "outcome": {Expr: "a.outcome"},
	"at": {Expr: "a.at"}, "age": {Expr: "a.at"}, queue.AuditOperation: {Expr: "a.operation_id"},
}

var foldedColumns = func() map[string]filtersql.Column {
	all := maps.Clone(auditColumns)
	all["target"] = filtersql.Column{Expr: foldedTarget, Shown: shownTarget("(" + foldedTarget + ")")}
	return all
}()

// shownTarget returns the SQL expression for a target as queue.AuditTarget shows it.
func shownTarget(target string) string {
	return "regexp_replace(" + target + `, '^\S+ ', replace(substring(` + target + ` FROM '^\S+ '), '_', ' '))`
}
