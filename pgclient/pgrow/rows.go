package pgrow

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Each returns one T per row, made by read.
func Each[T any](ctx context.Context, q Querier, read pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, read)
}

// All returns one T per row; the exported fields of T are in the order of the columns.
func All[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	return Each(ctx, q, pgx.RowToStructByPos[T], sql, args...)
}

// Column returns the values of a query's single column.
func Column[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	return Each(ctx, q, pgx.RowTo[T], sql, args...)
}

// Visit scans each row into the same variables, and then calls visit.
func Visit(ctx context.Context, q Querier, into []any, visit func(), sql string, args ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error { visit(); return nil })
	return err
}
