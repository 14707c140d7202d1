package embedded

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaultDir(t *testing.T) {
	dir, err := DefaultDir()
	require.NoError(t, err)
	require.DirExists(t, dir)
	if os.Geteuid() == 0 {
		require.NotContains(t, dir, "/root")
		require.True(t, openToAll(dir), "the server's user can pass")
		return
	}
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	dir, err = DefaultDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(state, "qtop", "demo"), dir)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "/proc/nowhere")
	dir, err = DefaultDir()
	require.NoError(t, err)
	require.Contains(t, dir, "qtop-demo-")
	_ = os.Remove(dir)
}

func TestCacheDir(t *testing.T) {
	open := baseDir(t)
	t.Setenv("XDG_CACHE_HOME", open)
	dir, err := CacheDir()
	require.NoError(t, err)
	if os.Geteuid() == 0 {
		require.Equal(t, filepath.Join(open, "qtop"), dir)
		closed := filepath.Join(open, "closed")
		require.NoError(t, os.Mkdir(closed, 0o700))
		t.Setenv("XDG_CACHE_HOME", closed)
		dir, err = CacheDir()
		require.NoError(t, err)
		require.NotContains(t, dir, closed, "the server's user could not read programs there")
		require.True(t, openToAll(dir))
	}
}

// Programs from the cache are run, so a directory to which another user can write is not used as
// the cache.
func TestOwnDirRefusesWhatOthersCanWrite(t *testing.T) {
	t.Parallel()
	base := baseDir(t)
	bad, good := filepath.Join(base, "bad"), filepath.Join(base, "good")
	require.NoError(t, os.Mkdir(bad, 0o777))
	require.NoError(t, os.Chmod(bad, 0o777))
	dir, err := ownDir(bad, good)
	require.NoError(t, err)
	require.Equal(t, good, dir)
	_, err = ownDir(bad)
	require.ErrorContains(t, err, "that nobody else can write to")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chmod(bad, 0o755))
		require.NoError(t, os.Chown(bad, nobodyID, nobodyID))
		_, err = ownDir(bad)
		require.ErrorContains(t, err, "that nobody else can write to")
	}
}

// A short socket directory is not used if another user has made one of this name.
func TestTakenSocketName(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can make a directory of somebody else")
	}
	base := filepath.Join(baseDir(t), "a,b")
	require.NoError(t, os.Mkdir(base, baseMode()))
	first, err := makeSocketDir(base, self())
	require.NoError(t, err)
	top := filepath.Dir(first)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	require.NoError(t, os.Chown(top, nobodyID, nobodyID))
	second, err := makeSocketDir(base, self())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	removeSocketDir(second)
	require.NoDirExists(t, filepath.Dir(second))
}

func TestSweepOfSocketDirectories(t *testing.T) {
	t.Parallel()
	base := filepath.Join(baseDir(t), "a,b")
	require.NoError(t, os.Mkdir(base, baseMode()))
	sock, err := makeSocketDir(base, self())
	require.NoError(t, err)
	lock, err := tryLock(filepath.Join(base, "lock"))
	require.NoError(t, err)
	require.NotNil(t, lock)
	sweepSocket(filepath.Dir(sock))
	require.DirExists(t, sock, "its base has an owner")
	require.NoError(t, releaseLock(lock))
	sweepSocket(filepath.Dir(sock))
	require.NoDirExists(t, filepath.Dir(sock))
}

// A base directory that the caller chose stays, even if its name begins like that of a temporary
// directory.
func TestChosenDirectoriesAreKept(t *testing.T) {
	t.Parallel()
	parent := baseDir(t)
	for _, prefix := range []string{sockPrefix, tempPrefix, makingPrefix} {
		dir := filepath.Join(parent, prefix+"shop")
		require.NoError(t, os.Mkdir(dir, baseMode()))
		lock, err := tryLock(filepath.Join(dir, "lock"))
		require.NoError(t, err)
		sock, err := makeSocketDir(dir, self())
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "run"), sock)
		removeSocketDir(sock)
		require.NoError(t, releaseLock(lock))
		old := time.Now().Add(-2 * time.Hour)
		require.NoError(t, os.Chtimes(dir, old, old))
		sweepBase(dir)
		sweepMaking(dir)
		sweepSocket(dir)
		require.FileExists(t, filepath.Join(dir, "lock"))
	}

	dir, lock, err := tempBase(true)
	require.NoError(t, err)
	sweepBase(dir)
	require.DirExists(t, dir, "it has an owner")
	require.NoError(t, releaseLock(lock))
	sweepBase(dir)
	require.NoDirExists(t, dir)
}
