// Database sessions that hold up the queue: how they are shown, and the audit row that is committed
// before such a session is cancelled or terminated.

package schema_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// seenSession is a row that fn_queue_activity returns.
type seenSession struct {
	PID              int32
	Started          time.Time
	Login, State     string
	Oldest, Listens  bool
	BlockedBy, Block []int32
	Tables           []string
	Seen             bool
}

func activity(t *testing.T, pool *pgxpool.Pool) map[int32]seenSession {
	t.Helper()
	rows, err := pool.Query(context.Background(), `SELECT pid, COALESCE(started_at, 'epoch'), login, state, oldest_snapshot, listens, blocked_by, blocks, tables, seen
		FROM public.fn_queue_activity() WHERE kind = 'session'`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seenSession])
	require.NoError(t, err)
	out := map[int32]seenSession{}
	for _, s := range all {
		out[s.PID] = s
	}
	return out
}

func pid(t *testing.T, tx pgx.Tx) int32 {
	t.Helper()
	var n int32
	require.NoError(t, tx.QueryRow(context.Background(), "SELECT pg_catalog.pg_backend_pid()").Scan(&n))
	return n
}

// A viewer sees which session holds the oldest snapshot, and which session blocks which other one
// on which table. No column of the answer can hold the text of a statement.
func TestActivityShowsWhoHoldsQueuesUp(t *testing.T) {
	c := newCore(t)
	ctx := context.Background()
	viewer := c.as("queue_viewer")
	old := c.begin(c.root)
	_, err := old.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	holder := pid(t, old)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now()") // this commit is newer than the snapshot that the reader holds
	blocker := c.begin(c.root)
	_, err = blocker.Exec(ctx, "LOCK TABLE public.queue_heartbeat IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	waiter := c.begin(c.root)
	blocked := pid(t, waiter)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = waiter.Exec(ctx, "SELECT 'a-secret-word' FROM public.queue_heartbeat")
	}()
	listener, err := c.root.Acquire(ctx)
	require.NoError(t, err)
	defer listener.Release()
	_, err = listener.Exec(ctx, "LISTEN some_channel")
	require.NoError(t, err)
	var all map[int32]seenSession
	eventually(t, "the waiter is seen to wait", func() bool {
		all = activity(t, viewer)
		return len(all[blocked].BlockedBy) > 0
	})
	who := pid(t, blocker)
	require.True(t, all[holder].Oldest, "%+v", all)
	require.Equal(t, []int32{who}, all[blocked].BlockedBy)
	require.Equal(t, []int32{blocked}, all[who].Block)
	require.Equal(t, []string{"queue_heartbeat"}, all[who].Tables)
	require.Equal(t, "idle in transaction", all[holder].State)
	require.True(t, all[int32(listener.Conn().PgConn().PID())].Listens) //nolint:gosec // a pid
	var text string
	require.NoError(t, viewer.QueryRow(ctx, "SELECT string_agg(a::text, ' ') FROM public.fn_queue_activity() a").Scan(&text))
	require.NotContains(t, text, "secret-word")
	require.NoError(t, blocker.Rollback(ctx))
	<-done
}

// A caller may signal a session only with a PostgreSQL right to do so, and the audit row is
// committed first. A pid that the server has reused belongs to another session: the start time
// distinguishes the two.
func TestSignalToASession(t *testing.T) {
	c := newCore(t)
	ctx := context.Background()
	operator := c.as("dead_letter_operator")
	victim := c.begin(c.as("queue_viewer"))
	n := pid(t, victim)
	started := get[time.Time](c, "SELECT backend_start FROM pg_catalog.pg_stat_activity WHERE pid = $1", n)
	const ask = "public.fn_queue_session_signal($1::integer, $2::timestamptz, $3::text, 'kim'::text, 'it holds the queue'::text, $4::boolean)"
	is := func(pool *pgxpool.Pool, at time.Time) (yes bool) {
		require.NoError(t, pool.QueryRow(ctx, "SELECT public.fn_queue_session_is($1, $2)", n, at).Scan(&yes))
		return yes
	}
	require.Equal(t, "right", call(t, operator, ask, n, started, "cancel", true)["rule"])
	require.Equal(t, 0, get[int](c, "SELECT count(*)::int FROM public.queue_operator_action"), "a dry run writes nothing")
	require.Equal(t, "right", call(t, operator, ask, n, started, "cancel", false)["rule"])
	require.Equal(t, "refused: right", get[string](c, "SELECT outcome FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))
	fails(t, operator, "42501", "SELECT pg_catalog.pg_terminate_backend($1)", n)

	signaller := c.db.Pool(t, pgtest.Login(t, c.db, "dead_letter_operator", "pg_signal_backend"))
	require.Equal(t, "not_found", call(t, signaller, ask, n, started.Add(time.Second), "terminate", false)["rule"])
	require.False(t, is(signaller, started.Add(time.Second)))
	root := get[int32](c, "SELECT pid FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()")
	rootStarted := get[time.Time](c, "SELECT backend_start FROM pg_catalog.pg_stat_activity WHERE pid = $1", root)
	require.Equal(t, "right", call(t, signaller, ask, root, rootStarted, "terminate", true)["rule"], "a superuser's session")
	got := call(t, signaller, ask, n, started, "terminate", false)
	require.Nil(t, got["refused"], got)
	require.Equal(t, "asked", get[string](c, "SELECT outcome FROM public.queue_operator_action WHERE id = $1", got["audit_id"]))
	require.True(t, is(signaller, started))
	_, err := signaller.Exec(ctx, "SELECT pg_catalog.pg_terminate_backend($1) WHERE public.fn_queue_session_is($1, $2)", n, started)
	require.NoError(t, err)
	eventually(t, "the session ends", func() bool { return !is(signaller, started) })
	fails(t, operator, "22023", "SELECT "+ask, n, started, "stop", false)
}
