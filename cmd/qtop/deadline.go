package main

// The forced end of a program whose stop takes too long, in whatever step.

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/qtop/qtop/workerhost/handler"
)

// overdue is how long after the grace time a stopping program may still end by
// itself.
const overdue = 1800 * time.Millisecond

// endBy forces the end of the program if stop is not called within the grace
// time plus overdue after the end of ctx.
func (a *app) endBy(ctx context.Context, grace time.Duration) (stop func()) {
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		select {
		case <-stopped:
		case <-time.After(grace + overdue):
			a.giveUp(grace)
		}
	})
	return func() {
		close(stopped)
		unhook()
	}
}

// giveUp kills the commands of handlers and ends the program with code 1.
func (a *app) giveUp(grace time.Duration) {
	go func() { // standard error may block if nobody reads it
		_, _ = fmt.Fprintf(a.errs, "qtop: the end took longer than the grace time of %s and was given up: "+
			"leases that were not handed back expire by themselves\n", grace)
	}()
	handler.KillCommands()
	time.Sleep(20 * time.Millisecond) // time for that line; a blocked write must not delay the end
	os.Exit(1)
}
