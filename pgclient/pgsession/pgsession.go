// Package pgsession is the one place that says how a session with PostgreSQL
// begins. What a login, a database, an environment or a connection string brings
// along must not change what a statement means: PostgreSQL finds functions,
// operators, types and tables along search_path, so each session has one in which
// nobody but a superuser can put anything. Statements name all else with its
// schema. Each session speaks UTF-8, and a database with another encoding is refused
// before it is used: see Encoding.
package pgsession

import (
	"context"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/queue"
)

// Setting is a parameter of a session.
type Setting struct{ Name, Value string }

// Path is the search_path of every session and of every function of ours.
// pg_temp stands last: where it is not named it is looked at first.
const Path = "pg_catalog, pg_temp"

// Always are the settings of every session, whatever it is for.
func Always() []Setting {
	return []Setting{
		{"search_path", Path},
		{"client_encoding", "UTF8"},
		{"standard_conforming_strings", "on"},
		{"datestyle", "ISO, MDY"},
		{"intervalstyle", "postgres"},
		{"default_transaction_isolation", "read committed"},
	}
}

// Parse reads a connection string for a session of ours. Without an sslmode of the
// operator's own, anything but loopback and sockets is verified in full: also where a
// service file or PG* variables name the host. What a service file says of sslmode holds,
// other than prefer, which is what the driver takes where nobody says anything. An sslmode
// prefer or allow of the operator's own encrypts there too: see requireTLS.
func Parse(dsn string) (*pgx.ConnConfig, error) {
	if err := judge(dsn); err != nil {
		return nil, err
	}
	cc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if err := judgeParts(cc); err != nil {
		return nil, err
	}
	words := quoted.ReplaceAllStringFunc(dsn, func(s string) string { return queue.Choose(s == "''", s, "'x'") })
	explicit := explicitTLS.MatchString(words) || os.Getenv("PGSSLMODE") != ""
	if !explicit && prefersTLS(cc) {
		if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
			dsn += queue.Choose(strings.Contains(dsn, "?"), "&", "?") + "sslmode=verify-full"
		} else { // in front, where no backslash or quote swallows it
			dsn = "sslmode=verify-full " + dsn
		}
		if cc, err = pgx.ParseConfig(dsn); err != nil {
			return nil, err
		}
		if prefersTLS(cc) { // an empty word of the operator's own is the one that the driver takes
			return nil, queue.NewError(queue.KindConfig, "the connection string has an sslmode without a value", "dsn",
				"give it one, such as verify-full, or leave it out")
		}
	}
	requireTLS(cc)
	Set(cc, Always()...)
	return cc, nil
}

// requireTLS takes out the attempts without TLS that sslmode prefer and allow make
// beside those with it, except to loopback and sockets: an attacker in the network could
// refuse TLS and read the plain attempt. An operator who wants no TLS writes disable.
func requireTLS(cc *pgx.ConnConfig) {
	all := append([]*pgconn.FallbackConfig{{Host: cc.Host, Port: cc.Port, TLSConfig: cc.TLSConfig}}, cc.Fallbacks...)
	encrypts := func(f *pgconn.FallbackConfig) bool {
		return slices.ContainsFunc(all, func(o *pgconn.FallbackConfig) bool {
			return o.TLSConfig != nil && o.Host == f.Host && o.Port == f.Port
		})
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(f *pgconn.FallbackConfig) bool {
		return f.TLSConfig == nil && !Local(f.Host) && encrypts(f)
	})
	if len(kept) < len(all) {
		cc.Host, cc.Port, cc.TLSConfig, cc.Fallbacks = kept[0].Host, kept[0].Port, kept[0].TLSConfig, kept[1:]
	}
}

// Set gives parameters to the sessions of a configuration, in place of what its
// connection string says. Sent by name when a session starts, they also win over
// `options`, over the settings of the role and over those of the database.
func Set(cc *pgx.ConnConfig, settings ...Setting) {
	for _, s := range settings {
		for have := range cc.RuntimeParams { // the server does not look at the case of a name
			if strings.EqualFold(have, s.Name) {
				delete(cc.RuntimeParams, have)
			}
		}
		cc.RuntimeParams[s.Name] = s.Value
	}
}

// Connect opens one session.
func Connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	cc, err := Parse(dsn)
	if err != nil {
		return nil, err
	}
	return (&Route{}).Connect(ctx, cc)
}

// PoolConfig is the configuration of a pool of such sessions; its size and the
// other settings are the caller's.
func PoolConfig(dsn string) (*pgxpool.Config, error) {
	cc, err := Parse(dsn)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig = cc
	return cfg, nil
}

// An sslmode of the operator's own, in either form of a DSN. A value that merely
// contains the word is none, and neither is one without a value, which the driver takes
// for prefer.
var explicitTLS = regexp.MustCompile(`(?:^|[\s?&])sslmode\s*=\s*(?:[^\s&']|'x')`)

// quoted is a value in quotes, which may hold anything, or a character behind a backslash.
var quoted = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|\\.`)

// prefersTLS tells whether a host is reached over a network without TLS where it
// refuses TLS.
func prefersTLS(cc *pgx.ConnConfig) bool {
	encrypted := cc.TLSConfig != nil && !Local(cc.Host)
	for _, f := range cc.Fallbacks {
		if f.TLSConfig == nil && encrypted && !Local(f.Host) {
			return true
		}
		encrypted = encrypted || f.TLSConfig != nil && !Local(f.Host)
	}
	return false
}

// Local tells a host that is reached by a socket or loopback.
func Local(host string) bool {
	if host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
