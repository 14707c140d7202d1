// Through a real PgBouncer with the default settings of its package: every statement runs with the
// settings of a direct session, in one round trip, and leaves no setting on the server's
// connection.

package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// inForce has the settings that a statement runs with.
type inForce struct{ Path, Timeout, LockTimeout, Idle, Encoding, Zone, ReadOnly, Named, JIT, Evil string }

const whatIsInForce = `SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('lock_timeout'),
	pg_catalog.current_setting('idle_in_transaction_session_timeout'), pg_catalog.current_setting('client_encoding'), pg_catalog.current_setting('timezone'),
	pg_catalog.current_setting('transaction_read_only'), (SELECT pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_prepared_statements),
	pg_catalog.current_setting('jit'),
	(pg_catalog.to_regclass('evil_table') IS NOT NULL)::pg_catalog.text`

func TestThroughPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) { throughPooler(t, mode) })
	}
}

func throughPooler(t *testing.T, mode string) {
	ctx := context.Background()
	w := newWorld(t)
	w.die(deadLetter{"order", "https://a.example/x", "HTTP_500", 0})
	login := pgtest.Login(t, w.db, "workflow_admin", "queue_viewer", "dead_letter_operator", "dot_executor")
	user := pgx.Identifier{login}.Sanitize()
	for _, sql := range []string{
		"CREATE SCHEMA IF NOT EXISTS evil", "CREATE TABLE evil.evil_table ()", "GRANT USAGE ON SCHEMA evil TO PUBLIC",
		"ALTER ROLE " + user + " SET search_path = evil, pg_catalog, public",
		"ALTER ROLE " + user + " SET statement_timeout = 0", "ALTER ROLE " + user + " SET timezone = 'Asia/Tokyo'", "ALTER ROLE " + user + " SET jit = on",
		"ALTER ROLE " + user + " SET client_encoding = LATIN1", "ALTER ROLE " + user + " SET standard_conforming_strings = off",
	} {
		w.exec(sql)
	}
	b := pgtest.NewBouncer(t, w.db, mode, []string{login})
	at := pgclient.Options{DSN: b.DSN(login) + "&options=-c%20work_mem%3D7MB", Actor: "ann", WorkConns: 2}
	c := open(t, at)

	// The calls of a console and of a verb work.
	s, err := c.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.Empty(t, s.Missing)
	page, err := c.List(ctx, queue.Query{Kind: queue.ListSession})
	require.NoError(t, err)
	require.True(t, queue.Of[*queue.Session](page).Pooler)
	page, err = c.List(ctx, queue.Query{Kind: queue.ListDeadLetters})
	require.NoError(t, err)
	require.EqualValues(t, 1, page.Total)
	p, err := c.Plan(ctx, queue.Request{Action: queue.ActFlagSet, Actor: "ann", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "café 😀"})
	require.NoError(t, err)
	_, err = c.Apply(ctx, p)
	require.NoError(t, err)
	require.Equal(t, "café 😀", get[string](w, "SELECT reason FROM public.queue_operator_action WHERE actor = 'ann' ORDER BY id DESC LIMIT 1"))
	_, err = c.Report(ctx, time.Now().Add(-time.Hour), time.Now())
	require.NoError(t, err)

	// Every statement runs with its settings, alone and in a transaction.
	var got inForce
	into := []any{&got.Path, &got.Timeout, &got.LockTimeout, &got.Idle, &got.Encoding, &got.Zone, &got.ReadOnly, &got.Named, &got.JIT, &got.Evil}
	read := inForce{"pg_catalog, pg_temp", "5s", "5s", "1min", "UTF8", "UTC", "off", "0", "off", "false"}
	work := read
	work.Timeout, work.LockTimeout = "1min", "10s"
	for range 3 {
		require.NoError(t, c.Read().QueryRow(ctx, whatIsInForce).Scan(into...)) // by the simple query protocol
		require.Equal(t, read, got)
		require.NoError(t, c.Read().QueryRow(ctx, whatIsInForce+" WHERE $1::int = 1", 1).Scan(into...))
		require.Equal(t, read, got)
		require.NoError(t, c.Work().QueryRow(ctx, whatIsInForce+" WHERE $1::int = 1", 1).Scan(into...))
		require.Equal(t, work, got)
		require.NoError(t, pgx.BeginTxFunc(ctx, c.Work(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			for range 2 {
				if err := tx.QueryRow(ctx, whatIsInForce+" WHERE $1::int = 1", 1).Scan(into...); err != nil {
					return err
				}
			}
			return nil
		}))
		within := work
		within.ReadOnly = "on"
		require.Equal(t, within, got)
	}
	var memory string
	require.NoError(t, c.Read().QueryRow(ctx, "SELECT pg_catalog.current_setting('work_mem')").Scan(&memory))
	require.Equal(t, "7MB", memory, "the options of the connection string")

	// A statement and its settings take one round trip together.
	conn, err := c.Read().Acquire(ctx)
	require.NoError(t, err)
	ask := func() {
		var n int
		require.NoError(t, conn.QueryRow(ctx, "SELECT $1::int", 1).Scan(&n))
	}
	ask() // the first execution also describes the columns
	xacts, queries := b.Count(t)
	for range 25 {
		ask()
	}
	afterX, afterQ := b.Count(t)
	conn.Release()
	require.EqualValues(t, 25, afterX-xacts, "transactions")
	require.EqualValues(t, 25, afterQ-queries, "round trips")

	// A read-only console has read-only sessions.
	at.ReadOnly, at.WorkConns = true, 0
	only := open(t, at)
	_, err = only.Snapshot(ctx, 0)
	require.NoError(t, err)
	p, err = only.Plan(ctx, queue.Request{Action: queue.ActFlagSet, Actor: "ann", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "5"}, Reason: "r"})
	require.NoError(t, err)
	_, err = only.Apply(ctx, p)
	require.ErrorContains(t, err, "read-only")

	// No setting is left on the server's connection for the next client.
	c.Close()
	only.Close()
	other, err := pgx.Connect(ctx, b.DSN(login))
	require.NoError(t, err)
	defer func() { _ = other.Close(ctx) }()
	require.NoError(t, other.QueryRow(ctx, whatIsInForce, pgx.QueryExecModeExec).Scan(into...))
	require.Equal(t, "evil, pg_catalog, public", got.Path)
	require.Equal(t, "0", got.Timeout)
	require.Equal(t, "off", got.ReadOnly)
}

// A pooler that accepts the startup parameters but does not apply them is detected. If the profile
// names the pooler, the profile is believed.
func TestPoolerThatIgnores(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "queue_viewer")
	b := pgtest.NewBouncer(t, w.db, "transaction", []string{login},
		"ignore_startup_parameters = search_path,jit,statement_timeout,lock_timeout,idle_in_transaction_session_timeout,default_transaction_read_only")
	for _, pooler := range []string{"", "transaction"} {
		c := open(t, pgclient.Options{DSN: b.DSN(login), Pooler: pooler})
		var path, timeout string
		require.NoError(t, c.Read().QueryRow(context.Background(), "SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('statement_timeout')").
			Scan(&path, &timeout))
		require.Equal(t, "pg_catalog, pg_temp", path)
		require.Equal(t, "5s", timeout)
	}
	direct := open(t, pgclient.Options{DSN: w.db.DSN(login), Pooler: "transaction"})
	var path string
	require.NoError(t, direct.Read().QueryRow(context.Background(), "SELECT pg_catalog.current_setting('search_path')").Scan(&path))
	require.Equal(t, "pg_catalog, pg_temp", path, "settings come with each transaction also where no pooler is")
}

// Jobs that are enqueued and claimed in one pipeline run with the settings too.
func TestEnqueueThroughPooler(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "workflow_admin", "event_ingest_writer")
	b := pgtest.NewBouncer(t, w.db, "transaction", []string{login})
	p := enqueue.New(open(t, pgclient.Options{DSN: b.DSN(login), WorkConns: 3}).Client)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 5 {
		_, created, err := p.Enqueue(ctx, enqueue.Job{Kind: "k", Domain: "system", Executor: "DOT"})
		require.NoError(t, err)
		require.True(t, created)
	}
	made, err := p.EnqueueMany(ctx, []enqueue.Job{{Kind: "k", Domain: "system", Executor: "DOT"}, {Kind: "k", Domain: "system", Executor: "DOT"}})
	require.NoError(t, err)
	require.Equal(t, 2, made.New)
	require.Equal(t, 7, get[int](w, "SELECT count(*) FROM public.job_queue WHERE job_kind = 'k'"))
}

// The mode of a pooler is detected, and statement mode is refused.
func TestPoolModes(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "queue_viewer")
	for _, mode := range []string{"session", "transaction"} {
		for _, more := range []string{"", "server_round_robin = 1", "min_pool_size = 2"} {
			b := pgtest.NewBouncer(t, w.db, mode, []string{login}, more)
			c := open(t, pgclient.Options{DSN: b.DSN(login), Actor: "ann"})
			_, err := c.Session(t.Context())
			require.NoError(t, err)
			got, err := c.PoolMode(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, mode, got, more)
		}
	}
	b := pgtest.NewBouncer(t, w.db, "statement", []string{login})
	for _, pooler := range []string{"", "transaction"} {
		c := open(t, pgclient.Options{DSN: b.DSN(login), Pooler: pooler})
		_, err := c.Snapshot(t.Context(), 0)
		kind(t, queue.KindConfig, err)
		require.ErrorContains(t, err, "the pooler is in statement mode")
		require.ErrorContains(t, err, "pool_mode = transaction")
		kind(t, queue.KindConfig, c.Serves(t.Context()))
	}
	direct := open(t, pgclient.Options{DSN: w.db.DSN(login)})
	_, err := direct.Session(t.Context())
	require.NoError(t, err)
	got, err := direct.PoolMode(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}

// Behind a pooler in session mode, idle clients leave its few connections to others.
func TestSessionPoolerHasRoom(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "queue_viewer", "workflow_admin")
	b := pgtest.NewBouncer(t, w.db, "session", []string{login}, "default_pool_size = 12")
	for range 4 {
		c := open(t, pgclient.Options{DSN: b.DSN(login), WorkConns: 8, Actor: "ann"})
		_, err := c.PoolMode(t.Context())
		require.NoError(t, err)
		_, err = c.Session(t.Context())
		require.NoError(t, err)
		_, err = c.Snapshot(t.Context(), 0)
		require.NoError(t, err)
		var busy []func()
		for range 4 {
			conn, err := c.Work().Acquire(t.Context())
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "SELECT 1")
			require.NoError(t, err)
			busy = append(busy, conn.Release)
		}
		for _, release := range busy {
			release()
		}
	}
	_, err := open(t, pgclient.Options{DSN: b.DSN(login), Actor: "bob"}).Snapshot(t.Context(), 0)
	require.NoError(t, err)
}

// CheckListen tests whether wake signals arrive over listen_dsn.
func TestCheckListen(t *testing.T) {
	w, other := newWorld(t), pgtest.Empty(t)
	login := pgtest.Login(t, w.db, "queue_viewer")
	b := pgtest.NewBouncer(t, w.db, "transaction", []string{login})
	check := func(listen string) error {
		return open(t, pgclient.Options{DSN: b.DSN(login), ListenDSN: listen}).CheckListen(t.Context())
	}
	require.NoError(t, check(w.db.DSN(login)))
	require.ErrorContains(t, check(""), "set listen_dsn to a direct connection")
	require.ErrorContains(t, check(b.DSN(login)), "no signal arrives over listen_dsn")
	require.ErrorContains(t, check(other.DSN("")), "no signal arrives over listen_dsn")
	kind(t, queue.KindUnavailable, check("host="+t.TempDir()))
}
