package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// defaultGrace is longer than commandGrace, the time after which a command is killed.
const defaultGrace = 5 * time.Second

// Runner runs handlers and protects the host from them: no panic or hang of a handler stops the
// host. The zero value is ready to use; Close ends the goroutines that it keeps.
type Runner struct {
	Log *slog.Logger // nil = slog.Default()
	// Grace is called when the context of a handler has ended and returns how long the handler
	// may take to return; nil = 5 s. After that the handler is abandoned: its goroutine
	// continues, because Go cannot end it.
	Grace func() time.Duration
	// Ending is closed when the host ends; then Grace is asked again, and the shorter time counts.
	Ending <-chan struct{}

	mu        sync.Mutex
	abandoned int
	idle      []chan *attempt // idle goroutines, reused because their stacks have grown
	closed    bool
}

// Close ends the idle goroutines. A goroutine that runs a handler ends when the handler returns.
func (r *Runner) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, next := range r.idle {
		close(next)
	}
	r.idle, r.closed = nil, true
}

// Abandoned returns how many abandoned handlers have not returned yet. Each keeps a goroutine
// and the memory that it refers to, until the handler returns or the process ends.
func (r *Runner) Abandoned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned
}

// attempt is one call of a handler. The Runner's mu guards abandoned.
type attempt struct {
	ctx       context.Context //nolint:containedctx // passed to the goroutine
	h         Handler
	job       Job
	ended     chan error // size 1: an abandoned handler that returns does not block
	abandoned bool       // Run no longer waits for the attempt
}

// Run calls h for one attempt of job. It returns when h returns, or at the
// latest when ctx has ended and the grace time is over. Its error is nil or a
// *Failure that holds no value of the handler's types, so that Outcome cannot
// panic on it.
//
// If the handler returns an error without a code after ctx ended, the error
// gets the code TIMEOUT or STOPPED. If the caller's own context has ended, the
// job is not at fault: the caller should hand it back instead of recording a
// failure.
func (r *Runner) Run(ctx context.Context, h Handler, job Job) error {
	if l, ok := h.(limited); ok { // so that Run knows when the handler's time is over
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.timeout)
		defer cancel()
		h = l.Handler
	}
	if ctx.Err() != nil {
		return &Failure{Code: endCode(ctx), Err: errText("the handler was not started: no time was left for it")}
	}
	t := &attempt{ctx: ctx, h: h, job: job, ended: make(chan error, 1)}
	r.start(t)
	select {
	case err := <-t.ended:
		return err
	case <-ctx.Done():
	}
	grace := defaultGrace
	if r.Grace != nil {
		grace = r.Grace()
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	ending := r.Ending
	for waiting := true; waiting; {
		select {
		case err := <-t.ended:
			return err
		case <-patience.C:
			waiting = false
		case <-ending:
			ending = nil
			if r.Grace != nil { // less is left than before
				grace = min(grace, r.Grace())
				patience.Reset(grace)
			}
		}
	}
	if !r.abandon(t) {
		return <-t.ended
	}
	r.log().Error("the handler did not return and was abandoned", "job_id", job.ID, "job_kind", job.Kind, "abandoned", r.Abandoned())
	return &Failure{Code: CodeHung, Err: fmt.Errorf("the handler did not return within %s after the end of its context (%w) and was abandoned", queue.DurationText(grace), ctx.Err())}
}

// start passes an attempt to a goroutine: the one that became idle last, or a new one.
func (r *Runner) start(t *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 {
		r.idle[n-1] <- t // does not block: the channel has size 1
		r.idle = r.idle[:n-1]
		return
	}
	go r.serve(t)
}

// serve runs attempts in sequence. It ends when a handler ends its goroutine
// (runtime.Goexit).
func (r *Runner) serve(t *attempt) {
	next := make(chan *attempt, 1)
	for ; t != nil; t = <-next {
		r.call(t, next)
	}
}

// call runs an attempt and then makes the goroutine idle: the goroutine receives its next attempt
// from next.
func (r *Runner) call(t *attempt, next chan *attempt) {
	var err error
	returned := false
	defer func() {
		if !returned {
			p := recover()
			if p == nil {
				next = nil // the goroutine ends
			}
			err = r.broken(p, t.job)
		}
		if r.end(t, err, next) {
			r.log().Warn("an abandoned handler has returned", "job_id", t.job.ID, "job_kind", t.job.Kind)
		}
	}()
	err = settle(t.ctx, t.h, t.h.Handle(t.ctx, t.job))
	returned = true
}

// settle turns the error of the handler h into a Failure. It runs where a panic in the methods of
// that error is still recovered.
func settle(ctx context.Context, h Handler, err error) error {
	if err == nil {
		return nil
	}
	code, text, permanent := Outcome(err)
	if code == CodeError && ctx.Err() != nil {
		code = endCode(ctx)
	}
	f := &Failure{Code: code, Permanent: permanent, Err: errText(text)}
	switch h.(type) {
	case *command, *endpoint:
		f.shortage = Shortage(err)
	}
	return f
}

// broken returns the failure of a handler that panicked with p or called runtime.Goexit. p is nil
// only after runtime.Goexit, because since Go 1.21 recover never returns nil for panic(nil).
func (r *Runner) broken(p any, job Job) error {
	if p == nil {
		r.log().Error("the handler ended its goroutine", "job_id", job.ID, "job_kind", job.Kind)
		return &Failure{Code: CodeExit, Err: errText("the handler ended its goroutine (runtime.Goexit)")}
	}
	text := cleanText("panic: "+fmt.Sprint(p), MaxText)
	r.log().Error("the handler panicked", "job_id", job.ID, "job_kind", job.Kind, "panic", text, "stack", string(debug.Stack()))
	return &Failure{Code: CodePanic, Err: errText(text)}
}

// end records that the attempt has ended, and that its goroutine, which receives from next, is
// idle; next is nil when the goroutine ends. It returns true when the attempt was abandoned.
func (r *Runner) end(t *attempt, err error, next chan *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.abandoned {
		r.abandoned--
	}
	switch {
	case next == nil:
	case r.closed:
		close(next)
	default:
		r.idle = append(r.idle, next)
	}
	t.ended <- err
	return t.abandoned
}

// abandon marks an attempt as abandoned, unless it has just ended.
func (r *Runner) abandon(t *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(t.ended) > 0 {
		return false
	}
	t.abandoned = true
	r.abandoned++
	return true
}

func (r *Runner) log() *slog.Logger {
	if r.Log == nil {
		return slog.Default()
	}
	return r.Log
}

// endCode returns TIMEOUT if the deadline of ctx has passed, otherwise STOPPED.
func endCode(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return CodeTimeout
	}
	return CodeStopped
}
