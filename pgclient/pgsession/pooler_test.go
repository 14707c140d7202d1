package pgsession_test

import (
	"context"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// In whatever way a statement is sent, its settings apply and the caller gets the right answer:
// rows, an error, a batch, a copy, a pipeline of transactions.
func TestEachTransaction(t *testing.T) {
	db := pgtest.Empty(t)
	login := pgtest.Login(t, db)
	_, err := db.Conn(t, "").Exec(t.Context(), "CREATE TABLE public.copied (a int, b text); GRANT ALL ON public.copied TO PUBLIC")
	require.NoError(t, err)
	b := pgtest.NewBouncer(t, db, "transaction", []string{login}, "default_pool_size = 1")
	cc, err := pgsession.Parse(b.DSN(login))
	require.NoError(t, err)
	pgsession.Set(cc, pgsession.Setting{Name: "application_name", Value: `a'b\c`},
		pgsession.Setting{Name: "lock_timeout", Value: "77"}, pgsession.Setting{Name: "statement_timeout", Value: "60000"})
	route := &pgsession.Route{}
	conn, err := route.Connect(t.Context(), cc)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	require.True(t, route.Pooled())
	pgsession.Set(cc, pgsession.Setting{Name: "statement_timeout", Value: "50"}) // set by another client on the same server connection
	short, err := route.Connect(t.Context(), cc)
	require.NoError(t, err)
	defer func() { require.NoError(t, short.Close(context.WithoutCancel(t.Context()))) }()

	const limit = "SELECT pg_catalog.current_setting('lock_timeout')"
	is := func(row pgx.Row) {
		t.Helper()
		var got string
		require.NoError(t, row.Scan(&got))
		require.Equal(t, "77ms", got)
	}
	fails := func(code string, err error) {
		t.Helper()
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, code, pg.Code)
		is(conn.QueryRow(t.Context(), limit)) // the next statement has a separate answer
	}
	late := func(args ...any) {
		t.Helper()
		sql := "SELECT pg_catalog.pg_sleep(60)"
		if len(args) > 0 {
			sql = "SELECT pg_catalog.pg_sleep($1::int)"
		}
		_, err := short.Exec(t.Context(), sql, args...)
		fails("57014", err)
	}
	exec := func(sql string, args ...any) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	}
	require.NoError(t, exec("-- nothing"))
	require.NoError(t, exec(""))
	is(conn.QueryRow(t.Context(), limit))
	is(conn.QueryRow(t.Context(), limit+" WHERE $1", true))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe} {
		is(conn.QueryRow(t.Context(), limit+" WHERE $1", mode, true))
		fails("22012", exec("SELECT 1 / $1::int", mode, 0))
		fails("42601", exec("SELEKT", mode))
		late(mode, 60)
	}
	late()

	for _, o := range []pgx.TxOptions{{}, {IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable}} {
		require.NoError(t, pgx.BeginTxFunc(t.Context(), conn, o, func(tx pgx.Tx) error {
			is(tx.QueryRow(t.Context(), limit))
			is(tx.QueryRow(t.Context(), limit+" WHERE $1", true))
			return nil
		}))
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT 1 / $1::int", 0)
		return err
	})
	fails("22012", err)
	err = pgx.BeginFunc(t.Context(), short, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT pg_catalog.pg_sleep(60)")
		return err
	})
	fails("57014", err)

	var batch pgx.Batch
	for range 3 {
		batch.Queue(limit).QueryRow(func(row pgx.Row) error { is(row); return nil })
		batch.Queue(limit+" WHERE $1", true).QueryRow(func(row pgx.Row) error { is(row); return nil })
	}
	require.NoError(t, conn.SendBatch(t.Context(), &batch).Close())
	n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"public", "copied"}, []string{"a", "b"}, pgx.CopyFromSlice(5000, func(i int) ([]any, error) {
		return []any{i, "café 😀"}, nil
	}))
	require.NoError(t, err)
	require.EqualValues(t, 5000, n)
	rows, err := conn.Query(t.Context(), "SELECT b FROM public.copied WHERE a >= $1", 0)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, all, 5000)
	require.Equal(t, "café 😀", all[4999])

	p := conn.PgConn().StartPipeline(t.Context())
	for range 3 {
		p.SendQueryParams(limit, nil, nil, nil, nil)
		p.SendPipelineSync()
	}
	require.NoError(t, p.Flush())
	for range 3 {
		results, err := p.GetResults()
		require.NoError(t, err)
		answer := results.(*pgconn.ResultReader).Read()
		require.NoError(t, answer.Err)
		require.Equal(t, "77ms", string(answer.Rows[0][0]))
		results, err = p.GetResults()
		require.NoError(t, err)
		require.IsType(t, &pgconn.PipelineSync{}, results)
	}
	require.NoError(t, p.Close())
	is(conn.QueryRow(t.Context(), limit))
}

// A busy pooler in transaction mode is not taken for one in session mode, although each of two
// connections that ask one after the other gets a separate server connection.
func TestBusyPoolerIsInTransactionMode(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	login := pgtest.Login(t, db)
	b := pgtest.NewBouncer(t, db, "transaction", []string{login})
	cc, err := pgsession.Parse(b.DSN(login))
	require.NoError(t, err)
	route := &pgsession.Route{}
	busy, err := route.Connect(t.Context(), cc)
	require.NoError(t, err)
	defer func() { require.NoError(t, busy.Close(context.WithoutCancel(t.Context()))) }()
	require.True(t, route.Pooled())
	dial, calls := cc.DialFunc, 0
	cc.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if calls++; calls == 2 { // the server connection that the first has used is taken meanwhile
			if _, err := busy.Exec(ctx, "BEGIN"); err != nil {
				return nil, err
			}
		}
		return dial(ctx, network, address)
	}
	mode, err := route.FindMode(t.Context(), cc)
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.Equal(t, pgsession.Transaction, mode)
}

// A connection that was on its way while another one detected the pooler is refused, because its
// settings are not in force; the next attempt succeeds.
func TestPoolerDetectedMeanwhile(t *testing.T) {
	db := pgtest.Empty(t)
	login := pgtest.Login(t, db)
	b := pgtest.NewBouncer(t, db, "transaction", []string{login}, "ignore_startup_parameters = search_path,intervalstyle,default_transaction_isolation,jit,lock_timeout")
	cc, err := pgsession.Parse(b.DSN(login))
	require.NoError(t, err)
	pgsession.Set(cc, pgsession.Setting{Name: "lock_timeout", Value: "77"})
	route := &pgsession.Route{}
	early := cc.Copy()
	route.Prepare(early)
	slow, err := pgx.ConnectConfig(t.Context(), early)
	require.NoError(t, err)
	defer func() { require.NoError(t, slow.Close(context.WithoutCancel(t.Context()))) }()
	first, err := route.Connect(t.Context(), cc)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close(context.WithoutCancel(t.Context()))) }()
	require.True(t, route.Pooled())
	err = route.Check(t.Context(), slow)
	require.Error(t, err, "it has none of its settings")
	require.True(t, route.Learn(err), "the caller tries again: %v", err)
	require.NoError(t, route.Check(t.Context(), first))
}
