package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// defaultGrace is longer than a command takes to be killed (commandGrace).
const defaultGrace = 5 * time.Second

// Runner runs handlers and contains them: whatever a handler does, its host goes on. The zero
// value is ready to use; Close ends the goroutines that it keeps.
type Runner struct {
	Log *slog.Logger // nil = slog.Default()
	// Grace is called when the context of a handler has ended and returns how long the
	// handler may take to return; nil = 5 s. After that it is abandoned: its goroutine goes
	// on, for Go cannot end it.
	Grace func() time.Duration

	mu        sync.Mutex
	abandoned int
	idle      []chan *attempt // idle goroutines, reused because their stacks have grown
	closed    bool
}

// Close ends the idle goroutines. Those that run a handler end after it.
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
	abandoned bool       // Run does not wait for it any more
}

// Run calls h for one attempt of job. It returns at the latest when the grace time after the
// end of ctx is over. Its error is nil or a *Failure without any value of the handler's types,
// so that Outcome on it cannot panic.
//
// An error without a code that is returned after ctx ended gets the code TIMEOUT or STOPPED.
// A stopped attempt says nothing about its job: a caller whose own context has ended should
// hand the job back instead of recording a failure.
func (r *Runner) Run(ctx context.Context, h Handler, job Job) error {
	if ctx.Err() != nil {
		return &Failure{Code: endCode(ctx), Err: errText("not started: no time was left")}
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
	select {
	case err := <-t.ended:
		return err
	case <-patience.C:
	}
	if !r.abandon(t) {
		return <-t.ended
	}
	r.log().Error("the handler did not return and was abandoned", "job_id", job.ID, "job_kind", job.Kind, "abandoned", r.Abandoned())
	return &Failure{Code: CodeHung, Err: fmt.Errorf("the handler did not return within %s after the end of its context (%w) and was abandoned", grace, ctx.Err())}
}

// start passes an attempt to a goroutine: the one that became idle last, or a new one.
func (r *Runner) start(t *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 {
		r.idle[n-1] <- t // does not block: size 1
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

// call runs an attempt and makes the goroutine idle: it receives its next attempt from next.
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
	err = settle(t.ctx, t.h.Handle(t.ctx, t.job))
	returned = true
}

// settle makes a Failure of the handler's error, where a panic in the methods of that error is
// still contained.
func settle(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	code, text, permanent := Outcome(err)
	if code == CodeError && ctx.Err() != nil {
		code = endCode(ctx)
	}
	return &Failure{Code: code, Permanent: permanent, Err: errText(text)}
}

// broken returns the failure of a handler that did not return, p being the recovered value.
// Only after runtime.Goexit is there none: panic(nil) has a value since Go 1.21.
func (r *Runner) broken(p any, job Job) error {
	if p == nil {
		r.log().Error("the handler ended its goroutine", "job_id", job.ID, "job_kind", job.Kind)
		return &Failure{Code: CodeExit, Err: errText("the handler ended its goroutine (runtime.Goexit)")}
	}
	text := cleanText("panic: "+fmt.Sprint(p), MaxText)
	r.log().Error("the handler panicked", "job_id", job.ID, "job_kind", job.Kind, "panic", text, "stack", string(debug.Stack()))
	return &Failure{Code: CodePanic, Err: errText(text)}
}

// end records that the attempt has ended, and the channel of its goroutine, which is idle now;
// next is nil when the goroutine ends. It returns true when the attempt was abandoned.
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

// endCode returns the code for the end of ctx.
func endCode(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return CodeTimeout
	}
	return CodeStopped
}
