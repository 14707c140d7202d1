package handler

// This file contains one try: whatever a handler does, its host goes on.

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

// Runner runs handlers. The zero value is ready to use; Close ends what it keeps.
type Runner struct {
	Log *slog.Logger // nil = slog.Default()
	// Grace tells, once the context of a handler has ended, how long it may take to
	// return; nil = 5 s. Then it is abandoned: its goroutine cannot be ended, only
	// left alone.
	Grace func() time.Duration

	mu        sync.Mutex
	abandoned int
	idle      []chan *try // goroutines that have run a handler and wait for the next: their stacks have grown
	closed    bool
}

// Close ends the goroutines that wait for a handler; those that run one end with it.
func (r *Runner) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, next := range r.idle {
		close(next)
	}
	r.idle, r.closed = nil, true
}

// Abandoned counts the handlers that were given up and have not returned yet.
// Each holds a goroutine and what it refers to, until the process ends.
func (r *Runner) Abandoned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned
}

// try is one call of a handler. The Runner's mu guards left.
type try struct {
	ctx   context.Context //nolint:containedctx // on its way to the goroutine
	h     Handler
	job   Job
	ended chan error // size 1: an abandoned handler that returns does not block
	left  bool       // nobody waits for it any more
}

// Run calls h for one try of job and returns by the end of ctx and the grace after
// it. The error it returns is nil or a *Failure that holds nothing of the handler's
// own any more, so that Outcome can be called without care.
//
// An error without a code that comes after the context ended has code TIMEOUT or
// STOPPED. A try that was stopped says nothing about its job: the caller, who
// knows by its own ctx.Err(), hands the job back instead of failing it.
func (r *Runner) Run(ctx context.Context, h Handler, job Job) error {
	if ctx.Err() != nil {
		return &Failure{Code: endCode(ctx), Err: errText("not started: no time was left")}
	}
	t := &try{ctx: ctx, h: h, job: job, ended: make(chan error, 1)}
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
	r.log().Error("handler does not return and is abandoned", "job_id", job.ID, "job_kind", job.Kind, "abandoned", r.Abandoned())
	return &Failure{Code: CodeHung, Err: fmt.Errorf("the handler did not return within %s after the end of its context (%w) and was abandoned", grace, ctx.Err())}
}

// start has a goroutine make a try: the one that was idle last, or a new one.
func (r *Runner) start(t *try) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 {
		r.idle[n-1] <- t // has room
		r.idle = r.idle[:n-1]
		return
	}
	go r.serve(t)
}

// serve makes one try after the other. It ends with a handler that ends its
// goroutine.
func (r *Runner) serve(t *try) {
	next := make(chan *try, 1)
	for ; t != nil; t = <-next {
		r.call(t, next)
	}
}

// call makes a try and has the goroutine wait for the next, on that channel.
func (r *Runner) call(t *try, next chan *try) {
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

// settle makes a Failure of the handler's error while a panic of its methods is
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

// broken is the failure of a handler that did not return. Only runtime.Goexit
// leaves nothing to recover: a panic(nil) is a value since Go 1.21.
func (r *Runner) broken(p any, job Job) error {
	if p == nil {
		r.log().Error("handler ended its goroutine", "job_id", job.ID, "job_kind", job.Kind)
		return &Failure{Code: CodeExit, Err: errText("the handler ended its goroutine (runtime.Goexit)")}
	}
	text := cleanText("panic: "+fmt.Sprint(p), MaxText)
	r.log().Error("handler panicked", "job_id", job.ID, "job_kind", job.Kind, "panic", text, "stack", string(debug.Stack()))
	return &Failure{Code: CodePanic, Err: errText(text)}
}

// end records that the handler is over, and where its goroutine waits for the next,
// if it does; true when nobody waits for this one.
func (r *Runner) end(t *try, err error, next chan *try) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.left {
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
	return t.left
}

// abandon gives a try up, unless it has just ended.
func (r *Runner) abandon(t *try) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(t.ended) > 0 {
		return false
	}
	t.left = true
	r.abandoned++
	return true
}

func (r *Runner) log() *slog.Logger {
	if r.Log == nil {
		return slog.Default()
	}
	return r.Log
}

// endCode names why ctx has ended.
func endCode(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return CodeTimeout
	}
	return CodeStopped
}
