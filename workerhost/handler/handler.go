// Package handler runs the work of jobs: a Go function ([Func]), a command ([Command]) or
// an HTTP endpoint ([URL]), bound to a job kind.
//
// Start from [Handler] and [Job]. The error that a handler returns decides what happens to the
// job:
//
//   - nil: the job has succeeded;
//   - an error: the job is retried after a wait, and becomes a dead letter after its last
//     attempt;
//   - [Coded]: as any error, but with a code, such as NO_STOCK, by which people filter and
//     requeue;
//   - [Permanent]: no retry and no dead letter, the job ends as failed.
//
// [Parse] makes handlers from the configuration; [Runner] calls handlers for a host or in a test.
//
// Guarantee to a handler: it is called at least once for every attempt of its job. It is called
// again if the host dies during the call, the lease is lost, or the result does not reach the
// database, so the work of a handler must be safe to repeat. [Job].ID is the same in all attempts
// of a job, and [Job].RootID also in its replays: store the id together with the effect of the
// work, and do nothing if the id is stored already.
//
// Guarantee to a host: Runner.Run returns soon after its context ends, whatever the handler does,
// with an error that Outcome turns into a code and a text that can be stored. Go cannot contain a
// panic in a goroutine that the handler started, os.Exit and the runtime's fatal errors (stack
// overflow, concurrent map writes): these end the process, and the leases of its jobs expire. Run
// work that may end the process as a Command.
package handler

import "context"

// Handler does the work of one job.
//
// A nil error means that the job succeeded. After any other error the job is retried as long as
// it has attempts left; see Permanent and Coded. The context ends when the attempt has used up
// its time, when the lease is lost and when the host stops; the handler must return then. Handle
// is called concurrently from many goroutines, and again and again from the same goroutine: a
// handler that locks its thread (runtime.LockOSThread) must unlock it.
type Handler interface {
	Handle(ctx context.Context, job Job) error
}

// Func makes a Handler from a function.
type Func func(ctx context.Context, job Job) error

// Handle calls f.
func (f Func) Handle(ctx context.Context, job Job) error { return f(ctx, job) }
