package lease

import (
	"context"
	"math"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/qtop/qtop/pgclient/work"
)

const (
	// maxPayloadBytes is how many bytes of payloads a host holds, not counting those that
	// came with their claims.
	maxPayloadBytes = 16 << 20
	// largePayload is the length in bytes from which the memory of a payload is returned to
	// the operating system before others may use its share.
	largePayload = 4 << 20
)

// Budget bounds the bytes of long payloads that a host holds at once, of jobs and webhooks
// together. A payload that is longer than the whole budget is held alone.
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
// read is called with the greatest number of bytes that it may return, and a second time
// without a limit where the payload is longer, once there is room. use is also called with a
// payload that the database cannot hand out (Readable is false); it must not keep the
// payload. The error is that of read, or of ctx where it ends during the wait.
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

// read returns the payload and how many bytes of the budget it occupies.
func (b *Budget) read(ctx context.Context, read func(ctx context.Context, maxBytes int64) (work.Payload, error)) (p work.Payload, n int64, err error) {
	if err := b.reader.Acquire(ctx, 1); err != nil {
		return p, 0, err
	}
	defer b.reader.Release(1)
	if p, err = read(ctx, maxPayloadBytes-b.held.Load()); err != nil {
		return p, 0, err
	}
	n = min(p.Bytes, maxPayloadBytes)
	if err := b.room.Acquire(ctx, n); err != nil {
		return p, 0, err
	}
	b.held.Add(n)
	if p.Readable && p.Text == nil {
		if p, err = read(ctx, math.MaxInt64); err != nil {
			b.held.Add(-n)
			b.room.Release(n)
		}
	}
	return p, n, err
}
