// Package pgclient is everything of qtop that speaks to PostgreSQL: the pools,
// the snapshot and lists behind the panes, the actions (plan, then apply), and
// the listener. The database decides rights, times and outcomes; this package
// asks and translates.
package pgclient

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/queue"
)

// Options says how to connect.
type Options struct {
	DSN       string // empty = PG* variables, as everywhere
	ListenDSN string // a direct connection where DSN is a pooler; empty = DSN
	Program   string // application_name starts with it; default "qtop"
	Actor     string // the person, for audit rows
	ReadOnly  bool   // every session is read-only; PostgreSQL refuses writes too
	WorkConns int32  // connections for a worker host; 0 = none
	// MaxAge is how old a picture computed for another console may be; 0 = none
	// is shared.
	MaxAge time.Duration
}

// Client holds separate pools for reading, acting and working, so that none of
// them waits behind another.
type Client struct {
	opts Options
	read *pgxpool.Pool
	act  *pgxpool.Pool
	work *pgxpool.Pool

	mu   sync.Mutex
	link queue.Link

	listener *Listener
	ringer   *Ringer // made at its first use
	changes  chan struct{}
}

// Deadlines of each pool: a statement that takes longer is the server's
// trouble, and the caller is told.
const (
	readTimeout = 5 * time.Second
	actTimeout  = 60 * time.Second
	workTimeout = 60 * time.Second
)

// Open prepares the pools. It does not wait for the server: a console opens
// while the database is down and says so.
func Open(ctx context.Context, o Options) (*Client, error) {
	if o.Program == "" {
		o.Program = "qtop"
	}
	c := &Client{opts: o, changes: make(chan struct{}, 1), link: queue.Link{State: "connecting"}}
	var err error
	if c.read, err = c.pool(ctx, "read", 3, readTimeout, false); err != nil {
		return nil, err
	}
	if c.act, err = c.pool(ctx, "act", 2, actTimeout, true); err != nil {
		return nil, err
	}
	if o.WorkConns > 0 {
		if c.work, err = c.pool(ctx, "work", o.WorkConns, workTimeout, true); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Close ends all connections.
func (c *Client) Close() {
	for _, p := range []*pgxpool.Pool{c.read, c.act, c.work} {
		if p != nil {
			p.Close()
		}
	}
}

// Actor is the person that audit rows will name.
func (c *Client) Actor() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opts.Actor
}

// WithActor names the person that audit rows will name from now on.
func (c *Client) WithActor(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.Actor = name
}

// Work is the worker host's pool; nil without Options.WorkConns.
func (c *Client) Work() *pgxpool.Pool { return c.work }

// Read is the pool of the panes.
func (c *Client) Read() *pgxpool.Pool { return c.read }

func (c *Client) pool(ctx context.Context, use string, size int32, timeout time.Duration, writes bool) (*pgxpool.Pool, error) {
	cc, err := ParseDSN(c.opts.DSN)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, connectError(err)
	}
	cfg.ConnConfig = cc
	cfg.MaxConns, cfg.MinConns = size, 0
	cfg.HealthCheckPeriod = 10 * time.Second
	session(cc, c.opts.Program+" "+use, timeout)
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error { // times are UTC wherever they are printed
		conn.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return nil
	}
	if c.opts.ReadOnly {
		cc.RuntimeParams["default_transaction_read_only"] = "on"
	} else if writes && cc.ValidateConnect == nil && len(cc.Fallbacks) > 0 {
		cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// session sets the name and the server-side limits of a connection: a client
// that dies must not leave a statement or a transaction behind.
func session(cc *pgx.ConnConfig, name string, timeout time.Duration) {
	cc.ConnectTimeout = 5 * time.Second
	p := cc.RuntimeParams
	p["application_name"] = name
	p["timezone"] = "UTC"
	p["statement_timeout"] = fmt.Sprint(timeout.Milliseconds())
	p["lock_timeout"] = fmt.Sprint(min(timeout, 10*time.Second).Milliseconds())
	p["idle_in_transaction_session_timeout"] = "60000"
}

// An sslmode or service of the operator's own, in either form of a DSN. A value
// that merely contains the word is none.
var explicitTLS = regexp.MustCompile(`(?:^|[\s?&])(?:sslmode|service)\s*=`)

// ParseDSN reads a connection string; without an sslmode of the operator's own,
// anything but loopback and sockets is verified in full.
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, connectError(err)
	}
	explicit := explicitTLS.MatchString(quoted.ReplaceAllString(dsn, "''")) ||
		os.Getenv("PGSSLMODE") != "" || os.Getenv("PGSERVICE") != ""
	if explicit || allLocal(cc) {
		return cc, nil
	}
	sep := " "
	if strings.Contains(dsn, "://") {
		sep = "?"
		if strings.Contains(dsn, "?") {
			sep = "&"
		}
	}
	cc, err = pgx.ParseConfig(strings.TrimSpace(dsn + sep + "sslmode=verify-full"))
	if err != nil {
		return nil, connectError(err)
	}
	return cc, nil
}

// quoted is a value in quotes, which may hold anything.
var quoted = regexp.MustCompile(`'(?:[^'\\]|\\.)*'`)

// allLocal tells whether none of the hosts is reached over a network.
func allLocal(cc *pgx.ConnConfig) bool {
	for _, f := range cc.Fallbacks {
		if !local(f.Host) {
			return false
		}
	}
	return local(cc.Host)
}

func local(host string) bool {
	if host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Link is the state of the connection as the last call found it.
func (c *Client) Link() queue.Link {
	c.mu.Lock()
	l := c.link
	lst := c.listener
	c.mu.Unlock()
	if l.State == "live" && lst != nil {
		if s := lst.Status(); s.State != "listening" {
			l.State, l.Reason = "polling", s.Reason
		}
	}
	return l
}

// note records whether the last call reached the server.
func (c *Client) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.link = queue.Link{State: "live"}
	case queue.KindOf(err) == queue.KindUnavailable:
		c.link = queue.Link{State: "lost", Reason: queue.Clean(err.Error()), Attempt: c.link.Attempt + 1}
	}
}

// Changes gets a hint whenever a wake arrives or the listener resubscribed.
func (c *Client) Changes() <-chan struct{} { return c.changes }

// Listen runs the console's listener until ctx ends.
func (c *Client) Listen(ctx context.Context) error {
	dsn := c.opts.ListenDSN
	if dsn == "" {
		dsn = c.opts.DSN
	}
	cc, err := ParseDSN(dsn)
	if err != nil {
		return err
	}
	hint := func() {
		select {
		case c.changes <- struct{}{}:
		default:
		}
	}
	l := NewListener(cc, c.opts.Program+" listen", c.read, func(queue.Wake) { hint() }, hint)
	c.mu.Lock()
	c.listener = l
	c.mu.Unlock()
	l.Run(ctx)
	return nil
}
