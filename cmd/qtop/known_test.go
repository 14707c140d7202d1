package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

// The error of an action whose connection failed says that nothing was changed, or how to find out.
func TestABrokenActionSaysWhatToLookAt(t *testing.T) {
	t.Parallel()
	broken := pgerror.Translate(context.DeadlineExceeded)
	require.ErrorContains(t, known(broken, true), "did not answer in time; nothing was changed: check")
	require.ErrorContains(t, known(broken, false), "did not answer in time; qtop does not know whether the action was done: see qtop audit: check")
	require.Equal(t, queue.KindUnavailable, queue.KindOf(known(broken, false)))
	refused := errors.New("refused")
	require.Equal(t, refused, known(refused, false))
}
