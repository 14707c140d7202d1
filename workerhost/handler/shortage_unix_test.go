//go:build unix

package handler_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/handler"
)

// around is a handler that is made of another one.
type around struct{ handler.Handler }

// A command that cannot be started because the host has no file descriptor left is no fault of the job; a
// command whose file is missing is, and so is one that another handler starts: it may have done part of the work
// before. Not parallel, because the test changes the limit of this process.
func TestCommandThatTheHostCannotStart(t *testing.T) {
	var r handler.Runner
	defer r.Close()
	file := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700))
	there, removed, url := command(t, 0, "true"), command(t, 0, file), endpoint(t, "http://127.0.0.1:9")
	limited, err := handler.Parse([]handler.Spec{{Kind: "work", Command: []string{"true"}, Timeout: time.Minute}}, nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(file))
	require.NoError(t, r.Run(t.Context(), there, job()))

	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	err = r.Run(t.Context(), there, job())
	limitedErr := r.Run(t.Context(), limited["work"], job())
	urlErr := r.Run(t.Context(), url, job())
	partErr := r.Run(t.Context(), handler.Func(func(ctx context.Context, job handler.Job) error {
		return errors.Join(there.Handle(ctx, job), url.Handle(ctx, job))
	}), job())
	aroundErr := r.Run(t.Context(), around{there}, job())
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	require.ErrorContains(t, handler.Shortage(limitedErr), "this host has no file descriptor left")
	require.ErrorContains(t, handler.Shortage(urlErr), "this host has no file descriptor left")
	for _, err := range []error{partErr, aroundErr} {
		code, _, _ := handler.Outcome(err)
		require.Equal(t, handler.CodeStartFailed, code)
		require.NoError(t, handler.Shortage(err), "the handler of the job has begun")
	}
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
