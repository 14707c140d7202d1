package main

// The forced end of a program that a signal has asked to stop and that does
// not end in time, whatever it waits for.

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/qtop/qtop/workerhost/handler"
)

// overdue is how long after its grace time a stopping program may still end by
// itself, before endBy ends it.
const overdue = 1800 * time.Millisecond

// endBy ends the program by force, unless stop is called before the grace time
// plus overdue have passed since the end of ctx. grace is 0 for a verb without a host.
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
	line := fmt.Sprintf("the shutdown took longer than the grace time of %s (--grace) and was cut short: "+
		"leases that were not handed back expire by themselves", grace)
	if grace == 0 {
		line = "interrupted, and cut short because it did not end within two seconds: qtop audit says what it has changed"
	}
	go func() { _, _ = fmt.Fprintln(a.errs, "qtop: "+line) }() // the write may block, if it goes to a pipe that nobody reads
	handler.KillCommands()
	time.Sleep(20 * time.Millisecond) // gives that line time to appear, but does not wait for it
	os.Exit(1)
}
