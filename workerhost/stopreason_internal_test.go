package workerhost

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The stop of a host is recorded with the signal, or with the cause that its program gave.
func TestStopReason(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGUSR1)
	defer stop()
	require.Empty(t, stopReason(ctx))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR1))
	<-ctx.Done()
	require.Equal(t, "user defined signal 1 signal received", stopReason(ctx))

	given, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("deploy 4.2"))
	require.Equal(t, "deploy 4.2", stopReason(given))

	plain, end := context.WithCancel(t.Context())
	end()
	require.Empty(t, stopReason(plain))
}
