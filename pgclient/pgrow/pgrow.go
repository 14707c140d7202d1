// Package pgrow reads rows into values, for lists and previews. Start with [All] and [Each].
package pgrow

import (
	"context"

	"github.com/qtop/qtop/pgclient/queue"
)

// Operations reads bulk operations, newest first. where follows the FROM clause, in which they are
// o.
func Operations(ctx context.Context, q Querier, where string, args ...any) ([]queue.Operation, error) {
	return All[queue.Operation](ctx, q, `SELECT o.operation_id, o.kind, o.filter, o.created_by, o.created_at, o.reason, o.state, o.state_why, o.state_by,
		o.state_at, o.started_at, o.rate_per_second::float8, o.brake_percent, o.canary, o.canary_passed, o.frozen_count,
		o.requeued, public.fn_queue_bulk_sent(o.operation_id, o.done), o.done, o.skipped, o.failed, o.undone, o.first_ok, o.first_failed, o.waits
		FROM public.queue_bulk_operation o `+where, args...)
}

// EventSubscriptionColumns lists the columns of a queue.EventSubscription, from public.event_subscription
// s.
const EventSubscriptionColumns = `s.subscription_id, s.recipient_ref, s.event_domain, s.event_type, s.event_stream, s.scope_subject_table, s.scope_filter::text, s.mute`
