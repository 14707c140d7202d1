// Package lease holds the code that the two claiming loops of a worker host, jobs and webhooks,
// share:
//
//   - Results records results in batches and repeats a batch while the database is away.
//   - Unanswered says when the work of claims without an answer is handed back.
//   - Budget bounds the memory of long payloads.
//   - Outlive keeps the context of a claim alive for a short time after the loop was stopped.
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
	// Spare is how much later than by this host's clock a lease may end in the database: it is
	// counted from before the statement was sent, and the statement may have taken a while.
	Spare = time.Minute
	// Unreadable is the error text of a job or webhook whose payload the database cannot return.
	// The other jobs of the same claim are not affected.
	Unreadable = "as text the payload is longer than 64 MiB, or holds numbers of thousands of digits that make it so"
)

// IsCloneRefusal reports whether the reason of a refusal is that the database is a clone.
func IsCloneRefusal(refusal string) bool { return strings.HasPrefix(refusal, "CLONE OF ") }

// Outlive returns a context that ends some time after ctx: when ctx ends, Outlive calls remaining
// and allows half of the time that it returns. Claims use it, because a claim that is cancelled
// in flight may have been committed, and then no host would work on its rows until the leases
// expire.
func Outlive(ctx context.Context, remaining func() time.Duration) (context.Context, context.CancelFunc) {
	outlived, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(remaining()/2, cancel) })
	return outlived, func() { stop(); cancel() }
}
