package jobs

// This file is the jobs that are leased here, the lease that they came with, and the
// stock of those that wait for a worker.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/work"
)

const (
	// keepEvery is how often leases, slow jobs and the beat are looked after.
	keepEvery = 250 * time.Millisecond
	// slowTicks × keepEvery is how long a job runs before the database is told that
	// it does; most are finished before.
	slowTicks = 4
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
	lost   bool  // its lease is gone or could not be renewed
	gone   bool  // the database says so: the result counts for nothing
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
func (r *run) begin(working context.Context, longest, now time.Duration, tick int64) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.lease.until() <= now {
		r.lost = true
		return nil
	}
	var ctx context.Context
	if longest > 0 {
		ctx, r.cancel = context.WithTimeout(working, longest)
	} else {
		ctx, r.cancel = context.WithCancel(working)
	}
	r.state, r.tick = running, tick
	return ctx
}

// end records that the handler is over. lost: the lease went meanwhile; known: the
// database said so. One that only ran out here may still stand there.
func (r *run) end() (lost, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		r.cancel()
	}
	r.state = reported
	return r.lost, r.gone
}

// lose cancels a job whose lease is gone, known: as the database says; false when its
// result is on the way: the token fences that.
func (r *run) lose(known bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = r.gone || known
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

// stock is what is claimed and waits for a worker.
type stock struct {
	mu     sync.Mutex
	some   *sync.Cond
	runs   []*run
	next   int // of runs
	closed bool
}

func newStock() *stock {
	s := &stock{}
	s.some = sync.NewCond(&s.mu)
	return s
}

func (s *stock) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs) - s.next
}

func (s *stock) put(runs []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs[s.next:], runs...)
	s.next = 0
	s.some.Signal()
}

// take waits for a job; nil when there will be none. Who takes one wakes the next
// worker when there is more: a batch of no-ops does not need all of them.
func (s *stock) take() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.runs) == s.next {
		if s.closed {
			return nil
		}
		s.some.Wait()
	}
	r := s.runs[s.next]
	s.runs[s.next] = nil
	s.next++
	if len(s.runs) > s.next {
		s.some.Signal()
	}
	return r
}

// stale takes those that came before a tick: the oldest come first.
func (s *stock) stale(before int64) []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	for n < len(s.runs) && s.runs[n].tick < before {
		n++
	}
	old := s.runs[s.next:n:n]
	s.next = n
	return old
}

// clear takes all.
func (s *stock) clear() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.runs[s.next:]
	s.runs, s.next = nil, 0
	return rest
}

// close takes all and sends the workers home.
func (s *stock) close() []*run {
	rest := s.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.some.Broadcast()
	return rest
}
