// Package pgsession defines how every session with PostgreSQL begins. Start with [Parse] and
// [PoolConfig], or [Connect]; [Route] handles poolers.
//
// Settings of the login, the database, the environment or the connection string must not change
// what a statement means. PostgreSQL finds functions, operators, types and tables along
// search_path, so each session gets a search_path to which only a superuser can add objects.
// Statements qualify all other names with their schema. Each session uses UTF-8, and a database
// with another encoding is refused before it is used: see Encoding.
package pgsession

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/queue"
)

// Setting is a parameter of a session.
type Setting struct{ Name, Value string }

// Path is the search_path of every session and of every function of qtop. pg_temp is named last:
// otherwise PostgreSQL would search it first.
const Path = "pg_catalog, pg_temp"

// Always are the settings of every session.
func Always() []Setting {
	return []Setting{
		{"search_path", Path},
		{"client_encoding", "UTF8"},
		{"standard_conforming_strings", "on"},
		{"datestyle", "ISO, MDY"},
		{"intervalstyle", "postgres"},
		{"default_transaction_isolation", "read committed"},
		{"jit", "off"}, // compiling a query takes longer than our queries run, and is done again for each run
	}
}

// Parse parses a connection string for a session of qtop. If the operator sets no sslmode,
// every connection except loopback and sockets uses verify-full, also if a service file or PG*
// variables name the host. An sslmode from a service file applies, except prefer, which is
// indistinguishable from the driver's default. With the operator's sslmode prefer or allow,
// connections over a network are encrypted too: see requireTLS.
func Parse(dsn string) (*pgx.ConnConfig, error) {
	if err := judge(dsn); err != nil {
		return nil, err
	}
	cc, err := parse(dsn)
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
		} else { // sslmode goes first, so that no backslash or quote of the operator's text can absorb it
			dsn = "sslmode=verify-full " + dsn
		}
		if cc, err = parse(dsn); err != nil {
			return nil, err
		}
		if prefersTLS(cc) { // an sslmode without a value means prefer to the driver
			return nil, queue.NewError(queue.KindConfig, "the connection string has an sslmode without a value", "dsn",
				"give it one, such as verify-full, or leave it out")
		}
	}
	requireTLS(cc)
	cc.DialFunc = dial
	Set(cc, Always()...)
	return cc, nil
}

// parse is the driver's parser, which reads the password, service, key and certificate files, within a time limit.
func parse(dsn string) (*pgx.ConnConfig, error) {
	cc, err := fileguard.Within(func() (*pgx.ConnConfig, error) { return pgx.ParseConfig(dsn) })
	if errors.Is(err, fileguard.ErrNoAnswer) {
		return nil, queue.NewError(queue.KindConfig, "a password, service, key or certificate file of the connection cannot be read: "+err.Error(), "dsn",
			"repair that file system, or name other files: passfile, servicefile, sslkey, sslcert, sslrootcert, or the PG* variables")
	}
	return cc, err
}

// requireTLS removes the attempts without TLS that sslmode prefer and allow make in addition to
// those with TLS, except for loopback and sockets: an attacker in the network could refuse TLS and
// read the unencrypted attempt. An operator who wants no TLS writes disable.
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

// Set sets parameters for the sessions of a configuration, replacing those of its connection
// string. Because they are sent by name when a session starts, they also override `options`, the
// settings of the role and those of the database.
func Set(cc *pgx.ConnConfig, settings ...Setting) {
	for _, s := range settings {
		for have := range cc.RuntimeParams { // the names of settings are case-insensitive
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

// ConnectToWrite opens one session. If the connection string names several servers, it is on one
// that takes changes.
func (r *Route) ConnectToWrite(ctx context.Context, dsn string) (*pgx.Conn, error) {
	cc, err := Parse(dsn)
	if err != nil {
		return nil, err
	}
	ToWrite(cc)
	return r.Connect(ctx, cc)
}

// ToWrite makes connections of a configuration lead to a server that takes changes, if it names
// several servers and no target_session_attrs. With one server, a connection that takes no change
// can say why.
func ToWrite(cc *pgx.ConnConfig) {
	if cc.ValidateConnect == nil && Several(cc) {
		cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// LimitConnect limits how long each server of a configuration may take until a session with it is
// open: to connect_timeout, if the operator has set it, but at most to limit. Without connect_timeout,
// several servers share the time that the caller waits, so that a caller reaches the last server too. A
// timeout below 0 is one that the driver's type cannot hold: the longest, which is none.
func LimitConnect(cc *pgx.ConnConfig, limit, wait time.Duration) {
	cc.ConnectTimeout = max(cc.ConnectTimeout, 0)
	if cc.ConnectTimeout == 0 && Several(cc) {
		servers := map[string]bool{net.JoinHostPort(cc.Host, strconv.Itoa(int(cc.Port))): true}
		for _, f := range cc.Fallbacks {
			servers[net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))] = true
		}
		cc.ConnectTimeout = wait / time.Duration(len(servers)+1) // 1: for the statement
	}
	cc.ConnectTimeout = min(cmp.Or(cc.ConnectTimeout, limit), limit)
}

// Several reports whether a configuration names several servers. One server has fallbacks too: an
// attempt without TLS, for example.
func Several(cc *pgx.ConnConfig) bool {
	return slices.ContainsFunc(cc.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != cc.Host || f.Port != cc.Port })
}

// ToRead makes the sessions of a configuration read-only. target_session_attrs=read-write, which
// finds the primary of several servers, would then accept no server: it means the primary here.
func ToRead(cc *pgx.ConnConfig) {
	Set(cc, Setting{"default_transaction_read_only", "on"})
	wanted := cc.ValidateConnect
	if wanted == nil {
		return
	}
	cc.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		err := wanted(ctx, conn)
		if errors.Is(err, pgconn.ErrReadOnlyConnection) {
			return pgconn.ValidateConnectTargetSessionAttrsPrimary(ctx, conn)
		}
		return err
	}
}

// PoolConfig returns the configuration of a pool of such sessions; the caller sets its size and
// the other settings.
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

// explicitTLS matches an sslmode that the operator set, in both forms of a connection string. It
// matches neither a value that merely contains the word, nor an sslmode without a value, which the
// driver takes for prefer.
var explicitTLS = regexp.MustCompile(`(?:^|[\s?&])sslmode\s*=\s*(?:[^\s&']|'x')`)

// quoted matches a value in quotes, which may contain anything, or a character after a backslash.
var quoted = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|\\.`)

// prefersTLS reports whether a host that refuses TLS would be reached over a network without it.
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

// Local reports whether a host is reached through a socket or loopback.
func Local(host string) bool {
	if host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
