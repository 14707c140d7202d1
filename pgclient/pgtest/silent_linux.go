package pgtest

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Silence lets nobody else open a file until answer is called or the test ends, as on a network file system that does
// not answer: the kernel waits for the holder of a lease on a file, for up to 45 s.
func Silence(t *testing.T, path string) (answer func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	for {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		switch {
		case err == nil:
			return func() { require.NoError(t, f.Close()) }
		case !errors.Is(err, unix.EAGAIN): // EAGAIN: a child process that another test starts has the file open for a moment
			t.Skip("the file system of the test has no leases: ", err)
		case t.Context().Err() != nil:
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // such a child is gone soon
	}
}
