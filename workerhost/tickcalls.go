package workerhost

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// longStep is how far the server's clock must be set back for waiting ticks to be ended: PostgreSQL
// counts the timeouts of a running statement by that clock, so they come as much later. It is the
// lock_timeout of a host's sessions.
const longStep = 10 * time.Second

// endWaitingAfter is how long a tick may go on after the clock was set back. Most ticks take
// milliseconds and wait for nobody.
const endWaitingAfter = time.Second

var errClockSetBack = errors.New("ended by this host: the server's clock was set back, so that no timeout of the server would end it")

// tickCalls are the calls of tick workers that wait for their answer. The zero value has none.
type tickCalls struct {
	mu      sync.Mutex
	waiting map[string]context.CancelCauseFunc // by worker; of a worker, at most one call waits
}

// begin returns the context for a call of worker. The caller calls end when the answer has arrived.
func (c *tickCalls) begin(ctx context.Context, worker string) (call context.Context, end func()) {
	call, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[string]context.CancelCauseFunc{}
	}
	c.waiting[worker] = cancel
	return call, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, worker)
		cancel(nil)
	}
}

// clockStepped ends the calls that wait now and still wait after endWaitingAfter, if the server's clock
// was set back far. Without it, ticks that wait for each other's locks would do so until the host's
// own limit, with everybody who waits behind them.
func (c *tickCalls) clockStepped(by time.Duration) {
	if by > -longStep {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := slices.Collect(maps.Values(c.waiting))
	time.AfterFunc(endWaitingAfter, func() {
		for _, cancel := range waiting {
			cancel(errClockSetBack)
		}
	})
}
