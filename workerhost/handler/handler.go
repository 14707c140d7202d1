// Package handler runs the work of jobs: a Go function ([Func]), a command ([Command]) or
// an HTTP endpoint ([URL]), bound to a job kind.
//
// Start from [Handler] and [Job]. What a handler returns decides what becomes of the job:
//
//   - nil: it has succeeded;
//   - an error: it is tried again after a wait, and is a dead letter after its last attempt;
//   - [Coded]: the same, with a code by which people filter and requeue, such as NO_STOCK;
//   - [Permanent]: no retry and no dead letter, the job ends as failed.
//
// [Parse] makes handlers from the configuration; [Runner] calls them on behalf of a host, or of
// a test.
//
// A handler can rely on this: it is called at least once for every attempt of its job. If
// the host dies during the call, the lease is lost or the result does not reach the
// database, it is called again, so it must be safe to repeat. [Job].ID is the same in all
// attempts of a job, [Job].RootID also in its replays: store it with the effect, and do
// nothing where it is there already.
//
// A host can rely on this: Runner.Run returns soon after its context ends, whatever the
// handler does, with an error that Outcome turns into a code and a text that can be stored.
// Go cannot contain a panic in a goroutine that a handler started itself, os.Exit and the
// runtime's fatal errors (stack overflow, concurrent map writes): they end the process, and
// the leases of its jobs expire. Run work that may do that as a Command.
package handler

import "context"

// Handler does the work of one job.
//
// A nil error means that the job succeeded. After any other error the job is retried as long
// as it has attempts left; see Permanent and Coded. The context ends when the attempt has used
// up its time, when the lease is lost and when the host stops; the handler must return then.
// Handle is called from many goroutines at once, and repeatedly from each of them: a handler
// that locks its thread (runtime.LockOSThread) must unlock it.
type Handler interface {
	Handle(ctx context.Context, job Job) error
}

// Func makes a Handler of a function.
type Func func(ctx context.Context, job Job) error

// Handle calls f.
func (f Func) Handle(ctx context.Context, job Job) error { return f(ctx, job) }
