package lease

// This file batches results: one statement per 2 ms or Most of them, repeated
// while the database is away, for a repeated result changes nothing.

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/workerhost/loop"
)

const window = 2 * time.Millisecond

// mostSaid is how many bytes of results go with one statement, at least one's: each
// is searched for secrets, which can take the server milliseconds.
const mostSaid = 64 << 10

// Recorder is what becomes of results.
type Recorder[T any] struct {
	// Record sends a batch as one statement and, unless that fails, takes what the
	// database answers.
	Record func(context.Context, []T) error
	// Lasts tells whether the lease of one lasts so long from now.
	Lasts func(T, time.Duration) bool
	// Lost takes a batch that could not be recorded: its leases will expire.
	Lost  func([]T, error)
	Erred func(error) // each time
	// Said is how many bytes one takes with it; nil = not worth counting.
	Said func(T) int
	// Plain takes the text out of one that the database refuses for what it says; nil = it
	// has none.
	Plain func(T)
}

// Results collects results for a Recorder.
type Results[T any] struct {
	rec    Recorder[T]
	ctx    context.Context //nolint:containedctx // ends when nothing more is tried; results outlive every call
	giveUp context.CancelFunc

	mu      sync.Mutex
	queue   []T
	ring    chan struct{} // something is in
	full    chan struct{} // a whole batch is in
	stop    chan struct{}
	stopped sync.WaitGroup
	waiting atomic.Int32 // statements that are repeated because the database takes none
	refused atomic.Int32 // results that this host may not record, since it last recorded one
}

// mostRefused results in a row that this host may not record, and it begins nothing more.
const mostRefused = 8

// Stuck tells that results cannot be recorded now. What is begun meanwhile may have to be
// done again.
func (r *Results[T]) Stuck() bool { return r.waiting.Load() > 0 || r.refused.Load() >= mostRefused }

// NewResults starts so many writers: with two, one batch commits while the next is
// sent.
func NewResults[T any](writers int, rec Recorder[T]) *Results[T] {
	r := &Results[T]{rec: rec, ring: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{})}
	r.ctx, r.giveUp = context.WithCancel(context.Background())
	for range writers {
		r.stopped.Go(r.run)
	}
	return r
}

// Add queues results.
func (r *Results[T]) Add(some ...T) {
	r.mu.Lock()
	r.queue = append(r.queue, some...)
	n := len(r.queue)
	r.mu.Unlock()
	loop.Signal(r.ring)
	if n >= Most {
		loop.Signal(r.full)
	}
}

func (r *Results[T]) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.ring:
		}
		t.Reset(window)
		select {
		case <-t.C:
		case <-r.full:
		case <-r.stop:
		}
		r.flush()
	}
}

// Close records what is in, until by, and ends.
func (r *Results[T]) Close(by time.Time) {
	late := time.AfterFunc(time.Until(by), r.giveUp)
	defer late.Stop()
	close(r.stop)
	r.stopped.Wait()
	r.flush()
	r.stopped.Wait() // for those that flush has set apart
	r.giveUp()
}

func (r *Results[T]) take() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, said := 0, 0
	for ; n < min(len(r.queue), Most); n++ {
		if r.rec.Said != nil {
			if said += r.rec.Said(r.queue[n]); n > 0 && said > mostSaid {
				break
			}
		}
	}
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	if len(r.queue) > 0 {
		loop.Signal(r.ring) // for the other writer
	}
	return batch
}

func (r *Results[T]) flush() {
	for batch := r.take(); len(batch) > 0; batch = r.take() {
		r.send(batch)
	}
}

// The pauses between two tries double from firstWait to lastWait.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// send records a batch, as pgerror.StateFates says:
//
//  1. What passes by itself is repeated until the database answers or the host stops, also
//     past the leases: their tokens fence. From the second time on the host is Stuck.
//  2. Any other batch is taken apart: a result that is refused must not cost the others.
//  3. A single one that this host may not record is tried again beside the others as long
//     as its lease lasts.
//  4. A single one that is refused for what it says is sent without its text, then lost.
func (r *Results[T]) send(batch []T) {
	held := false
	defer func() {
		if held {
			r.waiting.Add(-1)
		}
	}()
	plain := false
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := r.rec.Record(r.ctx, batch)
		if err == nil {
			r.refused.Store(0)
			return
		}
		r.rec.Erred(err)
		fate, smaller := pgerror.FateOf(err)
		switch {
		case r.ctx.Err() != nil:
			r.rec.Lost(batch, err)
			return
		case len(batch) > 1 && (fate != pgerror.Again || smaller):
			r.send(batch[:len(batch)/2])
			r.send(batch[len(batch)/2:])
			return
		case fate == pgerror.GiveUp && r.rec.Plain != nil && !plain:
			plain = true
			r.rec.Plain(batch[0])
			continue
		case fate == pgerror.GiveUp:
			r.rec.Lost(batch, err)
			return
		case fate == pgerror.GiveBack:
			r.refused.Add(1)
			r.stopped.Go(func() { r.sendApart(batch[0], err) })
			return
		}
		if wait > firstWait && !held {
			held = true
			r.waiting.Add(1)
		}
		r.pause(wait)
	}
}

// sendApart tries a single result again, which failed with err, until the database takes
// it, its lease ends or the host stops.
func (r *Results[T]) sendApart(one T, err error) {
	for wait := firstWait; r.rec.Lasts(one, wait) && r.ctx.Err() == nil; wait = min(2*wait, lastWait) {
		r.pause(wait)
		if err = r.rec.Record(r.ctx, []T{one}); err == nil {
			r.refused.Store(0)
			return
		}
		r.rec.Erred(err)
	}
	if n := r.refused.Load(); n > 0 {
		r.refused.CompareAndSwap(n, n-1)
	}
	r.rec.Lost([]T{one}, err)
}

// pause waits for so long, a fifth more or less, or until nothing more is tried.
func (r *Results[T]) pause(wait time.Duration) {
	select {
	case <-time.After(wait*4/5 + rand.N(wait*2/5)):
	case <-r.ctx.Done():
	}
}
