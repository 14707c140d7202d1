package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

const (
	// checkEvery is how often leases, slow jobs and the heartbeat are checked.
	checkEvery = 250 * time.Millisecond
	// slowTicks × checkEvery is how long a job runs before its start is recorded in the database.
	// Most jobs end sooner and save that statement.
	slowTicks = 4
)

// The states of a job in this process.
const (
	waiting = iota // for a slot, or for its payload
	running
	reported // the result of the job is queued or sent
	settled
)

// run is one leased job in this process.
type run struct {
	job   *work.Job
	group *leaseGroup

	mu             sync.Mutex
	state          uint8
	lost           bool  // the lease is lost or could not be renewed in time
	lostInDatabase bool  // the database reported the lease as lost, so it will refuse the result
	startRecorded  bool  // the database has recorded the start of the job
	tick           int64 // tick at which the job was claimed or, once it runs, at which its handler began
	cancel         context.CancelFunc

	// The result; set before the run is queued in results.
	outcome    uint8
	code, text string
}

func (r *run) ref() work.JobLease {
	return work.JobLease{ID: r.job.ID, Token: r.job.Token}
}

// start returns the context for the work on the job, or nil when the lease is lost and the job must not
// start. A timeout of 0 sets no limit.
func (r *run) start(working context.Context, timeout, now time.Duration) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost || r.group.until() <= now {
		r.lost = true
		return nil
	}
	var ctx context.Context
	if timeout > 0 {
		ctx, r.cancel = context.WithTimeout(working, timeout)
	} else {
		ctx, r.cancel = context.WithCancel(working)
	}
	return ctx
}

// begin records that the handler begins now.
func (r *run) begin(tick int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.tick = running, tick
}

// finish records that the handler has returned. lost reports that the lease was lost meanwhile,
// and confirmed that the database reported the loss. A lease that expired only by this host's
// clock may still be valid in the database.
func (r *run) finish() (lost, confirmed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		r.cancel()
	}
	r.state = reported
	return r.lost, r.lostInDatabase
}

// lose cancels a job whose lease is lost; confirmed means that the database reported the loss. It
// returns false when the job was marked lost before, or when its result is queued already (then
// the token fences the result).
func (r *run) lose(confirmed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lostInDatabase = r.lostInDatabase || confirmed
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

// settle drops the payload; otherwise one slow job would keep the memory of its whole claim.
func (r *run) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.job.Payload = settled, nil
}

// leaseGroup holds the jobs of one claim and their common lease.
type leaseGroup struct {
	runs   []run
	from   atomic.Int64 // start of the lease: clock before the last claim or renewal was sent
	length atomic.Int64 // duration of the lease from then
	open   atomic.Int32 // how many of the jobs are not settled
	lost   atomic.Bool  // the result of one of the jobs will never be recorded
	failed int          // renewals that failed since the last one; only one check at a time uses it
}

// until is the time on clock at which the lease ends. The lease is counted from before the
// statement was sent, so in the database it never ends earlier.
func (g *leaseGroup) until() time.Duration { return time.Duration(g.from.Load() + g.length.Load()) }

// settled reports that the lease is no longer needed. If the result of one of its jobs was lost, its
// token stays known until it has ended: if the job were handed back as one of a claim without an
// answer, it would run again without counting a lost lease, and perhaps without end.
func (g *leaseGroup) settled(now time.Duration) bool {
	return g.open.Load() == 0 && !(g.lost.Load() && now < g.until()+lease.Spare)
}

// startDue reports whether the job has run for so long that its start must be recorded.
func (r *run) startDue(tick int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == running && !r.startRecorded && !r.lost && tick-r.tick > slowTicks
}

func leasesOf(runs []*run) []work.JobLease {
	leases := make([]work.JobLease, len(runs))
	for i, r := range runs {
		leases[i] = r.ref()
	}
	return leases
}

// buffer holds the claimed jobs that wait for a worker, the oldest first.
type buffer struct {
	mu       sync.Mutex
	nonEmpty *sync.Cond
	runs     []*run
	first    int // index in runs of the first waiting job
	closed   bool
}

func newBuffer() *buffer {
	s := &buffer{}
	s.nonEmpty = sync.NewCond(&s.mu)
	return s
}

func (s *buffer) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs) - s.first
}

func (s *buffer) add(runs []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs[s.first:], runs...)
	s.first = 0
	s.nonEmpty.Signal()
}

// take waits for a job and returns it; nil when the buffer was closed. A worker that takes a job
// wakes the next worker if more jobs remain, so that a batch of very short jobs does not wake all
// workers.
func (s *buffer) take() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.runs) == s.first {
		if s.closed {
			return nil
		}
		s.nonEmpty.Wait()
	}
	r := s.runs[s.first]
	s.runs[s.first] = nil
	s.first++
	if len(s.runs) > s.first {
		s.nonEmpty.Signal()
	}
	return r
}

// takeOlder removes and returns the jobs that were claimed before the tick before.
func (s *buffer) takeOlder(before int64) []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.first
	for n < len(s.runs) && s.runs[n].tick < before {
		n++
	}
	old := s.runs[s.first:n:n]
	s.first = n
	return old
}

// takeAll removes and returns all jobs.
func (s *buffer) takeAll() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.runs[s.first:]
	s.runs, s.first = nil, 0
	return rest
}

// close removes and returns all jobs, and makes take return nil, which ends the workers.
func (s *buffer) close() []*run {
	rest := s.takeAll()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.nonEmpty.Broadcast()
	return rest
}
