package lease

// This file batches results: one statement per 2 ms or Most of them, repeated
// while the database is away and a lease lasts, for a repeated result changes
// nothing.

import (
	"context"
	"sync"
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
}

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

// send records a batch. One that the database refuses is taken apart: a result
// that it does not accept must not cost the others.
func (r *Results[T]) send(batch []T) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := r.rec.Record(r.ctx, batch)
		if err == nil {
			return
		}
		r.rec.Erred(err)
		retry := pgerror.Retryable(err) && r.ctx.Err() == nil
		if !retry && len(batch) > 1 && r.ctx.Err() == nil {
			r.send(batch[:len(batch)/2])
			r.send(batch[len(batch)/2:])
			return
		}
		if !retry || !r.lasts(batch, wait) {
			r.rec.Lost(batch, err)
			return
		}
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
		}
	}
}

// lasts tells whether a lease of the batch may last for wait.
func (r *Results[T]) lasts(batch []T, wait time.Duration) bool {
	for _, one := range batch {
		if r.rec.Lasts(one, wait) {
			return true
		}
	}
	return false
}
