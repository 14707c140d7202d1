package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// A look at a session whose lock request ends at that moment does not replace the name of the table.
func TestBlockerWhileTheWaitEnds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), db.DSN(""))
		require.NoError(t, err)
		return conn
	}
	holder, waiter, watcher := connect(), connect(), connect()
	for _, sql := range []string{"BEGIN", "LOCK TABLE public.dot_config"} {
		_, err := holder.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			_, _ = waiter.Exec(t.Context(), "SET lock_timeout = '1ms'; LOCK TABLE public.dot_config")
		}
	}()
	seen := 0
	for ended := false; !ended; {
		if who := schema.LookAtBlocker(t.Context(), watcher, waiter.PgConn().PID()); who != "" {
			require.Contains(t, who, "public.dot_config is held by pid ")
			seen++
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	require.Positive(t, seen)
}
