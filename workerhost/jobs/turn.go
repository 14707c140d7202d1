package jobs

// This file claims jobs: how many, from where, and when.

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
	*state
	fetched chan *fetch // what claims brought

	mu       sync.Mutex
	may      bool // there may be claims
	gone     bool // the loop has ended: what is claimed yet goes back
	doubt    bool // a claim failed that may have been committed
	underWay *fetch
	last     time.Duration // when a claim was last sent
	apart    time.Duration // until when none goes with jobs
	soon     *time.Timer   // runs: another is wanted lookGap after it
	after    work.JobKeys  // where the next begins; nil sweeps the lanes from their start
	swept    time.Time     // when one last did
	few      int           // how many a claim may bring, not 0 after one that brought suspects
}

// fetch is a claim and what it brought.
type fetch struct {
	claim work.Claim
	at    time.Duration // when it was sent
	with  bool          // jobs that were enqueued, some of which it left
	left  bool
	jobs  []work.Job
	err   error
}

// fetch claims as much as is wanted, unless a claim is under way already. Where an
// earlier claim may have been committed without an answer, that is settled first; known
// are the tokens of the leases here. The owner of the loop calls it.
func (t *turn) fetch(ctx context.Context, known func() []pgtype.UUID) bool {
	f := t.take(false)
	if f == nil {
		return false
	}
	var tokens []pgtype.UUID
	settle := t.inDoubt() && len(t.fetched) == 0 // what waits there is not known yet
	if settle {
		tokens = known()
	}
	t.errands.Go(func() {
		claiming, cancel := lease.Outlive(ctx, t.l.Left)
		defer cancel()
		if settle {
			f.err = t.settleDoubt(claiming, tokens)
		}
		if f.err == nil {
			f.jobs, f.err = t.Client.JobClaim(claiming, f.claim)
		}
		t.Producer.Claimed(f.jobs)
		t.bring(f)
	})
	return true
}

// inDoubt tells whether a claim failed that may have been committed.
func (t *turn) inDoubt() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubt
}

// settleDoubt hands back what was claimed and never came. No claim is under way.
func (t *turn) settleDoubt(ctx context.Context, known []pgtype.UUID) error {
	n, err := t.Client.JobClaimLost(ctx, t.ID, known)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42883" { // the installed code is older: their leases expire
		err = nil
	}
	if err != nil {
		return err
	}
	if n > 0 {
		t.l.Log.Info("jobs were claimed and the answer did not arrive: handed back", "jobs", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubt = false
	return nil
}

// take takes the turn; who has it brings what was claimed. nil: not now, what is
// settled or comes back tries again.
func (t *turn) take(with bool) *fetch {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.may || t.underWay != nil || len(t.fetched) == cap(t.fetched) {
		return nil
	}
	if with && (t.clock() < t.apart || t.after != nil || t.doubt) { // no job waits for claims of a backlog
		return nil
	}
	n := t.wanted()
	if n <= 0 {
		return nil
	}
	if time.Since(t.swept) > time.Second {
		t.after = nil
	}
	if t.after == nil {
		t.swept = time.Now()
	}
	t.last = t.clock()
	t.underWay = &fetch{claim: work.Claim{Executor: t.ID, Kinds: t.kinds, Most: n, After: t.after}, at: t.last, with: with}
	t.soon.Stop() // this one sees what the other was for
	return t.underWay
}

// later has a claim made lookGap after the last, if none is sent until then.
func (t *turn) later() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.soon.Reset(t.last + lookGap - t.clock())
}

// bring gives the turn back and hands what was claimed to the owner of the loop.
func (t *turn) bring(f *fetch) {
	t.mu.Lock()
	t.underWay, t.after = nil, nil
	if f.err != nil {
		f.jobs = nil // what could be read of them goes back with the others
		t.doubt = true
	}
	if at := t.clock(); f.with && (f.left && len(f.jobs) == 0 || at-f.at > longWith) {
		t.apart = at + apartFor
	}
	if f.err == nil {
		t.few = fewer(t.few, f.jobs)
	}
	if len(f.jobs) == f.claim.Most { // there may be more
		t.after = keysOf(f.claim.After, f.jobs)
	}
	gone := t.gone
	if !gone {
		t.open.Add(int64(len(f.jobs)))
		t.fetched <- f // has room
	}
	t.mu.Unlock()
	if !gone || len(f.jobs) == 0 {
		return
	}
	leases := make([]work.JobLease, len(f.jobs))
	for i, j := range f.jobs {
		leases[i] = work.JobLease{ID: j.ID, Token: j.Token}
	}
	go func() { // whoever brings it may hold the last connection
		if _, err := t.Client.JobRelease(context.Background(), leases); err != nil {
			t.l.Log.Warn("jobs could not be handed back; their leases will expire", "jobs", len(leases), "error", err.Error())
		}
	}()
}

// allow says whether there may be claims from now on, and whether one is under way.
func (t *turn) allow(claims bool) (taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.may = claims
	return t.underWay != nil
}

// leave has what comes yet handed back.
func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
}

// Offer implements enqueue.Taker. A job with a key may have to wait for somebody's
// transaction, and a claim with it would.
func (t *turn) Offer(jobs []enqueue.Job) (claim *work.Claim, takes bool) {
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
		if f := t.take(true); f != nil {
			return &f.claim, true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return nil, t.may
}

// Claimed implements enqueue.Taker.
func (t *turn) Claimed(jobs []work.Job, left bool, err error) {
	t.mu.Lock()
	f := t.underWay
	t.mu.Unlock()
	f.jobs, f.left, f.err = jobs, left, err
	t.bring(f)
}

// Look implements enqueue.Taker.
func (t *turn) Look() { t.later() }

// wanted is how many jobs to claim now: as many as there are places, and beyond
// them, where each place finishes more than one in 250 ms, what was finished in that
// time, so that no lease waits for longer. A stock that is half full is left alone:
// claims are cheaper by the thousand.
func (t *turn) wanted() int {
	prefetch := min(t.pace.Recent(t.clock()), mostPrefetched)
	if prefetch <= t.Concurrency {
		prefetch = 0
	} else if t.stock.size() > prefetch/2 {
		return 0
	}
	n := min(t.Concurrency+prefetch-int(t.open.Load()), lease.Most)
	if t.few > 0 {
		n = min(n, t.few)
	}
	return n
}

// fewer is how many jobs the next claim may bring, 0 = as many as are wanted: one after
// suspects, of which all but one would go back, then twice as many as the last.
func fewer(last int, jobs []work.Job) int {
	switch {
	case slices.ContainsFunc(jobs, func(j work.Job) bool { return j.LostLeases > 0 }):
		return 1
	case 2*last >= lease.Most:
		return 0
	}
	return 2 * last
}

// keysOf is where a claim stopped: the last job of each lane that it took from.
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
