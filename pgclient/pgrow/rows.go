package pgrow

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Each makes a T of each row.
func Each[T any](ctx context.Context, q Querier, read pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, read)
}

// All makes a T of each row; the exported fields of T are in the order of the columns.
func All[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	return Each(ctx, q, pgx.RowToStructByPos[T], sql, args...)
}

// Column reads the single column of a query.
func Column[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	return Each(ctx, q, pgx.RowTo[T], sql, args...)
}

// Visit reads the rows one after the other into the same values.
func Visit(ctx context.Context, q Querier, into []any, visit func(), sql string, args ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error { visit(); return nil })
	return err
}
