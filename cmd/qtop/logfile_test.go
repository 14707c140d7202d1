package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The log of a console that is open for weeks takes no more room than two files, also if two consoles
// write it, or somebody removes it.
func TestLogIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qtop.log")
	text := func(name string) string {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(b)
	}
	one, other := &turningFile{path: path, most: 10}, &turningFile{path: path, most: 10}
	say := func(f *turningFile, line string) {
		n, err := f.Write([]byte(line + "\n"))
		require.NoError(t, err)
		require.Equal(t, len(line)+1, n)
	}
	say(one, "first 1")
	say(other, "first 2")
	say(one, "next 1")
	require.Equal(t, "first 1\nfirst 2\n", text(path+".1"))
	say(other, "next 2")
	require.Equal(t, "next 1\nnext 2\n", text(path))
	say(other, "last 2")
	require.Equal(t, "next 1\nnext 2\n", text(path+".1"))
	require.NoError(t, os.Remove(path))
	say(one, "new 1")
	say(other, "new 2")
	require.Equal(t, "new 1\nnew 2\n", text(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
}

// Of two consoles that find the log full at once, one puts it aside: the other would put the new file over it.
func TestLogIsPutAsideOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qtop.log")
	one, other := &turningFile{path: path, most: 4}, &turningFile{path: path, most: 4}
	_, err := other.Write(nil)
	require.NoError(t, err)
	_, err = one.Write([]byte("full\n"))
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(one.f.Fd()), syscall.LOCK_EX))
	_, err = other.Write([]byte("more\n"))
	require.NoError(t, err)
	require.NoFileExists(t, path+".1", "the other one is about to put it aside")
	require.True(t, one.putAside())
	require.NoError(t, os.WriteFile(path, []byte("new\n"), 0o600))
	require.True(t, other.putAside(), "it found the file full before")
	for name, want := range map[string]string{path: "new\n", path + ".1": "full\nmore\n"} {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, want, string(b), name)
	}
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
}

// As the XDG rules require, a relative XDG_STATE_HOME does not count.
func TestLogIsNotBelowTheWorkingDirectory(t *testing.T) {
	home, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "state")
	log, closeLog := new(app).logFile()
	log.Info("here")
	closeLog()
	require.FileExists(t, filepath.Join(home, ".local", "state", "qtop", "qtop.log"))
	left, err := os.ReadDir(here)
	require.NoError(t, err)
	require.Empty(t, left)
}
