package pgtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
)

const childEnv = "QTOP_PGTEST_CHILD"

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func text(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	var v string
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "b", "c", "d"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := New(t)
			conn := d.Conn(t, "")
			require.Equal(t, d.Name, text(t, conn, "select current_database()"))
			require.Equal(t, "postgres", text(t, conn, "select current_user"))
			_, err := conn.Exec(t.Context(), "create table public.mine as select 1")
			require.NoError(t, err)
		})
	}
}

func TestSchemaIsThereAndAbsent(t *testing.T) {
	t.Parallel()
	const installed = "select (to_regclass('public.qtop_schema_version') is not null)::text"
	require.Equal(t, "true", text(t, New(t).Conn(t, ""), installed))
	require.Equal(t, "false", text(t, Empty(t).Conn(t, ""), installed))
}

func TestLogin(t *testing.T) {
	var db, login string
	admin := Empty(t).Conn(t, "")
	t.Run("inside", func(t *testing.T) {
		d := Empty(t)
		group, second := Login(t, d), Login(t, d)
		login = Login(t, d, group, second)
		db = d.Name
		require.NotEqual(t, group, second)
		pool := d.Pool(t, login)
		var member bool
		require.NoError(t, pool.QueryRow(t.Context(),
			"select pg_has_role($1, 'member') and pg_has_role($2, 'member') and session_user = $3", group, second, login).Scan(&member))
		require.True(t, member)
		_, err := pool.Exec(t.Context(), "create table public.t ()")
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "42501", pgErr.Code, "a login has no rights of its own")
		// Objects and grants of a login do not prevent dropping it.
		_, err = d.Conn(t, "").Exec(t.Context(), "create schema authorization "+login+"; grant create on schema public to "+login)
		require.NoError(t, err)
	})
	require.Equal(t, "0", text(t, admin, "select count(*)::text from pg_database where datname = $1", db))
	require.Equal(t, "0", text(t, admin, "select count(*)::text from pg_roles where rolname = $1", login))
}

// A database is dropped even if a session is connected to it.
func TestDropIsForced(t *testing.T) {
	admin := Empty(t).Conn(t, "")
	var conn *pgx.Conn
	var name string
	t.Run("inside", func(t *testing.T) {
		d := New(t)
		name = d.Name
		var err error
		conn, err = pgsession.Connect(t.Context(), d.DSN(""))
		require.NoError(t, err)
	})
	defer func() { _ = conn.Close(context.Background()) }()
	require.Equal(t, "0", text(t, admin, "select count(*)::text from pg_database where datname = $1", name))
	require.Error(t, conn.Ping(t.Context()))
}

func TestOwnServer(t *testing.T) {
	t.Parallel()
	s := OwnServer(t, map[string]string{"work_mem": "7MB"})
	connect := func() *pgx.Conn {
		conn, err := pgsession.Connect(t.Context(), s.DSN("postgres", "postgres"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	require.Equal(t, "7MB", text(t, connect(), "show work_mem"))
	require.Equal(t, "0", text(t, connect(), "select count(*)::text from pg_database where datname like 'qtop_template%'"))
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGKILL))
	<-s.Done()
	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, "7MB", text(t, connect(), "show work_mem"))
	if d := Empty(t); d.Server != nil {
		require.NotEqual(t, d.Server.Pid(), s.Pid())
	}
}

func TestTCP(t *testing.T) {
	t.Parallel()
	s := OwnServer(t, nil)
	addr := TCP(t, s)
	require.True(t, strings.HasPrefix(addr, "127.0.0.1:"))
	dsn := OverTCP(t, s.DSN("postgres", "postgres"), addr)
	conn, err := pgsession.Connect(t.Context(), dsn)
	require.NoError(t, err)
	require.Equal(t, "1", text(t, conn, "select 1::text"))
	require.NoError(t, s.Restart(t.Context()))
	require.Error(t, conn.Ping(t.Context()), "the end of a session passes through")
	conn, err = pgsession.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.Equal(t, "1", text(t, conn, "select 1::text"))
}

// A server named by QTOP_TEST_DSN is used unchanged: the template is made once, and objects of a
// test are removed afterwards.
func TestGivenServer(t *testing.T) {
	t.Parallel()
	s := OwnServer(t, nil)
	given := func(run string) {
		cmd := self(t, run)
		cmd.Env = append(cmd.Env, "QTOP_TEST_DSN="+s.DSN("postgres", "postgres"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "PASS")
	}
	conn, err := pgsession.Connect(t.Context(), s.DSN("postgres", "postgres"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	const state = "select string_agg(datname || oid, ',' order by datname) from pg_database"
	given("TestDatabasesAreApart|TestLogin|TestSchema")
	first := text(t, conn, state)
	require.Equal(t, 1, strings.Count(first, "qtop_template_"))
	given("TestDatabasesAreApart|TestLogin")
	require.Equal(t, first, text(t, conn, state))
	require.Equal(t, "0", text(t, conn, "select count(*)::text from pg_roles where rolname like 'login%'"))

	name := templateName(time.Now())
	_, err = conn.Exec(t.Context(), "alter database "+name+" allow_connections true") // as after a kill of the process that was making the template
	require.NoError(t, err)
	given("TestSchema")
	require.NotEqual(t, first, text(t, conn, state))
	require.Equal(t, "false", text(t, conn, "select datallowconn::text from pg_database where datname = $1", name))
}

// self runs some tests of this binary in a separate process.
func self(t *testing.T, run string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run", run, "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd
}

type childReport struct {
	Pid       int
	Dir, Data string
}

// TestChildHoldsCluster is the other half of TestKilledRun.
func TestChildHoldsCluster(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs as the child of TestKilledRun")
	}
	d := New(t)
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(childReport{d.Server.Pid(), d.Server.Dir(), d.Server.DataDir()}))
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// A test process that is killed leaves no server behind, and the next test process removes its
// files.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	cmd := self(t, "TestChildHoldsCluster")
	cmd.Env = append(cmd.Env, "QTOP_TEST_DSN=")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var r childReport
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if json.Unmarshal(scanner.Bytes(), &r) == nil {
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.NotZero(t, r.Pid)
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(r.Pid, 0), syscall.ESRCH) || isZombie(r.Pid)
	}, 20*time.Second, 10*time.Millisecond, "the server outlives its host")
	require.Eventually(t, func() bool {
		s := OwnServer(t, nil)
		require.NoError(t, s.Stop(t.Context()))
		_, err := os.Stat(r.Dir)
		return os.IsNotExist(err)
	}, 30*time.Second, 10*time.Millisecond, "%s is not swept", r.Dir)
}

func isZombie(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func TestSweepSeeds(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	now := time.Now()
	age := func(name string, d time.Duration) {
		dir := filepath.Join(home, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chtimes(dir, now.Add(-d), now.Add(-d)))
	}
	for i := range seedCount {
		age(string(rune('a'+i)), time.Duration(i)*time.Minute)
	}
	age("surplus, in use", seedBusy-time.Minute)
	age("surplus", seedBusy+time.Minute)
	age("old", seedKeep+time.Minute)
	sweepSeeds(home)
	require.NoDirExists(t, filepath.Join(home, "surplus"))
	require.NoDirExists(t, filepath.Join(home, "old"))
	entries, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Len(t, entries, seedCount+1)
	require.True(t, markUsed(filepath.Join(home, "a")))
	require.False(t, markUsed(filepath.Join(home, "old")))
}

func TestMajor(t *testing.T) {
	for value, want := range map[string]int{"": 0, "16": 16, " 17,18": 17, "x": 0} {
		t.Setenv("QTOP_TEST_PG", value)
		require.Equal(t, want, major(), value)
	}
}

// The server under test has the requested version.
func TestVersionAsked(t *testing.T) {
	t.Parallel()
	if m := major(); m != 0 && os.Getenv("QTOP_TEST_DSN") == "" {
		s := OwnServer(t, nil)
		require.Equal(t, m, s.Binaries().Major)
	}
}

// BenchmarkNew logs how long a clone takes; it checks no limit.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New(b)
	}
}
