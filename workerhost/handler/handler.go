// Package handler runs the work of jobs: a Go function, a command or an HTTP
// endpoint, bound to a job kind.
//
// What a handler can rely on: it is called at least once for every try of its
// job. A host that dies in the middle, a lease that is lost and a result that
// does not reach the database all end in another call, so a handler must be
// safe to repeat; Job.ID stays the same over all tries of a job.
//
// What the host can rely on: Runner.Run returns soon after its context ends,
// whatever the handler does, with an error that Outcome turns into what a row
// may hold. Out of anybody's reach in Go are a panic in a goroutine that a
// handler started itself, os.Exit and the runtime's fatal errors (stack
// overflow, concurrent map writes): they end the process, and the leases of its
// jobs run out. Work that cannot be trusted that far is for a Command.
package handler

import "context"

// Handler does the work of one job.
//
// nil means succeeded, an error a failed try that is repeated as long as the job
// has tries left; see Permanent and Coded. The context ends when the try has
// used up its time, when the lease is lost and when the host stops: a handler
// returns then. It is called from many goroutines at once, and on each for one job
// after the other: one that locks its thread (runtime.LockOSThread) unlocks it.
type Handler interface {
	Handle(ctx context.Context, job Job) error
}

// Func is a function as a Handler.
type Func func(ctx context.Context, job Job) error

// Handle calls f.
func (f Func) Handle(ctx context.Context, job Job) error { return f(ctx, job) }
