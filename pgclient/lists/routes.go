package lists

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func routes(ctx context.Context, db *pgpool.Pool, _ queue.Query, p *queue.Page) error {
	routes, err := pgrow.All[queue.Route](ctx, db, `SELECT r.event_domain, r.worker_name, r.enabled, c.last_run_at, COALESCE(c.events_seen, 0), COALESCE(c.attempts_written, 0),
		COALESCE(c.dead_lettered, 0), b.waiting, b.oldest_at, r.updated_at, r.updated_by
		FROM public.iu_outbound_route r JOIN public.fn_iu_route_backlog() b USING (event_domain)
		LEFT JOIN public.iu_route_worker_cursor c ON c.worker_name = r.worker_name AND c.event_domain = r.event_domain ORDER BY 1`)
	p.Rows, p.Total = routes, int64(len(routes))
	return err
}

func consumers(ctx context.Context, db *pgpool.Pool, _ queue.Query, p *queue.Page) error {
	consumers, err := pgrow.All[queue.Consumer](ctx, db, `SELECT consumer_id, event_domain, event_type, job_kind, executor, enabled, updated_at, updated_by
		FROM public.consumer_registry ORDER BY event_domain, event_type, consumer_id`)
	p.Rows, p.Total = consumers, int64(len(consumers))
	return err
}

func eventTypes(ctx context.Context, db *pgpool.Pool, _ queue.Query, p *queue.Page) error {
	types, err := pgrow.All[queue.EventType](ctx, db, `SELECT event_domain, event_type, event_stream, delivery_lane, COALESCE(worker_name, ''), active, description
		FROM public.event_type_registry ORDER BY event_domain, event_type`)
	p.Rows, p.Total = types, int64(len(types))
	return err
}

func producers(ctx context.Context, db *pgpool.Pool, _ queue.Query, p *queue.Page) error {
	roles, err := pgrow.All[queue.ProducerRole](ctx, db, `SELECT k.kind, COALESCE(e.producer_role, '') FROM unnest($1::text[]) WITH ORDINALITY k (kind, n)
		LEFT JOIN public.executor_producer e ON e.executor_kind = k.kind ORDER BY k.n, 2`, queue.ExecutorKinds())
	p.Rows, p.Total = roles, int64(len(roles))
	return err
}
