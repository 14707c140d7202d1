package main

// The common interface of the queues: how to fill a queue, to start its workers, and to check in
// its tables that every job was done.

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
	// open starts the workers. Each handler calls handled at its start, with the number in the
	// payload of the job.
	open func(ctx context.Context, d *database, handled func(n int)) (session, error)
	none string // SQL that returns true when no job is unfinished
	done string // SQL that returns the number of jobs that succeeded
}

// session is a queue with running workers.
type session struct {
	// insert inserts one job as the producers of the queue do. If another process inserts, it
	// returns when that process sent the insert; zero = this process inserted.
	insert func(ctx context.Context, n int) (time.Time, error)
	ready  func() error                    // starts the work of workers in other processes; nil = the workers run already
	idle   func(ctx context.Context) error // waits until workers in other processes find no more work; nil = the workers call handled
	stop   func() error
}

// tally waits until a number of jobs were handled, and measures the time.
type tally struct {
	from, to int64 // the time runs from the start of handler number from (0 = at once) …
	n        atomic.Int64
	epoch    time.Time
	began    atomic.Int64  // nanoseconds since epoch
	all      chan struct{} // … until handler number to has started, which closes all
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

// work fills the queue and returns its work rate. The time runs from the start of the workers
// (from = 0), or from the handler of job number from, to the last completion in the database.
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

// arrivals holds the times of numbered jobs.
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
// start of its handler, sorted. gap returns the time between two inserts. With inFlight above 1,
// a slow insert does not delay the next one.
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
	// warmUp is the time in which listeners subscribe and connections are opened.
	warmUp = 500 * time.Millisecond
	// One job in warmShare, the first ones, are not counted, because connections are opened and
	// plans are made then.
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
			due = time.Now() // one in flight: the pause begins after the last insert; otherwise inserts follow the clock
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

// idlePauses returns random pauses, so that inserts are not synchronous with a timer of a peer.
func idlePauses() time.Duration { return 10*time.Millisecond + rand.N(20*time.Millisecond) }

func everyMillisecond() time.Duration { return time.Millisecond }
