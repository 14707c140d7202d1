package pgsession

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// ReadOnly returns an error that says why the server refuses changes on a connection; nil = it does
// not. When a standby is promoted, PostgreSQL notifies its clients, but a pooler does not forward
// that.
func ReadOnly(conn *pgconn.PgConn, route *Route) *queue.Error {
	refuse := func(what, do string) *queue.Error {
		return queue.NewError(queue.KindFailed, what, "", do)
	}
	switch {
	case route.Pooled():
		return refuse("this session is read-only, and what makes it so cannot be seen through the pooler",
			"qtop doctor says whether the server is a standby, or the login or the database is read-only; once that is reset, RECONNECT in the pooler")
	case conn.ParameterStatus("in_hot_standby") == "on":
		return refuse("this server is a standby, which accepts no change", "connect to the primary")
	case conn.ParameterStatus("default_transaction_read_only") == "on":
		return refuse("this session is read-only: default_transaction_read_only is on for the login "+conn.ParameterStatus("session_authorization")+
			", the database or the server", "qtop doctor names where it is set; reset it there, or use another login")
	}
	return refuse("this transaction is read-only", "run it in a transaction that may write")
}

// Writable returns an error if the server refuses changes on a connection.
func Writable(conn *pgx.Conn, route *Route) error {
	c := conn.PgConn()
	if c.ParameterStatus("in_hot_standby") != "on" && c.ParameterStatus("default_transaction_read_only") != "on" {
		return nil
	}
	e := ReadOnly(c, route)
	e.Where = queue.Clean("database " + conn.Config().Database)
	return e
}
