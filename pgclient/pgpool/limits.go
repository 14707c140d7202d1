package pgpool

// This file is how long a session may take, and what it is called.

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgsession"
)

// Deadlines of each pool: a statement that takes longer is the server's
// trouble, and the caller is told.
const (
	ReadTimeout = 5 * time.Second
	ActTimeout  = 60 * time.Second
	WorkTimeout = 60 * time.Second
)

// SetSession sets the name and the server-side limits of a connection: a client
// that dies must not leave a statement or a transaction behind.
func SetSession(cc *pgx.ConnConfig, name string, timeout time.Duration) {
	cc.ConnectTimeout = 5 * time.Second
	pgsession.Set(cc, append(pgsession.Always(),
		pgsession.Setting{Name: "application_name", Value: name},
		pgsession.Setting{Name: "timezone", Value: "UTC"},
		pgsession.Setting{Name: "statement_timeout", Value: fmt.Sprint(timeout.Milliseconds())},
		pgsession.Setting{Name: "lock_timeout", Value: fmt.Sprint(min(timeout, 10*time.Second).Milliseconds())},
		pgsession.Setting{Name: "idle_in_transaction_session_timeout", Value: "60000"})...)
}

// sessionLife is how long a connection lives behind a pooler in session mode, which
// gives each one of the few that it has to the server: what is always busy makes
// room for others after a while.
const sessionLife = 20 * time.Second

const bornKey = "qtop.born"

// Began notes when a connection was made.
func Began(conn *pgx.Conn) { conn.PgConn().CustomData()[bornKey] = time.Now() }

// Keeps tells whether a released connection stays in the pool. Behind a pooler that
// is not known to be in transaction mode it is one at most, and none of a small pool.
func (p *Pool) Keeps(conn *pgx.Conn) bool {
	if !p.route.Pooled() || p.route.Mode() == pgsession.Transaction {
		return true
	}
	born, _ := conn.PgConn().CustomData()[bornKey].(time.Time)
	stat := p.Stat()
	return stat.MaxConns() > 2 && stat.IdleConns() == 0 && time.Since(born) < sessionLife
}

// ParseDSN reads a connection string for a session of ours: see [pgsession.Parse].
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cc, err := pgsession.Parse(dsn)
	if err != nil {
		return nil, pgerror.Connect(err)
	}
	return cc, nil
}
