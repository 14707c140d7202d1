package lease

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

const (
	// maxPayloadBytes is how many bytes of payloads a budget allows at most, not counting payloads
	// that the claims returned.
	maxPayloadBytes = 16 << 20
	// largePayload is the payload length in bytes from which the memory is returned to the
	// operating system after the read and after use, before the bytes of the budget are free for
	// other payloads.
	largePayload = 4 << 20
	// maxTurn is for how long one caller may read or wait for room before those behind it give up.
	maxTurn = time.Second
)

// ErrNoRoom says that other payloads kept one from being read.
var ErrNoRoom = queue.NewError(queue.KindUnavailable, "no memory for another long payload: those of work that runs fill the 16 MiB of this host, or one is read slowly", "",
	"enqueue shorter ones, or let more hosts share the work")

// largeReads is held while a large payload is read: for that time it is in memory twice, in the buffer
// of the connection too. All budgets of the process share it.
var largeReads = semaphore.NewWeighted(1)

// Budget bounds the bytes of long payloads that a loop holds at once. A payload that is longer than the whole budget is held while no other is.
type Budget struct {
	turn  chan struct{} // size 1: one caller reads or waits for room, the others queue
	began time.Time     // when the budget was made
	since atomic.Int64  // how long after began the turn last changed hands
	room  *semaphore.Weighted
	held  atomic.Int64
}

// NewBudget returns a budget of 16 MiB.
func NewBudget() *Budget {
	return &Budget{turn: make(chan struct{}, 1), began: time.Now(), room: semaphore.NewWeighted(maxPayloadBytes)}
}

// Read reads the payload of some work, and returns at most maxBytes of it.
type Read = func(ctx context.Context, maxBytes int64) (work.Payload, error)

// Use reads a payload and calls use with it once there is room for it.
//
// Use calls read with the greatest number of bytes that it may return, of a large payload none. If the
// payload is longer, Use waits for room and calls read again without a limit. If the database cannot return the
// payload (Readable is false), use is called nevertheless; use must not keep the payload. The
// returned error is the error of read, or of ctx if ctx ends during the wait.
func (b *Budget) Use(ctx context.Context, read Read, use func(work.Payload)) error {
	return b.use(ctx, read, use, false)
}

// TryUse is Use with an end: it returns ErrNoRoom if there is no room within a second, or if the caller
// before it takes longer than that.
func (b *Budget) TryUse(ctx context.Context, read Read, use func(work.Payload)) error {
	return b.use(ctx, read, use, true)
}

func (b *Budget) use(ctx context.Context, read Read, use func(work.Payload), try bool) error {
	p, n, err := b.read(ctx, read, try)
	if err != nil {
		return err
	}
	defer func() {
		b.held.Add(-n)
		b.room.Release(n)
	}()
	use(p)
	if n >= largePayload {
		p.Text = nil
		debug.FreeOSMemory()
	}
	return nil
}

// read returns the payload and how many bytes of the budget the payload occupies.
func (b *Budget) read(ctx context.Context, read Read, try bool) (p work.Payload, n int64, err error) {
	if err := b.takeTurn(ctx, try); err != nil {
		return p, 0, err
	}
	defer b.endTurn()
	if p, err = read(ctx, min(largePayload-1, maxPayloadBytes-b.held.Load())); err != nil {
		return p, 0, err
	}
	n = min(p.Bytes, maxPayloadBytes)
	if err := b.takeRoom(ctx, n, try); err != nil {
		return p, 0, err
	}
	b.held.Add(n)
	if p.Readable && p.Text == nil {
		if p.Bytes >= largePayload {
			p, err = readLarge(ctx, read)
		} else {
			p, err = read(ctx, math.MaxInt64)
		}
		if err != nil {
			b.held.Add(-n)
			b.room.Release(n)
		}
	}
	return p, n, err
}

// takeTurn waits until no caller before this one reads or waits for room. With try it returns ErrNoRoom once
// another has done so for maxTurn.
func (b *Budget) takeTurn(ctx context.Context, try bool) error {
	late := time.NewTimer(maxTurn)
	defer late.Stop()
	if !try {
		late.Stop()
	}
	for {
		select {
		case b.turn <- struct{}{}:
			b.since.Store(int64(time.Since(b.began)))
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			left := maxTurn - (time.Since(b.began) - time.Duration(b.since.Load()))
			if left <= 0 {
				return ErrNoRoom
			}
			late.Reset(left) // others had their turns meanwhile
		}
	}
}

func (b *Budget) endTurn() {
	b.since.Store(int64(time.Since(b.began))) // first: the next caller may be seen before it sets this
	<-b.turn
}

// takeRoom waits for room for n bytes, with try for maxTurn.
func (b *Budget) takeRoom(ctx context.Context, n int64, try bool) error {
	waiting := ctx
	if try {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, maxTurn)
		defer cancel()
	}
	err := b.room.Acquire(waiting, n)
	if err != nil && ctx.Err() == nil {
		return ErrNoRoom
	}
	return err
}

func readLarge(ctx context.Context, read Read) (work.Payload, error) {
	if err := largeReads.Acquire(ctx, 1); err != nil {
		return work.Payload{}, err
	}
	defer largeReads.Release(1)
	p, err := read(ctx, math.MaxInt64)
	runtime.GC() // the buffer of the connection is in a sync.Pool, which keeps it for two collections
	debug.FreeOSMemory()
	return p, err
}
