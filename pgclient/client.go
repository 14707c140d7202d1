// Package pgclient connects a Go program to a database that has qtop's schema. Which package
// to start from:
//
//   - to enqueue jobs: package enqueue, inside your transaction, without this one;
//   - to work on jobs: package workerhost, whose host needs a [Client] with
//     [Options.WorkConns], and package handler;
//   - to read what the console shows, or to hear of new work: this package.
//
// [Open] returns a [Client], which has separate pools for reading, acting and working, so that
// one kind of work never waits for a connection of another. It does not wait for the server:
// the first call fails if it does not answer. A Client is safe for many goroutines; Close it.
//
// Rights are those of the login, and the database decides them: [Client.Snapshot] and
// [Client.List] need queue_viewer, enqueueing needs event_ingest_writer, a worker host
// dot_executor (and for webhooks webhook_worker too: docs/workers.md). A missing right
// is an error that names what is missing; a snapshot leaves out what the login may not read and
// names that in its field Missing.
//
// Errors are one line that says what happened, where and what to do: a *queue.Error, whose
// cause is the *pgconn.PgError where the server refused something.
//
// Wake signals are hints: see [Client.NewListener]. Package actions plans and applies an
// operator's changes; package work has the calls of a worker host, for those who write one.
package pgclient

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// Options says how to connect.
type Options struct {
	DSN       string // empty = the PG* environment variables, as in psql
	ListenDSN string // a direct connection, if DSN leads to a pooler; empty = DSN
	Program   string // application_name starts with it; default "qtop"; with WorkConns at most 35 ASCII characters
	Actor     string // the person whom audit rows name; the database cannot verify it
	Pooler    string // "transaction" = DSN leads to a pooler in transaction mode; empty = a pooler is detected
	ReadOnly  bool   // every session is read-only; PostgreSQL refuses writes too
	WorkConns int32  // the most connections of a worker host's pool; 0 = no such pool
	// ExpectServer names the intended servers, by cluster_name, address or address:port;
	// empty = any. On any other server, a worker host claims nothing.
	ExpectServer []string
	// Actions are the actions for which Session reports whether this login may use them.
	Actions queue.Registry
	// Misfit is called once, before the first read of a database whose schema does not fit this
	// program but may be read.
	Misfit func(queue.Error)
}

// Client has separate connection pools for reading, acting and working, so that one kind of work
// never waits for a connection that another kind uses.
type Client struct {
	opts  Options
	route *pgsession.Route
	tag   string       // suffix of the application_name of a worker host's sessions
	look  *pgpool.Pool // reads the catalogue only; also used where the read pool refuses connections because of the schema
	read  *pgpool.Pool
	act   *pgpool.Pool
	work  *pgpool.Pool

	mu   sync.Mutex
	link queue.Link

	misfit sync.Once // calls Options.Misfit

	rights atomic.Pointer[map[queue.ActionID]bool] // of the last Session

	listener *Listener
	changes  chan struct{}
}

// programName matches a name that PostgreSQL stores unchanged in application_name (63 bytes, visible
// ASCII), followed by the use of the connection and the tag of the process.
var programName = regexp.MustCompile("^[ -~]{1,35}$")

// Open prepares the pools. It does not wait for the server, so that a console can open and report
// that the database is down.
func Open(ctx context.Context, o Options) (*Client, error) {
	if o.Program == "" {
		o.Program = "qtop"
	}
	if o.WorkConns > 0 && !programName.MatchString(o.Program) {
		return nil, queue.NewError(queue.KindConfig, "the name of the program is not 1 to 35 visible ASCII characters and spaces", "Program",
			"shorten it: PostgreSQL cuts application_name, and its end distinguishes the processes of a login")
	}
	c := &Client{opts: o, route: &pgsession.Route{}, tag: newTag(), changes: make(chan struct{}, 1), link: queue.Link{State: "connecting"}}
	if o.Pooler == "transaction" {
		c.route = pgsession.Through()
	}
	var err error
	if c.look, err = c.pool(ctx, "look", 1, pgpool.ReadTimeout, false); err != nil {
		return nil, err
	}
	if c.read, err = c.pool(ctx, "read", 3, pgpool.ReadTimeout, false); err != nil {
		return nil, err
	}
	if c.act, err = c.pool(ctx, "act", 2, pgpool.ActTimeout, true); err != nil {
		return nil, err
	}
	if o.WorkConns > 0 {
		if c.work, err = c.pool(ctx, "work", o.WorkConns, pgpool.WorkTimeout, true); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// closeWithin is how long Close waits. To close a connection with a running statement, pgx first
// sends a cancel request, and a server that hangs does not answer that request.
const closeWithin = 500 * time.Millisecond

// Close ends all connections. It waits half a second for them; connections that hang longer end
// on their own within 15 s.
func (c *Client) Close() {
	var all sync.WaitGroup
	for _, p := range []*pgpool.Pool{c.look, c.read, c.act, c.work} {
		if p != nil {
			all.Go(p.Close)
		}
	}
	closed := make(chan struct{})
	go func() {
		all.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeWithin):
	}
}

// newTag returns a random suffix for the application_name of this process's sessions: see
// SessionTag.
func newTag() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// SessionTag returns the suffix of the application_name of the worker host's sessions: those of
// its pool and of its listener ("wake"). It is empty if there is a pooler, because a live host
// may have no session behind it.
func (c *Client) SessionTag() string {
	if c.route.Pooled() {
		return ""
	}
	return c.tag
}

// program returns the application_name of the connections for one use, such as "read".
func (c *Client) program(use string) string {
	name := c.opts.Program + " " + use
	if use == "work" || use == "wake" {
		name += " " + c.tag
	}
	return name
}

// Actor returns the person whom audit rows name.
func (c *Client) Actor() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opts.Actor
}

// WithActor sets the person whom audit rows name from now on.
func (c *Client) WithActor(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.Actor = name
}

// Look returns the pool that reads only the catalogue. It answers which server, login and schema
// this is, also where the schema does not fit this program.
func (c *Client) Look() *pgpool.Pool { return c.look }

// Act returns the pool on which actions run.
func (c *Client) Act() *pgpool.Pool { return c.act }

// Work returns the worker host's pool; nil without Options.WorkConns.
func (c *Client) Work() *pgpool.Pool { return c.work }

// Read returns the pool that reads the snapshot and the lists.
func (c *Client) Read() *pgpool.Pool { return c.read }

// A console without input has two connections: one reads and one listens. Further connections open
// when they are needed, and close after these times without use.
const (
	spareLife = 5 * time.Second // for the second connection that reads, while a list and the snapshot are read at once
	actIdle   = time.Minute     // for the connections of the actions
)

// catalogue acquires a connection that can read the catalogue: one of the pool read, or one of the
// pool look if the read pool refuses connections because the schema does not fit this program (see
// fits).
func (c *Client) catalogue(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := c.read.Acquire(ctx)
	if errors.Is(err, errMisfit) {
		return c.look.Acquire(ctx)
	}
	return conn, err
}

func (c *Client) pool(ctx context.Context, use string, size int32, timeout time.Duration, writes bool) (*pgpool.Pool, error) {
	cfg, err := pgsession.PoolConfig(c.opts.DSN)
	if err != nil {
		return nil, pgerror.Connect(err)
	}
	cc := cfg.ConnConfig
	cfg.MaxConns, cfg.MinConns = size, 0
	cfg.HealthCheckPeriod = 5 * time.Second
	cfg.PingTimeout = pingWithin
	var spare time.Duration
	switch use {
	case "read":
		spare = spareLife
		cc.BuildContextWatcherHandler = pgpool.CancelRead
	case "look", "act":
		cfg.MaxConnIdleTime = actIdle
	}
	pgpool.SetSession(cc, c.program(use), timeout)
	if from := origin(); writes && from != "" {
		pgsession.Set(cc, pgsession.Setting{Name: "qtop.origin", Value: from})
	}
	cfg.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
		c.route.Prepare(cc)
		return nil
	}
	var pool *pgpool.Pool
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		pgpool.Began(conn)
		pgscan.RegisterTimes(conn.TypeMap())
		if err := c.route.Check(ctx, conn); err != nil {
			return err
		}
		if use == "work" {
			return expected(ctx, conn, c.opts.ExpectServer)
		}
		why, err := fits(ctx, conn, use)
		if why != nil && c.opts.Misfit != nil {
			c.misfit.Do(func() { c.opts.Misfit(*why) })
		}
		return err
	}
	switch {
	case c.opts.ReadOnly:
		pgsession.ToRead(cc)
	case writes:
		pgsession.ToWrite(cc)
	}
	pool, err = pgpool.New(ctx, cfg, c.route, c.opts.ReadOnly, spare)
	return pool, err
}

// Link returns the state of the connection, as of the last call.
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

// Note records whether the last call reached the server, for Link. A call that its caller
// cancelled is not counted: it proves nothing about the server.
func (c *Client) Note(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.link = queue.Link{State: "live"}
	case errors.Is(err, ErrSlow):
		c.link = queue.Link{State: "slow", Reason: queue.Clean(err.Error())}
	case queue.KindOf(err) == queue.KindUnavailable:
		c.link = queue.Link{State: "lost", Reason: queue.Clean(err.Error()), Attempt: c.link.Attempt + 1}
	}
}

// Changes returns a channel that receives a value whenever a wake signal has arrived or the
// listener has reconnected: then read again. Values that nobody has received yet are merged into
// one.
func (c *Client) Changes() <-chan struct{} { return c.changes }

// Listen runs the console's listener until ctx ends.
func (c *Client) Listen(ctx context.Context) error {
	hint := func() {
		select {
		case c.changes <- struct{}{}:
		default:
		}
	}
	l, err := c.NewListener("listen", func(queue.Wake) { hint() }, hint)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.listener = l
	c.mu.Unlock()
	l.Run(ctx)
	return nil
}

// NewListener returns a listener, to be started with [Listener.Run], on a connection outside
// the pools. use is its part of the application_name. onWake is called for each wake signal of
// any domain, resync each time that listening begins or begins again: signals sent before that
// are lost, so look at everything.
//
// A signal is only a hint. Any login may send one, some are lost, none is sent while the flag
// queue.notify.bridge_enabled is off, and where LISTEN does not work (a transaction pooler, a
// standby) neither function is ever called. So look for work at an interval as well, and
// decide nothing by what a signal contains. Both functions are called from Run, one at a time:
// they must return soon.
func (c *Client) NewListener(use string, onWake func(queue.Wake), resync func()) (*Listener, error) {
	dsn, route := c.opts.ListenDSN, &pgsession.Route{}
	if dsn == "" {
		dsn, route = c.opts.DSN, c.route
	}
	cc, err := pgpool.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	second := c.read
	if c.work != nil && !c.opts.ReadOnly && pgsession.Several(cc) { // a host hears of its work where it works
		pgsession.ToWrite(cc)
		second = c.work
	}
	l := newListener(cc, route, c.program(use), second, onWake, resync)
	l.own = c.opts.ListenDSN != ""
	return l, nil
}

// CheckListen returns an error if wake signals do not arrive over Options.ListenDSN, or over
// Options.DSN if that is empty.
func (c *Client) CheckListen(ctx context.Context) error {
	l, err := c.NewListener("probe", func(queue.Wake) {}, func() {})
	if err != nil {
		return err
	}
	conn, err := l.route.Connect(ctx, l.cfg)
	if err != nil {
		return pgerror.Connect(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgerror.Translate(l.probe(ctx, conn))
}

// modeWithin is how long PoolMode may take to detect the mode of a pooler.
const modeWithin = 2 * time.Second

// PoolMode detects how a pooler assigns server connections; empty = there is no pooler, or two
// seconds did not suffice. Later calls return what was detected, or try again at growing intervals.
func (c *Client) PoolMode(ctx context.Context) (pgsession.Mode, error) {
	ctx, cancel := context.WithTimeout(ctx, modeWithin)
	defer cancel()
	mode, err := c.route.FindMode(ctx, c.read.Config().ConnConfig)
	return mode, pgerror.Translate(err)
}

// CanClaimJobs returns an error with the reason if no job can be claimed on this connection, because
// a pooler gives its transactions another isolation level than READ COMMITTED, or the client has no
// work pool.
func (c *Client) CanClaimJobs(ctx context.Context) error {
	if c.work == nil {
		return queue.NewError(queue.KindConfig, "the client has no work pool", "WorkConns", "set pgclient.Options.WorkConns, such as 4")
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	conn, err := c.work.Acquire(ctx)
	if err == nil {
		err = c.route.Isolated(ctx, conn.Conn())
		conn.Release()
	}
	return pgerror.Translate(err)
}

// Writable returns an error with the reason if a worker host cannot write: the server is a standby, or
// triggers would not run in its sessions, so that nothing it does were counted. It also works through a pooler. Of several servers it asks the
// one on which the host works.
func (c *Client) Writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	pool := c.work
	if pool == nil {
		pool = c.act
	}
	var standby, replica bool
	err := pool.QueryRow(ctx, "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('session_replication_role') = 'replica'").Scan(&standby, &replica)
	switch {
	case err != nil:
		return pgerror.Translate(err)
	case standby:
		return queue.NewError(queue.KindFailed, "this server is a standby, which accepts no change", "database "+c.look.Config().ConnConfig.Database, "connect to the primary")
	case replica:
		return queue.NewError(queue.KindFailed, "session_replication_role is replica for the sessions of a worker host: no trigger would run, so that nothing it does were counted",
			"database "+c.look.Config().ConnConfig.Database, "qtop doctor names where it is set and how to reset it")
	}
	return nil
}
