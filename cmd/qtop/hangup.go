package main

import (
	"context"
	"os"
	"sync/atomic"
)

// hangup is what a SIGHUP does: it ends the program like any other signal, until a
// verb asks to hear it instead.
type hangup struct{ heard atomic.Pointer[chan struct{}] }

type hangupKey struct{}

// tell passes a SIGHUP on to the verb that hears it; false where none does.
func (h *hangup) tell() bool {
	c := h.heard.Load()
	if c == nil {
		return false
	}
	select {
	case *c <- struct{}{}:
	default: // one waits already
	}
	return true
}

// hangups is a channel with a value for each SIGHUP from now on, which ends the
// program no longer. It is nil where the process has a controlling terminal: there
// the signal means that its operator has gone.
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
