package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// As many payloads are held as fit, a longer one alone; who cannot have one leaves nothing
// behind.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget()
	reads := 0
	read := func(n int64) func(context.Context, int64) (work.Payload, error) {
		return func(_ context.Context, most int64) (work.Payload, error) {
			reads++
			p := work.Payload{Bytes: n, Readable: true}
			if n <= most {
				p.Text = make([]byte, n)
			}
			return p, nil
		}
	}
	hold := func(n int64) (release func()) {
		has, let, gone := make(chan int), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			_ = b.Use(context.Background(), read(n), func(p work.Payload) {
				has <- len(p.Text)
				<-let
			})
		}()
		require.EqualValues(t, n, <-has)
		return func() { close(let); <-gone }
	}
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	one, two := hold(budget/2), hold(budget/2-10)
	require.Equal(t, 2, reads)
	small := hold(10)
	require.ErrorIs(t, b.Use(soon(), read(1), nil), context.DeadlineExceeded)
	small()
	require.ErrorIs(t, b.Use(t.Context(), func(context.Context, int64) (work.Payload, error) { return work.Payload{}, errOther }, nil), errOther)
	one()
	require.ErrorIs(t, b.Use(soon(), read(3*budget), nil), context.DeadlineExceeded)
	two()
	hold(3 * budget)()
	require.NoError(t, b.Use(t.Context(), func(context.Context, int64) (work.Payload, error) { return work.Payload{}, nil },
		func(p work.Payload) { require.False(t, p.Readable) }))
	require.True(t, b.room.TryAcquire(budget), "all of it is free again")
	require.Zero(t, b.held.Load())
}
