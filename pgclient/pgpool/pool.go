// Package pgpool provides connection pools that detect a pooler and explain why a change was
// refused, and the limits of their sessions. Start with [New].
package pgpool

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// Pool is a pool of connections, directly or through a pooler: see pgsession.Route. If a pooler is
// detected during a call, the call is repeated on a new connection. If a change is refused because
// the session is read-only, the error says why the session is read-only; if the login lacks a right,
// the error names the login and the roles that have the right.
type Pool struct {
	*pgxpool.Pool
	route    *pgsession.Route
	readOnly bool // the operator has set read_only
	refusal  atomic.Pointer[queue.Error]
	spare    time.Duration
	crowded  atomic.Int64 // when two connections were last in use at once, in Unix nanoseconds
	lackedMu sync.Mutex
	lacked   map[string]*lacks // per object, the right that was found missing
}

// New returns a pool; readOnly makes its sessions read-only. Once at most one connection was in
// use at a time for the duration spare, the pool closes the others; spare 0 = it closes them only
// after MaxConnIdleTime of cfg. That limit alone would close none of them while the pool is in
// regular use, because pgxpool uses all connections in turn.
func New(ctx context.Context, cfg *pgxpool.Config, route *pgsession.Route, readOnly bool, spare time.Duration) (p *Pool, err error) {
	p = &Pool{route: route, readOnly: readOnly, spare: spare, lacked: map[string]*lacks{}}
	cfg.ConnConfig.OnPgError = p.noticed
	cfg.ConnConfig.Tracer = releases{p}
	cfg.PrepareConn = serves
	p.Pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return p, err
}

// noticed is called with each error of the server, before the caller of the statement gets it. It
// returns false if pgx must close the connection.
func (p *Pool) noticed(conn *pgconn.PgConn, e *pgconn.PgError) bool {
	if e.Code == readOnlyCode {
		refusal := pgsession.ReadOnly(conn, p.route)
		if p.readOnly {
			refusal = queue.NewError(queue.KindFailed, "this connection is read-only: read_only is set", "", "leave out read_only to change anything")
		} else if conn.ParameterStatus("default_transaction_read_only") == "on" {
			conn.CustomData()[outdatedKey] = true
		}
		p.refusal.Store(refusal)
	}
	return !strings.EqualFold(e.Severity, "FATAL") // a FATAL error ends the connection
}

const readOnlyCode = "25006"

// Explain adds the cause to the error of a statement that the server refused: what makes the session
// read-only, or which right the login lacks. The methods of Pool do so by themselves; it is for
// statements on a connection from Acquire, after the connection has been released.
func (p *Pool) Explain(err error) error {
	var pg *pgconn.PgError
	if err == nil || !errors.As(err, &pg) {
		return err
	}
	var refusal *queue.Error
	switch pg.Code {
	case readOnlyCode:
		refusal = p.refusal.Load()
	case "42501":
		refusal = p.missingRight(pg)
	}
	if refusal == nil {
		return err
	}
	e := *refusal
	e.Where, e.Err = queue.Clean("SQLSTATE "+pg.Code), err
	return &e
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
	return explainedRows{rows, p}, p.Explain(err)
}

// Planned returns arguments that make PostgreSQL plan the statement for their values. Without this,
// after five executions PostgreSQL may use a generic plan, which would read a page of a large group
// as if the group were small.
func (p *Pool) Planned(args []any) []any {
	if p.Config().ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement { // other modes keep no plan on the server
		return args
	}
	return append([]any{pgx.QueryExecModeCacheDescribe}, args...)
}

// QueryRow runs a statement that returns one row; Scan returns its error.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row(func(into ...any) error {
		err := p.Pool.QueryRow(ctx, sql, args...).Scan(into...)
		if p.route.Learn(err) {
			err = p.Pool.QueryRow(ctx, sql, args...).Scan(into...)
		}
		return p.Explain(err)
	})
}

// Exec runs a statement that returns nothing.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := p.Pool.Exec(ctx, sql, args...)
	if p.route.Learn(err) {
		tag, err = p.Pool.Exec(ctx, sql, args...)
	}
	return tag, p.Explain(err)
}

// Begin starts a transaction.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx starts a transaction.
func (p *Pool) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := p.Pool.BeginTx(ctx, o)
	if p.route.Learn(err) {
		tx, err = p.Pool.BeginTx(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return explainedTx{tx, p}, nil
}

type row func(into ...any) error

func (r row) Scan(into ...any) error { return r(into...) }

type explainedRows struct {
	pgx.Rows
	pool *Pool
}

func (r explainedRows) Err() error { return r.pool.Explain(r.Rows.Err()) }

type explainedTx struct {
	pgx.Tx
	pool *Pool
}

// Rollback rolls the transaction back even if ctx has ended; otherwise the connection of a cancelled
// read would be closed.
func (t explainedTx) Rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer cancel()
	return t.Tx.Rollback(ctx)
}

func (t explainedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := t.Tx.Query(ctx, sql, args...)
	return uncommittedRows{explainedRows{rows, t.pool}}, t.explain(err)
}

// explain marks an error as one before COMMIT, which ends the transaction without effect.
func (t explainedTx) explain(err error) error {
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return pgerror.Uncommitted{Err: t.pool.Explain(err)}
}

type uncommittedRows struct{ explainedRows }

func (r uncommittedRows) Err() error { return explainedTx{pool: r.pool}.explain(r.Rows.Err()) }

func (t explainedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r := t.Tx.QueryRow(ctx, sql, args...)
	return row(func(into ...any) error { return t.explain(r.Scan(into...)) })
}

func (t explainedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := t.Tx.Exec(ctx, sql, args...)
	return tag, t.explain(err)
}
