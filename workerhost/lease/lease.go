// Package lease has what the two loops of a worker host that claim work, jobs and webhooks,
// share:
//
//   - Results records results in batches and repeats a batch while the database is away.
//   - Budget bounds the memory of long payloads.
//   - Outlive lets a claim finish after its loop was stopped.
//
// Both loops keep the same invariants: a claim commits before work begins; the lease token
// fences every result, so that a result of a lost lease changes nothing; work that is
// unfinished at the end is handed back at once.
package lease

import (
	"context"
	"strings"
	"time"
)

const (
	// MaxBatch is how many rows one statement claims or settles at most.
	MaxBatch = 1000
	// Unreadable is the error text of a job or webhook whose payload the database cannot
	// hand out. The others of its claim go on.
	Unreadable = "as text the payload is longer than 64 MiB, or holds numbers of thousands of digits that make it so"
)

// IsCloneRefusal reports whether a refusal says that the database is a clone.
func IsCloneRefusal(refusal string) bool { return strings.HasPrefix(refusal, "CLONE OF ") }

// Outlive returns a context that ends some time after ctx: after half of what remaining
// returns then. Claims use it, for a claim that is cancelled in flight may have been
// committed, and no one would work on its rows until their leases expire.
func Outlive(ctx context.Context, remaining func() time.Duration) (context.Context, context.CancelFunc) {
	outlived, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(remaining()/2, cancel) })
	return outlived, func() { stop(); cancel() }
}
