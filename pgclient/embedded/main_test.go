package embedded

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	SuperviseMain()
	helperMain()
	code := m.Run()
	if made.dir != "" {
		_ = os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// made is a ready cluster from which most tests start, because initdb takes longer than the rest
// of a test.
var made struct {
	once sync.Once
	dir  string
	err  error
}

func seed(t *testing.T) string {
	t.Helper()
	made.once.Do(func() {
		made.dir, made.err = os.MkdirTemp(testRoot(), "qtop-seed-") //nolint:usetesting // it serves all tests and must be open to the server's user
		if made.err != nil {
			return
		}
		if made.err = os.Chmod(made.dir, baseMode()); made.err != nil {
			return
		}
		var s *Server
		if s, made.err = Start(limit(t), Options{Dir: made.dir, Test: true}); made.err == nil {
			made.err = s.Stop(limit(t))
		}
	})
	require.NoError(t, made.err)
	return made.dir
}

// limit is a context that ends a stuck test before the test binary's own limit.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// testRoot is the parent of the tests' directories: in memory if possible, because the tests copy
// many clusters.
func testRoot() string {
	if mem := memoryRoot(); mem != "" {
		return mem
	}
	return tempRoot()
}

// baseDir is a fresh directory that the server's user can reach also when the
// tests run as root (t.TempDir is closed to other users).
func baseDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(testRoot(), "qtop-test-") //nolint:usetesting // t.TempDir is closed to the server's user
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, baseMode()))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// start starts a test server that is stopped at the end of the test.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Test = true
	if o.Seed == "" {
		o.Seed = seed(t)
	}
	s, err := Start(limit(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(limit(t))) })
	return s
}

func connect(t *testing.T, s *Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(limit(t), s.DSN(Superuser, "postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn := connect(t, s)
	var v string
	require.NoError(t, conn.QueryRow(limit(t), sql).Scan(&v))
	require.NoError(t, conn.Close(limit(t)))
	return v
}

func exec1(t *testing.T, s *Server, sql string) {
	t.Helper()
	conn := connect(t, s)
	_, err := conn.Exec(limit(t), sql)
	require.NoError(t, err)
	require.NoError(t, conn.Close(limit(t)))
}
