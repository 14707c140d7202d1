package pgpool

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgsession"
)

// The timeouts of each pool. A statement that takes longer is cancelled, and the caller gets an
// error.
const (
	ReadTimeout = 5 * time.Second
	ActTimeout  = 60 * time.Second
	WorkTimeout = 60 * time.Second
)

// SetSession sets the application_name and the server-side limits of a connection: a client that
// dies must not leave a statement or a transaction behind.
func SetSession(cc *pgx.ConnConfig, name string, timeout time.Duration) {
	cc.ConnectTimeout = 5 * time.Second
	pgsession.Set(cc, append(pgsession.Always(),
		pgsession.Setting{Name: "application_name", Value: name},
		pgsession.Setting{Name: "timezone", Value: "UTC"},
		pgsession.Setting{Name: "statement_timeout", Value: fmt.Sprint(timeout.Milliseconds())},
		pgsession.Setting{Name: "lock_timeout", Value: fmt.Sprint(min(timeout, 10*time.Second).Milliseconds())},
		pgsession.Setting{Name: "idle_in_transaction_session_timeout", Value: "60000"})...)
}

// sessionLife is how long a connection lives behind a pooler in session mode, which assigns one
// of its few server connections to each client connection: a busy client makes room for others
// after this time.
const sessionLife = 20 * time.Second

const bornKey = "qtop.born"

// Began records when a connection was made.
func Began(conn *pgx.Conn) { conn.PgConn().CustomData()[bornKey] = time.Now() }

// Keeps reports whether a released connection remains in the pool. Behind a pooler that is not
// known to be in transaction mode, at most one does, and none of a small pool.
func (p *Pool) Keeps(conn *pgx.Conn) bool {
	if !p.route.Pooled() || p.route.Mode() == pgsession.Transaction {
		return true
	}
	born, _ := conn.PgConn().CustomData()[bornKey].(time.Time)
	stat := p.Stat()
	return stat.MaxConns() > 2 && stat.IdleConns() == 0 && time.Since(born) < sessionLife
}

// ParseDSN parses a connection string for a session of qtop: see [pgsession.Parse].
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cc, err := pgsession.Parse(dsn)
	if err != nil {
		return nil, pgerror.Connect(err)
	}
	return cc, nil
}
