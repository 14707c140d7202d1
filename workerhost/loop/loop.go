// Package loop is the life of one loop of a worker host: started, drained, stopped,
// woken and counted, and contained: a panic ends neither the host nor the console
// beside it.
package loop

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// The states of a loop.
const (
	Stopped  = "stopped"
	Running  = "running"
	Draining = "draining"
	Failed   = "failed"
)

// Loop runs one body at a time. drain asks it to take nothing new and return
// when it is done; its context ends when it must return at once.
type Loop struct {
	Name string
	Log  *slog.Logger
	what string
	wakes
	began time.Time
	retry chan struct{} // size 1: an operator need not wait for the pause after a failure
	timed chan struct{} // size 1: its interval has changed

	mu       sync.Mutex
	state    string
	asked    bool // drain is closed
	cancel   context.CancelFunc
	by       time.Time // when a stopped body is to have returned; zero until Stop
	drain    chan struct{}
	done     chan struct{}
	lastTick time.Time
	every    time.Duration
	inFlight int
	total    int64
	errors   int64
	lastErr  queue.Text
	rate     *Pace // of a minute
	unsigned []queue.Unsigned
}

// SetUnsigned keeps what the loop cannot sign.
func (l *Loop) SetUnsigned(all []queue.Unsigned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsigned = all
}

// Retime tells the loop that its interval has changed, so that it need not sleep the old one out.
func (l *Loop) Retime() { Signal(l.timed) }

// Retimed is told when the interval of the loop has changed.
func (l *Loop) Retimed() <-chan struct{} { return l.timed }

// Body is what a loop runs.
type Body = func(context.Context, *Loop) error

// New makes a loop that does not run. what says what it does.
func New(name, what string, log *slog.Logger) *Loop {
	l := &Loop{
		Name: name, Log: log.With("loop", name), what: what, state: Stopped, rate: NewPace(5*time.Second, 12), began: time.Now(),
		wakes: wakes{kick: make(chan struct{}, 1)}, retry: make(chan struct{}, 1), timed: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	close(l.done)
	return l
}

// The pause after a failed body doubles from firstPause to lastPause; a body
// that ran for longer than longRun before it failed begins again at the first.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	longRun    = 30 * time.Second
)

// Start runs body in its own goroutine. A body that fails or panics is started
// again after a pause, until it is drained or stopped; a start during the pause
// ends the pause.
func (l *Loop) Start(base context.Context, body Body) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case Stopped:
	case Failed:
		Signal(l.retry)
		return nil
	default:
		return fmt.Errorf("loop %s is %s already", l.Name, l.state)
	}
	ctx, cancel := context.WithCancel(base)
	l.state, l.cancel, l.asked, l.by = Running, cancel, false, time.Time{}
	drain, done := make(chan struct{}), make(chan struct{})
	l.drain, l.done = drain, done
	go func() {
		defer close(done)
		defer cancel()
		defer l.stopped()
		pause := firstPause
		for {
			began := time.Now()
			err := l.contain(ctx, body)
			if err == nil {
				return
			}
			l.Log.Error("loop failed", "error", err.Error())
			if !l.failed(err) || ctx.Err() != nil {
				return
			}
			if time.Since(began) > longRun {
				pause = firstPause
			}
			select {
			case <-time.After(pause):
			case <-l.retry:
			case <-drain:
				return
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, lastPause)
			if !l.resume() {
				return
			}
		}
	}()
	return nil
}

func (l *Loop) contain(ctx context.Context, body Body) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			l.Log.Error("loop panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return body(ctx, l)
}

func (l *Loop) stopped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.inFlight = Stopped, 0
}

// failed records the end of a body; true when it is to be started again.
func (l *Loop) failed(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr = queue.Said(err)
	if l.asked {
		return false
	}
	l.state = Failed
	l.inFlight = 0
	select {
	case <-l.retry: // one that was asked for before this failure
	default:
	}
	return true
}

// resume follows the pause after a failure; false when a drain was asked for
// meanwhile.
func (l *Loop) resume() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked {
		l.state = Running
	}
	return !l.asked
}

// Drain asks the loop to finish what it has; a stopped loop is drained.
func (l *Loop) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
}

// HandBack is what a body that is stopped has to hand back what it did not finish,
// where there is no less: see Stop.
const HandBack = 5 * time.Second

// Stop ends the loop at once: its body is to have returned by then. On its way out it
// counts as draining, so that nobody takes it for one that runs.
func (l *Loop) Stop(by time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
	if l.by.IsZero() || by.Before(l.by) {
		l.by = by
	}
	if l.cancel != nil {
		l.cancel()
	}
}

// Left is how long a body that is stopped has until it is to have returned.
func (l *Loop) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by.IsZero() {
		return HandBack
	}
	return max(time.Until(l.by), 0)
}

// leave closes drain, once; mu is held.
func (l *Loop) leave() {
	if l.state != Stopped && !l.asked {
		l.state, l.asked = Draining, true
		close(l.drain)
	}
}

// Ended is closed when the loop does not run.
func (l *Loop) Ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// Draining is closed when the loop was asked to drain.
func (l *Loop) Draining() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drain
}

// Ticked records a pass that did n units of work.
func (l *Loop) Ticked(n int64, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick, l.every = time.Now(), every
	l.total += n
	l.rate.Add(time.Since(l.began), int(n))
	l.lastErr = queue.Text{}
}

// Erred records a pass that failed without ending the loop.
func (l *Loop) Erred(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr = queue.Said(err)
}

// Waits records a pass of a loop that may not work: why, and what to do.
func (l *Loop) Waits(why error, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick, l.every = time.Now(), every
	l.lastErr = queue.Said(why)
}

// SetInFlight says how much is under way.
func (l *Loop) SetInFlight(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight = n
}

// Status is the loop as the console shows it.
func (l *Loop) Status() queue.LoopStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return queue.LoopStatus{
		Name: l.Name, State: l.state, What: l.what, Every: l.every, LastTick: l.lastTick, InFlight: l.inFlight,
		Done: l.total, Errors: l.errors, LastErr: l.lastErr, PerSec: float64(l.rate.Recent(time.Since(l.began))) / 60,
		Unsigned: l.unsigned,
	}
}
