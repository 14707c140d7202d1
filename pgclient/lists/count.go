package lists

import (
	"context"
	"strconv"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// countRows counts the rows that match a filter, up to filtersql.CountBound.
func countRows(ctx context.Context, db *pgpool.Pool, from string, b *filtersql.Builder, p *queue.Page) error {
	err := db.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM "+from+b.Clause()+
		" LIMIT "+strconv.Itoa(filtersql.CountBound+1)+") s", db.Planned(b.Args)...).Scan(&p.Total)
	if p.Total > filtersql.CountBound {
		p.Total, p.TotalBound = filtersql.CountBound, true
	}
	return err
}

// readByNumber reads a page of rows with descending numbers, and counts the rows. number is the
// SQL of the number, of returns it from a row; read gets the part of the query after the FROM
// clause.
func readByNumber[T any](ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page, b *filtersql.Builder, from, number string,
	of func(T) int64, read func(rest string) ([]T, error)) error {
	count := b.Clone()
	if err := b.Before(number, q.After); err != nil {
		return err
	}
	rows, err := read(b.Clause() + " ORDER BY " + number + " DESC LIMIT " + strconv.Itoa(q.Limit))
	if err != nil {
		return err
	}
	p.Rows = rows
	if n := len(rows); n == q.Limit {
		p.Next = strconv.FormatInt(of(rows[n-1]), 10)
	}
	if q.Bare {
		return nil
	}
	return countRows(ctx, db, from, count, p)
}
