// Tests of one loop without a database: panics and failures are contained and recorded, and
// no order of calls makes the loop hang.
package loop

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func testLoop() *Loop { return New("test", "is tested", slog.New(slog.DiscardHandler)) }

func isEnded(t *testing.T, l *Loop) {
	t.Helper()
	select {
	case <-l.Ended():
	case <-time.After(60 * time.Second):
		require.FailNow(t, "the loop hangs", l.Status().State)
	}
	require.Equal(t, Stopped, l.Status().State)
}

func TestLoopPanicIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop()
		began, runs := time.Now(), 0
		body := func(ctx context.Context, l *Loop) error {
			runs++
			switch l.Status().Errors {
			case 0:
				panic("boom")
			case 1:
				return errors.New("no luck")
			}
			<-l.Draining()
			return nil
		}
		require.NoError(t, l.Start(t.Context(), body))
		synctest.Wait()
		require.Equal(t, Failed, l.Status().State)
		require.Equal(t, "panic: boom", l.Status().LastErr.String())
		require.NoError(t, l.Start(t.Context(), body))
		synctest.Wait()
		require.Equal(t, 2, runs)
		require.Zero(t, time.Since(began), "a start ends the pause")
		require.Equal(t, Failed, l.Status().State)
		time.Sleep(2 * minPause)
		synctest.Wait()
		require.Equal(t, 3, runs, "not started again after the pause")
		require.Equal(t, Running, l.Status().State)
		time.Sleep(10 * maxPause)
		synctest.Wait()
		require.Equal(t, 3, runs, "started twice")
		require.EqualValues(t, 2, l.Status().Errors)
		require.Equal(t, "no luck", l.Status().LastErr.String())
		require.ErrorContains(t, l.Start(t.Context(), body), "running already")
		l.Drain()
		l.Drain()
		isEnded(t, l)
		require.Equal(t, 3, runs)
	})
}

// What the host lacks is shown for a minute, whatever passes succeed meanwhile; the error of a pass comes first.
func TestShortageIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop()
		require.Empty(t, l.Status().LastErr.String())
		l.RecordShortage(errors.New("no file descriptor left"))
		l.RecordTick(1, time.Second)
		require.Equal(t, "no file descriptor left", l.Status().LastErr.String())
		require.EqualValues(t, 1, l.Status().Errors)
		l.RecordError(errors.New("no luck"))
		require.Equal(t, "no luck", l.Status().LastErr.String())
		l.RecordTick(1, time.Second)
		time.Sleep(shortageShown - 1)
		require.Equal(t, "no file descriptor left", l.Status().LastErr.String())
		time.Sleep(time.Nanosecond)
		require.Empty(t, l.Status().LastErr.String())
	})
}

// A body that fails while it drains is not started again, and a second Drain does nothing.
func TestLoopFailsWhileDraining(t *testing.T) {
	t.Parallel()
	l := testLoop()
	require.NoError(t, l.Start(t.Context(), func(ctx context.Context, l *Loop) error {
		<-l.Draining()
		return errors.New("late trouble")
	}))
	l.Drain()
	isEnded(t, l)
	l.Drain()
	l.Stop(time.Now())
	require.EqualValues(t, 1, l.Status().Errors)
	require.Equal(t, "late trouble", l.Status().LastErr.String())
}

// A stopped loop whose body still hands back work is in the state Draining,
// not Running: otherwise a caller that starts all loops would leave it out.
func TestLoopOnItsWayOut(t *testing.T) {
	t.Parallel()
	l := testLoop()
	handBack := make(chan struct{})
	body := func(ctx context.Context, _ *Loop) error {
		<-ctx.Done()
		<-handBack
		return nil
	}
	require.NoError(t, l.Start(t.Context(), body))
	l.Stop(time.Now())
	require.Equal(t, Draining, l.Status().State)
	require.ErrorContains(t, l.Start(t.Context(), body), "draining already")
	close(handBack)
	isEnded(t, l)
}

func TestLoopNeverSticks(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := testLoop()
	var running, maxRunning atomic.Int64
	body := func(ctx context.Context, l *Loop) error {
		if n := running.Add(1); n > maxRunning.Load() {
			maxRunning.Store(n)
		}
		defer running.Add(-1)
		switch rand.IntN(3) { // not seeded: the order depends on the scheduler anyway
		case 0:
			panic("boom")
		case 1:
			return errors.New("no luck")
		}
		select {
		case <-ctx.Done():
		case <-l.Draining():
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range 4 {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for range 200 {
				switch rnd.IntN(4) {
				case 0, 1:
					_ = l.Start(t.Context(), body)
				case 2:
					l.Drain()
				case 3:
					l.Stop(time.Now())
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, maxRunning.Load(), int64(1), "two bodies at once")
	l.Stop(time.Now())
	isEnded(t, l)
	require.NoError(t, l.Start(t.Context(), func(_ context.Context, l *Loop) error { <-l.Draining(); return nil }))
	require.Equal(t, Running, l.Status().State)
	l.Drain()
	isEnded(t, l)
}

// The rate of a loop counts from its start: a loop that works evenly has the same rate in its
// first seconds, after a minute, and after a pause.
func TestRateOfYoungLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop()
		time.Sleep(time.Hour) // the console is open; nobody has started the loop
		for range 2 {
			stay := func(ctx context.Context, l *Loop) error { <-l.Draining(); return nil }
			require.NoError(t, l.Start(t.Context(), stay))
			require.Zero(t, l.Status().PerSec)
			l.RecordTick(4, time.Second)
			require.InDelta(t, 4, l.Status().PerSec, 0.01, "less than a second counts as one")
			for second := range 150 {
				time.Sleep(time.Second)
				if second > 0 {
					require.InDelta(t, 4, l.Status().PerSec, 4/float64(min(second+1, 55)), second)
				}
				l.RecordTick(4, time.Second)
			}
			time.Sleep(30 * time.Second)
			require.InDelta(t, 2, l.Status().PerSec, 0.25, "it did nothing for half a minute")
			l.Drain()
			isEnded(t, l)
		}
	})
}
