package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// ConnectionRoom says how many connections of logins without special rights the server and the database
// accept.
type ConnectionRoom struct {
	Database queue.Text // the name of the database, quoted for a statement
	Limit    int        // its CONNECTION LIMIT; -1 = none
	Server   int        // max_connections without those that are reserved for superusers and others
	Used     int        // connections to all databases of the server
}

// Connections reads how many connections the server and the database accept.
func Connections(ctx context.Context, c *pgclient.Client) (ConnectionRoom, error) {
	all, err := read[ConnectionRoom](ctx, c, `SELECT quote_ident(d.datname), d.datconnlimit, current_setting('max_connections')::int4 - current_setting('superuser_reserved_connections')::int4
			- COALESCE(current_setting('reserved_connections', true), '0')::int4,
			(SELECT COALESCE(sum(s.numbackends), 0) FROM pg_stat_database s WHERE s.datid <> 0)::int4
		FROM pg_database d WHERE d.datname = current_database()`)
	if err != nil || len(all) == 0 {
		return ConnectionRoom{}, err
	}
	return all[0], nil
}
