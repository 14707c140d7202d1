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
	// budget is how many bytes of payloads that did not come with their claims a host holds.
	budget = 16 << 20
	// fat is how long a payload is whose memory goes back to the system before its room is
	// given to others.
	fat = 4 << 20
)

// Budget bounds the payloads that a host holds at once, by the bytes of their text: those
// of jobs and webhooks together. One that is longer than all of it is held alone.
type Budget struct {
	reads *semaphore.Weighted // of one: who reads, or waits for room, in their order
	room  *semaphore.Weighted
	held  atomic.Int64
}

// NewBudget makes one of 16 MiB.
func NewBudget() *Budget {
	return &Budget{reads: semaphore.NewWeighted(1), room: semaphore.NewWeighted(budget)}
}

// Use reads a payload once there is room for it, and has it used. read gets how many bytes
// the payload may have; it is called again where that is too few. use gets what cannot be
// handed out too; afterwards the payload is nobody's. An error is that of read, or of ctx
// while it waits.
func (b *Budget) Use(ctx context.Context, read func(ctx context.Context, most int64) (work.Payload, error), use func(work.Payload)) error {
	p, n, err := b.read(ctx, read)
	if err != nil {
		return err
	}
	defer func() {
		b.held.Add(-n)
		b.room.Release(n)
	}()
	use(p)
	if n >= fat {
		p.Text = nil
		debug.FreeOSMemory()
	}
	return nil
}

// read gives the payload and how much room it takes.
func (b *Budget) read(ctx context.Context, read func(ctx context.Context, most int64) (work.Payload, error)) (p work.Payload, n int64, err error) {
	if err := b.reads.Acquire(ctx, 1); err != nil {
		return p, 0, err
	}
	defer b.reads.Release(1)
	if p, err = read(ctx, budget-b.held.Load()); err != nil {
		return p, 0, err
	}
	n = min(p.Bytes, budget)
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
