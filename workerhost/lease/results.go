package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/workerhost/loop"
)

const batchWindow = 2 * time.Millisecond

// maxTextBytes bounds the bytes of result texts in one statement; a result with a longer text is
// sent alone. The server searches each text for secrets, which can take milliseconds.
const maxTextBytes = 64 << 10

// Recorder holds the functions by which Results records results of the type T.
type Recorder[T any] struct {
	// Record sends a batch as one statement and, unless that fails, handles the answer.
	Record func(context.Context, []T) error
	// LeaseLeft returns how long the lease of the result lasts, without further renewals.
	LeaseLeft func(T) time.Duration
	// OnLost is called with results that could not be recorded, and the error; their leases will
	// expire.
	OnLost func([]T, error)
	// Apart divides a batch for which Record failed with the error, if other sessions have locked rows:
	// into the results that would wait for such a row and the others. It returns none if that is not
	// the cause. nil = the batch is halved instead.
	Apart func(context.Context, []T, error) (locked, others []T)
	// OnError is called with each failure of Record.
	OnError func(error)
	// TextBytes returns the length of the text of a result; nil = not counted.
	TextBytes func(T) int
	// DropText removes the text of a result that the database refuses because of its
	// content; nil = results have no text.
	DropText func(T)
}

// Results collects results and records them through a Recorder: one statement per 2 ms or per
// MaxBatch results. While the database is unavailable a statement is repeated; that is safe,
// because recording a result twice changes nothing. See send for the fate of refused results.
type Results[T any] struct {
	rec    Recorder[T]
	ctx    context.Context //nolint:containedctx // ends when nothing is sent any more; results outlive every call
	giveUp context.CancelFunc

	mu        sync.Mutex
	queue     []T
	pending   chan struct{} // the queue is not empty
	batchFull chan struct{} // the queue holds a whole batch
	stop      chan struct{}
	deadline  atomic.Pointer[time.Time] // of Close
	writers   sync.WaitGroup
	later     sync.WaitGroup // results that are sent again in the background
	retrying  atomic.Int32   // statements that are being repeated
	refused   atomic.Int32   // results that are sent again in the background, counted since the last recorded result
}

// maxRefused is how many refused results in a row make the host Stuck.
const maxRefused = 8

// Stuck reports that results cannot be recorded at present. Callers then begin no work, because
// work whose result is lost is done again.
func (r *Results[T]) Stuck() bool { return r.retrying.Load() > 0 || r.refused.Load() >= maxRefused }

// NewResults starts the given number of writers. With two writers, one batch commits while the
// next is sent.
func NewResults[T any](writers int, rec Recorder[T]) *Results[T] {
	r := &Results[T]{rec: rec, pending: make(chan struct{}, 1), batchFull: make(chan struct{}, 1), stop: make(chan struct{})}
	r.ctx, r.giveUp = context.WithCancel(context.Background())
	for range writers {
		r.writers.Go(r.run)
	}
	return r
}

// Add queues results. It does not block.
func (r *Results[T]) Add(results ...T) {
	r.mu.Lock()
	r.queue = append(r.queue, results...)
	n := len(r.queue)
	r.mu.Unlock()
	loop.Signal(r.pending)
	if n >= MaxBatch {
		loop.Signal(r.batchFull)
	}
}

func (r *Results[T]) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.pending:
		}
		t.Reset(batchWindow)
		select {
		case <-t.C:
		case <-r.batchFull:
		case <-r.stop:
		}
		r.flush()
	}
}

// Hurry says until when results must be recorded, before Close: then a statement waits less for a locked row.
func (r *Results[T]) Hurry(deadline time.Time) { r.deadline.Store(&deadline) }

// Close records the queued results until deadline and stops the writers. Results that are not
// recorded by then are lost (Recorder.OnLost).
func (r *Results[T]) Close(deadline time.Time) {
	late := time.AfterFunc(time.Until(deadline), r.giveUp)
	defer late.Stop()
	r.deadline.Store(&deadline)
	close(r.stop)
	r.writers.Wait()
	r.flush() // does not wait for those that are sent again: they may wait for a locked row until deadline
	r.later.Wait()
	r.giveUp()
}

func (r *Results[T]) nextBatch() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, textBytes := 0, 0
	for ; n < min(len(r.queue), MaxBatch); n++ {
		if r.rec.TextBytes != nil {
			if textBytes += r.rec.TextBytes(r.queue[n]); n > 0 && textBytes > maxTextBytes {
				break
			}
		}
	}
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	if len(r.queue) > 0 {
		loop.Signal(r.pending) // wake the other writer
	}
	return batch
}

func (r *Results[T]) flush() {
	for batch := r.nextBatch(); len(batch) > 0; batch = r.nextBatch() {
		r.send(batch)
	}
}

// The pause before a batch is sent again: it begins with minPause and doubles
// up to maxPause.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// send records a batch. What it does after a failure depends on pgerror.FateOf:
//
//  1. After a temporary failure (pgerror.Again) the batch is sent again until the database
//     answers or the host stops, even after the leases have expired, because their tokens fence
//     the results. From the second failure on, the host is Stuck.
//  2. If other sessions have locked rows of some results, the others are sent at once, and those in the
//     background when they are free (sendLocked). After any other failure the batch is split in halves, so
//     that one refused result does not prevent the others from being recorded.
//  3. A single result that this host may not record (pgerror.GiveBack) is sent again in the
//     background until its lease, as it is then, would end. The result of a row that another
//     session has locked is sent again in the background until the database answers (retryAlone).
//  4. A single result that is refused because of its content (pgerror.GiveUp) is sent without its
//     text. If that is refused too, the result is lost.
func (r *Results[T]) send(batch []T) {
	countedRetrying := false
	defer func() {
		if countedRetrying {
			r.retrying.Add(-1)
		}
	}()
	textDropped := false
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		err := r.record(batch)
		if err == nil {
			return
		}
		fate, smaller := pgerror.FateOf(err)
		switch {
		case r.ctx.Err() != nil:
			r.rec.OnLost(batch, err)
			return
		case r.dividesLocked(batch, err):
			return
		case len(batch) > 1 && (fate != pgerror.Again || smaller):
			r.send(batch[:len(batch)/2])
			r.send(batch[len(batch)/2:])
			return
		case fate == pgerror.GiveUp && r.rec.DropText != nil && !textDropped:
			textDropped = true
			r.rec.DropText(batch[0])
			continue
		case fate == pgerror.GiveUp:
			r.rec.OnLost(batch, err)
			return
		case fate == pgerror.GiveBack, smaller:
			r.refused.Add(1)
			r.later.Go(func() { r.retryAlone(batch[0], err, textDropped) })
			return
		}
		if wait > minPause && !countedRetrying {
			countedRetrying = true
			r.retrying.Add(1)
		}
		r.pause(wait)
	}
}

// record calls Record, from Hurry or Close on until their deadline.
func (r *Results[T]) record(batch []T) error {
	ctx := r.ctx
	if deadline := r.deadline.Load(); deadline != nil {
		closing, cancel := context.WithDeadline(ctx, *deadline)
		defer cancel()
		ctx = closing
	}
	err := r.rec.Record(ctx, batch)
	if err == nil {
		r.refused.Store(0)
	} else {
		r.rec.OnError(err)
	}
	return err
}

func (r *Results[T]) apart(batch []T, err error) (locked, others []T) {
	if r.rec.Apart == nil {
		return nil, nil
	}
	return r.rec.Apart(r.ctx, batch, err)
}

// dividesLocked reports whether other sessions have locked rows of some results. Then it has sent the
// others, and those are sent again in the background. They do not make the host Stuck: nothing keeps the
// results of other jobs from being recorded.
func (r *Results[T]) dividesLocked(batch []T, err error) bool {
	locked, others := r.apart(batch, err)
	if len(locked) == 0 {
		return false
	}
	r.later.Go(func() { r.sendLocked(locked, err) })
	if len(others) > 0 {
		r.send(others)
	}
	return true
}

// sendLocked sends results whose rows other sessions have locked, as soon as they are free. Until then it
// only asks for that, which does not wait: a statement that waits for the row of a job keeps the row of its
// lease locked, so that the results of the other jobs of the claim would wait too.
func (r *Results[T]) sendLocked(batch []T, err error) {
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		r.pause(wait)
		locked, free := r.apart(batch, err)
		if len(locked) == 0 || r.ctx.Err() != nil {
			r.send(batch)
			return
		}
		if len(free) > 0 {
			r.send(free)
		}
		batch = locked
	}
}

// retryAlone sends a single result again, which failed with err, until the database records it or
// refuses its content even without its text, or the host stops. From the first error on of which the
// fate is pgerror.GiveBack, it ends with the lease as that is then.
func (r *Results[T]) retryAlone(one T, err error, textDropped bool) {
	var end time.Time
	for wait := minPause; r.ctx.Err() == nil; wait = min(2*wait, maxPause) {
		fate, _ := pgerror.FateOf(err)
		if fate == pgerror.GiveUp {
			if textDropped || r.rec.DropText == nil {
				break
			}
			textDropped = true
			r.rec.DropText(one)
		} else {
			if fate == pgerror.GiveBack && end.IsZero() {
				end = time.Now().Add(r.rec.LeaseLeft(one)) // renewals go on while the result is not recorded
			}
			if !end.IsZero() && time.Until(end) < wait {
				break
			}
			r.pause(wait)
		}
		if err = r.record([]T{one}); err == nil {
			return
		}
	}
	if n := r.refused.Load(); n > 0 {
		r.refused.CompareAndSwap(n, n-1)
	}
	r.rec.OnLost([]T{one}, err)
}

// pause waits for the given time, varied at random by 20 % so that writers do
// not repeat in step, or until r.ctx ends.
func (r *Results[T]) pause(wait time.Duration) {
	select {
	case <-time.After(wait*4/5 + rand.N(wait*2/5)):
	case <-r.ctx.Done():
	}
}
