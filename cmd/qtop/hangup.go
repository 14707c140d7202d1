package main

import (
	"context"
	"os"
	"sync/atomic"
)

// hangup decides what a SIGHUP does: it ends the program like other signals,
// unless a verb has asked for SIGHUPs with the function hangups.
type hangup struct{ heard atomic.Pointer[chan struct{}] }

type hangupKey struct{}

// tell passes a SIGHUP to the verb that asked for it. It reports false if none
// did.
func (h *hangup) tell() bool {
	c := h.heard.Load()
	if c == nil {
		return false
	}
	select {
	case *c <- struct{}{}:
	default: // the verb has not handled the SIGHUP before this one
	}
	return true
}

// hangups returns a channel that receives a value for each SIGHUP, which then
// no longer ends the program. It returns nil if the process has a controlling
// terminal: there a SIGHUP means that the terminal, and so the operator, is
// gone.
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
