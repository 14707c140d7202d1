package lease

import (
	"context"
	"testing"
	"testing/synctest"
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

// A caller that tries gives up after a second without room; so does one behind another that reads or waits for room for
// as long, but not while turns change hands. One that does not try waits.
func TestBudgetGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget()
		read := func(n int64, takes time.Duration) Read {
			return func(_ context.Context, maxBytes int64) (work.Payload, error) {
				time.Sleep(takes)
				p := work.Payload{Bytes: n, Readable: true}
				if n <= maxBytes {
					p.Text = make([]byte, n)
				}
				return p, nil
			}
		}
		run := func(use func(context.Context, Read, func(work.Payload)) error, read Read, holds time.Duration) chan error {
			done := make(chan error, 1)
			go func() { done <- use(t.Context(), read, func(work.Payload) { time.Sleep(holds) }) }()
			synctest.Wait() // it is behind those before it
			return done
		}
		ends := func(done chan error, want error, after time.Duration) {
			t.Helper()
			began := time.Now()
			require.ErrorIs(t, <-done, want)
			require.Equal(t, after, time.Since(began))
		}
		holder := run(b.Use, read(maxPayloadBytes, 0), time.Hour)
		first := run(b.TryUse, read(10, 0), 0)
		time.Sleep(maxTurn / 2)
		second := run(b.TryUse, read(10, 0), 0)
		ends(first, ErrNoRoom, maxTurn/2)
		ends(second, ErrNoRoom, maxTurn) // it had its turn after the first
		patient := run(b.Use, read(10, 0), 0)
		time.Sleep(maxTurn / 2)
		first = run(b.TryUse, read(10, 0), 0)
		ends(first, ErrNoRoom, maxTurn)
		ends(patient, nil, time.Hour-3*maxTurn-maxTurn/2)
		require.NoError(t, <-holder)

		slow := run(b.TryUse, read(10, 3*maxTurn), 0)
		ends(run(b.TryUse, read(10, 0), 0), ErrNoRoom, maxTurn)
		ends(slow, nil, 2*maxTurn)
		var all []chan error
		began := time.Now()
		for range 10 {
			all = append(all, run(b.TryUse, read(10, maxTurn/2), 0))
		}
		for _, done := range all {
			require.NoError(t, <-done)
		}
		require.Equal(t, 5*maxTurn, time.Since(began))
		require.True(t, b.room.TryAcquire(maxPayloadBytes), "the whole budget is free again")
	})
}
