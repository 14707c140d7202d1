// Tests of handlers that misbehave, and of the errors that the host receives.
package handler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/handler"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRunner(t *testing.T) (*handler.Runner, *logged) {
	t.Helper()
	var l logged
	r := &handler.Runner{Log: slog.New(slog.NewTextHandler(&l, nil))}
	t.Cleanup(r.Close)
	return r, &l
}

// runFor runs an attempt with a timeout.
func runFor(ctx context.Context, r *handler.Runner, h handler.Handler, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.Run(ctx, h, job())
}

// runOut runs h with a context whose time is over as soon as h has begun.
func runOut(ctx context.Context, r *handler.Runner, h handler.Handler) error {
	o := &outOfTime{Context: context.WithoutCancel(ctx), done: make(chan struct{})}
	return r.Run(o, handler.Func(func(ctx context.Context, j handler.Job) error { close(o.done); return h.Handle(ctx, j) }), job())
}

type outOfTime struct {
	context.Context //nolint:containedctx // is a context itself
	done            chan struct{}
}

func (o *outOfTime) Done() <-chan struct{} { return o.done }

func (o *outOfTime) Err() error {
	select {
	case <-o.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

type brokenError struct{}

func (*brokenError) Error() string { panic("no text") }

type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

// A handler that ignores the end of its context is given up sooner when the host ends meanwhile.
func TestGraceIsShorterWhenTheHostEnds(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	ending, asked := make(chan struct{}), make(chan struct{})
	left := []time.Duration{time.Hour, time.Millisecond}
	r.Ending, r.Grace = ending, func() time.Duration {
		next := left[0]
		if left = left[1:]; len(left) == 1 {
			close(asked)
		}
		return next
	}
	go func() { <-asked; close(ending) }()
	release := make(chan struct{})
	defer close(release)
	err := runOut(t.Context(), r, handler.Func(func(context.Context, handler.Job) error { <-release; return nil }))
	var f *handler.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, handler.CodeHung, f.Code)
}

func TestRunContains(t *testing.T) {
	t.Parallel()
	var none map[string]int
	var nothing any
	for _, tt := range []struct {
		name      string
		h         handler.Func
		code      string
		text      string
		permanent bool
		log       string
	}{
		{"success", func(context.Context, handler.Job) error { return nil }, "", "", false, ""},
		{"error", func(context.Context, handler.Job) error { return errors.New("no") }, "HANDLER_ERROR", "no", false, ""},
		{"coded", func(context.Context, handler.Job) error {
			return fmt.Errorf("shop: %w", handler.Coded("SHOP_CLOSED", errors.New("no")))
		}, "SHOP_CLOSED", "shop: no", false, ""},
		{"permanent", func(context.Context, handler.Job) error { return handler.Permanent(errors.New("never")) }, "HANDLER_ERROR", "never", true, ""},
		{"panic", func(context.Context, handler.Job) error { panic("oh\x00 \xff") }, "HANDLER_PANIC", "panic: oh\ufffd \ufffd", false, "run_test.go"},
		{"panic with an error", func(context.Context, handler.Job) error { none["x"]++; return nil }, "HANDLER_PANIC", "panic: assignment to entry in nil map", false, "run_test.go"},
		{"panic with nil", func(context.Context, handler.Job) error { panic(nothing) }, "HANDLER_PANIC", "panic: " + new(runtime.PanicNilError).Error(), false, "stack"},
		{"panic with a broken error", func(context.Context, handler.Job) error { panic(new(brokenError)) }, "HANDLER_PANIC", "panic: %!v(PANIC=Error method: no text)", false, "stack"},
		{"panic in the error", func(context.Context, handler.Job) error { return new(brokenError) }, "HANDLER_PANIC", "panic: no text", false, "stack"},
		{"exit", func(context.Context, handler.Job) error { runtime.Goexit(); return nil }, "HANDLER_EXIT", "the handler ended its goroutine (runtime.Goexit)", false, "ended its goroutine"},
		{"exit in the error", func(context.Context, handler.Job) error { return exitingError{} }, "HANDLER_EXIT", "the handler ended its goroutine (runtime.Goexit)", false, "ended its goroutine"},
		{"flood", func(context.Context, handler.Job) error { return errors.New(strings.Repeat("é", 1<<20)) }, "HANDLER_ERROR", strings.Repeat("é", 2048), false, ""},
		{"flood in a panic", func(context.Context, handler.Job) error { panic(strings.Repeat("x", 1<<20)) }, "HANDLER_PANIC", "panic: " + strings.Repeat("x", 4096-7), false, "stack"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, log := newRunner(t)
			err := within(t, func() error { return runFor(t.Context(), r, tt.h, patience) })
			code, text, permanent := handler.Outcome(err)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.text, text)
			require.Equal(t, tt.permanent, permanent)
			require.Contains(t, log.String(), tt.log)
			require.Equal(t, tt.log == "", log.String() == "", "only what is not in the recorded error is logged")
			require.Zero(t, r.Abandoned())
		})
	}
}

func TestRunWithoutALogger(t *testing.T) {
	t.Parallel()
	var r handler.Runner
	t.Cleanup(r.Close)
	require.NoError(t, r.Run(t.Context(), handler.Func(func(context.Context, handler.Job) error { return nil }), job()))
}

func TestRunGivesTheJobAndTheTime(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	var got handler.Job
	var left time.Duration
	require.NoError(t, runFor(t.Context(), r, handler.Func(func(ctx context.Context, j handler.Job) error {
		end, _ := ctx.Deadline()
		got, left = j, time.Until(end)
		return nil
	}), time.Hour))
	require.Equal(t, job(), got)
	require.InDelta(t, time.Hour, left, float64(time.Minute))
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	obey := func(err error) handler.Func {
		return func(ctx context.Context, _ handler.Job) error {
			<-ctx.Done()
			return err
		}
	}
	for _, tt := range []struct {
		name    string
		h       handler.Func
		stopped bool // by the host; false = out of time
		code    string
	}{
		{"out of time", obey(errors.New("interrupted")), false, handler.CodeTimeout},
		{"stopped", obey(errors.New("interrupted")), true, handler.CodeStopped},
		{"out of time, with a code", obey(handler.Coded("MINE", errors.New("interrupted"))), false, "MINE"},
		{"done all the same", obey(nil), false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _ := newRunner(t)
			r.Grace = lasting(patience)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			code, _, _ := handler.Outcome(within(t, func() error {
				if tt.stopped {
					return r.Run(ctx, handler.Func(func(ctx context.Context, j handler.Job) error { cancel(); return tt.h(ctx, j) }), job())
				}
				return runOut(ctx, r, tt.h)
			}))
			require.Equal(t, tt.code, code)
			require.Zero(t, r.Abandoned())
		})
	}
}

func TestRunAbandonsWhatHangs(t *testing.T) {
	t.Parallel()
	r, log := newRunner(t)
	r.Grace = lasting(time.Millisecond)
	release := make(chan struct{})
	hang := handler.Func(func(context.Context, handler.Job) error { <-release; return errors.New("too late") })
	const n = 3
	for range n {
		code, text, permanent := handler.Outcome(within(t, func() error { return runOut(t.Context(), r, hang) }))
		require.Equal(t, handler.CodeHung, code)
		require.Equal(t, "the handler did not return within 1ms after the end of its context (context deadline exceeded) and was abandoned", text)
		require.False(t, permanent)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := handler.Func(func(ctx context.Context, j handler.Job) error { cancel(); return hang(ctx, j) })
	code, _, _ := handler.Outcome(within(t, func() error { return r.Run(ctx, cancelled, job()) }))
	require.Equal(t, handler.CodeHung, code)
	require.Equal(t, n+1, r.Abandoned())
	close(release)
	require.Eventually(t, func() bool { return r.Abandoned() == 0 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return strings.Count(log.String(), "an abandoned handler has returned") == n+1 }, patience, time.Millisecond)
	require.Zero(t, r.Abandoned())
}

// When the grace time ends in the moment in which the handler returns, the attempt is counted as
// abandoned or as returned, never as both.
func TestRunCountsEachAbandonedHandlerOnce(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	r.Grace = lasting(20 * time.Microsecond)
	late := handler.Func(func(ctx context.Context, _ handler.Job) error {
		<-ctx.Done()
		for end := time.Now().Add(15 * time.Microsecond); time.Now().Before(end); {
			runtime.Gosched()
		}
		return nil
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				_ = runFor(t.Context(), r, late, time.Microsecond)
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return r.Abandoned() == 0 }, patience, time.Millisecond)
}

func TestRunDoesNotStartWithoutTime(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	called := false
	h := handler.Func(func(context.Context, handler.Job) error { called = true; return nil })
	code, _, _ := handler.Outcome(r.Run(ctx, h, job()))
	require.Equal(t, handler.CodeStopped, code)
	code, _, _ = handler.Outcome(runFor(t.Context(), r, h, time.Nanosecond))
	require.Contains(t, []string{handler.CodeTimeout, ""}, code)
	require.Equal(t, code == "", called)
}

// A command that must be killed does not count as a handler that hangs.
func TestCommandIsKilledBeforeItIsAbandoned(t *testing.T) {
	t.Parallel()
	p := newPresence(t)
	r, _ := newRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-p.lines; cancel() }()
	h := command(t, 0, "sh", "-c", family, p.path) // with the default grace times
	code, _, _ := handler.Outcome(within(t, func() error { return runFor(ctx, r, h, patience) }))
	require.Equal(t, handler.CodeStopped, code)
	require.Zero(t, r.Abandoned())
	p.none(t)
}

// A goroutine runs handlers one after another, until a handler ends the goroutine or Close is
// called, which may be while the goroutine runs a handler.
func TestRunKeepsItsGoroutines(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	var on string
	runs := func(f func()) (string, error) {
		err := r.Run(t.Context(), handler.Func(func(context.Context, handler.Job) error {
			buf := make([]byte, 64)
			on, _, _ = strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
			f()
			return nil
		}), job())
		return on, err
	}
	fine := func() {}
	first, err := runs(fine)
	require.NoError(t, err)
	require.Contains(t, first, "goroutine ")
	second, err := runs(func() { panic("no") })
	require.Error(t, err)
	require.Equal(t, first, second)
	third, err := runs(runtime.Goexit)
	require.Error(t, err)
	require.Equal(t, first, third)
	fourth, err := runs(fine)
	require.NoError(t, err)
	require.NotEqual(t, first, fourth, "it had ended")
	fifth, err := runs(r.Close)
	require.NoError(t, err)
	require.Equal(t, fourth, fifth)
	sixth, err := runs(fine)
	require.NoError(t, err)
	require.NotEqual(t, fifth, sixth)
}

// lasting returns a constant Runner.Grace.
func lasting(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
