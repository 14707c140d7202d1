// Package loop runs one loop of a worker host: it starts, wakes, drains and stops the
// loop's body, restarts it after a failure, and counts what it does.
//
// Start from Loop and Body. A host makes a Loop with New and starts it with a Body, a function
// that works until its context ends or Draining is closed. The Body reports its results to the
// Loop (RecordTick, RecordError, RecordCheck, SetInFlight); the console and the host row read
// Status. Kick and Wake make the body check for work soon.
//
// Invariants: at most one body runs per loop; a panic in a body ends neither the host nor
// the console in the same process; a drain or stop is never undone.
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

// Loop runs one body at a time. When the channel drain is closed, the body must take no new work
// and return when the current work is done. When its context ends, it must return at once.
type Loop struct {
	Name    string
	Log     *slog.Logger
	purpose string
	wakes
	began           time.Time     // when it was started last
	retry           chan struct{} // size 1: an operator's Start ends the pause after a failure
	intervalChanged chan struct{} // size 1

	mu         sync.Mutex
	state      string
	drainAsked bool // drain is closed
	cancel     context.CancelFunc
	stopBy     time.Time // when a stopped body must have returned; zero until Stop
	drain      chan struct{}
	done       chan struct{}
	lastTick   time.Time
	interval   time.Duration
	inFlight   int
	total      int64
	errors     int64
	lastErr    queue.Text
	shortage   queue.Text // see RecordShortage
	shortAt    time.Time
	rate       *Pace // units of work in the last minute
	unsigned   []queue.Unsigned
}

// SetUnsigned sets the webhook subscriptions whose deliveries the loop cannot sign.
func (l *Loop) SetUnsigned(all []queue.Unsigned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsigned = all
}

// NotifyInterval signals that the loop's interval has changed, so that the body does not
// wait for the end of the old one.
func (l *Loop) NotifyInterval() { Signal(l.intervalChanged) }

// IntervalChanged returns a channel that receives a value after NotifyInterval.
func (l *Loop) IntervalChanged() <-chan struct{} { return l.intervalChanged }

// Body is the function that a loop runs. A nil error ends the loop; after any other error
// or a panic the body is started again.
type Body = func(context.Context, *Loop) error

// New makes a loop in the state Stopped. purpose is shown beside its name in the console.
func New(name, purpose string, log *slog.Logger) *Loop {
	l := &Loop{
		Name: name, Log: log.With("loop", name), purpose: purpose, state: Stopped, rate: newRate(), began: time.Now(),
		wakes: wakes{kick: make(chan struct{}, 1)}, retry: make(chan struct{}, 1), intervalChanged: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	close(l.done)
	return l
}

// The pause after a failed body doubles from minPause to maxPause. After a body that ran for
// longer than longRun the pause is minPause again.
const (
	minPause = 200 * time.Millisecond
	maxPause = 5 * time.Second
	longRun  = 30 * time.Second
)

// Start runs body in a new goroutine. A body that fails or panics is started again after a pause,
// until the loop is drained or stopped. A call of Start during the pause ends the pause. Start
// fails when the loop runs or drains already.
func (l *Loop) Start(base context.Context, body Body) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case Stopped:
	case Failed:
		Signal(l.retry)
		return nil
	default:
		return queue.NewError(queue.KindFailed, fmt.Sprintf("loop %s is %s already", l.Name, l.state), "", "")
	}
	ctx, cancel := context.WithCancel(base)
	l.state, l.cancel, l.drainAsked, l.stopBy = Running, cancel, false, time.Time{}
	l.rate, l.began = newRate(), time.Now()
	drain, done := make(chan struct{}), make(chan struct{})
	l.drain, l.done = drain, done
	go func() {
		defer close(done)
		defer cancel()
		defer l.recordStop()
		pause := minPause
		for {
			began := time.Now()
			err := l.runContained(ctx, body)
			if err == nil {
				return
			}
			l.Log.Error("loop failed", "error", err.Error())
			if !l.recordFailure(err) || ctx.Err() != nil {
				return
			}
			if time.Since(began) > longRun {
				pause = minPause
			}
			select {
			case <-time.After(pause):
			case <-l.retry:
			case <-drain:
				return
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, maxPause)
			if !l.resume() {
				return
			}
		}
	}()
	return nil
}

func (l *Loop) runContained(ctx context.Context, body Body) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			l.Log.Error("loop panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return body(ctx, l)
}

func (l *Loop) recordStop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.inFlight = Stopped, 0
}

// recordFailure records that a body failed; true when the body must be started again.
func (l *Loop) recordFailure(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr = queue.Said(err)
	if l.drainAsked {
		return false
	}
	l.state = Failed
	l.inFlight = 0
	select {
	case <-l.retry: // a request from before this failure: drop it
	default:
	}
	return true
}

// resume sets the loop running again after the pause; false when a drain was requested
// during the pause.
func (l *Loop) resume() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.drainAsked {
		l.state = Running
	}
	return !l.drainAsked
}

// Drain asks the loop to finish its current work and end. It does not wait (see Ended) and
// does nothing to a stopped loop.
func (l *Loop) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginDrain()
}

// HandBackTime is how long a stopped body may take to hand back unfinished work, unless Stop sets
// another deadline.
const HandBackTime = 5 * time.Second

// Stop cancels the context of the body, which must return by deadline. Until the body returns,
// the state is Draining and not Running. Stop does not wait; see Ended.
func (l *Loop) Stop(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginDrain()
	if l.stopBy.IsZero() || deadline.Before(l.stopBy) {
		l.stopBy = deadline
	}
	if l.cancel != nil {
		l.cancel()
	}
}

// Remaining returns how long the body may take to return once its context is cancelled: the time
// until the deadline of Stop, or HandBackTime if something else than Stop cancelled it.
func (l *Loop) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopBy.IsZero() {
		return HandBackTime
	}
	return max(time.Until(l.stopBy), 0)
}

// beginDrain closes drain, once. The caller holds mu.
func (l *Loop) beginDrain() {
	if l.state != Stopped && !l.drainAsked {
		l.state, l.drainAsked = Draining, true
		close(l.drain)
	}
}

// Ended returns a channel that is closed while no body runs.
func (l *Loop) Ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// Draining returns a channel that is closed when the loop must drain.
func (l *Loop) Draining() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drain
}

// RecordTick records a successful pass that did n units of work. interval is the time to
// the next pass, as the console shows it.
func (l *Loop) RecordTick(n int64, interval time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick, l.interval = time.Now(), interval
	l.total += n
	l.rate.Add(time.Since(l.began), int(n))
	l.lastErr = queue.Text{}
}

// RecordError records a failed pass; the body continues.
func (l *Loop) RecordError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr = queue.Said(err)
}

// shortageShown is for how long Status shows a shortage.
const shortageShown = time.Minute

// RecordShortage records that the host itself lacked something to begin work, which is handed back.
// Passes that succeed do not end it: Status shows it for a minute.
func (l *Loop) RecordShortage(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.shortage, l.shortAt = queue.Said(err), time.Now()
}

// RecordBlocked records that the loop may not work at present. reason is the cause and what the
// operator can do. It is not counted as an error.
func (l *Loop) RecordBlocked(reason error, interval time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick, l.interval = time.Now(), interval
	l.lastErr = queue.Said(reason)
}

// SetInFlight sets how many units of work are in progress.
func (l *Loop) SetInFlight(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight = n
}

const (
	rateSlot  = 5 * time.Second
	rateSlots = 12
)

func newRate() *Pace { return NewPace(rateSlot, rateSlots) }

// perSecond returns the mean of the last minute, or since the loop was started if that is less.
// The caller holds mu.
func (l *Loop) perSecond() float64 {
	age := time.Since(l.began)
	counted := min(age, (rateSlots-1)*rateSlot+age%rateSlot) // the last slot has only begun
	return float64(l.rate.Recent(age)) / max(counted.Seconds(), 1)
}

// Status returns the loop as the console shows it.
func (l *Loop) Status() queue.LoopStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.lastErr
	if said.Empty() && time.Since(l.shortAt) < shortageShown {
		said = l.shortage
	}
	return queue.LoopStatus{
		Name: l.Name, State: l.state, What: l.purpose, Every: l.interval, LastTick: l.lastTick, InFlight: l.inFlight,
		Done: l.total, Errors: l.errors, LastErr: said, PerSec: l.perSecond(),
		Unsigned: l.unsigned,
	}
}
