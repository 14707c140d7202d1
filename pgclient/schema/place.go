package schema

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// Place is the database that a session works on.
type Place struct {
	Database queue.Text `json:"database"`
	Address  queue.Text `json:"address"` // host:port of the server that answered, or "local socket"
}

func (p Place) String() string {
	return "database " + p.Database.String() + " at " + p.Address.String()
}

// ReadPlace asks the server for the name of the database, because a pooler may have another one
// behind the name in the connection string. route is that of the connection.
func ReadPlace(ctx context.Context, conn *pgx.Conn, route *pgsession.Route) (Place, error) {
	p := Place{Address: queue.Clean(secrecy.Mask(cmp.Or(route.Address(conn), "local socket")))}
	err := conn.QueryRow(ctx, "SELECT pg_catalog.current_database()").Scan(&p.Database)
	return p, err
}

// connect opens a session on a server that takes changes, and calls connected, unless it is nil.
func connect(ctx context.Context, dsn string, connected func(Place)) (*pgx.Conn, error) {
	route := &pgsession.Route{}
	conn, err := route.ConnectToWrite(ctx, dsn)
	if err != nil || connected == nil {
		return conn, err
	}
	place, err := ReadPlace(ctx, conn, route)
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	connected(place)
	return conn, nil
}
