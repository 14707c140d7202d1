// Package lease is what the rooms of a worker host that claim have in common: a
// claim that outlives its loop, and results that go to
// the database in batches. A claim commits before any work, every result is fenced
// by its lease token, and what is unfinished at the end is handed back at once.
package lease

import (
	"context"
	"strings"
	"time"
)

const (
	// Most is how many rows one statement claims or settles.
	Most = 1000
	// Unreadable is the cause of a failure of a row that the database cannot hand out:
	// the others of its claim go on.
	Unreadable = "as text the payload is longer than 64 MiB, or holds numbers of thousands of digits that make it so"
)

// Cloned tells the refusal of a database that is a copy.
func Cloned(refusal string) bool { return strings.HasPrefix(refusal, "CLONE OF ") }

// Outlive is ctx that ends only some time after it, so that a claim can: half of what
// is left then. One that is cancelled in flight may have been committed: nobody would
// know of what it leased until that expires.
func Outlive(ctx context.Context, left func() time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(left()/2, cancel) })
	return longer, func() { stop(); cancel() }
}
