package schema

// This file counts what `migrate down` would destroy.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Each is a count that stops `migrate down`. Names are qualified: with another
// search_path a table would seem not to be installed.
var lossQueries = []struct{ what, sql string }{
	{"webhook sagas under way", `SELECT count(*) FROM public.webhook_delivery_sagas WHERE status NOT IN ('Completed', 'DeadLettered')`},
	{"leased webhook jobs", `SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Leased'`},
	{"open dead letters", `SELECT count(*) FROM public.dead_letter_open`},
	{"unrouted webhook events", `SELECT waiting FROM public.fn_webhook_unrouted()`},
	{"unrouted webhook events of an older release", `SELECT count(*) FROM public.events e, public.router_offsets o
		WHERE to_regclass('public.queue_cursor') IS NULL AND (e.created_xid, e.id) > (o.last_xid, o.last_event_id)`},
	{"unrouted events", `SELECT count(*) FROM public.event_outbox e
		WHERE NOT EXISTS (SELECT 1 FROM public.iu_route_attempt a WHERE a.event_id = e.id)
			AND NOT EXISTS (SELECT 1 FROM public.iu_route_dead_letter d WHERE d.event_id = e.id)`},
	{"open event dead letters", `SELECT count(*) FROM public.iu_route_dead_letter WHERE resolved_at IS NULL`},
	{"jobs not finished", `SELECT count(*) FROM public.job_queue`},
	{"leased jobs", `SELECT count(*) FROM public.job_queue WHERE lease_token IS NOT NULL`},
	{"open job dead letters", `SELECT count(*) FROM public.job_dead_letter WHERE resolved_at IS NULL`},
	{"bulk operations under way", `SELECT count(*) FROM public.queue_bulk_operation WHERE state IN ('planned', 'running', 'paused')`},
	{"staged notifications not processed", `SELECT count(*) FROM public.iu_notification_pending WHERE processed_at IS NULL`},
	{"notifications of new pieces and documents", `SELECT count(*) FROM public.iu_notification_event
		WHERE event_type IN ('new_piece_created', 'document_imported')`},
	{"units with a source document or import batch", `SELECT count(*) FROM public.information_unit
		WHERE source_document_ref IS NOT NULL OR import_batch_ref IS NOT NULL`},
	{"information units with what they say", `SELECT count(*) FROM public.information_unit`},
	{"registered executors of others", `SELECT count(*) FROM public.queue_heartbeat WHERE NOT tick_worker AND deregistered_at IS NULL`},
	{"live worker hosts", `SELECT count(*) FROM public.queue_host
		WHERE stopped_at IS NULL AND last_seen_at > now() - interval '15 seconds'`},
}

// Losses says what `migrate down` would lose, one phrase with a count each;
// what is not installed loses nothing.
func Losses(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	var out []string
	for _, q := range lossQueries {
		var n int64
		err := conn.QueryRow(ctx, q.sql).Scan(&n)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (slices.Contains([]string{"42P01", "42703", "42883"}, pg.Code)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, q.what))
		}
	}
	return out, nil
}
