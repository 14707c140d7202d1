package pgsession

// A connection string is checked before any name is looked up: if the driver parsed it otherwise
// than the operator meant, a part of a password could be sent to the name resolver.

import (
	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// judge refuses a connection string that can be parsed in two ways, before a driver or a resolver
// sees it.
func judge(dsn string) error {
	what, do := secrecy.CheckDSN(dsn)
	if what == "" {
		return nil
	}
	return queue.NewError(queue.KindConfig, "the connection string "+what, "dsn", do)
}

// judgeParts checks the hosts, the user and the database that result from the connection string,
// the environment and a service file.
func judgeParts(cc *pgx.ConnConfig) error {
	what, do := secrecy.CheckHost(cc.Host)
	for _, f := range cc.Fallbacks {
		if what == "" {
			what, do = secrecy.CheckHost(f.Host)
		}
	}
	for _, name := range []string{cc.User, cc.Database} {
		if what == "" {
			what, do = secrecy.CheckName(name)
		}
	}
	if what == "" {
		return nil
	}
	return queue.NewError(queue.KindConfig, "the connection "+what, "dsn, PG* variables or service file", do)
}
