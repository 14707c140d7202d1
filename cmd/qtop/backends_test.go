package main

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// The console uses two sessions, one for reads and one for LISTEN, even when
// it reads the snapshot and the session of its login, as after a lost
// connection. Leaving a view cancels the read of that view, but its session
// lives on.
func TestConsoleBackends(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	asked := func(sql string) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT "+sql+` FROM pg_catalog.pg_stat_activity a
			WHERE a.datname = current_database() AND a.application_name LIKE 'qtop %'`).Scan(&n))
		return n
	}
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))
	s := open(t, pgtest.OverTCP(t, db.DSN(operator(t, db)), path.Addr()))
	s.until("live")
	const idle = "count(*) FILTER (WHERE state = 'idle' AND application_name IN ('qtop read', 'qtop listen')) * 10 + count(*)"
	atRest := func() bool { return asked(idle) == 22 }
	require.Eventually(t, atRest, patience, 20*time.Millisecond, "of all sessions, one reads and one listens")

	// back counts the most sessions that read, from the return of the connection on, for a second.
	const reads = "count(*) FILTER (WHERE application_name = 'qtop read')"
	back := func() (most int) {
		path.Cut(true)
		s.until("LOST")
		require.Eventually(t, func() bool { return asked("count(*)") == 0 }, patience, 20*time.Millisecond, "the server ends the sessions whose connections are cut")
		path.Cut(false)
		s.until("connected to the database again")
		for range 50 {
			most = max(most, asked(reads))
			time.Sleep(20 * time.Millisecond) // the 50 looks are spread over a second
		}
		require.Eventually(t, atRest, patience, 20*time.Millisecond, "the listener is back")
		return most
	}
	for tries := 5; back() > 1; tries-- { // on a busy machine a read that takes long may be given up, and its session live for 5 s
		require.Positive(t, tries, "two sessions read at once")
	}

	lock, err := db.Conn(t, "").Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE public.iu_notification_pending IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	const waits = "count(*) FILTER (WHERE wait_event_type = 'Lock')"
	reader := 0
	for deadline := time.Now().Add(patience); ; { // on a busy machine a cancel may come late, or be seen late
		s.keys("g", "n")
		require.Eventually(t, func() bool { return asked(waits) == 1 }, patience, 5*time.Millisecond)
		if reader = asked("COALESCE(max(pid) FILTER (WHERE wait_event_type = 'Lock'), 0)"); reader == 0 {
			require.True(t, time.Now().Before(deadline), "it is over before it can be seen")
			s.keys("1")
			continue
		}
		var began, ended time.Time
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT query_start FROM pg_catalog.pg_stat_activity WHERE pid = $1", reader).Scan(&began))
		s.keys("1")
		require.Eventually(t, func() bool { return asked(waits) == 0 }, patience, 5*time.Millisecond)
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&ended))
		if ended.Sub(began) < 5*time.Second {
			break
		}
		require.True(t, time.Now().Before(deadline), "only statement_timeout ends it, after 5 s")
	}
	require.Equal(t, 1, asked("count(*) FILTER (WHERE pid = "+strconv.Itoa(reader)+")"), "its session lives on")
	require.NoError(t, lock.Rollback(t.Context()))
	s.gone("connecting")
	s.until("live")
	require.Eventually(t, atRest, patience, 100*time.Millisecond, "a second reader closes again")
}

// Ten consoles at rest share one snapshot per refresh interval, and each has
// two sessions.
func TestTenConsoles(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	for _, sql := range []string{
		"CREATE TABLE public.computed (at timestamptz)", "GRANT INSERT ON public.computed TO PUBLIC",
		`CREATE FUNCTION public.computed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.computed VALUES (statement_timestamp()); RETURN NULL; END $$`,
		"CREATE TRIGGER computed AFTER INSERT OR UPDATE ON public.queue_snapshot FOR EACH ROW EXECUTE FUNCTION public.computed()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	asked := func(sql string) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	dsn := db.DSN(operator(t, db))
	for range 10 {
		onScreen(t, 120, 40, program(t, filepath.Join(built, "qtop"), dsn)).until("live")
	}
	require.Eventually(t, func() bool {
		return asked(`SELECT count(*) FROM pg_catalog.pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'qtop %'`) == 20
	}, patience, 50*time.Millisecond, "one reads and one listens for each")

	_, err := conn.Exec(t.Context(), "TRUNCATE public.computed")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return asked("SELECT count(*) FROM public.computed") >= 6 }, patience, 20*time.Millisecond)
	var four float64 // seconds by the server's clock, however late this process looks
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT extract(epoch FROM max(at) - min(at))::float8
		FROM (SELECT at FROM public.computed ORDER BY at OFFSET 1 LIMIT 5) later`).Scan(&four))
	t.Logf("four in %.1f s", four)
	require.Greater(t, four, 3.0, "one is computed when the last one is 0.9 s old")
}
