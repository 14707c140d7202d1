package pgsession

// A connection string is checked before any name is looked up: if the driver parsed it otherwise
// than the operator meant, a part of a password could be sent to the name resolver.

import (
	"os"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// judge refuses a connection string that can be parsed in two ways, before a driver or a resolver
// sees it, and one for which libpq would take the server from a variable that the driver does not read.
func judge(dsn string) error {
	hosts := secrecy.Parameter(dsn, "host") + secrecy.Parameter(dsn, "service") + os.Getenv("PGHOST") + os.Getenv("PGSERVICE")
	if _, rest, isURL := strings.Cut(dsn, "://"); isURL { // USER@HOST:PORT/DATABASE?…
		authority := rest
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			authority = rest[:end]
		}
		host, _, _ := strings.Cut(authority[strings.LastIndexByte(authority, '@')+1:], ":")
		hosts += host
	}
	if hosts == "" && os.Getenv("PGHOSTADDR") != "" {
		return queue.NewError(queue.KindConfig, "nothing names the server but PGHOSTADDR, which qtop's driver does not read: it would connect to this machine", "env PGHOSTADDR", "write the address into PGHOST")
	}
	what, do := secrecy.CheckDSN(dsn)
	if what == "" {
		return nil
	}
	return queue.NewError(queue.KindConfig, "the connection string "+what, "dsn", do)
}

// libpqOnly lists parameters of libpq that the driver does not have. It would send them to the server
// as settings, which refuses them without saying where they come from.
var libpqOnly = []string{
	"fallback_application_name", "gssdelegation", "gssencmode", "gsslib", "hostaddr", "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval",
	"load_balance_hosts", "replication", "requirepeer", "requiressl", "scram_client_key", "scram_server_key", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcompression",
	"sslcrl", "sslcrldir", "sslkeylogfile", "tcp_user_timeout", "oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope",
}

// judgeParts checks the hosts, the user, the database and the names of the parameters that result from
// the connection string, the environment and a service file.
func judgeParts(cc *pgx.ConnConfig) error {
	for _, name := range libpqOnly {
		if _, has := cc.RuntimeParams[name]; has {
			do := "take it out"
			if name == "hostaddr" {
				do = "write the address as host"
			}
			return queue.NewError(queue.KindConfig, "the connection has the parameter "+name+" of libpq, which qtop's driver does not know", "dsn or service file", do)
		}
	}
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
