package workerhost

// This file claims jobs: how many, from where, and into which stock.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient"
)

const (
	// mostJobs is what one claim takes at most.
	mostJobs = 1000
	// mostPrefetched is what waits here beyond the places there are: a queue of
	// leased rows makes every claim slower and waits for nothing elsewhere.
	mostPrefetched = 4000
)

// fetch is a claim that came back.
type fetch struct {
	jobs  []pgclient.Job
	err   error
	asked int
	swept bool          // it began at the start of each lane
	at    time.Duration // when it was sent
}

// fetch claims as much as is wanted, unless a claim is under way already.
func (e *executor) fetch(ctx context.Context) {
	if !e.look || e.fetching || !e.known || e.standing.Refusal != "" {
		return
	}
	n := e.wanted()
	if n <= 0 {
		return // what is settled pokes
	}
	if time.Since(e.swept) > time.Second {
		e.after = nil
	}
	if e.after == nil {
		e.swept = time.Now()
	}
	e.look, e.fetching = false, true
	after, at := e.after, e.clock()
	e.errands.Go(func() {
		claiming, cancel := outlive(ctx, handBackTime/2)
		defer cancel()
		jobs, err := e.h.client.JobClaim(claiming, e.id, e.kinds, n, after)
		e.fetched <- fetch{jobs, err, n, after == nil, at}
	})
}

// wanted is how many jobs to claim now: as many as there are places, and beyond
// them what was finished in the last 250 ms, so that no lease waits for longer. A
// stock that is half full is left alone: claims are cheaper by the thousand.
func (e *executor) wanted() int {
	prefetch := min(e.pace.recent(e.clock()), mostPrefetched)
	room := e.h.opts.Concurrency + prefetch - int(e.open.Load())
	if e.stock.size() > prefetch/2 {
		return 0
	}
	return min(room, mostJobs)
}

// stockUp takes what a claim brought. late: nothing may start any more.
func (e *executor) stockUp(f fetch, late bool) {
	e.fetching = false
	if f.err != nil {
		e.after = nil
		e.l.erred(f.err)
		e.l.log.Warn("claim failed", "error", f.err.Error())
		return // the poll tries again
	}
	switch {
	case len(f.jobs) == f.asked:
		e.look = true
		e.after = keysOf(e.after, f.jobs)
	case !f.swept:
		e.look = true // the rest, if any, stands before the keys
		e.after = nil
	default:
		e.after = nil
	}
	if len(f.jobs) == 0 {
		e.l.ticked(0, jobPoll)
		return
	}
	x := &jobLease{runs: make([]jobRun, len(f.jobs))}
	x.at.Store(int64(f.at))
	x.length.Store(int64(f.jobs[0].Lease))
	x.open.Store(int32(len(f.jobs)))
	runs := make([]*jobRun, len(f.jobs))
	for i := range f.jobs {
		x.runs[i].job, x.runs[i].lease = &f.jobs[i], x
		runs[i] = &x.runs[i]
	}
	e.leases = append(e.leases, x)
	e.open.Add(int64(len(runs)))
	if late {
		e.handBack(runs)
		return
	}
	e.stock.put(runs)
	for ; e.workers < min(e.h.opts.Concurrency, int(e.open.Load())); e.workers++ {
		e.crew.Go(e.worker)
	}
}

// keysOf is where a claim stopped: the last job of each lane that it took from.
func keysOf(before pgclient.JobKeys, jobs []pgclient.Job) pgclient.JobKeys {
	after := make(pgclient.JobKeys, len(before)+1)
	for lane, key := range before {
		after[lane] = key
	}
	for i := range jobs {
		last := i+1 == len(jobs) || jobs[i].Kind != jobs[i+1].Kind || jobs[i].Domain != jobs[i+1].Domain
		if last {
			after[jobs[i].Lane()] = jobs[i].Key()
		}
	}
	return after
}

// jobLease is what one claim leased.
type jobLease struct {
	runs   []jobRun
	at     atomic.Int64 // clock before the claim or renewal that it lasts from
	length atomic.Int64 // how long it lasts from then
	open   atomic.Int32 // not settled
}

// until is the local end of the lease, counted from before it was asked for: the
// server's clock and the way there can only make it later.
func (x *jobLease) until() time.Duration { return time.Duration(x.at.Load() + x.length.Load()) }

// stock is what is claimed and waits for a worker.
type stock struct {
	mu     sync.Mutex
	some   *sync.Cond
	runs   []*jobRun
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

func (s *stock) put(runs []*jobRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs[s.next:], runs...)
	s.next = 0
	s.some.Signal()
}

// take waits for a job; nil when there will be none. Who takes one wakes the next
// worker when there is more: a batch of no-ops does not need all of them.
func (s *stock) take() *jobRun {
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

// clear takes all.
func (s *stock) clear() []*jobRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.runs[s.next:]
	s.runs, s.next = nil, 0
	return rest
}

// close takes all and sends the workers home.
func (s *stock) close() []*jobRun {
	rest := s.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.some.Broadcast()
	return rest
}

// pace counts what was settled in the last 250 ms.
type pace struct {
	mu      sync.Mutex
	buckets [6]int
	slot    int64
}

const paceSlot = 50 * time.Millisecond

func (p *pace) add(at time.Duration, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	p.buckets[p.slot%int64(len(p.buckets))] += n
}

func (p *pace) recent(at time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	sum := 0
	for _, n := range p.buckets {
		sum += n
	}
	return sum
}

// turn empties the buckets of the slots that began since; mu is held.
func (p *pace) turn(at time.Duration) {
	slot := int64(at / paceSlot)
	for i := max(p.slot+1, slot-int64(len(p.buckets))+1); i <= slot; i++ {
		p.buckets[i%int64(len(p.buckets))] = 0
	}
	p.slot = max(p.slot, slot)
}
