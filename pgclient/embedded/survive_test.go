package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// When the process that started a server is killed, the server ends too, and committed data is
// kept.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	for name, pipe := range map[string]bool{"kernel": false, "pipe": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := baseDir(t)
			h := startHelper(t, helperOrder{Mode: "start", Dir: dir, Pipe: pipe}, nil)
			require.Empty(t, h.report.Err)
			joined := start(t, Options{Dir: dir})
			require.True(t, joined.Joined())
			exec1(t, joined, "create table committed as select 1 as n")
			h.kill(t)
			gone(t, h.report.Pid)
			empty(t, h.report.Data)
			select {
			case <-joined.Done():
			case <-time.After(20 * time.Second):
				require.Fail(t, "the joined server is not reported as ended")
			}
			s := start(t, Options{Dir: dir})
			require.False(t, s.Joined())
			require.Equal(t, "1", query(t, s, "select n::text from committed"))
			log, err := os.ReadFile(s.LogFile())
			require.NoError(t, err)
			require.NotContains(t, string(log), "not properly shut down", "it was a shutdown in order")
		})
	}
}

// A start that was killed while it removed the old data does not keep the next one from starting.
func TestKilledWhileWiping(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	s := start(t, Options{Dir: dir})
	data := s.DataDir()
	require.NoError(t, s.Stop(limit(t)))
	killed := func(home string) error {
		marks, err := filepath.Glob(filepath.Join(home, "*", "PG_VERSION"))
		require.NoError(t, err)
		require.Len(t, marks, 1, "it was renamed, not moved into a directory for which a full disk has no room")
		require.NoError(t, os.Remove(marks[0]))
		return syscall.EINTR
	}
	require.ErrorIs(t, wipe(filepath.Dir(data), killed), syscall.EINTR)
	s = start(t, Options{Dir: dir})
	require.NoError(t, s.Stop(limit(t)))
	left, err := os.ReadDir(filepath.Dir(data))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// When a supervisor is killed, its server ends too.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	s := start(t, Options{pipe: true})
	out, err := exec.Command("ps", "-o", "ppid=", "-p", strconv.Itoa(s.Pid())).Output()
	require.NoError(t, err)
	supervisor, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.NotEqual(t, os.Getpid(), supervisor)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "Done is not closed")
	}
	empty(t, s.DataDir())
}

// After a kill of the postmaster, Done is closed with the cause, and the same server starts again
// on the same socket with all committed data.
func TestPostmasterKilled(t *testing.T) {
	t.Parallel()
	for name, pipe := range map[string]bool{"kernel": false, "pipe": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, Options{pipe: pipe})
			exec1(t, s, "create table committed as select 1 as n")
			exec1(t, s, "checkpoint")
			first, dsn := s.Pid(), s.DSN(Superuser, "postgres")
			require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
			select {
			case <-s.Done():
			case <-time.After(20 * time.Second):
				require.Fail(t, "Done is not closed")
			}
			require.NoError(t, s.Restart(limit(t)))
			require.NotEqual(t, first, s.Pid())
			require.Equal(t, dsn, s.DSN(Superuser, "postgres"))
			require.Equal(t, "1", query(t, s, "select n::text from committed"))
			require.NoError(t, s.Restart(limit(t)), "a running one restarts too")
			require.Equal(t, "1", query(t, s, "select n::text from committed"))
			require.NoError(t, s.Stop(limit(t)))
			require.Error(t, s.Restart(limit(t)))
		})
	}
}

// The postmaster and its host are both killed. The host is stopped (SIGSTOP) first, so that it
// never waits for the dead postmaster, whose pid stays in use.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	h := startHelper(t, helperOrder{Mode: "start", Dir: dir}, nil)
	require.Empty(t, h.report.Err)
	require.NoError(t, h.cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(h.report.Pid, syscall.SIGKILL))
	gone(t, h.report.Pid)
	h.kill(t)
	s := start(t, Options{Dir: dir})
	require.False(t, s.Joined())
	require.Equal(t, "1", query(t, s, "select 1::text"))
}

// crashed leaves a data directory as a killed postmaster does, with its lock files.
func crashed(t *testing.T) *Server {
	t.Helper()
	s := start(t, Options{Dir: baseDir(t)})
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGKILL))
	<-s.Done()
	require.NoError(t, s.Stop(limit(t)))
	require.FileExists(t, filepath.Join(s.DataDir(), "postmaster.pid"))
	return s
}

// stealPid writes the id of another process into the lock files.
func stealPid(t *testing.T, s *Server, pid int) {
	t.Helper()
	for _, file := range []string{
		filepath.Join(s.DataDir(), "postmaster.pid"), filepath.Join(s.SocketDir(), ".s.PGSQL.5432.lock"),
	} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		b = regexp.MustCompile(`^\d+`).ReplaceAll(b, []byte(strconv.Itoa(pid)))
		require.NoError(t, os.WriteFile(file, b, 0o600))
	}
}

// PostgreSQL mistakes a zombie for a running server.
func TestZombiePostmaster(t *testing.T) {
	t.Parallel()
	s := crashed(t)
	zombie := exec.Command("/bin/true")
	zombie.SysProcAttr = withoutDeathSignal(s.id.attr())
	zombie.Dir = "/"
	require.NoError(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Wait() })
	require.Eventually(t, func() bool {
		p, ok := lookup(zombie.Process.Pid)
		return ok && p.zombie
	}, 20*time.Second, 5*time.Millisecond)
	stealPid(t, s, zombie.Process.Pid)
	again := start(t, Options{Dir: s.Dir()})
	require.Equal(t, "1", query(t, again, "select 1::text"))
}

// After a reboot the pid in the lock file may belong to any process of the same user.
func TestReusedPid(t *testing.T) {
	t.Parallel()
	s := crashed(t)
	stranger := exec.Command("/bin/sleep", "600")
	stranger.SysProcAttr = withoutDeathSignal(s.id.attr())
	stranger.Dir = "/"
	require.NoError(t, stranger.Start())
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	stealPid(t, s, stranger.Process.Pid)
	again := start(t, Options{Dir: s.Dir()})
	require.Equal(t, "1", query(t, again, "select 1::text"))

	require.NoError(t, syscall.Kill(again.Pid(), syscall.SIGKILL))
	<-again.Done()
	stealPid(t, again, stranger.Process.Pid)
	require.NoError(t, again.Restart(limit(t)))
	require.Equal(t, "1", query(t, again, "select 1::text"))
	p, ok := lookup(stranger.Process.Pid)
	require.True(t, ok && !p.zombie, "the stranger was not touched")
}

// A backend that outlives its postmaster could still write. The next start waits for the backend,
// names it in the error, and does not touch the lock file.
func TestSurvivingBackend(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	s := start(t, Options{Dir: dir})
	conn := connect(t, s)
	backend := int(conn.PgConn().PID())
	require.NoError(t, syscall.Kill(backend, syscall.SIGSTOP))
	resumed := false
	resume := func() {
		if !resumed {
			_ = syscall.Kill(backend, syscall.SIGCONT)
		}
		resumed = true
	}
	t.Cleanup(resume)
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGKILL))
	<-s.Done()
	s.release() // as if the host had died together with the postmaster

	for _, wipe := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(limit(t), 500*time.Millisecond)
		_, err := Start(ctx, Options{Dir: dir, Test: true, Wipe: wipe})
		cancel()
		require.ErrorContains(t, err, strconv.Itoa(backend))
		require.FileExists(t, filepath.Join(s.DataDir(), "postmaster.pid"))
	}
	resume()
	again := start(t, Options{Dir: dir})
	require.Equal(t, "1", query(t, again, "select 1::text"))
}

// A running server without an owner is neither killed nor replaced.
func TestForeignServerInOurDirectory(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	s := start(t, Options{Dir: dir})
	first := s.Pid()
	require.NoError(t, releaseLock(s.lock)) // as if its owner had ended without stopping it
	ctx, cancel := context.WithTimeout(limit(t), 500*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, Options{Dir: dir, Test: true, Wipe: true})
	require.ErrorContains(t, err, strconv.Itoa(first))
	require.Equal(t, "1", query(t, s, "select 1::text"))
}

func TestHalfMadeCluster(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	h := prepareHelper(t, helperOrder{Mode: "start", Dir: dir}, nil)
	require.NoError(t, h.cmd.Start())
	var half []string
	require.Eventually(t, func() bool {
		half, _ = filepath.Glob(filepath.Join(dir, "pg*", "init-*", "PG_VERSION"))
		return len(half) > 0
	}, 60*time.Second, time.Millisecond)
	h.kill(t)
	junk := filepath.Join(filepath.Dir(filepath.Dir(half[0])), "init-of-last-week")
	require.NoError(t, os.MkdirAll(filepath.Join(junk, "base"), 0o700))
	s := start(t, Options{Dir: dir})
	require.Equal(t, "1", query(t, s, "select 1::text"))
	require.NoDirExists(t, junk)
}

func TestAlienDataDirectory(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	bin, err := Locate(limit(t), 0, nil)
	require.NoError(t, err)
	data := dataDir(dir, bin.Major)
	require.NoError(t, os.MkdirAll(data, 0o700))
	precious := filepath.Join(data, "thesis.txt")
	require.NoError(t, os.WriteFile(precious, []byte("x"), 0o600))
	_, err = Start(limit(t), Options{Dir: dir, Test: true})
	require.ErrorContains(t, err, "neither empty nor a PostgreSQL data directory")
	require.FileExists(t, precious)
	require.NoError(t, os.Remove(precious))
	start(t, Options{Dir: dir}) // an empty data directory can be used
}

// The programs of one major must not touch the data of another.
func TestDataDirectoryPinsItsMajor(t *testing.T) {
	bin, err := Locate(limit(t), 0, nil)
	require.NoError(t, err)
	t.Setenv("QTOP_PG_BIN", bin.Dir)
	dir := baseDir(t)
	other := dataDir(dir, bin.Major+1)
	require.NoError(t, os.MkdirAll(other, 0o700))
	version := filepath.Join(other, "PG_VERSION")
	require.NoError(t, os.WriteFile(version, fmt.Appendln(nil, bin.Major+1), 0o600))
	_, err = Start(limit(t), Options{Dir: dir, Test: true})
	require.ErrorContains(t, err, fmt.Sprintf("belongs to PostgreSQL %d", bin.Major+1))
	require.ErrorContains(t, err, "holds PostgreSQL "+bin.Version)
	require.FileExists(t, version)

	s := start(t, Options{Dir: dir, Major: bin.Major}) // a requested major gets a separate data directory
	require.Equal(t, dataDir(s.Dir(), bin.Major), s.DataDir())
	require.NoError(t, s.Stop(limit(t)))
	s = start(t, Options{Dir: dir, Wipe: true}) // after the data is removed, any version may be used
	require.NoDirExists(t, other)
	require.Equal(t, bin.Version, s.Version())
}

// The next start removes the remains of killed temporary servers; directories in use stay.
func TestLeftoversAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", baseDir(t)) // a directory where no other process removes leftovers
	live := start(t, Options{})
	h := startHelper(t, helperOrder{Mode: "start"}, nil)
	require.Empty(t, h.report.Err)
	h.kill(t)
	empty(t, h.report.Data)
	require.DirExists(t, h.report.Dir)
	next := start(t, Options{})
	require.NoDirExists(t, h.report.Dir)
	require.NoError(t, next.Stop(limit(t)))

	starting, lock, err := tempBase(true) // a directory that has an owner but no server yet
	require.NoError(t, err)
	sweep()
	require.DirExists(t, starting)
	require.NoError(t, releaseLock(lock))
	sweep()
	require.NoDirExists(t, starting)
	require.DirExists(t, live.Dir())
	require.Equal(t, "1", query(t, live, "select 1::text"))
}
