package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// executor holds the data of one run of the loop.
type executor struct {
	*state
	claimer     *claimer
	results     *results
	leases      *leases
	standing    *standing
	watermarks  *watermarks
	workers     *workers
	suspects    *suspects
	claimWanted bool // there may be jobs to claim; only the owner of the loop uses it
}

// Run is the body of the loop.
func (x *Executor) Run(ctx context.Context, l *loop.Loop) error {
	s := &state{Executor: x, l: l, kinds: x.Kinds(), began: time.Now(), pace: loop.NewPace(50*time.Millisecond, 6), buffer: newBuffer()}
	e := &executor{state: s, claimWanted: true}
	e.claimer = &claimer{state: s, delivered: make(chan *claim, maxDelivered), timer: time.NewTimer(0)}
	e.results = newResults(s, e.claimer.claimSoon)
	e.leases = &leases{state: s, results: e.results, checked: make(chan struct{}, 1)}
	e.standing = &standing{state: s, answers: make(chan answer, 1)}
	e.watermarks = &watermarks{state: s}
	e.workers = &workers{state: s, results: e.results, runner: handler.Runner{Log: x.Log}}
	e.suspects = &suspects{state: s, results: e.results}
	e.workers.working, e.workers.halt = context.WithCancel(context.WithoutCancel(ctx))
	killed, kill := context.WithCancel(context.WithoutCancel(ctx))
	e.workers.runner.Ending = e.workers.working.Done()
	working := e.workers.working
	e.workers.runner.Grace = func() time.Duration {
		if working.Err() == nil { // only the attempt ends
			return l.Remaining()
		}
		return l.Remaining() / 2 // then results are recorded and unfinished work is handed back
	}
	e.workers.working, e.workers.kill = handler.WithKill(e.workers.working, killed), kill
	x.Producer.Attach(e.claimer)
	defer e.finish(ctx) // also after a panic of run
	return e.run(ctx)
}

// run owns the loop until ctx ends, or until the loop drains and no job is open.
func (e *executor) run(ctx context.Context) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	keep := time.NewTicker(checkEvery)
	defer keep.Stop()
	drain := e.l.Draining()
	draining := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
			e.results.handBack(append(e.buffer.takeAll(), e.suspects.clear()...))
		case <-e.l.Kicked():
			e.claimWanted = true
			e.standing.askSoon()
		case <-poll.C:
			poll.Reset(jobPoll)
			e.claimWanted = true
		case <-e.claimer.timer.C:
			e.claimWanted = true
		case c := <-e.claimer.delivered:
			e.handleClaim(c, draining || ctx.Err() != nil)
		case a := <-e.standing.answers:
			e.claimWanted = e.standing.handle(a) || e.claimWanted
			if a.err == nil && a.Lease > 0 {
				e.leases.shorten(a.Lease)
			}
		case <-e.leases.checked:
			e.leases.checking = false
		case <-keep.C:
			e.leases.check(ctx)
			e.standing.heartbeat(ctx)
			if !draining { // also while this host may not claim: other claimers and consoles read them
				e.watermarks.advance(ctx)
			}
		}
		e.standing.ask(ctx)
		claiming := e.claimer.allow(!draining && e.standing.allowed() && !e.results.stuck() && !e.suspects.blocksClaims(), e.suspects.refusal())
		if r := e.suspects.next(claiming); r != nil {
			e.buffer.add([]*run{r})
			e.workers.spawn()
		}
		if draining && !claiming && e.open.Load() == 0 {
			return nil
		}
		if e.claimWanted {
			e.claimWanted = !e.claimer.start(ctx, e.leases.tokens)
		}
		e.l.SetInFlight(int(e.open.Load()))
	}
}

// handleClaim handles the result of a claim. If handBack is true, the loop is
// ending: the jobs must not start and are handed back.
func (e *executor) handleClaim(c *claim, handBack bool) {
	if !c.inTx || len(c.jobs) > 0 { // an empty claim in a producer's transaction does not mean that the queue is empty
		e.l.RecordCheck(len(c.jobs) > 0)
	}
	if c.err != nil {
		e.l.RecordError(c.err)
		e.l.Log.Warn("claim failed", "error", c.err.Error())
		return // the next poll claims again
	}
	if c.full() || c.request.After != nil {
		// The queue may hold more jobs after the last key, and jobs that became visible before
		// the key where this claim began: retries, higher priorities, rows of old transactions.
		e.claimWanted = true
	}
	if len(c.jobs) == 0 {
		e.l.RecordTick(0, jobPoll)
		return
	}
	runs := e.leases.add(c)
	if handBack {
		e.results.handBack(runs)
		return
	}
	if runs = e.suspects.separate(runs); len(runs) > 0 {
		e.buffer.add(runs)
		e.workers.spawn()
	}
}

// finish ends the run, within the time that Loop.Remaining returns:
//
//  1. Handlers and the search for watermarks are cancelled. After 3/8 of the time the commands of
//     handlers are killed, and after half of the time handlers that have not returned are abandoned.
//  2. If a claim is under way, finish waits for it during half of the time and hands back its
//     jobs.
//  3. Results are recorded, and jobs without a result are handed back.
//  4. Jobs of claims whose answer never arrived are handed back.
func (e *executor) finish(ctx context.Context) {
	e.Producer.Detach(e.claimer)
	remaining := e.l.Remaining()
	e.results.hurry(time.Now().Add(remaining))
	e.workers.halt()
	e.watermarks.stop()
	killing := time.AfterFunc(remaining*3/8, e.workers.kill)
	defer killing.Stop()
	defer e.workers.kill()
	abandon := time.After(remaining / 2) // do not wait longer for the claim: its connection may hang
	for e.claimer.allow(false, work.RefuseNone) {
		select {
		case f := <-e.claimer.delivered:
			e.handleClaim(f, true)
			continue
		case <-abandon:
		}
		break
	}
	e.claimer.close()
	for len(e.claimer.delivered) > 0 {
		e.handleClaim(<-e.claimer.delivered, true)
	}
	e.results.handBack(append(e.buffer.close(), e.suspects.clear()...))
	e.workers.running.Wait()
	e.workers.runner.Close()
	e.background.Wait()
	e.results.close(time.Now().Add(e.l.Remaining() * 2 / 3))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.l.Remaining()/2)
	defer cancel()
	e.l.SetInFlight(0)
	if e.claimer.hasUnanswered() {
		if err := e.claimer.releaseUnanswered(last, e.leases.tokens()); err != nil {
			e.l.Log.Warn("the answer to a claim did not arrive: jobs that it claimed stay leased until their leases expire", "error", err.Error())
		}
	}
	e.standing.heartbeatStopped(ctx)
}

// workers run the handlers, one goroutine per slot.
type workers struct {
	*state
	results *results
	runner  handler.Runner
	working context.Context //nolint:containedctx // of the handlers; ends in finish, not with the context of the loop
	halt    context.CancelFunc
	kill    context.CancelFunc // kills the processes of handlers, even if their grace time has not passed
	count   int
	running sync.WaitGroup
}

// spawn starts workers until there are as many as open jobs, at most one per slot.
func (c *workers) spawn() {
	for ; c.count < min(c.Concurrency, int(c.open.Load())); c.count++ {
		c.running.Go(func() {
			for r := c.buffer.take(); r != nil; r = c.buffer.take() {
				c.work(r)
			}
		})
	}
}

// work runs the handler of a job and queues the result by its outcome.
func (c *workers) work(r *run) {
	if c.results.stuck() {
		c.results.handBack([]*run{r})
		return
	}
	timeout := c.Timeout
	if r.job.Payload == nil {
		timeout = 0 // it counts once the payload has arrived
	}
	ctx := r.start(c.working, timeout, c.clock())
	var err, lack error
	switch {
	case ctx == nil:
	case r.job.Payload == nil:
		err, lack = c.workWithReadPayload(ctx, r)
	default:
		r.begin(c.ticks.Load())
		err = c.runner.Run(ctx, c.Handlers[r.job.Kind], handlerJob(r.job, r.job.Payload))
		lack = handler.Shortage(err)
	}
	switch lost, confirmed := r.finish(); {
	case lost && (confirmed || ctx == nil || err != nil):
		c.results.markLost(r)
		c.results.settle([]*run{r})
	case err == nil:
		c.pauses.Began(r.job.Kind, r.job.ID)
		r.outcome = succeeded
		c.results.acks.Add(r)
	case c.working.Err() != nil, errors.Is(err, errNoRoom), c.lacks(r, lack): // the job is not at fault: no attempt is counted
		r.outcome = released
		c.results.returns.Add(r)
	default:
		var forGood bool
		r.outcome = failed
		if r.code, r.text, forGood = handler.Outcome(err); forGood {
			r.outcome = permanent
		}
		c.results.fails.Add(r)
	}
}

// lacks reports whether a job must be handed back because this host lacked something to begin it; nil: it
// has begun.
func (c *workers) lacks(r *run, lack error) bool {
	if lack == nil {
		c.pauses.Began(r.job.Kind, r.job.ID)
		return false
	}
	c.l.RecordShortage(lack)
	if !c.pauses.HandBack(r.job.Kind, r.job.ID) {
		return false
	}
	c.l.Log.Warn("jobs are handed back and claimed later", "error", lack.Error(), "job_kind", r.job.Kind)
	return true
}

// errNoRoom means that the job is handed back, because there is no room for its payload at present.
var errNoRoom = errors.New("not begun")

// workWithReadPayload reads the payload of a job within the budget of the host and runs the
// handler. It is for payloads that were too long to be returned by the claim. A job for which there was no room for
// an hour waits in its slot until there is: it is not at fault. lack is what the host lacked to begin the job, such
// as a database that returns the payload.
func (c *workers) workWithReadPayload(ctx context.Context, r *run) (err, lack error) {
	leased := true
	read := func(ctx context.Context, most int64) (p work.Payload, err error) {
		p, leased, err = c.Client.JobPayload(ctx, r.ref(), most)
		return p, err
	}
	use := func(p work.Payload) {
		switch {
		case !leased:
			r.lose(true)
		case !p.Readable:
			err = handler.Permanent(handler.Coded(handler.CodeUnreadable, errors.New("not run: "+lease.Unreadable)))
		default:
			limited, cancel := ctx, func() {}
			if c.Timeout > 0 {
				limited, cancel = context.WithTimeout(ctx, c.Timeout)
			}
			defer cancel()
			r.begin(c.ticks.Load())
			err = c.runner.Run(limited, c.Handlers[r.job.Kind], handlerJob(r.job, p.Text))
			lack = handler.Shortage(err)
		}
	}
	readErr := c.Budget.TryUse(ctx, read, use)
	if errors.Is(readErr, lease.ErrNoRoom) {
		if c.lacks(r, readErr) {
			return errNoRoom, nil
		}
		readErr = c.Budget.Use(ctx, read, use)
	}
	if readErr == nil {
		return err, lack
	}
	if pgerror.Retryable(readErr) {
		lack = readErr
	}
	return handler.Coded(handler.CodeUnreadable, readErr), lack
}

// handlerJob converts a claimed job to the type that handlers receive.
func handlerJob(j *work.Job, payload []byte) handler.Job {
	return handler.Job{
		ID: j.ID.String(), RootID: j.Root.String(), Kind: j.Kind, Domain: j.Domain, Executor: j.Executor,
		Attempt: int(j.Attempts) + 1, MaxAttempts: int(j.MaxAttempts), Priority: int(j.Priority),
		EnqueuedAt: j.EnqueuedAt, LeaseUntil: j.LeaseUntil, SourceRef: j.SourceRef, TargetRef: j.TargetRef,
		PayloadRef: j.PayloadRef, IdempotencyKey: j.IdempotencyKey, CorrelationID: j.CorrelationID, Payload: payload,
	}
}
