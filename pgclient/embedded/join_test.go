package embedded

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSecondProcessJoins(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	owner := start(t, Options{Dir: dir})
	exec1(t, owner, "create table precious as select 1 as n")

	h := startHelper(t, helperOrder{Mode: "start", Dir: dir}, nil)
	require.Empty(t, h.report.Err)
	require.True(t, h.report.Joined)
	require.Equal(t, owner.Pid(), h.report.Pid)
	require.Equal(t, owner.DSN(Superuser, "postgres"), h.report.DSN)
	h.end(t) // a joiner that ends cleanly does not stop the server
	require.Equal(t, "1", query(t, owner, "select n::text from precious"))

	h = startHelper(t, helperOrder{Mode: "start", Dir: dir}, nil)
	require.True(t, h.report.Joined)
	h.kill(t) // nor does a joiner that is killed
	require.Equal(t, "1", query(t, owner, "select n::text from precious"))

	joiner := start(t, Options{Dir: dir, Wipe: true})
	require.True(t, joiner.Joined())
	require.Equal(t, owner.Version(), joiner.Version())
	require.Equal(t, owner.DataDir(), joiner.DataDir())
	require.Equal(t, "1", query(t, joiner, "select n::text from precious"), "nothing is wiped under the owner")
	require.ErrorContains(t, joiner.Restart(limit(t)), "belongs to another process")
	second := start(t, Options{Dir: dir})
	require.NoError(t, second.Stop(limit(t)))
	require.NoError(t, second.Stop(limit(t)))

	require.NoError(t, owner.Stop(limit(t)))
	select {
	case <-joiner.Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "the joiner does not notice the owner's stop")
	}
	require.NoError(t, joiner.Stop(limit(t)))
}

// pgx and libpq take a + in a connection string for a +, and only %20 for a space.
func TestPathWithSpaces(t *testing.T) {
	t.Parallel()
	require.Contains(t, socketDSN("/home/a b/c+d/run", "u", "db"), "?host=%2Fhome%2Fa%20b%2Fc%2Bd%2Frun&")
	s := start(t, Options{Dir: filepath.Join(baseDir(t), "a b", "c+d")})
	require.Equal(t, "1", query(t, s, "select 1::text"))
}

func TestJoinRefusesAnotherMajor(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	owner := start(t, Options{Dir: dir})
	s := &Server{dir: owner.Dir(), opts: Options{Major: owner.bin.Major + 1}}
	require.ErrorContains(t, s.join(limit(t)), "the server that runs there is PostgreSQL "+owner.Version())
}

// Of many processes that start at the same moment, one becomes the owner.
func TestRaceForOwnership(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	ready := seed(t)
	ctx := limit(t)
	servers := make([]*Server, 6)
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() { servers[i], errs[i] = Start(ctx, Options{Dir: dir, Test: true, Seed: ready}) })
	}
	wg.Wait()
	owners := 0
	for i, s := range servers {
		require.NoError(t, errs[i])
		if !s.Joined() {
			owners++
		}
		require.Equal(t, servers[0].Pid(), s.Pid())
	}
	require.Equal(t, 1, owners)
	for _, joined := range []bool{true, false} {
		for _, s := range servers {
			if s.Joined() == joined {
				require.NoError(t, s.Stop(ctx))
			}
		}
	}
}

// A process that waits to join takes over when the owner ends before its server runs.
func TestTakesOver(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	lock, err := tryLock(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	require.NotNil(t, lock)
	ready := seed(t)
	type result struct {
		s   *Server
		err error
	}
	ctx := limit(t)
	done := make(chan result, 1)
	go func() {
		s, err := Start(ctx, Options{Dir: dir, Test: true, Seed: ready})
		done <- result{s, err}
	}()
	select {
	case <-done:
		require.Fail(t, "it did not wait for the owner")
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, releaseLock(lock))
	r := <-done
	require.NoError(t, r.err)
	require.False(t, r.s.Joined())
	require.NoError(t, r.s.Stop(ctx))
}

// The state file of a crashed owner is recognised as stale.
func TestStaleStateFile(t *testing.T) {
	t.Parallel()
	s := crashed(t)
	path := filepath.Join(s.Dir(), stateFile)
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte(`{"pid":1,"socket_dir":"/nowhere"}`), 0o600))
	again := start(t, Options{Dir: s.Dir()})
	require.False(t, again.Joined())
	joiner := start(t, Options{Dir: s.Dir()})
	require.Equal(t, again.Pid(), joiner.Pid())
}
