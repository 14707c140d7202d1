package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

const (
	// maxPrefetched bounds the jobs that are claimed beyond the free slots: many leased rows
	// make every claim slower, and other hosts cannot work on them.
	maxPrefetched = 4000
	// maxDelivered is how many claims may wait for the goroutine that runs the loop.
	maxDelivered = 16
	// minClaimGap is the least time from a claim to one that is made because this process
	// enqueued or settled jobs. In the meantime a claim can share the transaction of the
	// next jobs that are enqueued, which is cheaper.
	minClaimGap = 5 * time.Millisecond
	// After a claim in a producer's transaction that found nothing, not even the jobs of that
	// transaction, or that took longer than slowTxClaim, no producer's transaction is used
	// for txClaimPause.
	slowTxClaim  = 50 * time.Millisecond
	txClaimPause = time.Second
)

// claimer claims jobs. One claim is under way at a time:
//
//  1. reserve makes a claim the current one, if claims are allowed, jobs are wanted and no
//     claim is under way. It is called by start, for a claim of the loop, and by Offer, for a
//     claim in the transaction in which a producer of this process enqueues jobs.
//  2. The claim is sent: by start in the background, or by the producer, which calls Claimed
//     after its commit.
//  3. deliver ends the claim and sends it through delivered to the goroutine that runs the
//     loop or, if the loop has ended, hands its jobs back.
//
// A claim that fails may have been committed nevertheless; see releaseUnanswered.
type claimer struct {
	*state
	delivered chan *claim // claims that have ended

	mu             sync.Mutex
	allowed        bool // claims may be made
	closed         bool // the loop has ended: jobs of the current claim are handed back
	unanswered     bool // a claim failed that may have been committed
	current        *claim
	lastSent       time.Duration // when a claim was last sent
	noTxClaimUntil time.Duration // until then no claim shares a producer's transaction
	timer          *time.Timer   // fires when another claim is wanted, minClaimGap after lastSent
	resumeAfter    work.JobKeys  // where the next claim begins in each queue lane; nil = at the start of all lanes
	sweptAt        time.Time     // when a claim last began at the start of all lanes
	limit          int           // of jobs per claim, after one that brought suspects; 0 = no limit
}

// claim is one claim and its result.
type claim struct {
	request    work.Claim
	sentAt     time.Duration // when it was sent
	inTx       bool          // in the transaction of a producer
	ownSkipped bool
	jobs       []work.Job
	err        error
}

// start sends a claim for as many jobs as are wanted; false when none is wanted or a claim is
// under way. Jobs of an earlier claim without an answer are handed back first; knownTokens
// returns the tokens of the leases here. Only the owner of the loop calls start.
func (t *claimer) start(ctx context.Context, knownTokens func() []pgtype.UUID) bool {
	c := t.reserve(false)
	if c == nil {
		return false
	}
	var tokens []pgtype.UUID
	releaseFirst := t.hasUnanswered() && len(t.delivered) == 0 // the leases of delivered claims are not in knownTokens yet
	if releaseFirst {
		tokens = knownTokens()
	}
	t.background.Go(func() {
		claiming, cancel := lease.Outlive(ctx, t.l.Remaining)
		defer cancel()
		if releaseFirst {
			c.err = t.releaseUnanswered(claiming, tokens)
		}
		if c.err == nil {
			c.jobs, c.err = t.Client.JobClaim(claiming, c.request)
		}
		t.Producer.Claimed(c.jobs)
		t.deliver(c)
	})
	return true
}

// hasUnanswered reports whether a claim failed that may have been committed.
func (t *claimer) hasUnanswered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unanswered
}

// releaseUnanswered hands back the jobs of claims that were committed although their answer
// never arrived: those that this host leases under a token not in knownTokens. No claim may be
// under way.
func (t *claimer) releaseUnanswered(ctx context.Context, knownTokens []pgtype.UUID) error {
	n, err := t.Client.JobClaimLost(ctx, t.ID, knownTokens)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42883" { // an older database has no such function: the leases will expire
		err = nil
	}
	if err != nil {
		return err
	}
	if n > 0 {
		t.l.Log.Info("handed back jobs of a claim whose answer did not arrive", "jobs", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = false
	return nil
}

// reserve makes a claim the current one; its caller must call deliver. nil says that no claim
// may be made now; settled or returned jobs cause the next one. inTx is for a claim in a
// producer's transaction.
func (t *claimer) reserve(inTx bool) *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.allowed || t.current != nil || len(t.delivered) == cap(t.delivered) {
		return nil
	}
	if inTx && (t.clock() < t.noTxClaimUntil || t.resumeAfter != nil || t.unanswered) { // no producer waits for claims from a backlog
		return nil
	}
	n := t.wanted()
	if n <= 0 {
		return nil
	}
	if time.Since(t.sweptAt) > time.Second {
		t.resumeAfter = nil
	}
	if t.resumeAfter == nil {
		t.sweptAt = time.Now()
	}
	t.lastSent = t.clock()
	t.current = &claim{request: work.Claim{Executor: t.ID, Kinds: t.kinds, Most: n, After: t.resumeAfter}, sentAt: t.lastSent, inTx: inTx}
	t.timer.Stop() // this claim makes the scheduled one unnecessary
	return t.current
}

// claimSoon schedules a claim minClaimGap after the last one, unless another is sent before.
func (t *claimer) claimSoon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Reset(t.lastSent + minClaimGap - t.clock())
}

// deliver ends the current claim and sends it to the owner of the loop, or hands its jobs back
// where the loop has ended.
func (t *claimer) deliver(c *claim) {
	t.mu.Lock()
	t.current, t.resumeAfter = nil, nil
	if c.err != nil {
		c.jobs = nil // releaseUnanswered hands back all of them, also those that were read
		t.unanswered = true
	}
	if at := t.clock(); c.inTx && (c.ownSkipped && len(c.jobs) == 0 || at-c.sentAt > slowTxClaim) {
		t.noTxClaimUntil = at + txClaimPause
	}
	if c.err == nil {
		t.limit = nextLimit(t.limit, c.jobs)
	}
	if len(c.jobs) == c.request.Most { // there may be more
		t.resumeAfter = keysOf(c.request.After, c.jobs)
	}
	closed := t.closed
	if !closed {
		t.open.Add(int64(len(c.jobs)))
		t.delivered <- c // has room
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

// allow sets whether claims may be made from now on, and returns whether one is under way.
func (t *claimer) allow(allowed bool) (underWay bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.allowed = allowed
	return t.current != nil
}

// close makes deliver hand back the jobs of a claim that ends later.
func (t *claimer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// Offer implements enqueue.Claimer. It allows no claim with jobs that have an idempotency key:
// their insert may have to wait for another transaction with the same key, and the claim would
// wait too.
func (t *claimer) Offer(jobs []enqueue.Job) (claim *work.Claim, takes bool) {
	now, keyed := time.Now(), false
	for i := range jobs {
		j := &jobs[i]
		takes = takes || slices.Contains(t.kinds, j.Kind) && (j.ProcessAfter == nil || !j.ProcessAfter.After(now))
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

// Look implements enqueue.Claimer.
func (t *claimer) Look() { t.claimSoon() }

// wanted returns how many jobs to claim now: as many as there are free slots and, where each
// slot finishes more than one job per 250 ms, as many more as were finished in that time, so
// that no claimed job waits for longer. While the buffer is more than half full it returns 0,
// because few large claims are cheaper than many small ones.
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

// nextLimit returns how many jobs the next claim may bring, 0 = as many as are wanted. After a
// claim with a suspect that is 1, for all suspects but one would be handed back; then it
// doubles with each claim.
func nextLimit(limit int, jobs []work.Job) int {
	switch {
	case slices.ContainsFunc(jobs, func(j work.Job) bool { return j.LostLeases > 0 }):
		return 1
	case 2*limit >= lease.MaxBatch:
		return 0
	}
	return 2 * limit
}

// keysOf returns where a claim ended: the key of its last job in each queue lane, and for
// other lanes where it began.
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
