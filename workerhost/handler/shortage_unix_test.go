//go:build unix

package handler_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/handler"
)

// A command that cannot be started because the host has no file descriptor left is no fault of the job; a
// command whose file is missing is. Not parallel, because the test changes the limit of this process.
func TestCommandThatTheHostCannotStart(t *testing.T) {
	var r handler.Runner
	defer r.Close()
	file := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700))
	there, removed := command(t, 0, "true"), command(t, 0, file)
	require.NoError(t, os.Remove(file))
	require.NoError(t, r.Run(t.Context(), there, job()))

	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	err := r.Run(t.Context(), there, job())
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	require.ErrorContains(t, handler.Shortage(err), "this host has no file descriptor left: raise its limit of open files")
	code, _, permanent := handler.Outcome(err)
	require.Equal(t, handler.CodeStartFailed, code)
	require.False(t, permanent)
	require.NoError(t, handler.Shortage(handler.Permanent(err)), "a handler that wants no retry")

	require.NoError(t, r.Run(t.Context(), there, job()))
	err = r.Run(t.Context(), removed, job())
	code, _, _ = handler.Outcome(err)
	require.Equal(t, handler.CodeStartFailed, code)
	require.NoError(t, handler.Shortage(err))
}
