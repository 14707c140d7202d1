package lease

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

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
)

// largeReads is held while a large payload is read: for that time it is in memory twice, in the buffer
// of the connection too. All budgets of the process share it.
var largeReads = semaphore.NewWeighted(1)

// Budget bounds the bytes of long payloads that a loop holds at once. A payload that is longer than the whole budget is held while no other is.
type Budget struct {
	reader *semaphore.Weighted // size 1: one caller reads or waits for room, the others queue
	room   *semaphore.Weighted
	held   atomic.Int64
}

// NewBudget returns a budget of 16 MiB.
func NewBudget() *Budget {
	return &Budget{reader: semaphore.NewWeighted(1), room: semaphore.NewWeighted(maxPayloadBytes)}
}

// Use reads a payload and calls use with it once there is room for it.
//
// Use calls read with the greatest number of bytes that it may return, of a large payload none. If the
// payload is longer, Use waits for room and calls read again without a limit. If the database cannot return the
// payload (Readable is false), use is called nevertheless; use must not keep the payload. The
// returned error is the error of read, or of ctx if ctx ends during the wait.
func (b *Budget) Use(ctx context.Context, read func(ctx context.Context, maxBytes int64) (work.Payload, error), use func(work.Payload)) error {
	p, n, err := b.read(ctx, read)
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
func (b *Budget) read(ctx context.Context, read func(ctx context.Context, maxBytes int64) (work.Payload, error)) (p work.Payload, n int64, err error) {
	if err := b.reader.Acquire(ctx, 1); err != nil {
		return p, 0, err
	}
	defer b.reader.Release(1)
	if p, err = read(ctx, min(largePayload-1, maxPayloadBytes-b.held.Load())); err != nil {
		return p, 0, err
	}
	n = min(p.Bytes, maxPayloadBytes)
	if err := b.room.Acquire(ctx, n); err != nil {
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

func readLarge(ctx context.Context, read func(ctx context.Context, maxBytes int64) (work.Payload, error)) (work.Payload, error) {
	if err := largeReads.Acquire(ctx, 1); err != nil {
		return work.Payload{}, err
	}
	defer largeReads.Release(1)
	p, err := read(ctx, math.MaxInt64)
	runtime.GC() // the buffer of the connection is in a sync.Pool, which keeps it for two collections
	debug.FreeOSMemory()
	return p, err
}
