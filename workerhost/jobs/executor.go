package jobs

// This file is the loop, and its workers: one goroutine per place, the handler
// contained, the outcome sorted into a result.

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

// executor is one run of the loop.
type executor struct {
	*state
	turn     *turn // to claim
	results  *results
	leases   *leases
	standing *standing
	crew     *crew
	suspects *suspects
	look     bool // there may be work to claim; the owner's
}

// Run is the body of the loop.
func (x *Executor) Run(ctx context.Context, l *loop.Loop) error {
	s := &state{Executor: x, l: l, kinds: x.Kinds(), began: time.Now(), pace: loop.NewPace(50*time.Millisecond, 6), stock: newStock()}
	e := &executor{state: s, look: true}
	e.turn = &turn{state: s, fetched: make(chan *fetch, mostFetched), soon: time.NewTimer(0)}
	e.results = newResults(s, e.turn.later)
	e.leases = &leases{state: s, results: e.results, kept: make(chan struct{}, 1)}
	e.standing = &standing{state: s, told: make(chan answer, 1)}
	e.crew = &crew{state: s, results: e.results, runner: handler.Runner{Log: x.Log, Grace: func() time.Duration { return l.Left() / 2 }}}
	e.suspects = &suspects{state: s, results: e.results}
	e.crew.working, e.crew.halt = context.WithCancel(context.WithoutCancel(ctx))
	killed, kill := context.WithCancel(context.WithoutCancel(ctx))
	e.crew.working, e.crew.kill = handler.WithKill(e.crew.working, killed), kill
	x.Producer.Attach(e.turn)
	defer e.finish(ctx) // also after a panic of run
	return e.run(ctx)
}

// run owns the loop until ctx ends, or until it drains and nothing is open.
func (e *executor) run(ctx context.Context) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	drain := e.l.Draining()
	draining := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
			e.results.handBack(append(e.stock.clear(), e.suspects.clear()...))
		case <-e.l.Kicked():
			e.look = true
			e.standing.soon()
		case <-poll.C:
			poll.Reset(jobPoll)
			e.look = true
		case <-e.turn.soon.C:
			e.look = true
		case f := <-e.turn.fetched:
			e.stockUp(f, draining || ctx.Err() != nil)
		case a := <-e.standing.told:
			e.look = e.standing.take(a) || e.look
			if a.err == nil && a.Lease > 0 {
				e.leases.shorten(a.Lease)
			}
		case <-e.leases.kept:
			e.leases.keeping = false
		case <-keep.C:
			e.leases.keep(ctx)
			e.standing.beat(ctx)
		}
		e.standing.ask(ctx)
		claiming := e.turn.allow(!draining && e.standing.good() && !e.results.stuck() && !e.suspects.hold())
		if r := e.suspects.next(claiming); r != nil {
			e.stock.put([]*run{r})
			e.crew.staff()
		}
		if draining && !claiming && e.open.Load() == 0 {
			return nil
		}
		if e.look {
			e.look = !e.turn.fetch(ctx, e.leases.tokens)
		}
		e.l.SetInFlight(int(e.open.Load()))
	}
}

// stockUp takes what a claim brought. late: nothing may start any more.
func (e *executor) stockUp(f *fetch, late bool) {
	if !f.with || len(f.jobs) > 0 { // one that goes with jobs does not look for others
		e.l.Looked(len(f.jobs) > 0)
	}
	if f.err != nil {
		e.l.Erred(f.err)
		e.l.Log.Warn("claim failed", "error", f.err.Error())
		return // the poll tries again
	}
	if len(f.jobs) == f.claim.Most || f.claim.After != nil {
		e.look = true // for more, or for what came in late and stands before the keys: retries, higher priorities, old transactions
	}
	if len(f.jobs) == 0 {
		e.l.Ticked(0, jobPoll)
		return
	}
	runs := e.leases.take(f)
	if late {
		e.results.handBack(runs)
		return
	}
	if runs = e.suspects.sift(runs); len(runs) > 0 {
		e.stock.put(runs)
		e.crew.staff()
	}
}

// finish ends what the loop left: results are recorded, jobs without one go back.
// Handlers are cancelled and have half of what is left to return (Loop.Left); their
// commands are killed a little before that.
func (e *executor) finish(ctx context.Context) {
	e.Producer.Detach(e.turn)
	e.crew.halt()
	left := e.l.Left()
	killing := time.AfterFunc(left*3/8, e.crew.kill)
	defer killing.Stop()
	defer e.crew.kill()
	hangs := time.After(left / 2) // somebody's connection
	for e.turn.allow(false) {
		select {
		case f := <-e.turn.fetched:
			e.stockUp(f, true)
			continue
		case <-hangs:
		}
		break
	}
	e.turn.leave()
	for len(e.turn.fetched) > 0 {
		e.stockUp(<-e.turn.fetched, true)
	}
	e.results.handBack(append(e.stock.close(), e.suspects.clear()...))
	e.crew.places.Wait()
	e.crew.runner.Close()
	e.errands.Wait()
	e.results.close(time.Now().Add(e.l.Left() * 2 / 3))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.l.Left()/2)
	defer cancel()
	e.l.SetInFlight(0)
	if e.turn.inDoubt() {
		if err := e.turn.settleDoubt(last, e.leases.tokens()); err != nil {
			e.l.Log.Warn("jobs may have been claimed of which no answer arrived; their leases will expire", "error", err.Error())
		}
	}
	e.standing.stopped(ctx)
}

// crew is the workers.
type crew struct {
	*state
	results *results
	runner  handler.Runner
	working context.Context //nolint:containedctx // of the handlers; outlives the loop's by the drain
	halt    context.CancelFunc
	kill    context.CancelFunc // what handlers run as a process, however much of its grace is left
	workers int
	places  sync.WaitGroup
}

// staff has as many workers as there are jobs, at most one per place.
func (c *crew) staff() {
	for ; c.workers < min(c.Concurrency, int(c.open.Load())); c.workers++ {
		c.places.Go(func() {
			for r := c.stock.take(); r != nil; r = c.stock.take() {
				c.work(r)
			}
		})
	}
}

// work runs the handler and sorts its outcome.
func (c *crew) work(r *run) {
	if c.results.stuck() {
		c.results.handBack([]*run{r})
		return
	}
	ctx := r.begin(c.working, c.Timeout, c.clock(), c.ticks.Load())
	var err error
	switch {
	case ctx == nil:
	case r.job.Payload == nil:
		err = c.workOnLong(ctx, r)
	default:
		err = c.runner.Run(ctx, c.Handlers[r.job.Kind], handlerJob(r.job, r.job.Payload))
	}
	switch lost, known := r.end(); {
	case lost && (known || ctx == nil || err != nil):
		c.results.drop(r)
		c.results.settle([]*run{r})
	case err == nil:
		r.outcome = succeeded
		c.results.acks.Add(r)
	case c.working.Err() != nil, errors.Is(err, errNotBegun): // that says nothing about the job
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

// errNotBegun is the end of a job whose payload could not be read for now.
var errNotBegun = errors.New("not begun")

// workOnLong reads the payload of a job, within the budget of the host, and runs its
// handler.
func (c *crew) workOnLong(ctx context.Context, r *run) (err error) {
	held := true
	read := func(ctx context.Context, most int64) (p work.Payload, err error) {
		p, held, err = c.Client.JobPayload(ctx, r.ref(), most)
		return p, err
	}
	cannot := c.Budget.Use(ctx, read, func(p work.Payload) {
		switch {
		case !held:
			r.lose(true)
		case !p.Readable:
			err = handler.Permanent(handler.Coded("PAYLOAD_UNREADABLE", errors.New("not run: "+lease.Unreadable)))
		default:
			err = c.runner.Run(ctx, c.Handlers[r.job.Kind], handlerJob(r.job, p.Text))
		}
	})
	switch {
	case cannot == nil:
		return err
	case ctx.Err() != nil || pgerror.Retryable(cannot):
		return errNotBegun
	}
	return handler.Coded("PAYLOAD_UNREADABLE", cannot)
}

// handlerJob is the job as a handler sees it.
func handlerJob(j *work.Job, payload []byte) handler.Job {
	return handler.Job{
		ID: j.ID.String(), RootID: j.Root.String(), Kind: j.Kind, Domain: j.Domain, Executor: j.Executor,
		Attempt: int(j.Attempts) + 1, MaxAttempts: int(j.MaxAttempts), Priority: int(j.Priority),
		EnqueuedAt: j.EnqueuedAt, LeaseUntil: j.LeaseUntil, SourceRef: j.SourceRef, TargetRef: j.TargetRef,
		PayloadRef: j.PayloadRef, IdempotencyKey: j.IdempotencyKey, CorrelationID: j.CorrelationID, Payload: payload,
	}
}
