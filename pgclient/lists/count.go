package lists

// This file counts what a filter matches.

import (
	"context"
	"strconv"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// countRows counts what a filter matches, up to the bound.
func countRows(ctx context.Context, db *pgpool.Pool, from string, b *filtersql.Builder, p *queue.Page) error {
	err := db.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM "+from+b.Clause()+
		" LIMIT "+strconv.Itoa(filtersql.CountBound+1)+") s", b.Args...).Scan(&p.Total)
	if p.Total > filtersql.CountBound {
		p.Total, p.TotalBound = filtersql.CountBound, true
	}
	return err
}
