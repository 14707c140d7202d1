package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// read runs a query in the pool for reading; the exported fields of T must be in the order of the
// columns.
func read[T any](ctx context.Context, c *pgclient.Client, sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	all, err := pgrow.All[T](ctx, c.Read(), sql, args...)
	return all, pgerror.Translate(err)
}

// counted runs a query whose rows have a name and the length of the whole list, of which the query
// returns only the first names.
func counted(ctx context.Context, c *pgclient.Client, sql string) (names []queue.Text, n int64, err error) {
	rows, err := read[struct {
		Name queue.Text
		Of   int64
	}](ctx, c, sql)
	for _, r := range rows {
		names, n = append(names, r.Name), r.Of
	}
	return names, n, err
}
