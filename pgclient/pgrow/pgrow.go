// Package pgrow reads rows that lists show and previews are made of.
package pgrow

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Operations reads operations, newest first.
func Operations(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, where string, args ...any) ([]queue.Operation, error) {
	rows, err := q.Query(ctx, `SELECT o.operation_id, o.kind, o.filter, o.created_by, o.created_at, o.reason, o.state, o.state_why, o.state_by,
		o.state_at, o.started_at, o.rate_per_second::float8, o.brake_percent, o.canary, o.canary_passed, o.frozen_count, o.done,
		o.skipped, o.failed, o.undone, o.first_ok, o.first_failed
		FROM public.queue_bulk_operation o `+where, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.Operation, error) {
		var o queue.Operation
		err := row.Scan(&o.ID, &o.Kind, pgscan.Text(&o.Filter), pgscan.Text(&o.CreatedBy), &o.CreatedAt, pgscan.Text(&o.Reason), &o.State,
			pgscan.Text(&o.StateWhy), pgscan.Text(&o.StateBy), &o.StateAt, &o.StartedAt, &o.Rate, &o.Brake, &o.Canary, &o.CanaryPassed, &o.Frozen,
			&o.Done, &o.Skipped, &o.Failed, &o.Undone, &o.FirstOK, &o.FirstFailed)
		return o, err
	})
}

// EventRuleColumns are what EventRule scans, of public.event_subscription s.
const EventRuleColumns = `s.subscription_id, s.recipient_ref, s.event_domain, s.event_type, s.event_stream, s.scope_subject_table, s.scope_filter::text, s.mute`

// EventRule is where those columns go.
func EventRule(s *queue.EventSubscription) []any {
	return []any{
		&s.ID, pgscan.Text(&s.Recipient), pgscan.Text(&s.Domain), pgscan.Text(&s.Type), pgscan.Text(&s.Stream), pgscan.Text(&s.SubjectTable),
		pgscan.Text(&s.Filter), &s.Mute,
	}
}
