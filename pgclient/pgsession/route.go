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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// Route is the way to a database, directly or through a pooler. The connections of one client share
// a Route, so that each uses what another has detected. The zero value detects a pooler.
//
// A direct connection carries its settings as startup parameters. A pooler such as PgBouncer
// refuses most of them, and in transaction mode it runs each transaction on any of its server
// connections. Then each transaction begins with the same settings, sent before its first statement
// in one round trip, and prepared statements have no names.
//
// In session mode, a pooler assigns a server connection to each client connection for as long as
// the client connection is open. In statement mode it refuses transactions, so qtop refuses to use
// it.
type Route struct {
	pooled atomic.Bool
	begins atomic.Bool // set once a pooler has accepted a transaction
	mode   atomic.Pointer[Mode]
	again  atomic.Int64 // when FindMode tries again after its last attempt had no time, in Unix nanoseconds
	pause  atomic.Int64 // the pause before that, in nanoseconds
	names  sync.Map     // maps an IP address to the host name that was looked up
	lookup Lookup[[]string]
}

// Mode is what a pooler does with the connections of its clients.
type Mode string

// The modes that can be detected; empty = no pooler, or unknown.
const (
	Transaction Mode = "transaction" // each transaction runs on any server connection: no LISTEN
	Session     Mode = "session"     // each client keeps one server connection until it disconnects
)

// Through returns a Route that is known to lead through a transaction pooler.
func Through() *Route {
	r := &Route{}
	r.pooled.Store(true)
	mode := Transaction
	r.mode.Store(&mode)
	return r
}

// Pooled reports whether a pooler was detected.
func (r *Route) Pooled() bool { return r.pooled.Load() }

// Address returns the address of a connection as host:port (of several hosts, the one that
// answered); empty for a local socket.
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

// kept are the parameters that a pooler such as PgBouncer remembers for each client: they are
// startup parameters also through a pooler.
var kept = []string{"client_encoding", "datestyle", "timezone", "standard_conforming_strings", "application_name"}

// Prepare changes the configuration of a connection that is about to be made, which must be a
// separate copy. If the route leads through a pooler, it takes out the startup parameters that the
// pooler refuses and lets each transaction begin with them instead.
func (r *Route) Prepare(cc *pgx.ConnConfig) {
	if lookup := cc.LookupFunc; lookup != nil {
		within := cc.ConnectTimeout
		cc.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			if within > 0 { // the driver's limit begins with the first attempt, after all lookups
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, within)
				defer cancel()
			}
			all, err := r.lookup.Do(ctx, host, lookup)
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

// takeSettings removes from the startup parameters those that a pooler refuses, and returns them as
// the settings with which each transaction begins.
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
	if value, ok := settings["default_transaction_read_only"]; ok { // SET LOCAL of the default would apply to the next transaction only
		delete(settings, "default_transaction_read_only")
		settings["transaction_read_only"] = value
	}
	return settings
}

// options parses -c name=value and --name=value; ok is false if the text contains anything else.
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

// fields splits at white space; a backslash makes white space part of a field.
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

var errPooler = errors.New("the connection leads through a pooler, and its settings are not in force")

// Learn reports whether a connect failed because of a pooler that was not known yet. If so, Learn
// has recorded the pooler, and the same connect succeeds when repeated.
func (r *Route) Learn(err error) bool {
	var pg *pgconn.PgError
	refused := errors.As(err, &pg) && pg.Code == "08P01" && strings.Contains(pg.Message, "unsupported startup parameter")
	if refused {
		r.pooled.Store(true)
	}
	return refused || errors.Is(err, errPooler)
}

// Check refuses a new connection to a database that is not UTF-8, and one through a pooler that
// accepted the startup parameters without applying them.
func (r *Route) Check(ctx context.Context, conn *pgx.Conn) error {
	if err := Encoding(conn); err != nil {
		return err
	}
	return r.look(ctx, conn)
}

// look detects a pooler: the process id that the server returns differs from the one that the
// pooler announced at the connect. The first connection through a pooler also begins a transaction,
// which a pooler in statement mode refuses.
func (r *Route) look(ctx context.Context, conn *pgx.Conn) error {
	if r.Pooled() {
		if _, direct := conn.Config().RuntimeParams["search_path"]; direct { // prepared before another connection detected the pooler
			return errPooler
		}
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

// Isolated returns an error if a pooler's transactions have another isolation level than READ
// COMMITTED, which claims need. A direct connection sets the level of its session. Through a pooler
// it could only be set by a statement within each transaction, and then a settings statement that
// comes first is too late.
func (r *Route) Isolated(ctx context.Context, conn *pgx.Conn) error {
	if !r.Pooled() {
		return nil
	}
	var level, login string
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.current_setting('transaction_isolation'), session_user::text").Scan(&level, &login); err != nil {
		return err
	}
	if level == "read committed" || level == "read uncommitted" {
		return nil
	}
	return queue.NewError(queue.KindConfig, "through the pooler the transactions of login "+login+" are "+level+", and no job can be claimed in them", "dsn",
		"ALTER ROLE "+pgx.Identifier{login}.Sanitize()+" SET default_transaction_isolation = 'read committed', then RECONNECT in the pooler; or connect without the pooler")
}

func backend(ctx context.Context, conn *pgx.Conn) (string, error) {
	answer := conn.PgConn().ExecParams(ctx, "SELECT pg_catalog.pg_backend_pid()", nil, nil, nil, nil).Read()
	if answer.Err == nil && len(answer.Rows) != 1 {
		answer.Err = errors.New("the server did not return its process id")
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

const (
	modeRounds = 5           // how often FindMode asks on each of its connections
	firstPause = time.Minute // of FindMode after an attempt that had no time; it doubles with each
	mostPause  = 5 * time.Minute
)

// FindMode detects how the pooler assigns server connections, with two connections that it opens
// and closes; the Route remembers the mode. If the two share a server connection, or change it
// between transactions, the pooler is in transaction mode. They ask in turn, because in a busy
// pooler one that asks twice at once often gets the same server connection again. If each keeps its
// server connection, the pooler is in session mode. If ctx ends before that is known, the mode stays
// unknown, and a later call tries again: the first connection probably has the last server
// connection, as in session mode, but a busy pooler in transaction mode looks the same.
func (r *Route) FindMode(ctx context.Context, cc *pgx.ConnConfig) (Mode, error) {
	if known := r.mode.Load(); known != nil || !r.Pooled() {
		return r.Mode(), nil
	}
	if time.Now().UnixNano() < r.again.Load() {
		return "", nil
	}
	var conns [2]*pgx.Conn
	for i := range conns {
		conn, err := r.Connect(ctx, cc)
		switch {
		case err != nil && i == 1 && ctx.Err() != nil:
			r.postpone()
			return "", nil
		case err != nil:
			return "", err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		conns[i] = conn
	}
	var seen [2]string
	for range modeRounds {
		for i, conn := range conns {
			id, err := backend(ctx, conn)
			switch {
			case err != nil && ctx.Err() != nil:
				r.postpone()
				return "", nil
			case err != nil:
				return "", err
			case id == seen[1-i] || seen[i] != "" && id != seen[i]:
				mode := Transaction
				r.mode.Store(&mode)
				return mode, nil
			}
			seen[i] = id
		}
	}
	mode := Session
	r.mode.Store(&mode)
	return mode, nil
}

// postpone sets when FindMode tries again: an attempt takes all the time that it may, and two
// connections.
func (r *Route) postpone() {
	pause := max(firstPause, min(2*time.Duration(r.pause.Load()), mostPause))
	r.pause.Store(int64(pause))
	r.again.Store(time.Now().Add(pause).UnixNano())
}

// Mode returns the pooler's mode; empty if there is no pooler or its mode is not known yet.
func (r *Route) Mode() Mode {
	if known := r.mode.Load(); known != nil {
		return *known
	}
	return ""
}

// Encoding returns an error if the database of a connection is not UTF-8.
func Encoding(conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	if encoding == "UTF8" {
		return nil
	}
	return queue.NewError(queue.KindConfig, fmt.Sprintf("the encoding of the database is %s, and qtop needs UTF8", encoding), "database "+conn.Config().Database,
		"make a database with createdb -E UTF8 -T template0, and move a dump of this one there")
}

// connectWithin limits connecting outside of a pool, if the operator has set no connect_timeout: a
// server that accepts connections and does not answer, as a frozen one, would hold the caller for ever.
const connectWithin = 10 * time.Second

// Connect opens one connection to a database of any encoding, outside of a pool.
func (r *Route) Connect(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := r.connect(ctx, cc)
	if r.Learn(err) {
		conn, err = r.connect(ctx, cc)
	}
	return conn, err
}

func (r *Route) connect(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
	cc = cc.Copy()
	if cc.ConnectTimeout <= 0 {
		LimitConnect(cc, connectWithin, connectWithin)
	}
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
