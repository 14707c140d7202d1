package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

const (
	// maxPrefetched bounds how many jobs are claimed beyond the free slots: many leased rows make
	// every claim slower, and other hosts cannot work on these jobs.
	maxPrefetched = 4000
	// maxDelivered is how many ended claims may wait for the owner of the loop.
	maxDelivered = 16
	// minClaimGap is the least time between a claim and the next claim that is made because this
	// process enqueued or settled jobs. Until then, a claim can share the transaction of the next
	// jobs that this process enqueues, which is cheaper.
	minClaimGap = 5 * time.Millisecond
	// If a claim in a producer's transaction found no job, not even the jobs of that transaction,
	// or took longer than slowTxClaim, then the loop uses no producer's transaction for
	// txClaimPause.
	slowTxClaim  = 50 * time.Millisecond
	txClaimPause = time.Second
)

// claimer claims jobs. At most one claim is under way at a time:
//
//  1. reserve makes a claim the current one, if claims are allowed, jobs are wanted and no claim
//     is under way. start calls it for a claim of the loop, and Offer calls it for a claim in the
//     transaction in which a producer of this process enqueues jobs.
//  2. start sends the claim in the background; or the producer sends it, and calls Claimed after
//     its commit.
//  3. deliver ends the claim and sends it on the channel delivered to the owner of the loop or,
//     if the loop has ended, hands the jobs of the claim back.
//
// A claim that returned an error may have been committed nevertheless; see releaseUnanswered.
type claimer struct {
	*state
	delivered chan *claim // claims that have ended, with their results

	mu             sync.Mutex
	allowed        bool         // claims may be made
	refuse         work.Refusal // which jobs claims pass over, because of the suspects that run
	closed         bool         // the loop has ended: jobs of the current claim are handed back
	unanswered     lease.Unanswered
	current        *claim
	lastSent       time.Duration // when a claim was last sent, by state.clock
	noTxClaimUntil time.Duration // until when (by state.clock) no claim shares a producer's transaction
	timer          *time.Timer   // fires when another claim is wanted, minClaimGap after lastSent
	resumeAfter    work.JobKeys  // where the next claim begins in each queue lane; nil = at the start of all lanes
	sweptAt        time.Time     // when a claim last began at the start of all queue lanes
	limit          int           // most jobs per claim; lower for a while after a claim that returned suspects; 0 = no limit
}

// claim is one request for jobs, with its result.
type claim struct {
	request    work.Claim
	sentAt     time.Duration // clock when the claim was sent
	inTx       bool          // sent in the transaction of a producer
	ownSkipped bool
	jobs       []work.Job
	err        error
	unsent     bool // err is of the release before the claim
}

// full reports that the claim found as many jobs as it asked for, so that there may be more.
func (c *claim) full() bool { return len(c.jobs) == c.request.Most }

// start sends a claim for as many jobs as are wanted. It returns false if no
// job is wanted or a claim is under way. If an earlier claim got no answer,
// its jobs are handed back first; knownTokens returns the lease tokens whose
// answers did arrive. Only the owner of the loop calls start.
func (t *claimer) start(ctx context.Context, knownTokens func() []pgtype.UUID) bool {
	c := t.reserve(false)
	if c == nil {
		return false
	}
	var tokens []pgtype.UUID
	releaseFirst := t.releaseDue() && len(t.delivered) == 0 // the leases of delivered claims are not in knownTokens yet
	if releaseFirst {
		tokens = knownTokens()
	}
	t.background.Go(func() {
		claiming, cancel := lease.Outlive(ctx, t.l.Remaining)
		defer cancel()
		if releaseFirst {
			c.err = t.releaseUnanswered(claiming, tokens)
			c.unsent = c.err != nil
		}
		if c.err == nil {
			c.jobs, c.err = t.Client.JobClaim(claiming, c.request)
		}
		t.Producer.Claimed(c.jobs)
		t.deliver(c)
	})
	return true
}

// hasUnanswered reports whether jobs of a claim without an answer may be leased.
func (t *claimer) hasUnanswered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unanswered.Open()
}

func (t *claimer) releaseDue() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unanswered.Due(time.Now())
}

// releaseUnanswered hands back the jobs of claims that were committed although their answer never
// arrived: the jobs that this host leases under a token not in knownTokens. No claim may be under
// way.
func (t *claimer) releaseUnanswered(ctx context.Context, knownTokens []pgtype.UUID) error {
	began := time.Now()
	n, err := t.Client.JobClaimLost(ctx, t.ID, knownTokens)
	if err != nil && !pgerror.NoFunction(err) { // without the function the leases expire
		return err
	}
	if n > 0 {
		t.l.Log.Info("handed back jobs of a claim whose answer did not arrive", "jobs", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered.Released(began, time.Now())
	return nil
}

// reserve makes a claim the current one and returns it; the caller must call deliver. It returns
// nil if no claim may be made now; the next claim then follows when jobs are settled or handed
// back. inTx says that the claim would be made in a producer's transaction.
func (t *claimer) reserve(inTx bool) *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.allowed || t.current != nil || len(t.delivered) == cap(t.delivered) {
		return nil
	}
	if inTx && (t.clock() < t.noTxClaimUntil || t.resumeAfter != nil || t.unanswered.New()) { // a claim from a backlog takes longer, and a producer must not wait for it
		return nil
	}
	n, kinds := t.wanted(), t.openKinds()
	if n <= 0 || len(kinds) == 0 {
		return nil
	}
	if time.Since(t.sweptAt) > time.Second {
		t.resumeAfter = nil
	}
	if t.resumeAfter == nil {
		t.sweptAt = time.Now()
	}
	t.lastSent = t.clock()
	t.current = &claim{request: work.Claim{Executor: t.ID, Kinds: kinds, Most: n, After: t.resumeAfter, Refuse: t.refuse}, sentAt: t.lastSent, inTx: inTx}
	t.timer.Stop() // this claim makes the scheduled one unnecessary
	return t.current
}

// openKinds returns the kinds that may be claimed now.
func (t *claimer) openKinds() []string {
	paused := t.pauses.Paused()
	if len(paused) == 0 {
		return t.kinds
	}
	return slices.DeleteFunc(slices.Clone(t.kinds), func(kind string) bool { return slices.Contains(paused, kind) })
}

// claimSoon schedules a claim minClaimGap after the last one, unless another is sent before.
func (t *claimer) claimSoon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Reset(t.lastSent + minClaimGap - t.clock())
}

// deliver ends the current claim and sends it to the owner of the loop. If the loop has ended,
// deliver hands the jobs of the claim back.
func (t *claimer) deliver(c *claim) {
	t.mu.Lock()
	t.current, t.resumeAfter = nil, nil
	if c.err != nil {
		c.jobs = nil // releaseUnanswered hands back all jobs of the claim, also those whose rows were read
		if !c.unsent && pgerror.MayHaveCommitted(c.err) {
			t.unanswered.Add()
		}
	}
	if at := t.clock(); c.inTx && (c.ownSkipped && len(c.jobs) == 0 || at-c.sentAt > slowTxClaim) {
		t.noTxClaimUntil = at + txClaimPause
	}
	if c.err == nil {
		t.limit = nextLimit(t.limit, c.jobs)
	}
	if c.full() {
		t.resumeAfter = keysOf(c.request.After, c.jobs)
	}
	closed := t.closed
	if !closed {
		t.open.Add(int64(len(c.jobs)))
		t.delivered <- c // never blocks: the channel has room
	}
	t.mu.Unlock()
	if !closed || len(c.jobs) == 0 {
		return
	}
	leases := make([]work.JobLease, len(c.jobs))
	for i, j := range c.jobs {
		leases[i] = work.JobLease{ID: j.ID, Token: j.Token}
	}
	go func() { // the caller may hold the last connection of the pool
		if _, err := t.Client.JobRelease(context.Background(), leases); err != nil {
			t.l.Log.Warn("jobs could not be handed back; their leases will expire", "jobs", len(leases), "error", err.Error())
		}
	}()
}

// allow sets whether claims may be made from now on, and which jobs they pass over. It returns whether
// a claim is under way, or delivered and not handled.
func (t *claimer) allow(allowed bool, refuse work.Refusal) (underWay bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.allowed, t.refuse = allowed, refuse
	return t.current != nil || len(t.delivered) > 0
}

// close ends the loop's part: from now on deliver hands back the jobs of a
// claim instead of sending them to the loop.
func (t *claimer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// Offer implements enqueue.Claimer. It offers no claim when one of the jobs has an idempotency
// key: the insert of that job may have to wait for another transaction with the same key, and the
// claim would wait too.
func (t *claimer) Offer(jobs []enqueue.Job) (claim *work.Claim, takes bool) {
	now, keyed, kinds := time.Now(), false, t.openKinds()
	for i := range jobs {
		j := &jobs[i]
		takes = takes || slices.Contains(kinds, j.Kind) && (j.ProcessAfter == nil || !j.ProcessAfter.After(now))
		keyed = keyed || j.IdempotencyKey != ""
	}
	if !takes {
		return nil, false
	}
	if !keyed {
		if c := t.reserve(true); c != nil {
			return &c.request, true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return nil, t.allowed
}

// Claimed implements enqueue.Claimer.
func (t *claimer) Claimed(jobs []work.Job, ownSkipped bool, err error) {
	t.mu.Lock()
	c := t.current
	t.mu.Unlock()
	c.jobs, c.ownSkipped, c.err = jobs, ownSkipped, err
	t.deliver(c)
}

// Look implements enqueue.Claimer: it schedules a claim.
func (t *claimer) Look() { t.claimSoon() }

// wanted returns how many jobs to claim now. That is the number of free slots. If each slot
// finishes more than one job per 250 ms, wanted adds the number of jobs finished in the last 250
// ms, so that a claimed job waits for about that long at most. While the buffer is more than half
// full it returns 0, because few large claims are cheaper than many small ones.
func (t *claimer) wanted() int {
	prefetch := min(t.pace.Recent(t.clock()), maxPrefetched)
	if prefetch <= t.Concurrency {
		prefetch = 0
	} else if t.buffer.size() > prefetch/2 {
		return 0
	}
	n := min(t.Concurrency+prefetch-int(t.open.Load()), lease.MaxBatch)
	if t.limit > 0 {
		n = min(n, t.limit)
	}
	return n
}

// nextLimit returns the most jobs of the next claim, 0 = no limit. After a claim that returned a
// suspect the limit is 1, because all suspects but one would be handed back; then it doubles with
// each claim.
func nextLimit(limit int, jobs []work.Job) int {
	switch {
	case slices.ContainsFunc(jobs, func(j work.Job) bool { return j.LostLeases > 0 }):
		return 1
	case 2*limit >= lease.MaxBatch:
		return 0
	}
	return 2 * limit
}

// keysOf returns where a claim ended: in each queue lane with jobs of the claim, the key of its
// last job; in all other lanes, the key where the claim began (before).
func keysOf(before work.JobKeys, jobs []work.Job) work.JobKeys {
	after := make(work.JobKeys, len(before)+1)
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
