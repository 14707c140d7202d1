// Helpers of the tests of this package: a database with a superuser's connection pool, and logins
// with given roles.

package schema_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// patience is how long a test waits for a condition on a loaded machine.
const patience = 30 * time.Second

// All objects in schema public, of any owner, except the doubles that the hostile pass puts there:
// conditions on pg_class, pg_proc and pg_type for tests that list all objects.
const (
	inPublic        = "'public'::regnamespace"
	notEvil         = " IS DISTINCT FROM to_regrole('" + pgtest.Evil + "')"
	publicRelations = "relnamespace = " + inPublic + " AND relowner" + notEvil
	publicFunctions = "pronamespace = " + inPublic + " AND proowner" + notEvil
	publicTypes     = "typnamespace = " + inPublic + " AND typowner" + notEvil
)

type core struct {
	t    *testing.T
	db   *pgtest.DB
	root *pgxpool.Pool // superuser
}

func newCore(t *testing.T) *core {
	t.Helper()
	t.Parallel()
	db := pgtest.New(t)
	c := &core{t: t, db: db, root: db.Pool(t, "")}
	// If a broken function waits for a lock, the test must fail, not hang.
	c.exec("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET statement_timeout = '45s'")
	c.root.Reset()
	// As if somebody had run the tick workers a moment ago: in a database in which nobody ever ran
	// them they count as stopped.
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now(), last_beat_payload = last_beat_payload - 'state'")
	return c
}

// newOwn returns the database, with the schema, of a server that only this test uses.
func newOwn(t *testing.T, params map[string]string) *core {
	t.Helper()
	server := pgtest.OwnInstalled(t, "queue", params)
	cfg, err := pgsession.PoolConfig(server.DSN("postgres", "queue"))
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &core{t: t, root: pool}
}

// as returns a pool of a new login with these roles.
func (c *core) as(roles ...string) *pgxpool.Pool {
	c.t.Helper()
	return c.db.Pool(c.t, pgtest.Login(c.t, c.db, roles...))
}

// wide returns a pool with n open sessions: a race needs them open before it starts. They are
// sessions of a client that is not part of qtop and have the login's own search_path. In the
// hostile pass the doubles are first on that path, so a name that a test or a function of qtop does
// not qualify means a double.
func (c *core) wide(n int32, roles ...string) *pgxpool.Pool {
	c.t.Helper()
	cfg, err := pgxpool.ParseConfig(c.db.DSN(pgtest.Login(c.t, c.db, roles...)))
	require.NoError(c.t, err)
	cfg.MaxConns = n
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(pool.Close)
	conns := make([]*pgxpool.Conn, n)
	for i := range conns {
		conns[i], err = pool.Acquire(context.Background())
		require.NoError(c.t, err)
	}
	for _, conn := range conns {
		conn.Release()
	}
	return pool
}

// exec runs a statement as superuser; an error fails the test.
func (c *core) exec(sql string, args ...any) {
	c.t.Helper()
	_, err := c.root.Exec(context.Background(), sql, args...)
	require.NoError(c.t, err)
}

// fails runs the statement and requires that it fails with this SQLSTATE.
func fails(t *testing.T, pool *pgxpool.Pool, state, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	refused(t, state, err, sql)
}

// get returns the single value that a query gives, as superuser.
func get[T any](c *core, sql string, args ...any) T {
	c.t.Helper()
	var v T
	require.NoError(c.t, c.root.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

// call runs a function that returns jsonb; an error fails the test.
func call(t *testing.T, pool *pgxpool.Pool, expr string, args ...any) map[string]any {
	t.Helper()
	got, err := tryCall(pool, expr, args...)
	require.NoError(t, err, expr)
	return got
}

// together calls f n times at once and returns the answers.
func together(t *testing.T, n int, f func(i int) (map[string]any, error)) []map[string]any {
	t.Helper()
	out, errs := make([]map[string]any, n), make([]error, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			out[i], errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return out
}

// count returns how many of the answers have this value for the key.
func count(answers []map[string]any, key string, want any) (n int) {
	for _, a := range answers {
		if a[key] == want {
			n++
		}
	}
	return n
}

// eventually waits for a condition that an open transaction of another test may delay.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 20*time.Millisecond, what)
}

// session opens a session of the login with the application_name program.
func (c *core) session(login, program string) *pgx.Conn {
	c.t.Helper()
	cfg, err := pgsession.Parse(c.db.DSN(login))
	require.NoError(c.t, err)
	cfg.RuntimeParams["application_name"] = program
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// end closes a session and waits until its backend has ended.
func (c *core) end(conn *pgx.Conn) {
	c.t.Helper()
	pid := conn.PgConn().PID()
	require.NoError(c.t, conn.Close(context.Background()))
	eventually(c.t, "the session has ended", func() bool {
		return get[int](c, "SELECT count(*)::int FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
}

// begin opens a transaction that is rolled back at the end of the test.
func (c *core) begin(pool *pgxpool.Pool) pgx.Tx {
	c.t.Helper()
	tx, err := pool.Begin(context.Background())
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// executor registers an executor whose last heartbeat was silentFor seconds ago.
func (c *core) executor(id string, cadence, threshold, silentFor int) {
	c.t.Helper()
	c.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
		stale_threshold_seconds, registered_by) VALUES ($1, 'external_worker', '{}', now() - make_interval(secs => $4), $2, $3, 'test')`,
		id, cadence, threshold, silentFor)
}
