package main

// Ends the program when a stop takes too long, in whatever step.

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/qtop/qtop/workerhost/handler"
)

// overdue is how long after the grace time a program that was told to end is left to
// do so by itself.
const overdue = 1800 * time.Millisecond

// endBy ends the program when that does not come by itself within the grace time after
// the end of ctx, and a little more, until stop is called.
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

// giveUp ends the program.
func (a *app) giveUp(grace time.Duration) {
	go func() { // nobody may read what it writes
		_, _ = fmt.Fprintf(a.errs, "qtop: the end took longer than the grace time of %s and was given up: "+
			"leases that were not handed back expire by themselves\n", grace)
	}()
	handler.KillCommands()
	time.Sleep(20 * time.Millisecond) // for that line, which another goroutine writes: standard error may block for good
	os.Exit(1)
}
