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
	a.reason, a.before, a.after, a.outcome, a.claimed, a.operation_id, NULL::bigint, NULL::timestamptz, ` + changedRows

// lastBatch joins the audit row of an operation's last batch to that of its first batch: a folded
// list shows the first row for all batches, with the totals of the last. foldedSelect lists the
// columns of such a row.
const (
	lastBatch = ` LEFT JOIN LATERAL (SELECT x.batch, x.batch_items, x.at, x.outcome FROM public.queue_operator_action x
		WHERE a.batch = 1 AND x.operation_id = a.operation_id AND x.action = a.action AND x.batch IS NOT NULL ORDER BY x.id DESC LIMIT 1) l ON true`
	foldedSelect = `a.id, a.at, a.actor, a.db_role, host(a.client_addr), a.action, ` + foldedTarget + `, a.filter, COALESCE(l.batch_items, a.frozen_count),
	a.reason, a.before, CASE WHEN a.batch = 1 THEN jsonb_build_object('batches', l.batch, 'items', l.batch_items) ELSE a.after END,
	CASE WHEN l.outcome ~ '^(refused|failed)' THEN a.outcome ELSE COALESCE(l.outcome, a.outcome) END, a.claimed, a.operation_id, l.batch, l.at,
	CASE WHEN a.batch IS DISTINCT FROM 1 THEN ` + changedRows + ` WHEN l.batch <= ` + mostSummed + ` THEN (SELECT sum(` + changedItems + `)::bigint
		FROM public.queue_operator_action b WHERE b.operation_id = a.operation_id AND b.action = a.action AND b.batch IS NOT NULL) END`
	foldedTarget = `CASE WHEN a.batch = 1 THEN 'operation ' || a.operation_id ELSE a.target END`
)

// The SQL of queue.AuditEntry.Changed of an audit row a. What was not done is 0, what the row does not tell
// is NULL. A row about an operation has what the operation had done until then.
const (
	changedRows = `CASE WHEN a.outcome ~ '^(refused|failed|skipped)' OR a.action IN ('bulk_plan', 'payload_reveal') THEN 0
		WHEN a.outcome !~ '^done' OR a.action = 'tick' THEN NULL
		WHEN a.action LIKE 'bulk\_%' THEN COALESCE(a.after ->> 'undone', a.after ->> 'requeued')::bigint
		WHEN a.action ~ '^(dead_letter|job_dead_letter|iu_route_dead_letter|notification|job_lease|webhook_lease)_|^job_cancel$' THEN ` + changedItems + `
		WHEN a.action = 'recount' THEN (SELECT sum(v.value::bigint)::bigint FROM jsonb_each_text(a.after - 'drift') v)
		WHEN a.action LIKE 'scheduler\_%' THEN jsonb_array_length(jsonb_path_query_array(a.after, '$.jobs[*] ? (@.outcome != "kept" && @.outcome != "absent")'))
		WHEN a.action IN ('adopt', 'quarantine_retry', 'webhook_subscription_add') OR a.target LIKE '(all %' THEN a.frozen_count
		ELSE 1 END`

	// changedItems is that of an action on dead letters, jobs, leases or notifications: its word differs.
	changedItems = `COALESCE(after ->> 'requeued', after ->> 'replayed', after ->> 'recalled', after ->> 'resolved', after ->> 'reopened',
		after ->> 'cancelled', after ->> 'released')::bigint`

	// mostSummed is the largest number of batches of an operation whose counts are summed for one row:
	// a page of rows must not read a million items. Beyond it the number is NULL; pane 6 has it.
	mostSummed = "1000"
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
	"actor": {Expr: "a.actor"}, "role": {Expr: "a.db_role"}, "action": {Expr: "a.action", Shown: "replace(replace(regexp_replace(a.action, '^iu_route_', ''), '_replay', '_requeue'), '_', ' ')"}, // with the words of queue.AuditWords
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
