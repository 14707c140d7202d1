package jobs

// This file is one leased job inside this process, and the lease that it came with.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/work"
)

// The states of a job in this process.
const (
	waiting = iota
	running
	reported // its result is on the way to the database
	settled
)

// run is one leased job inside this process.
type run struct {
	job   *work.Job
	lease *claimed

	mu     sync.Mutex
	state  uint8
	lost   bool  // its lease is gone: the result counts for nothing
	told   bool  // the database knows that it runs
	tick   int64 // when it came or, once it runs, began
	cancel context.CancelFunc

	// of the result; set before it is reported
	outcome    uint8
	code, text string
}

func (r *run) ref() work.JobLease {
	return work.JobLease{ID: r.job.ID, Token: r.job.Token}
}

// begin gives the job its context; nil when it must not start any more.
func (r *run) begin(s *state, working context.Context) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.lease.until() <= s.clock() {
		r.lost = true
		return nil
	}
	var ctx context.Context
	if longest := s.Timeout; longest > 0 {
		ctx, r.cancel = context.WithTimeout(working, longest)
	} else {
		ctx, r.cancel = context.WithCancel(working)
	}
	r.state, r.tick = running, s.ticks.Load()
	return ctx
}

// end records that the handler is over; true when the lease was lost meanwhile.
func (r *run) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		r.cancel()
	}
	r.state = reported
	return r.lost
}

// lose cancels a job whose lease is gone; false when its result is on the way: the
// token fences that.
func (r *run) lose() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.state >= reported {
		return false
	}
	r.lost = true
	if r.cancel != nil {
		r.cancel()
	}
	return true
}

func (r *run) isSettled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == settled
}

// settle forgets the payload: one slow job keeps those of its whole claim.
func (r *run) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.job.Payload = settled, nil
}

// claimed is what one claim leased.
type claimed struct {
	runs   []run
	at     atomic.Int64 // clock before the claim or renewal that it lasts from
	length atomic.Int64 // how long it lasts from then
	open   atomic.Int32 // not settled
}

// until is the local end of the lease, counted from before it was asked for: the
// server's clock and the way there can only make it later.
func (x *claimed) until() time.Duration { return time.Duration(x.at.Load() + x.length.Load()) }

// slow tells whether the job runs long enough for the database to hear of it.
func (r *run) slow(tick int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == running && !r.told && !r.lost && tick-r.tick > slowTicks
}

func leasesOf(runs []*run) []work.JobLease {
	leases := make([]work.JobLease, len(runs))
	for i, r := range runs {
		leases[i] = r.ref()
	}
	return leases
}
