// Package pgtest gives each test a separate PostgreSQL database. Start from New, which returns a
// DB with the schema installed; Login makes a login, Pool and Conn connect. OwnServer and
// OwnInstalled are for tests that restart or kill a server, Hostile for tests of name resolution.
//
// All tests of a process share one private server, started at the first use
// from a ready data directory. New clones a template that has the schema; tests
// may run in parallel. A package that uses it has
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
// Environment: QTOP_TEST_PG selects the major version. QTOP_TEST_DSN, the postgres:// URL of a
// superuser, names a server to use instead of the private one. QTOP_TEST_HOSTILE=1 makes each
// database of a private server a hostile one.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
)

// Main runs the tests of a package and then stops the cluster.
func Main(m *testing.M) int {
	embedded.SuperviseMain()
	code := m.Run()
	if c := running.take(); c != nil {
		if err := errors.Join(calledOn(c.server, c.owner), c.close()); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
	}
	return code
}

// DB is a database that belongs to one test.
type DB struct {
	Name   string
	Server *embedded.Server // nil if QTOP_TEST_DSN names the server

	cluster *cluster
	hostile atomic.Bool // logins of this database get the hostile search_path
	mu      sync.Mutex
	roles   []string // roles that are dropped after the database
}

// New makes a database with the schema installed; it is dropped at cleanup.
func New(t testing.TB) *DB {
	t.Helper()
	c := use(t)
	d := c.create(t, "TEMPLATE "+quote(c.template)+" STRATEGY FILE_COPY")
	conn := d.Conn(t, "")
	if _, err := conn.PgConn().Exec(context.Background(), freshSQL).ReadAll(); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if err := conn.Close(context.Background()); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return d
}

// freshSQL makes a copy of the template equal to a database that was migrated just now. The
// template may be hours old, so the heartbeats of the tick workers are set to now. The copy is also
// adopted, so that it does not count as a clone.
const freshSQL = `UPDATE public.queue_heartbeat SET last_beat_at = pg_catalog.clock_timestamp();
UPDATE public.queue_identity SET (system_identifier, database_oid, database_name, recorded_at) =
	(SELECT s.system_identifier, d.oid, d.datname, pg_catalog.clock_timestamp()
	FROM pg_catalog.pg_control_system() s JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database())`

// Empty makes a database without the schema; it is dropped at cleanup.
func Empty(t testing.TB) *DB {
	t.Helper()
	from := "template0"
	if HostilePass() {
		from = "template1"
	}
	return use(t).create(t, "TEMPLATE "+from+" STRATEGY FILE_COPY")
}

// Encoded makes a database with this encoding, without the schema; it is dropped at cleanup.
func Encoded(t testing.TB, encoding string) *DB {
	t.Helper()
	return use(t).create(t, "TEMPLATE template0 ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C'")
}

// Localized makes a database whose language, by the ICU locale, decides the order and the case of
// text, without the schema; it is dropped at cleanup. The test is skipped if the server lacks ICU.
func Localized(t testing.TB, locale string) *DB {
	t.Helper()
	c := use(t)
	var icu bool
	if err := c.admin.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_catalog.pg_collation WHERE collprovider = 'i')").Scan(&icu); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if !icu {
		t.Skip("this PostgreSQL has no ICU")
	}
	return c.create(t, "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE '"+locale+"' LC_COLLATE 'C' LC_CTYPE 'C'")
}

// Clone copies the database, to which no session may be connected. The copy counts as a clone (see
// fn_queue_clone_of); it is dropped at cleanup.
func (d *DB) Clone(t testing.TB) *DB {
	t.Helper()
	return d.cluster.create(t, "TEMPLATE "+quote(d.Name)+" STRATEGY FILE_COPY")
}

func use(t testing.TB) *cluster {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatalf("pgtest: no PostgreSQL for the tests: %v", err)
	}
	return c
}

func (c *cluster) create(t testing.TB, how string) *DB {
	t.Helper()
	d := &DB{Name: unique("t_"), Server: c.server, cluster: c}
	if err := c.exec(context.Background(), "CREATE DATABASE "+quote(d.Name)+" "+how); err != nil {
		t.Fatalf("pgtest: creating a database: %v", err)
	}
	c.owners.Store(d.Name, t.Name())
	t.Cleanup(func() { d.drop(t) })
	return d
}

// Rename gives the database another name. No session may be connected to it.
func (d *DB) Rename(t testing.TB, name string) {
	t.Helper()
	if err := d.cluster.exec(context.Background(), "ALTER DATABASE "+quote(d.Name)+" RENAME TO "+quote(name)); err != nil {
		t.Fatalf("pgtest: renaming a database: %v", err)
	}
	d.Name = name
}

// drop ends the sessions of the database and drops it, then drops the roles of its test, on which
// nothing depends any more.
func (d *DB) drop(t testing.TB) {
	if d.Server != nil {
		select {
		case <-d.Server.Done(): // the test ended the server itself
			return
		default:
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx := context.Background() // the context of the test has ended by now
	if err := d.cluster.exec(ctx, "DROP DATABASE IF EXISTS "+quote(d.Name)+" WITH (FORCE)"); err != nil {
		t.Errorf("pgtest: dropping %s: %v", d.Name, err)
	}
	for _, role := range d.roles {
		if err := d.cluster.exec(ctx, "DROP ROLE IF EXISTS "+quote(role)); err != nil {
			t.Errorf("pgtest: dropping role %s: %v", role, err)
		}
	}
}

// DSN returns a connection string to the database as user; "" is the superuser.
func (d *DB) DSN(user string) string { return d.cluster.dsn(user, d.Name) }

// Pool connects to the database as user; "" is the superuser. The pool is closed at cleanup; every
// connection must have been released by then.
func (d *DB) Pool(t testing.TB, user string) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	cfg, err := pgsession.PoolConfig(d.DSN(user))
	if err != nil {
		t.Fatalf("pgtest: connecting to %s: %v", d.Name, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err == nil {
		err = pool.Ping(ctx)
	}
	if err != nil {
		if pool != nil {
			pool.Close()
		}
		t.Fatalf("pgtest: connecting to %s: %v", d.Name, err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(stepPatience):
			t.Errorf("pgtest: %d connections of a pool were not given back", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// Conn opens one connection to the database as user; "" is the superuser. It is closed at cleanup.
func (d *DB) Conn(t testing.TB, user string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	conn, err := pgsession.Connect(ctx, d.DSN(user))
	if err != nil {
		t.Fatalf("pgtest: connecting to %s: %v", d.Name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// Login makes a role that can log in and is a member of the given groups, and
// returns its name. It is dropped with the database.
func Login(t testing.TB, d *DB, groups ...string) string {
	t.Helper()
	name := unique("login_")
	sql := "CREATE ROLE " + quote(name) + " LOGIN PASSWORD '" + d.cluster.password + "'"
	for i, group := range groups {
		sep := ", "
		if i == 0 {
			sep = " IN ROLE "
		}
		sql += sep + quote(group)
	}
	if err := d.cluster.exec(context.Background(), sql); err != nil {
		t.Fatalf("pgtest: creating a login: %v", err)
	}
	d.mu.Lock()
	d.roles = append(d.roles, name)
	d.mu.Unlock()
	if d.hostile.Load() {
		if err := d.cluster.exec(context.Background(), "ALTER ROLE "+quote(name)+" SET search_path = "+hostilePath); err != nil {
			t.Fatalf("pgtest: creating a login: %v", err)
		}
	}
	return name
}

// OwnServer starts a private server, without the schema, for a test that
// restarts or kills it. It is stopped at cleanup.
func OwnServer(t testing.TB, params map[string]string) *embedded.Server {
	t.Helper()
	return OwnServerIn(t, "", params, nil)
}

// OwnServerIn is OwnServer in a base directory ("" = a temporary one), with further variables in
// the server's environment.
func OwnServerIn(t testing.TB, dir string, params map[string]string, env []string) *embedded.Server {
	t.Helper()
	return ownServer(t, "", dir, params, env)
}

// OwnInstalled is OwnServer with the schema, in the database of this name; it may be postgres, the
// superuser's.
func OwnInstalled(t testing.TB, database string, params map[string]string) *embedded.Server {
	t.Helper()
	template := templateName(time.Now())
	s := ownServer(t, template, "", params, nil)
	ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	type step struct{ database, sql string }
	steps := []step{ // a rename copies nothing
		{"template1", "ALTER DATABASE " + quote(template) + " RENAME TO " + quote(database)},
		{"template1", "ALTER DATABASE " + quote(database) + " WITH ALLOW_CONNECTIONS true"},
		{database, freshSQL},
	}
	if database == "postgres" {
		steps = append([]step{{"template1", "ALTER DATABASE postgres RENAME TO spare"}}, steps...)
	}
	for _, step := range steps {
		conn, err := pgsession.Connect(ctx, s.DSN(embedded.Superuser, step.database))
		if err == nil {
			_, err = conn.PgConn().Exec(ctx, step.sql).ReadAll()
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	return s
}

// ownServer starts a private server from the ready data directory with this template database; ""
// = the one without a template.
func ownServer(t testing.TB, template, dir string, params map[string]string, env []string) *embedded.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	seed, err := readySeed(ctx, template)
	if err != nil {
		t.Fatalf("pgtest: no PostgreSQL for the tests: %v", err)
	}
	s, err := embedded.Start(ctx, embedded.Options{
		Dir: dir, Test: true, Major: major(), Seed: seed, Params: hostileParams(params), Env: env, Notice: say,
	})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
		defer cancel()
		calls := calledOn(s, func(string) string { return t.Name() })
		if errors.Is(calls, os.ErrNotExist) { // the test itself has stopped the server
			calls = nil
		}
		if err := errors.Join(calls, s.Stop(ctx)); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s
}
