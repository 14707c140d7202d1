package pgpool

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// The timeouts of each pool. A statement that takes longer is cancelled, and the caller gets an
// error.
const (
	ReadTimeout = 5 * time.Second
	ActTimeout  = queue.ActionTimeout
	WorkTimeout = 60 * time.Second
)

// SetSession sets the application_name and the server-side time limits of a connection, so that a
// client that dies leaves no statement or transaction running.
func SetSession(cc *pgx.ConnConfig, name string, timeout time.Duration) {
	pgsession.LimitConnect(cc, ReadTimeout, ReadTimeout) // every pool has calls that wait no longer
	pgsession.Set(cc, append(pgsession.Always(),
		pgsession.Setting{Name: "application_name", Value: name},
		pgsession.Setting{Name: "timezone", Value: "UTC"},
		pgsession.Setting{Name: "statement_timeout", Value: fmt.Sprint(timeout.Milliseconds())},
		pgsession.Setting{Name: "lock_timeout", Value: fmt.Sprint(min(timeout, 10*time.Second).Milliseconds())},
		pgsession.Setting{Name: "idle_in_transaction_session_timeout", Value: "60000"})...)
}

// sessionLife is how long a connection lives behind a pooler in session mode. Such a pooler gives
// each client connection one of its few server connections, so a busy client must make room for
// others after this time.
const sessionLife = 20 * time.Second

// outdatedAfter is how old a session must be to be replaced because it began while the login or the
// database was read-only. So a caller that goes on trying meanwhile opens no more than one session per
// second and connection of the pool.
const outdatedAfter = time.Second

const (
	bornKey     = "qtop.born"
	outdatedKey = "qtop.outdated" // set when the session began with a setting that may have been reset since
)

// Began records the time at which a connection was made.
func Began(conn *pgx.Conn) { conn.PgConn().CustomData()[bornKey] = time.Now() }

func age(conn *pgx.Conn) time.Duration {
	born, _ := conn.PgConn().CustomData()[bornKey].(time.Time)
	return time.Since(born)
}

// serves reports whether a connection may be used again. A session whose changes were refused, because it
// began while the login or the database was read-only, is replaced: PostgreSQL reads that setting when a
// session begins.
func serves(_ context.Context, conn *pgx.Conn) (bool, error) {
	outdated := conn.PgConn().CustomData()[outdatedKey] != nil
	return !outdated || age(conn) < outdatedAfter, nil
}

// releases closes a released connection that the pool does not keep. Config.AfterRelease could do
// that too, but with it a connection becomes free only some time after its release: a caller that
// reads twice in a row would open a second connection and keep it in use.
type releases struct{ pool *Pool }

// TraceQueryStart does nothing; pgx accepts only a tracer that has this method and TraceQueryEnd.
func (releases) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd does nothing.
func (releases) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceRelease is called before a connection returns to the pool, which drops a closed one.
func (r releases) TraceRelease(_ *pgxpool.Pool, released pgxpool.TraceReleaseData) {
	if !r.pool.keeps(released.Conn) {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		_ = released.Conn.Close(ctx)
	}
}

// closeWithin is how long closing a connection may wait for a pooler that does not answer.
const closeWithin = 100 * time.Millisecond

// keeps reports whether a released connection stays in the pool. It closes connections that are
// not needed: behind a pooler in session mode or of an unknown mode, all but one that is younger
// than sessionLife (in a pool of one or two connections, all); otherwise, after the time spare of
// New, all but one.
func (p *Pool) keeps(conn *pgx.Conn) bool {
	stat := p.Stat()
	if p.route.Pooled() && p.route.Mode() != pgsession.Transaction {
		return stat.MaxConns() > 2 && stat.IdleConns() == 0 && age(conn) < sessionLife
	}
	if p.spare == 0 || stat.TotalConns() < 2 {
		return true
	}
	if stat.AcquiredConns() > 1 {
		p.crowded.Store(time.Now().UnixNano())
	}
	return time.Since(time.Unix(0, p.crowded.Load())) < p.spare
}

// ParseDSN parses a connection string for a session of qtop: see [pgsession.Parse].
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cc, err := pgsession.Parse(dsn)
	if err != nil {
		return nil, pgerror.Connect(err)
	}
	return cc, nil
}
