package handler_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/qtop/qtop/workerhost/handler"
)

// silence makes a file that nobody else can open until answer is called, as on a network file system that does not
// answer: the kernel waits for the holder of a lease on a file, for up to 45 s.
func silence(t *testing.T, path string) (answer func()) {
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
		time.Sleep(time.Millisecond)
	}
}

// A command whose program, or its interpreter, is on a file system that does not answer holds up no other command. Its
// job is handed back, and runs when the file system answers.
func TestCommandOnAFileSystemThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, silent := range []string{"program", "interpreter"} {
		t.Run(silent, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := map[string]string{"program": filepath.Join(dir, "program"), "interpreter": filepath.Join(dir, "interpreter")}
			require.NoError(t, os.WriteFile(file["interpreter"], []byte("#!/bin/sh\n"), 0o700))
			require.NoError(t, os.WriteFile(file["program"], []byte("#! "+file["interpreter"]+"\n"), 0o700))
			hung, works := command(t, 0, file["program"]), command(t, 0, "true")
			runs := func() bool { return hung.Handle(t.Context(), job()) == nil } // not while a child that another test starts has the file open for writing
			require.Eventually(t, runs, 20*time.Second, time.Millisecond)

			answer := silence(t, file[silent])
			var r handler.Runner
			defer r.Close()
			ended := make(chan error, 3)
			for range cap(ended) {
				go func() { ended <- r.Run(t.Context(), hung, job()) }()
			}
			for begin := time.Now(); time.Since(begin) < time.Second; {
				require.NoError(t, works.Handle(t.Context(), job()))
			}
			require.Empty(t, ended)
			for range cap(ended) {
				select {
				case err := <-ended:
					code, _, _ := handler.Outcome(err)
					require.Equal(t, handler.CodeStartFailed, code)
					require.ErrorContains(t, handler.Shortage(err), "the file system of "+file["program"]+" has not answered for 2s: repair it")
				case <-time.After(20 * time.Second):
					t.Fatal("a job still waits for the file system")
				}
			}
			answer()
			require.Eventually(t, runs, 20*time.Second, time.Millisecond)
		})
	}
}
