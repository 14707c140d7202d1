package pgclient

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgsession"
)

// Pool is a pool of connections, directly or through a pooler: see pgsession.Route.
// A call that finds out about a pooler connects again.
type Pool struct {
	*pgxpool.Pool
	route *pgsession.Route
}

// Acquire takes a connection out of the pool.
func (p *Pool) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := p.Pool.Acquire(ctx)
	if p.route.Learn(err) {
		conn, err = p.Pool.Acquire(ctx)
	}
	return conn, err
}

// Query runs a statement that returns rows.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.Pool.Query(ctx, sql, args...)
	if p.route.Learn(err) {
		rows, err = p.Pool.Query(ctx, sql, args...)
	}
	return rows, err
}

// QueryRow runs a statement that returns one row; errors come with its Scan.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row(func(into ...any) error {
		err := p.Pool.QueryRow(ctx, sql, args...).Scan(into...)
		if p.route.Learn(err) {
			err = p.Pool.QueryRow(ctx, sql, args...).Scan(into...)
		}
		return err
	})
}

type row func(into ...any) error

func (r row) Scan(into ...any) error { return r(into...) }

// Exec runs a statement that returns nothing.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := p.Pool.Exec(ctx, sql, args...)
	if p.route.Learn(err) {
		tag, err = p.Pool.Exec(ctx, sql, args...)
	}
	return tag, err
}

// Begin starts a transaction.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx starts a transaction.
func (p *Pool) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := p.Pool.BeginTx(ctx, o)
	if p.route.Learn(err) {
		tx, err = p.Pool.BeginTx(ctx, o)
	}
	return tx, err
}
