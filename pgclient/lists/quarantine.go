package lists

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// quarantine reads the rows in quarantine, then the rows that are being retried; within each, the
// oldest first.
func quarantine(ctx context.Context, db *pgpool.Pool, _ queue.Query, p *queue.Page) error {
	rows, err := pgrow.Column[queue.Quarantined](ctx, db, `SELECT pg_catalog.to_jsonb(q) FROM public.queue_quarantine q
		ORDER BY q.set_aside_at IS NULL, q.set_aside_at, q.first_failed_at, q.quarantine_id LIMIT $1`, queue.MostPage)
	p.Rows, p.Total, p.TotalBound = rows, int64(len(rows)), len(rows) == queue.MostPage
	return err
}
