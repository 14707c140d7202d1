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

// ParseDSN reads a connection string for a session of ours: see [pgsession.Parse].
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cc, err := pgsession.Parse(dsn)
	if err != nil {
		return nil, pgerror.Connect(err)
	}
	return cc, nil
}
