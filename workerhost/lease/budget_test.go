package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// The budget holds as many payloads as fit, or one payload that is longer than the whole budget.
// A caller whose wait or read fails frees its share.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget()
	reads := 0
	read := func(n int64) func(context.Context, int64) (work.Payload, error) {
		return func(_ context.Context, maxBytes int64) (work.Payload, error) {
			reads++
			if n >= largePayload && n <= maxBytes && largeReads.TryAcquire(1) {
				largeReads.Release(1)
				t.Error("another large payload could be read at the same time")
			}
			p := work.Payload{Bytes: n, Readable: true}
			if n <= maxBytes {
				p.Text = make([]byte, n)
			}
			return p, nil
		}
	}
	hold := func(n int64) (release func()) {
		got, finish, done := make(chan int), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_ = b.Use(context.Background(), read(n), func(p work.Payload) {
				got <- len(p.Text)
				<-finish
			})
		}()
		require.EqualValues(t, n, <-got)
		return func() { close(finish); <-done }
	}
	shortContext := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	one, two := hold(maxPayloadBytes/2), hold(maxPayloadBytes/2-10)
	require.Equal(t, 4, reads, "a large payload is read once its length is known")
	small := hold(10)
	require.ErrorIs(t, b.Use(shortContext(), read(1), nil), context.DeadlineExceeded)
	small()
	require.ErrorIs(t, b.Use(t.Context(), func(context.Context, int64) (work.Payload, error) { return work.Payload{}, errOther }, nil), errOther)
	// One that waits for room is read again then, however long another loop reads a large one.
	asked, done := make(chan struct{}, 2), make(chan error)
	require.True(t, largeReads.TryAcquire(1))
	go func() {
		done <- b.Use(context.Background(), func(ctx context.Context, maxBytes int64) (work.Payload, error) {
			asked <- struct{}{}
			return read(20)(ctx, maxBytes)
		}, func(work.Payload) {})
	}()
	<-asked
	one()
	require.NoError(t, <-done)
	require.Len(t, asked, 1)
	largeReads.Release(1)
	require.ErrorIs(t, b.Use(shortContext(), read(3*maxPayloadBytes), nil), context.DeadlineExceeded)
	two()
	hold(largePayload)()
	hold(3 * maxPayloadBytes)()
	require.NoError(t, b.Use(t.Context(), func(context.Context, int64) (work.Payload, error) { return work.Payload{}, nil },
		func(p work.Payload) { require.False(t, p.Readable) }))
	require.True(t, b.room.TryAcquire(maxPayloadBytes), "the whole budget is free again")
	require.Zero(t, b.held.Load())
}
