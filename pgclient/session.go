package pgclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// Session reads who is connected and what this login may do.
func (c *Client) Session(ctx context.Context) (queue.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	s := queue.Session{Actor: c.Actor(), Rights: map[queue.ActionID]bool{}, Needs: map[queue.ActionID]string{}}
	conn, err := c.catalogue(ctx)
	if err != nil {
		return s, pgerror.Translate(err)
	}
	defer conn.Release()
	var readOnly string
	roles, err := schema.RealRoles(ctx, conn)
	if err != nil {
		return s, pgerror.Translate(err)
	}
	err = conn.QueryRow(ctx, `SELECT session_user::text, CASE WHEN session_user <> current_user THEN quote_ident(current_user) ELSE '' END, current_database(), current_setting('server_version'), pg_is_in_recovery(),
		current_setting('default_transaction_read_only'),
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
		ARRAY(SELECT x.name FROM unnest($1::text[], $2::text[]) WITH ORDINALITY x (name, role, n) JOIN pg_roles r ON r.rolname::text = x.role
		      WHERE pg_has_role(current_user, r.oid, 'MEMBER') ORDER BY x.n)`, schema.Roles(), roles).
		Scan(&s.User, &s.InForce, &s.Database, &s.Version, &s.InRecovery, &readOnly, &s.Superuser, &s.Roles)
	if err != nil {
		return s, pgerror.Translate(err)
	}
	s.ReadOnly = readOnly == "on"
	if s.Environment, err = environment(ctx, conn.Conn(), s.Database.String()); err != nil {
		return s, pgerror.Translate(err)
	}
	s.Address = c.address(conn.Conn())
	if err := encryption(ctx, conn.Conn(), &s); err != nil {
		return s, pgerror.Translate(err)
	}
	if s.Pooler {
		_, _ = c.PoolMode(ctx) // a mode that cannot be detected yet is looked for again later
	}
	s.Misfit = misfit(ctx, conn.Conn())
	if err = readRights(ctx, conn.Conn(), c.opts.Actions, roles, &s); err == nil {
		known := maps.Clone(s.Rights)
		c.rights.Store(&known)
	}
	return s, pgerror.Translate(err)
}

// May reports whether this login may use an action, according to the last Session; false if no
// session was read.
func (c *Client) May(a queue.ActionID) bool {
	rights := c.rights.Load()
	return rights != nil && (*rights)[a]
}

// address returns the address of a connection for a screen.
func (c *Client) address(conn *pgx.Conn) queue.Text {
	return queue.Clean(pgerror.Mask(cmp.Or(c.route.Address(conn), "local socket")))
}

// encryption asks the server whether this session is encrypted; the configuration only says what
// was requested. Behind a pooler, the server knows only its connection to the pooler, so the
// connection to the pooler is judged separately.
func encryption(ctx context.Context, conn *pgx.Conn, s *queue.Session) error {
	var backend uint32
	var encrypted, local bool
	var how string
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_backend_pid(), COALESCE(x.ssl, false), pg_catalog.concat_ws(' ', x.version, x.cipher),
		pg_catalog.inet_client_addr() IS NULL OR pg_catalog.host(pg_catalog.inet_client_addr()) ~ '^(127\.|::1$)'
		FROM (VALUES (1)) v LEFT JOIN pg_catalog.pg_stat_ssl x ON x.pid = pg_catalog.pg_backend_pid()`).Scan(&backend, &encrypted, &how, &local)
	if err != nil {
		return err
	}
	way := func(encrypted, local bool, how string) string {
		return queue.Choose(encrypted, "encrypted"+queue.Choose(how != "", " ("+how+")", ""), queue.Choose(local, "not encrypted on this machine", "not encrypted"))
	}
	s.Pooler = backend != conn.PgConn().PID()
	if !s.Pooler {
		s.TLS, s.Local = encrypted, local && !encrypted
		s.Encryption = queue.Clean(way(encrypted, local, how))
		return nil
	}
	_, first := conn.PgConn().Conn().(*tls.Conn)
	near := nearby(conn)
	s.TLS = (first || near) && (encrypted || local) && (first || encrypted)
	s.Local = !s.TLS && (first || near) && (encrypted || local)
	s.Encryption = queue.Clean("to the pooler " + way(first, near, "") + ", behind it " + way(encrypted, local, how))
	return nil
}

// nearby reports whether a connection uses a socket or loopback.
func nearby(conn *pgx.Conn) bool {
	remote, ok := conn.PgConn().Conn().RemoteAddr().(*net.TCPAddr)
	return !ok || remote.IP.IsLoopback()
}

// Environment reads the name and the guard of the database's environment.
func (c *Client) Environment(ctx context.Context) (queue.Environment, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	conn, err := c.catalogue(ctx)
	if err != nil {
		return queue.Environment{}, pgerror.Translate(err)
	}
	defer conn.Release()
	var database string
	if err := conn.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return queue.Environment{}, pgerror.Translate(err)
	}
	e, err := environment(ctx, conn.Conn(), database)
	return e, pgerror.Translate(err)
}

// environment reads the flag. A login that may not read flags, or a database without them, has no
// environment; every login that may change something may read flags.
func environment(ctx context.Context, conn *pgx.Conn, database string) (queue.Environment, error) {
	var value string
	err := conn.QueryRow(ctx, "SELECT c.value FROM public.dot_config c WHERE c.key = $1", queue.EnvironmentFlag).Scan(&value)
	var pg *pgconn.PgError
	if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &pg) && slices.Contains([]string{"42P01", "42501"}, pg.Code) {
		err = nil
	}
	return queue.ReadEnvironment(database, value), err
}

// readRights asks in one statement which actions this login may use, because every console does
// this at its start.
func readRights(ctx context.Context, conn *pgx.Conn, actions queue.Registry, roles []string, s *queue.Session) error {
	functions := make([]string, len(actions))
	for i, a := range actions {
		functions[i] = a.Function
	}
	may, err := pgrow.Column[bool](ctx, conn, `SELECT f = '' OR COALESCE(has_function_privilege(current_user, to_regprocedure(NULLIF(f, '')), 'EXECUTE'), false)
		FROM unnest($1::text[]) WITH ORDINALITY x (f, n) ORDER BY n`, functions)
	if err != nil {
		return err
	}
	for i, a := range actions {
		s.Rights[a.ID] = may[i]
		if !may[i] {
			s.Needs[a.ID] = a.Role
			if at := slices.Index(schema.Roles(), a.Role); at >= 0 {
				s.Needs[a.ID] = roles[at]
			}
		}
	}
	return nil
}

// Serves returns an error if the database can never serve a console, because it is not UTF-8 or
// behind a pooler in statement mode. A database that cannot be reached, or has not answered when
// ctx ends, is not an error.
func (c *Client) Serves(ctx context.Context) error {
	conn, err := c.catalogue(ctx)
	if err == nil {
		conn.Release()
		return nil
	}
	if queue.KindOf(err) == queue.KindConfig {
		return pgerror.Translate(err)
	}
	return nil
}

// CheckSchema returns an error if this program must not use the database, because the installed
// schema is older or newer than what it supports.
func (c *Client) CheckSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	conn, err := c.catalogue(ctx)
	if err != nil {
		return pgerror.Translate(err)
	}
	defer conn.Release()
	if e := misfit(ctx, conn.Conn()); e != nil && e.Err != nil {
		return pgerror.Translate(e.Err)
	} else if e != nil {
		return e
	}
	return nil
}

// UnexpectedServer returns a warning if the server is not one of Options.ExpectServer; empty = it
// is, or any server is accepted. Of several servers it asks the one on which the host works.
func (c *Client) UnexpectedServer(ctx context.Context) (queue.Text, error) {
	if len(c.opts.ExpectServer) == 0 {
		return queue.Text{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	pool := c.work
	if pool == nil {
		pool = c.read
	}
	var s server
	if err := pool.QueryRow(ctx, "SELECT "+serverColumns).Scan(&s.cluster, &s.address, &s.port); err != nil {
		return queue.Text{}, pgerror.Translate(err)
	}
	return queue.Clean(s.unexpected(c.opts.ExpectServer)), nil
}
