package schema_test

// This file proves when a second worker host may have an id that another one holds: at
// once where no session of that one is left, after 15 s of silence where that says
// nothing, else never.

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestCrashedHostGivesWay(t *testing.T) {
	c := newCore(t)
	login, other := pgtest.Login(t, c.db, "dot_executor"), pgtest.Login(t, c.db, "dot_executor")
	const tag = "0123456789abcdef"
	// session is one of a program.
	session := func(login, program string) *pgx.Conn {
		cfg, err := pgx.ParseConfig(c.db.DSN(login))
		require.NoError(t, err)
		cfg.RuntimeParams["application_name"] = program
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	register := func(conn *pgx.Conn, tag any) (answer map[string]any) {
		var text []byte
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT public.fn_queue_host_register('h'::text, pg_catalog.gen_random_uuid(), 'v'::text, '{}'::text[],
			$1::text)::text`, tag).Scan(&text))
		require.NoError(t, json.Unmarshal(text, &answer))
		return answer
	}
	first := session(login, "qtop work "+tag)
	next := session(login, "qtop work fedcba9876543210")
	require.Nil(t, register(first, tag)["refused"])
	held := register(next, "fedcba9876543210")
	require.Equal(t, "held", held["rule"], "a session of it is left")
	require.NotEmpty(t, held["holder"])
	require.NotEmpty(t, held["last_seen_at"])

	pid := first.PgConn().PID()
	require.NoError(t, first.Close(t.Context()))
	require.Eventually(t, func() bool {
		return get[int](c, "SELECT count(*)::int FROM pg_stat_activity WHERE pid = $1", pid) == 0
	}, patience, 10*time.Millisecond)
	require.Equal(t, "held", register(session(other, "qtop work "+tag), tag)["rule"], "another login takes nothing over that was seen lately")
	gone := func() bool { return get[bool](c, "SELECT public.fn_queue_host_gone(q) FROM public.queue_host q") }
	require.True(t, gone())
	c.exec("UPDATE public.queue_host SET last_seen_at = pg_postmaster_start_time() - interval '1 second'")
	require.False(t, gone(), "a restart of the server ends the sessions of those that live, too")
	c.exec("UPDATE public.queue_host SET last_seen_at = now()")
	require.Nil(t, register(next, "fedcba9876543210")["refused"], "no session of it is left")

	c.exec("UPDATE public.queue_host SET last_seen_at = now() - interval '16 seconds'")
	own := session(login, "an application's own name")
	require.Nil(t, register(own, tag)["refused"])
	require.NoError(t, own.Close(t.Context()))
	require.True(t, get[bool](c, "SELECT session_tag IS NULL FROM public.queue_host"))
	require.Equal(t, "held", register(next, "fedcba9876543210")["rule"], "whose sessions cannot be known is silent first")
}
