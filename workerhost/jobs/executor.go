package jobs

// This file is the loop.

import (
	"context"
	"sync"
	"time"

	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// executor is one run of the loop.
type executor struct {
	*state
	stock    *stock
	turn     *turn // to claim
	results  *results
	leases   *leases
	standing *standing
	crew     *crew
	errands  sync.WaitGroup // claims, standings, renewals
	look     bool           // there may be work to claim; the owner's
}

// Run is the body of the loop.
func (x *Executor) Run(ctx context.Context, l *loop.Loop) error {
	s := &state{Executor: x, l: l, kinds: x.Kinds(), began: time.Now()}
	e := &executor{state: s, stock: newStock(), look: true}
	e.turn = &turn{state: s, stock: e.stock, errands: &e.errands, fetched: make(chan *fetch, mostFetched), soon: time.NewTimer(0)}
	e.results = newResults(s, e.turn.later)
	e.leases = &leases{state: s, results: e.results, stock: e.stock, errands: &e.errands, kept: make(chan struct{}, 1)}
	e.standing = &standing{state: s, errands: &e.errands, told: make(chan answer, 1)}
	e.crew = &crew{state: s, stock: e.stock, results: e.results, runner: handler.Runner{Log: x.Log, Grace: lease.HandBack / 2}}
	e.crew.working, e.crew.halt = context.WithCancel(context.WithoutCancel(ctx))
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
			e.results.handBack(e.stock.clear())
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
		claiming := e.turn.allow(!draining && e.standing.good())
		if draining && !claiming && e.open.Load() == 0 {
			return nil
		}
		if e.look {
			e.look = !e.turn.fetch(ctx)
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
	e.stock.put(runs)
	e.crew.staff()
}

// finish ends what the loop left: results are recorded, jobs without one go back.
// Handlers are cancelled and have half of lease.HandBack to return.
func (e *executor) finish(ctx context.Context) {
	e.Producer.Detach(e.turn)
	e.crew.halt()
	hangs := time.After(lease.HandBack / 2) // somebody's connection
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
	e.results.handBack(e.stock.close())
	e.crew.places.Wait()
	e.crew.runner.Close()
	e.errands.Wait()
	e.results.close(time.Now().Add(lease.HandBack / 2))
	e.l.SetInFlight(0)
	e.standing.stopped(ctx)
}
