package main

// What the peers have in common: how to fill them, to start their workers, and to check in their
// tables that every job was done.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// system is a queue under test.
type system struct {
	name     string
	template *template
	fill     func(ctx context.Context, d *database, n int) error
	// open starts the workers. handled is called with the number in the payload of each job at
	// the start of its handler.
	open func(ctx context.Context, d *database, handled func(n int)) (session, error)
	none string // SQL: true when no job is unfinished
	done string // SQL: the number of jobs that succeeded
}

// session is a system with running workers.
type session struct {
	// insert inserts one job, the way its producers do it, and returns when another process sent it; zero = this
	// process did.
	insert func(ctx context.Context, n int) (time.Time, error)
	ready  func() error                    // starts workers of other processes; nil = they run
	idle   func(ctx context.Context) error // waits until those have no more work; nil = handled is called
	stop   func() error
}

// tally waits for a number of jobs.
type tally struct {
	from, to int64 // counted from the handler of job number from (0 = at once) …
	n        atomic.Int64
	epoch    time.Time
	began    atomic.Int64  // nanoseconds since epoch
	all      chan struct{} // … until number to started
}

func newTally(from, to int) *tally {
	return &tally{from: int64(from), to: int64(to), epoch: time.Now(), all: make(chan struct{})}
}

func (t *tally) begin() { t.began.Store(int64(time.Since(t.epoch))) }

func (t *tally) took() time.Duration { return time.Since(t.epoch) - time.Duration(t.began.Load()) }

func (t *tally) handled(int) {
	n := t.n.Add(1)
	if n == t.from {
		t.begin()
	}
	if n == t.to {
		close(t.all)
	}
}

func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs were handled: %w", t.n.Load(), t.to, ctx.Err())
	}
}

// work fills a system and returns its work rate, from the start of its workers, or from the
// handler of job number from, to the last completion in the database.
func (s system) work(ctx context.Context, d *database, from, n int) (rate float64, err error) {
	if err := s.fill(ctx, d, n); err != nil {
		return 0, fmt.Errorf("filling: %w", err)
	}
	if err := d.settle(ctx); err != nil {
		return 0, err
	}
	already, err := d.count(ctx, s.done)
	if err != nil {
		return 0, err
	}
	t := newTally(from, n)
	run, err := s.open(ctx, d, t.handled)
	if err != nil {
		return 0, fmt.Errorf("starting: %w", err)
	}
	wait := t.wait
	if run.ready != nil {
		t.begin()
		wait = run.idle
		err = run.ready()
	}
	if err == nil {
		err = wait(ctx)
	}
	if err == nil {
		err = d.until(ctx, s.none)
	}
	took := t.took()
	if stopped := run.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		err = d.expect(ctx, already+n, s.done)
	}
	return float64(n-from) / took.Seconds(), err
}

// arrivals are the times of numbered jobs.
type arrivals struct {
	*tally
	sent, started []atomic.Int64 // nanoseconds since epoch; 0 = not yet
}

func newArrivals(n int) *arrivals {
	return &arrivals{tally: newTally(0, n), sent: make([]atomic.Int64, n), started: make([]atomic.Int64, n)}
}

func (a *arrivals) handled(n int) {
	a.started[n].Store(int64(time.Since(a.epoch)))
	a.tally.handled(n)
}

// latency inserts n jobs one by one and returns the times from just before each insert to the
// start of its handler, sorted. gap is the time between two inserts; with several in flight a
// slow insert does not delay the next.
func (s system) latency(ctx context.Context, d *database, n, inFlight int, gap func() time.Duration) ([]time.Duration, error) {
	a := newArrivals(n)
	run, err := s.open(ctx, d, a.handled)
	if err != nil {
		return nil, fmt.Errorf("starting: %w", err)
	}
	err = a.send(ctx, run, inFlight, gap)
	if err == nil {
		err = a.wait(ctx)
	}
	if err == nil {
		err = d.until(ctx, s.none)
	}
	if stopped := run.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		err = d.expect(ctx, n, s.done)
	}
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for i := n / warmShare; i < n; i++ {
		took = append(took, time.Duration(a.started[i].Load()-a.sent[i].Load()))
	}
	slices.Sort(took)
	return took, nil
}

const (
	// warmUp lets listeners subscribe and connections open.
	warmUp = 500 * time.Millisecond
	// The first of the jobs, one in warmShare, are not counted: connections open and plans are made.
	warmShare = 10
)

func (a *arrivals) send(ctx context.Context, run session, inFlight int, gap func() time.Duration) error {
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	free := make(chan struct{}, inFlight)
	due := time.Now()
	for n := range a.sent {
		if inFlight == 1 {
			due = time.Now() // pauses are between two inserts; a load follows the clock
		}
		due = due.Add(gap())
		if err := pause(ctx, time.Until(due)); err != nil {
			break
		}
		free <- struct{}{}
		wg.Go(func() {
			a.sent[n].Store(int64(time.Since(a.epoch)))
			sent, err := run.insert(ctx, n)
			if err != nil {
				cancel(fmt.Errorf("inserting: %w", err))
			}
			if !sent.IsZero() {
				a.sent[n].Store(int64(sent.Sub(a.epoch)))
			}
			<-free
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// idlePauses are random, so that they are not synchronised with a timer of a peer.
func idlePauses() time.Duration { return 10*time.Millisecond + rand.N(20*time.Millisecond) }

func everyMillisecond() time.Duration { return time.Millisecond }
