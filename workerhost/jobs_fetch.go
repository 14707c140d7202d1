package workerhost

// This file claims jobs: how many, from where, and into which stock.

import (
	"context"
	"slices"
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
	// mostFetched is how many claims may wait for the owner of the loop.
	mostFetched = 16
	// lookGap is the least time from a claim to the next because of jobs that this
	// process enqueued or settled: a claim that goes with the next jobs is better than
	// one in its way.
	lookGap = 5 * time.Millisecond
	// After a claim that went with jobs and found nothing, not even them, or that took
	// longer than longWith, none goes with jobs for apartFor.
	longWith = 50 * time.Millisecond
	apartFor = time.Second
)

// turn is the right to claim: one claim is under way at a time, of the loop or with
// jobs that this process enqueues.
type turn struct {
	mu       sync.Mutex
	open     bool // there may be claims
	gone     bool // the loop has ended: what is claimed yet goes back
	underWay *fetch
	last     time.Duration    // when a claim was last sent
	apart    time.Duration    // until when none goes with jobs
	soon     *time.Timer      // runs: another is wanted lookGap after it
	after    pgclient.JobKeys // where the next begins; nil sweeps the lanes from their start
	swept    time.Time        // when one last did
}

// fetch is a claim and what it brought.
type fetch struct {
	claim pgclient.Claim
	at    time.Duration // when it was sent
	with  bool          // jobs that were enqueued, some of which it left
	left  bool
	jobs  []pgclient.Job
	err   error
}

// fetch claims as much as is wanted, unless a claim is under way already.
func (e *executor) fetch(ctx context.Context) {
	if !e.look {
		return
	}
	f := e.take(false)
	if f == nil {
		return
	}
	e.look = false
	e.errands.Go(func() {
		claiming, cancel := outlive(ctx, handBackTime/2)
		defer cancel()
		f.jobs, f.err = e.h.client.JobClaim(claiming, f.claim)
		e.h.client.Ringer().Claimed(f.jobs)
		e.bring(f)
	})
}

// take takes the turn; who has it brings what was claimed. nil: not now, what is
// settled or comes back tries again.
func (e *executor) take(with bool) *fetch {
	t := &e.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open || t.underWay != nil || len(e.fetched) == cap(e.fetched) {
		return nil
	}
	if with && (e.clock() < t.apart || t.after != nil) { // no job waits for claims of a backlog
		return nil
	}
	n := e.wanted()
	if n <= 0 {
		return nil
	}
	if time.Since(t.swept) > time.Second {
		t.after = nil
	}
	if t.after == nil {
		t.swept = time.Now()
	}
	t.last = e.clock()
	t.underWay = &fetch{claim: pgclient.Claim{Executor: e.id, Kinds: e.kinds, Most: n, After: t.after}, at: t.last, with: with}
	t.soon.Stop() // this one sees what the other was for
	return t.underWay
}

// soon has a claim made lookGap after the last, if none is sent until then.
func (e *executor) soon() {
	t := &e.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	t.soon.Reset(t.last + lookGap - e.clock())
}

// bring gives the turn back and hands what was claimed to the owner of the loop.
func (e *executor) bring(f *fetch) {
	t := &e.turn
	t.mu.Lock()
	t.underWay, t.after = nil, nil
	if f.err != nil {
		f.jobs = nil // what could be read of them: their lease expires
	}
	if at := e.clock(); f.with && (f.left && len(f.jobs) == 0 || at-f.at > longWith) {
		t.apart = at + apartFor
	}
	if len(f.jobs) == f.claim.Most { // there may be more
		t.after = keysOf(f.claim.After, f.jobs)
	}
	gone := t.gone
	if !gone {
		e.open.Add(int64(len(f.jobs)))
		e.fetched <- f // has room
	}
	t.mu.Unlock()
	if !gone || len(f.jobs) == 0 {
		return
	}
	leases := make([]pgclient.JobLease, len(f.jobs))
	for i, j := range f.jobs {
		leases[i] = pgclient.JobLease{ID: j.ID, Token: j.Token}
	}
	go func() { // whoever brings it may hold the last connection
		if _, err := e.h.client.JobRelease(context.Background(), leases); err != nil {
			e.l.log.Warn("jobs could not be handed back; their leases will expire", "jobs", len(leases), "error", err.Error())
		}
	}()
}

// may says whether there may be claims from now on, and whether one is under way.
func (t *turn) may(open bool) (taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = open
	return t.underWay != nil
}

// leave has what comes yet handed back.
func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
}

// Offer implements pgclient.Taker. A job with a key may have to wait for somebody's
// transaction, and a claim with it would.
func (e *executor) Offer(jobs []pgclient.JobSpec) (claim *pgclient.Claim, takes bool) {
	now, keyed := time.Now(), false
	for i := range jobs {
		j := &jobs[i]
		takes = takes || slices.Contains(e.kinds, j.Kind) && (j.ProcessAfter == nil || !j.ProcessAfter.After(now))
		keyed = keyed || j.IdempotencyKey != ""
	}
	if !takes {
		return nil, false
	}
	if !keyed {
		if f := e.take(true); f != nil {
			return &f.claim, true
		}
	}
	e.turn.mu.Lock()
	defer e.turn.mu.Unlock()
	return nil, e.turn.open
}

// Claimed implements pgclient.Taker.
func (e *executor) Claimed(jobs []pgclient.Job, left bool, err error) {
	e.turn.mu.Lock()
	f := e.turn.underWay
	e.turn.mu.Unlock()
	f.jobs, f.left, f.err = jobs, left, err
	e.bring(f)
}

// Look implements pgclient.Taker.
func (e *executor) Look() { e.soon() }

// wanted is how many jobs to claim now: as many as there are places, and beyond
// them, where each place finishes more than one in 250 ms, what was finished in that
// time, so that no lease waits for longer. A stock that is half full is left alone:
// claims are cheaper by the thousand.
func (e *executor) wanted() int {
	prefetch := min(e.pace.recent(e.clock()), mostPrefetched)
	if prefetch <= e.h.opts.Concurrency {
		prefetch = 0
	} else if e.stock.size() > prefetch/2 {
		return 0
	}
	return min(e.h.opts.Concurrency+prefetch-int(e.open.Load()), mostJobs)
}

// stockUp takes what a claim brought. late: nothing may start any more.
func (e *executor) stockUp(f *fetch, late bool) {
	if !f.with || len(f.jobs) > 0 { // one that goes with jobs does not look for others
		e.l.looked(len(f.jobs) > 0)
	}
	if f.err != nil {
		e.l.erred(f.err)
		e.l.log.Warn("claim failed", "error", f.err.Error())
		return // the poll tries again
	}
	if len(f.jobs) == f.claim.Most || f.claim.After != nil {
		e.look = true // for more, or for what came in late and stands before the keys: retries, higher priorities, old transactions
	}
	if len(f.jobs) == 0 {
		e.l.ticked(0, jobPoll)
		return
	}
	x := &jobLease{runs: make([]jobRun, len(f.jobs))}
	x.at.Store(int64(f.at))
	x.length.Store(int64(f.jobs[0].Lease))
	x.open.Store(int32(len(f.jobs)))
	runs, tick := make([]*jobRun, len(f.jobs)), e.ticks.Load()
	for i := range f.jobs {
		x.runs[i].job, x.runs[i].lease, x.runs[i].tick = &f.jobs[i], x, tick
		runs[i] = &x.runs[i]
	}
	e.leases = append(e.leases, x)
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

// stale takes those that came before a tick: the oldest come first.
func (s *stock) stale(before int64) []*jobRun {
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
