package handler_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost/handler"
)

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

			answer := pgtest.Silence(t, file[silent])
			var r handler.Runner
			defer r.Close()
			ended := make(chan error, 3)
			for range cap(ended) {
				go func() { ended <- r.Run(t.Context(), hung, job()) }()
			}
			for begin := time.Now(); len(ended) < cap(ended); {
				require.NoError(t, works.Handle(t.Context(), job()))
				require.Less(t, time.Since(begin), 20*time.Second, "a job waits for the file system, or for one that does")
			}
			for range cap(ended) {
				err := <-ended
				code, _, _ := handler.Outcome(err)
				require.Equal(t, handler.CodeStartFailed, code)
				require.ErrorContains(t, handler.Shortage(err), "the file system of "+file["program"]+" has not answered for 2s: repair it")
			}
			answer()
			require.Eventually(t, runs, 20*time.Second, time.Millisecond)
		})
	}
}
