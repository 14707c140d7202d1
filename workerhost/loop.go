package workerhost

// This file is the life of one loop: started, drained, stopped, and contained:
// a panic ends neither the host nor the console beside it.

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
	stateStopped  = "stopped"
	stateRunning  = "running"
	stateDraining = "draining"
	stateFailed   = "failed"
)

// loop runs one body at a time. drain asks it to take nothing new and return
// when it is done; its context ends when it must return at once.
type loop struct {
	name, what string
	log        *slog.Logger
	kick       chan struct{} // size 1: kicks coalesce
	wakes      wakes
	retry      chan struct{} // size 1: an operator need not wait for the pause after a failure

	mu       sync.Mutex
	state    string
	asked    bool // drain is closed
	cancel   context.CancelFunc
	drain    chan struct{}
	done     chan struct{}
	lastTick time.Time
	every    time.Duration
	inFlight int
	total    int64
	errors   int64
	lastErr  queue.Text
	rate     rate
	unsigned []queue.Unsigned
}

// setUnsigned keeps what the loop cannot sign.
func (l *loop) setUnsigned(all []queue.Unsigned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsigned = all
}

func (l *loop) kickNow() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func newLoop(w worker, log *slog.Logger) *loop {
	return &loop{
		name: w.name, what: w.what, log: log.With("loop", w.name), state: stateStopped,
		kick: make(chan struct{}, 1), retry: make(chan struct{}, 1),
	}
}

// The pause after a failed body doubles from firstPause to lastPause; a body
// that ran for longer than longRun before it failed begins again at the first.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	longRun    = 30 * time.Second
)

// start runs body in its own goroutine. A body that fails or panics is started
// again after a pause, until it is drained or stopped; a start during the pause
// ends the pause.
func (l *loop) start(base context.Context, body func(context.Context, *loop) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case stateStopped:
	case stateFailed:
		select {
		case l.retry <- struct{}{}:
		default:
		}
		return nil
	default:
		return fmt.Errorf("loop %s is %s already", l.name, l.state)
	}
	ctx, cancel := context.WithCancel(base)
	l.state, l.cancel, l.asked = stateRunning, cancel, false
	drain, done := make(chan struct{}), make(chan struct{})
	l.drain, l.done = drain, done
	go func() {
		defer close(done)
		defer cancel()
		defer l.setState(stateStopped)
		pause := firstPause
		for {
			began := time.Now()
			err := l.contain(ctx, body)
			if err == nil {
				return
			}
			l.log.Error("loop failed", "error", err.Error())
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

func (l *loop) contain(ctx context.Context, body func(context.Context, *loop) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			l.log.Error("loop panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return body(ctx, l)
}

func (l *loop) setState(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if s == stateStopped {
		l.inFlight = 0
	}
}

// failed records the end of a body; true when it is to be started again.
func (l *loop) failed(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr = queue.Said(err)
	if l.asked {
		return false
	}
	l.state = stateFailed
	l.inFlight = 0
	select {
	case <-l.retry: // one that was asked for before this failure
	default:
	}
	return true
}

// resume follows the pause after a failure; false when a drain was asked for
// meanwhile.
func (l *loop) resume() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked {
		l.state = stateRunning
	}
	return !l.asked
}

// drainNow asks the loop to finish what it has; a stopped loop is drained.
func (l *loop) drainNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
}

// stopNow ends the loop at once. On its way out it counts as draining, so that
// nobody takes it for one that runs.
func (l *loop) stopNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
	if l.cancel != nil {
		l.cancel()
	}
}

// leave closes drain, once; mu is held.
func (l *loop) leave() {
	if l.state != stateStopped && !l.asked {
		l.state, l.asked = stateDraining, true
		close(l.drain)
	}
}

// ended is closed when the loop does not run.
func (l *loop) ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return l.done
}

// draining is closed when the loop was asked to drain.
func (l *loop) draining() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drain
}

// ticked records a pass that did n units of work.
func (l *loop) ticked(n int64, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick, l.every = time.Now(), every
	l.total += n
	l.rate.add(l.lastTick, n)
	l.lastErr = queue.Text{}
}

// erred records a pass that failed without ending the loop.
func (l *loop) erred(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr = queue.Said(err)
}

// waits records a pass of a loop that may not work: why, and what to do.
func (l *loop) waits(why error, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick, l.every = time.Now(), every
	l.lastErr = queue.Said(why)
}

func (l *loop) setInFlight(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight = n
}

func (l *loop) status() queue.LoopStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return queue.LoopStatus{
		Name: l.name, State: l.state, What: l.what, Every: l.every, LastTick: l.lastTick, InFlight: l.inFlight,
		Done: l.total, Errors: l.errors, LastErr: l.lastErr, PerSec: l.rate.perSecond(time.Now()),
		Unsigned: l.unsigned,
	}
}

// rate is a mean over the last minute, in buckets of five seconds.
type rate struct {
	buckets [12]int64
	stamps  [12]int64 // unix / 5
}

func (r *rate) add(at time.Time, n int64) {
	slot := at.Unix() / 5
	i := slot % int64(len(r.buckets))
	if r.stamps[i] != slot {
		r.buckets[i], r.stamps[i] = 0, slot
	}
	r.buckets[i] += n
}

func (r *rate) perSecond(now time.Time) float64 {
	var sum int64
	slot := now.Unix() / 5
	for i, s := range r.stamps {
		if slot-s < int64(len(r.buckets)) {
			sum += r.buckets[i]
		}
	}
	return float64(sum) / 60
}
