package pgsession

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// Route is the way to a database, directly or through a pooler; the connections of
// one client share it and learn from each other. The zero value finds out which it
// is.
//
// A direct connection carries its settings as startup parameters. A pooler such as
// PgBouncer refuses most of them, and in transaction mode it hands each transaction
// to another connection of the server. There each transaction begins with the same
// settings, sent in front of its first statement in one round trip, and no prepared
// statement has a name.
//
// In session mode a pooler gives each connection one of the server's for as long as it
// is open; in statement mode it refuses transactions, and so qtop refuses it.
type Route struct {
	pooled atomic.Bool
	begins atomic.Bool // a pooler was seen to carry a transaction
	mode   atomic.Pointer[Mode]
	names  sync.Map // of an IP address: the host by which it was looked up
}

// Mode is what a pooler does with the connections of its clients.
type Mode string

// The modes that can be told apart; empty = no pooler, or not known.
const (
	Transaction Mode = "transaction" // each transaction gets any connection of the server: no LISTEN
	Session     Mode = "session"     // each client keeps one until it leaves
)

// Through makes a Route of which it is known that a transaction pooler stands in it.
func Through() *Route {
	r := &Route{}
	r.pooled.Store(true)
	mode := Transaction
	r.mode.Store(&mode)
	return r
}

// Pooled tells whether a pooler was seen.
func (r *Route) Pooled() bool { return r.pooled.Load() }

// Address is where a connection leads: of several hosts the one that answered, as
// host:port, or empty for a local socket.
func (r *Route) Address(conn *pgx.Conn) string {
	remote, ok := conn.PgConn().Conn().RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := remote.IP.String()
	if name, known := r.names.Load(host); known {
		host, _ = name.(string)
	}
	return net.JoinHostPort(host, strconv.Itoa(remote.Port))
}

// Parameters that poolers keep for each client: they stay startup parameters.
var kept = []string{"client_encoding", "datestyle", "timezone", "standard_conforming_strings", "application_name"}

// Prepare gives a configuration what the path needs. It is called before each
// connect with a copy of its own.
func (r *Route) Prepare(cc *pgx.ConnConfig) {
	if lookup := cc.LookupFunc; lookup != nil {
		cc.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			all, err := lookup(ctx, host)
			for _, ip := range all {
				r.names.Store(ip, host)
			}
			return all, err
		}
	}
	if !r.Pooled() {
		return
	}
	if cc.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if settings := takeSettings(cc.RuntimeParams); len(settings) > 0 {
		cc.BuildFrontend = eachTransaction(settings)
	}
}

// takeSettings removes from the startup parameters what a pooler refuses, as the
// settings that begin each transaction.
func takeSettings(params map[string]string) map[string]string {
	settings := map[string]string{}
	if given, ok := options(params["options"]); ok {
		delete(params, "options")
		for name, value := range given {
			if !slices.Contains(kept, strings.ToLower(name)) {
				settings[name] = value
			} else if _, ours := params[strings.ToLower(name)]; !ours {
				params[strings.ToLower(name)] = value
			}
		}
	}
	for name, value := range params {
		if name == "options" || slices.Contains(kept, strings.ToLower(name)) {
			continue
		}
		delete(params, name)
		settings[name] = value
	}
	if value, ok := settings["default_transaction_read_only"]; ok { // which only the next transaction would obey
		delete(settings, "default_transaction_read_only")
		settings["transaction_read_only"] = value
	}
	return settings
}

// options reads -c name=value and --name=value; ok is false where there is
// anything else.
func options(text string) (settings map[string]string, ok bool) {
	settings = map[string]string{}
	words := fields(text)
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "-c" && i+1 < len(words):
			i++
			word = words[i]
		case strings.HasPrefix(word, "-c"), strings.HasPrefix(word, "--"):
			word = word[2:]
		default:
			return nil, false
		}
		name, value, found := strings.Cut(word, "=")
		if !found || name == "" {
			return nil, false
		}
		settings[strings.ReplaceAll(name, "-", "_")] = value
	}
	return settings, true
}

// fields splits at white space, of which a backslash makes an ordinary character.
func fields(text string) (words []string) {
	var word []byte
	within := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			word, within = append(word, text[i]), true
		case strings.IndexByte(" \t\n\r\v\f", c) >= 0:
			if within {
				words, word, within = append(words, string(word)), nil, false
			}
		default:
			word, within = append(word, c), true
		}
	}
	if within {
		words = append(words, string(word))
	}
	return words
}

var errPooler = errors.New("a pooler stands in the path, and the settings of this connection are not in force")

// Learn tells whether a connect failed because of a pooler that was not known of.
// Then the same connect succeeds when it is tried again.
func (r *Route) Learn(err error) bool {
	var pg *pgconn.PgError
	refused := errors.As(err, &pg) && pg.Code == "08P01" && strings.Contains(pg.Message, "unsupported startup parameter")
	if refused {
		r.pooled.Store(true)
	}
	return refused || errors.Is(err, errPooler)
}

// Check refuses a new connection to a database that is not UTF-8, and one through a
// pooler that took the startup parameters without obeying them.
func (r *Route) Check(ctx context.Context, conn *pgx.Conn) error {
	if err := Encoding(conn); err != nil {
		return err
	}
	return r.look(ctx, conn)
}

// look asks the server for its process: a pooler announces another. The first
// connection through one begins a transaction, which statement mode refuses.
func (r *Route) look(ctx context.Context, conn *pgx.Conn) error {
	if r.Pooled() {
		return r.begin(ctx, conn)
	}
	backend, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	if backend != fmt.Sprint(conn.PgConn().PID()) {
		r.pooled.Store(true)
		return errPooler
	}
	return nil
}

func backend(ctx context.Context, conn *pgx.Conn) (string, error) {
	answer := conn.PgConn().ExecParams(ctx, "SELECT pg_catalog.pg_backend_pid()", nil, nil, nil, nil).Read()
	if answer.Err == nil && len(answer.Rows) != 1 {
		answer.Err = errors.New("the server did not say its process")
	}
	if answer.Err != nil {
		return "", answer.Err
	}
	return string(answer.Rows[0][0]), nil
}

func (r *Route) begin(ctx context.Context, conn *pgx.Conn) error {
	if r.begins.Load() {
		return nil
	}
	for _, sql := range []string{"BEGIN", "COMMIT"} {
		if err := conn.PgConn().Exec(ctx, sql).Close(); err != nil {
			var pg *pgconn.PgError
			if errors.As(err, &pg) && strings.Contains(pg.Message, "statement pooling mode") {
				return queue.NewError(queue.KindConfig, "the pooler is in statement mode, which refuses transactions", "dsn",
					"set pool_mode = transaction or session for this database, or connect without the pooler").Because(err)
			}
			return err
		}
	}
	r.begins.Store(true)
	return nil
}

// FindMode finds out what the pooler does with connections, with two of its own that
// it opens and closes; the answer is kept. Connections that share one of the server's,
// or change it, are pooled by transaction; two that keep theirs have a session, and
// so has one behind which no other finds room.
func (r *Route) FindMode(ctx context.Context, cc *pgx.ConnConfig) (Mode, error) {
	if known := r.mode.Load(); known != nil || !r.Pooled() {
		return r.Mode(), nil
	}
	var seen [4]string
	for i := range 2 {
		conn, err := r.Connect(ctx, cc)
		switch {
		case err != nil && i == 1 && ctx.Err() != nil: // the first one has the last place
			seen[2] = "none"
			seen[3] = seen[2]
			continue
		case err != nil:
			return "", err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		for j := range 2 {
			if seen[2*i+j], err = backend(ctx, conn); err != nil {
				return "", err
			}
		}
	}
	mode := queue.Choose(seen[0] == seen[1] && seen[1] != seen[2] && seen[2] == seen[3], Session, Transaction)
	r.mode.Store(&mode)
	return mode, nil
}

// Mode is the pooler's mode as far as it was found out.
func (r *Route) Mode() Mode {
	if known := r.mode.Load(); known != nil {
		return *known
	}
	return ""
}

// Encoding is an error where the database of a connection is not UTF-8.
func Encoding(conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	if encoding == "UTF8" {
		return nil
	}
	return queue.NewError(queue.KindConfig, fmt.Sprintf("the encoding of the database is %s, and qtop needs UTF8", encoding), "database "+conn.Config().Database,
		"make a database with createdb -E UTF8 -T template0, and move a dump of this one there")
}

// Connect makes one connection to a database of any encoding, outside of a pool.
func (r *Route) Connect(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := r.connect(ctx, cc)
	if r.Learn(err) {
		conn, err = r.connect(ctx, cc)
	}
	return conn, err
}

func (r *Route) connect(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
	cc = cc.Copy()
	r.Prepare(cc)
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, err
	}
	if err := r.look(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}
