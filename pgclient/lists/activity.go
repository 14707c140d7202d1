package lists

import (
	"context"
	"slices"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// mostActivity is how many sessions fn_queue_activity returns.
const mostActivity = 500

// activity reads the sessions that match the filter; the SQL columns are named like the JSON
// members.
func activity(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	f, err := queue.ParseFilter(q.Filter, queue.ActivityFields())
	if err != nil {
		return filtersql.Error(err)
	}
	if err := stamp(ctx, db, p); err != nil {
		return err
	}
	rows, err := pgrow.Column[queue.Activity](ctx, db, "SELECT to_jsonb(r) FROM public.fn_queue_activity() r")
	if err != nil {
		return err
	}
	p.TotalBound = len(rows) == mostActivity
	rows = slices.DeleteFunc(rows, func(a queue.Activity) bool { return !f.Match(a.Field, p.AsOf) })
	p.Rows, p.Total = rows, int64(len(rows))
	return nil
}
