package main

import (
	"context"
	"os"
	"sync/atomic"
)

// hangup decides the effect of a SIGHUP: it ends the program like any other
// signal, until a verb asks for a channel with hangups.
type hangup struct{ heard atomic.Pointer[chan struct{}] }

type hangupKey struct{}

// tell sends a SIGHUP to the verb that asked for it. It reports false if no
// verb did.
func (h *hangup) tell() bool {
	c := h.heard.Load()
	if c == nil {
		return false
	}
	select {
	case *c <- struct{}{}:
	default: // an earlier SIGHUP still waits
	}
	return true
}

// hangups returns a channel that gets a value for each SIGHUP from now on;
// SIGHUP then no longer ends the program. It returns nil if the process has a
// controlling terminal: there the signal means that the operator has gone.
func hangups(ctx context.Context) <-chan struct{} {
	h, ok := ctx.Value(hangupKey{}).(*hangup)
	if !ok {
		return nil
	}
	if tty, err := os.Open("/dev/tty"); err == nil {
		_ = tty.Close()
		return nil
	}
	c := make(chan struct{}, 1)
	h.heard.Store(&c)
	return c
}
