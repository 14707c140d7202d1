package embedded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestThrowAwayServer(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	require.False(t, s.Joined())
	require.Equal(t, s.Version(), s.Binaries().Version)
	require.Equal(t, "1", query(t, s, "select 1::text"))
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		require.Equal(t, "off", query(t, s, "show "+name))
	}
	require.NoError(t, s.Stop(limit(t)))
	<-s.Done()
	require.NoError(t, s.Stop(limit(t)), "Stop is idempotent")
	require.NoDirExists(t, s.Dir())
	gone(t, s.Pid())
}

func TestKeptServer(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	s, err := Start(limit(t), Options{Dir: dir})
	require.NoError(t, err)
	require.Equal(t, "on", query(t, s, "show fsync"))
	exec1(t, s, "create table kept as select 7 as n")
	first := s.Pid()
	require.NoError(t, s.Stop(limit(t)))
	gone(t, first)

	s = start(t, Options{Dir: dir, Params: map[string]string{"work_mem": "7MB"}})
	require.Equal(t, "7", query(t, s, "select n::text from kept"))
	require.Equal(t, "7MB", query(t, s, "show work_mem"))
	require.NoError(t, s.Stop(limit(t)))

	s = start(t, Options{Dir: dir, Wipe: true})
	require.Equal(t, "true", query(t, s, "select (to_regclass('kept') is null)::text"))
}

// The server is reachable only through its socket, and only for the owner of the socket directory.
func TestPrivate(t *testing.T) {
	// The server does not get the environment of this process.
	t.Setenv("PGDATA", "/nowhere")
	t.Setenv("PGPORT", "1")
	t.Setenv("PGHOST", "nowhere.invalid")
	t.Setenv("QTOP_SECRET", "not for children")
	s := start(t, Options{})
	exec1(t, s, "create table env (line text); copy env from program 'env'")
	require.Equal(t, "UTC", query(t, s, "select substr(line, 4) from env where line like 'TZ=%'"))
	require.Equal(t, "0", query(t, s, "select count(*)::text from env where line like 'PGHOST%' or line like 'QTOP%' or line like 'HOME=%'"))
	require.Empty(t, query(t, s, "show listen_addresses"))
	require.Equal(t, "0700", query(t, s, "show unix_socket_permissions"))
	require.Equal(t, "local {all} {all} trust",
		query(t, s, "select string_agg(concat_ws(' ', type, database, user_name, auth_method), ';') from pg_hba_file_rules"))
	for _, dir := range []string{s.SocketDir(), s.DataDir(), filepath.Dir(s.DataDir())} {
		fi, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), fi.Mode().Perm(), dir)
	}
	for _, name := range []string{"listen_addresses", "port", "Unix_Socket_Directories"} {
		_, err := Start(limit(t), Options{Params: map[string]string{name: "*"}})
		require.ErrorContains(t, err, name)
	}
}

// Ctrl-C and a closed terminal signal qtop's session; the server runs in another one and gets no
// signal.
func TestOwnSession(t *testing.T) {
	t.Parallel()
	for _, pipe := range []bool{false, true} {
		s := start(t, Options{pipe: pipe})
		ours, err := syscall.Getpgid(0)
		require.NoError(t, err)
		theirs, err := syscall.Getpgid(s.Pid())
		require.NoError(t, err)
		require.NotEqual(t, ours, theirs)
		require.NoError(t, s.Stop(limit(t)))
		gone(t, s.Pid())
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	for name, sub := range map[string]string{"long": strings.Repeat("long/", 30), "comma": "a,b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(baseDir(t), sub)
			s := start(t, Options{Dir: dir})
			require.LessOrEqual(t, len(s.SocketDir())+len("/.s.PGSQL.5432"), socketLimit)
			dsn := s.DSN(Superuser, "postgres")
			require.Equal(t, "1", query(t, s, "select 1::text"))
			require.NoError(t, s.Stop(limit(t)))
			require.NoDirExists(t, filepath.Dir(s.SocketDir()), "the short directory goes with the server")
			s = start(t, Options{Dir: dir})
			require.Equal(t, dsn, s.DSN(Superuser, "postgres"), "the same directory has the same socket")
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	exec1(t, s, `create role "a b/c@d?'" login`)
	exec1(t, s, `create database "x y&z=1%"`)
	conn, err := pgx.Connect(limit(t), s.DSN("a b/c@d?'", "x y&z=1%"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var got string
	require.NoError(t, conn.QueryRow(limit(t), "select current_user || '|' || current_database()").Scan(&got))
	require.Equal(t, "a b/c@d?'|x y&z=1%", got)
}

// Stop ends within its time limits although a client is running a statement, and also when its
// context has ended already.
func TestStopBusy(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"patient": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, Options{})
			conn := connect(t, s)
			failed := make(chan error, 1)
			go func() {
				_, err := conn.Exec(context.Background(), "select pg_sleep(600)")
				failed <- err
			}()
			require.Eventually(t, func() bool {
				return query(t, s, "select count(*)::text from pg_stat_activity where query like 'select pg_sleep%'") == "1"
			}, 20*time.Second, 10*time.Millisecond)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if cancelled {
				cancel()
			}
			begin := time.Now()
			require.NoError(t, s.Stop(ctx))
			require.Less(t, time.Since(begin), 15*time.Second)
			require.Error(t, <-failed)
			empty(t, s.DataDir())
		})
	}
}

func TestStartIsBoundedByContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := baseDir(t)
	_, err := Start(ctx, Options{Dir: dir, Test: true})
	require.ErrorIs(t, err, context.Canceled)
	start(t, Options{Dir: dir}) // the stopped server leaves nothing that prevents another start
}

func TestRefusesToSuperviseByAccident(t *testing.T) {
	t.Setenv(superviseEnv, "{}")
	_, err := Start(limit(t), Options{})
	require.ErrorContains(t, err, "SuperviseMain")
}

func TestSeed(t *testing.T) {
	t.Parallel()
	seed := baseDir(t)
	s, err := Start(limit(t), Options{Dir: seed, Test: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Stop(limit(t)) })
	exec1(t, s, "create table ready as select 5 as n")

	_, err = Start(limit(t), Options{Test: true, Seed: seed})
	require.ErrorContains(t, err, "not shut down", "a running cluster cannot be copied")
	require.NoError(t, s.Stop(limit(t)))

	a, b := start(t, Options{Seed: seed}), start(t, Options{Seed: seed})
	exec1(t, a, "update ready set n = 6")
	require.Equal(t, "6", query(t, a, "select n::text from ready"))
	require.Equal(t, "5", query(t, b, "select n::text from ready"))
}
