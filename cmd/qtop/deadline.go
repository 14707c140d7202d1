package main

// The forced end of a program that a signal has asked to stop and that does
// not end in time, whatever it waits for.

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/handler"
)

// overdue is how long after its grace time a stopping program may still end by
// itself, before giveUp ends it.
const overdue = 1800 * time.Millisecond

// endBy ends a program that runs a host by force, with code 1, unless stop is called before the
// grace time plus overdue have passed since the end of ctx.
func (a *app) endBy(ctx context.Context, grace time.Duration) (stop func()) {
	return a.guard(ctx, grace, 1, func() {
		_, _ = fmt.Fprintf(a.errs, "qtop: the shutdown took longer than the grace time of %s (--grace) and was cut short: "+
			"leases that were not handed back expire by themselves\n", queue.DurationText(grace))
	})
}

// endVerbBy does the same for a verb without a host, which has no grace time.
func (a *app) endVerbBy(ctx context.Context) (stop func()) {
	return a.guard(ctx, 0, exitInterrupted, func() {
		a.printError(queue.Error{What: queue.Clean(a.interruption("interrupted, and cut short because it did not end within two seconds"))})
	})
}

func (a *app) guard(ctx context.Context, grace time.Duration, code int, say func()) (stop func()) {
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		select {
		case <-stopped:
		case <-time.After(grace + overdue):
			a.giveUp(code, say)
		}
	})
	return func() {
		close(stopped)
		unhook()
	}
}

// lineWithin is how long giveUp waits for its line to be written, which may block: it may go to a pipe
// that nobody reads.
const lineWithin = 150 * time.Millisecond

// giveUp says why, kills the commands of handlers, removes a file that is not whole, and ends the program.
func (a *app) giveUp(code int, say func()) {
	late := time.After(lineWithin)
	done := a.leave(say)
	handler.KillCommands()
	select {
	case <-done:
	case <-late:
	}
	os.Exit(code)
}

// leave removes a file that is not whole and calls say, without waiting; then it closes done.
func (a *app) leave(say func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		a.dropUnfinished()
		say()
		a.lines.end(lineWithin)
	}()
	return done
}
