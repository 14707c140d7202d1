package schema

// The data that `migrate down` would delete: counts and names.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// Each query counts unfinished work that stops `migrate down`. Table names are qualified: under
// another search_path a table would seem not to be installed.
var lostWorkQueries = []struct{ one, many, sql string }{
	{"webhook saga under way", "webhook sagas under way", `SELECT count(*) FROM public.webhook_delivery_sagas WHERE status NOT IN ('Completed', 'DeadLettered')`},
	{"leased webhook job", "leased webhook jobs", `SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Leased'`},
	{"open dead letter", "open dead letters", `SELECT count(*) FROM public.dead_letter_open`},
	{"unrouted webhook event", "unrouted webhook events", `SELECT waiting FROM public.fn_webhook_unrouted()`},
	{"unrouted webhook event of an older release", "unrouted webhook events of an older release", `SELECT count(*) FROM public.events e, public.router_offsets o
		WHERE to_regclass('public.queue_cursor') IS NULL AND (e.created_xid, e.id) > (o.last_xid, o.last_event_id)`},
	{"unrouted event", "unrouted events", `SELECT count(*) FROM public.event_outbox e
		WHERE NOT EXISTS (SELECT 1 FROM public.iu_route_attempt a WHERE (a.event_id, a.event_domain, a.event_type) = (e.id, e.event_domain, e.event_type))
			AND NOT EXISTS (SELECT 1 FROM public.iu_route_dead_letter d WHERE d.event_id = e.id AND d.event_domain = e.event_domain
				AND COALESCE((d.event_snapshot ->> 'created_at')::timestamptz, e.created_at) = e.created_at)`},
	{"open event dead letter", "open event dead letters", `SELECT count(*) FROM public.iu_route_dead_letter WHERE resolved_at IS NULL`},
	{"job not finished", "jobs not finished", `SELECT count(*) FROM public.job_queue`},
	{"leased job", "leased jobs", `SELECT count(*) FROM public.job_queue WHERE lease_token IS NOT NULL`},
	{"open job dead letter", "open job dead letters", `SELECT count(*) FROM public.job_dead_letter WHERE resolved_at IS NULL`},
	{"bulk operation under way", "bulk operations under way", `SELECT count(*) FROM public.queue_bulk_operation WHERE state IN ('planned', 'running', 'paused')`},
	{"staged notification not processed", "staged notifications not processed", `SELECT count(*) FROM public.iu_notification_pending WHERE processed_at IS NULL`},
	{"notification of new pieces and documents", "notifications of new pieces and documents", `SELECT count(*) FROM public.iu_notification_event
		WHERE event_type IN ('new_piece_created', 'document_imported')`},
	{"unit with a source document or import batch", "units with a source document or import batch", `SELECT count(*) FROM public.information_unit
		WHERE source_document_ref IS NOT NULL OR import_batch_ref IS NOT NULL`},
	{"information unit with what it says", "information units with what they say", `SELECT count(*) FROM public.information_unit`},
	{"registered executor of others", "registered executors of others", `SELECT count(*) FROM public.queue_heartbeat WHERE NOT tick_worker AND deregistered_at IS NULL`},
	{"live worker host", "live worker hosts", `SELECT count(*) FROM public.queue_host
		WHERE stopped_at IS NULL AND last_seen_at BETWEEN now() - interval '15 seconds' AND clock_timestamp() + interval '5 seconds'`},
}

// lostWork returns phrases with counts of the unfinished work that `migrate down` would delete. A
// table that is not installed counts as empty.
func lostWork(ctx context.Context, tx pgx.Tx) ([]string, error) {
	var out []string
	for _, q := range lostWorkQueries {
		var n int64
		err := ifInstalled(ctx, tx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, q.sql).Scan(&n) })
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, queue.Plural(n, q.one, q.many))
		}
	}
	return out, nil
}

// ifInstalled calls read in a savepoint, and returns no error if read needs a table, column or
// function that an older version does not have.
func ifInstalled(ctx context.Context, tx pgx.Tx, read func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, tx, read)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && slices.Contains([]string{"42P01", "42703", "42883"}, pg.Code) {
		return nil
	}
	return err
}

// Each query returns the names of the rows that operators configured, that is, rows that a new
// installation does not have.
var configuredQueries = []struct{ one, many, sql string }{
	{"webhook subscription", "webhook subscriptions", `SELECT format('%s (%s)', s.id, s.event_type) FROM public.subscriptions s ORDER BY s.id`},
	{"suspended endpoint", "suspended endpoints", `SELECT x.subscription_id::text FROM public.webhook_endpoint_suspensions x ORDER BY x.subscription_id`},
	{"event subscription", "event subscriptions", `SELECT format('%s (%s)', e.subscription_id, e.recipient_ref) FROM public.event_subscription e
		WHERE e.mute OR e.scope_subject_table IS NOT NULL OR e.scope_filter <> '{}'
			OR (e.recipient_ref, COALESCE(e.event_domain, ''), COALESCE(e.event_type, ''), COALESCE(e.event_stream, '')) NOT IN (VALUES
				('role:health_owner', 'system', 'issue_opened', ''), ('role:health_owner', 'system', 'issue_resolved', ''), ('agency:sysop', '', '', 'alert'),
				('role:workflow_admin', 'staging', '', 'birth'), ('role:workflow_admin', 'staging', '', 'update'), ('role:dot_executor', 'dot', '', ''),
				('agency:integrity', 'health', '', 'alert'), ('role:kg_indexer', 'kg', '', ''), ('role:auto_instantiator', 'iu', 'template.instance_auto_composed', 'update'))
		ORDER BY e.subscription_id`},
	{"consumer", "consumers", `SELECT c.consumer_id FROM public.consumer_registry c ORDER BY 1`},
	{"event route", "event routes", `SELECT o.event_domain FROM public.iu_outbound_route o WHERE NOT o.enabled OR o.updated_by <> 'migration' ORDER BY 1`},
	{"event type", "event types", `SELECT format('%s/%s', t.event_domain, t.event_type) FROM public.event_type_registry t
		WHERE (t.event_domain, t.event_type) NOT IN (VALUES ('system', 'queue_worker_silent'), ('system', 'subscription_broadcast_high')) ORDER BY 1`},
	{"job subscription", "job subscriptions", `SELECT format('%s (%s)', j.subscription_id, j.executor_id) FROM public.job_subscription j ORDER BY j.executor_id, j.subscription_id`},
	{"producer of executor kinds", "producers of executor kinds", `SELECT format('%s (%s)', p.executor_kind, p.producer_role) FROM public.executor_producer p ORDER BY 1`},
	{"flag that was changed", "flags that were changed", `SELECT c.key FROM public.dot_config c LEFT JOIN public.dot_config_rule r USING (key)
		WHERE c.value IS DISTINCT FROM r.default_value ORDER BY 1`},
}

// configured returns the rows that operators configured: one phrase with their names per query.
func configured(ctx context.Context, tx pgx.Tx) ([]string, error) {
	var out []string
	for _, q := range configuredQueries {
		var names []string
		err := ifInstalled(ctx, tx, func(tx pgx.Tx) (err error) {
			names, err = pgrow.Column[string](ctx, tx, q.sql)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			out = append(out, queue.Plural(len(names), q.one, q.many)+": "+strings.Join(names, ", "))
		}
	}
	return out, nil
}

// countedRows is the number up to which the rows of a table are counted; larger tables are shown as
// having more.
const countedRows = 1_000_000

// tableRows counts the rows of each non-empty table that Down takes back with these migrations.
func tableRows(ctx context.Context, tx pgx.Tx, set roleSet, back []migration) ([]string, error) {
	tables, err := pgrow.Column[string](ctx, tx, `SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
		AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relowner = to_regrole($1) ORDER BY 1`, set.owner())
	if err != nil {
		return nil, err
	}
	var down strings.Builder
	for _, m := range back {
		down.WriteString(m.down + "\n")
	}
	var out []string
	for _, table := range tables {
		if !strings.Contains(down.String(), "DROP TABLE public."+table+";") { // as a partition that somebody detached
			continue
		}
		var n int64
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT FROM public.%s LIMIT %d) x", pgx.Identifier{table}.Sanitize(), countedRows+1)).Scan(&n); err != nil {
			return nil, err
		}
		switch {
		case n > countedRows:
			out = append(out, fmt.Sprintf("%s more than %d", table, countedRows))
		case n > 0:
			out = append(out, fmt.Sprintf("%s %d", table, n))
		}
	}
	return out, nil
}
