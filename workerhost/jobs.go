package workerhost

// This file is the job executor: claim, hand out, report. One goroutine owns the
// loop and never waits for the database: what it asks for comes back as an event.
// A claim has committed before a job is handed out, every result is fenced by its
// lease token, and what is unfinished at the end is handed back at once.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost/handler"
)

const (
	// jobPoll is the floor under the wakes.
	jobPoll = time.Second
	// standingEvery is how often the executor's standing is asked for. While it is
	// refused nothing else is asked.
	standingEvery = 5 * time.Second
	// keepEvery is how often leases, slow jobs and the beat are looked after.
	keepEvery = 250 * time.Millisecond
	// slowTicks × keepEvery is how long a job runs before the database is told that
	// it does; most are finished before.
	slowTicks = 4
)

// executor is the state of one run of the loop. What is not marked is the owner's.
type executor struct {
	h      *Host
	l      *loop
	id     string
	kinds  []string
	runner handler.Runner
	began  time.Time // zero of the local clock
	stock  *stock
	pace   *pace
	leases []*jobLease // with jobs that are not settled
	turn   turn        // to claim

	look     bool // there may be work to claim
	standing pgclient.JobStanding
	known    bool // standing has been asked for
	asking   bool
	asked    time.Time
	askBy    time.Time // when to ask again
	beaten   time.Time
	beatBy   time.Duration // 0 = it cannot beat
	keeping  bool
	worked   int64 // jobs done at the last beat
	workedAt time.Time

	fetched chan *fetch   // what claims brought
	told    chan standing // what the executor asked for; size 1, as the next
	kept    chan struct{} // leases were looked after
	open    atomic.Int64  // claimed and not settled
	ticks   atomic.Int64  // of keepEvery
	acks    *jobSink      // results, by what is done with them
	fails   *jobSink
	returns *jobSink

	working context.Context //nolint:containedctx // of the handlers; outlives the loop's by the drain
	halt    context.CancelFunc
	crew    sync.WaitGroup // workers
	errands sync.WaitGroup // claims, standings, renewals
	workers int
}

func (h *Host) execute(ctx context.Context, l *loop) error {
	e := &executor{
		h: h, l: l, id: h.opts.Executor, kinds: h.jobKinds(), runner: handler.Runner{Log: h.log, Grace: handBackTime / 2}, began: time.Now(),
		stock: newStock(), pace: &pace{}, look: true, turn: turn{soon: time.NewTimer(0)},
		fetched: make(chan *fetch, mostFetched), told: make(chan standing, 1), kept: make(chan struct{}, 1),
	}
	e.working, e.halt = context.WithCancel(context.WithoutCancel(ctx))
	e.sinks()
	h.client.Ringer().Attach(e)
	defer e.finish(ctx) // also after a panic of run
	return e.run(ctx)
}

// run owns the loop until ctx ends, or until it drains and nothing is open.
func (e *executor) run(ctx context.Context) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	drain := e.l.draining()
	draining := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
			e.handBack(e.stock.clear())
		case <-e.l.kick:
			e.look = true
			e.askBy = e.asked.Add(jobPoll) // a rule may have changed
		case <-poll.C:
			poll.Reset(jobPoll)
			e.look = true
		case <-e.turn.soon.C:
			e.look = true
		case f := <-e.fetched:
			e.stockUp(f, draining || ctx.Err() != nil)
		case s := <-e.told:
			e.stand(s)
		case <-e.kept:
			e.keeping = false
		case <-keep.C:
			e.keep(ctx)
		}
		e.ask(ctx)
		claiming := e.turn.may(!draining && e.known && e.standing.Refusal == "")
		if draining && !claiming && e.open.Load() == 0 {
			return nil
		}
		e.fetch(ctx)
		e.l.setInFlight(int(e.open.Load()))
	}
}

// finish ends what the loop left: results are recorded, jobs without one go back.
// Handlers are cancelled and have half of handBackTime to return.
func (e *executor) finish(ctx context.Context) {
	e.h.client.Ringer().Detach(e)
	e.halt()
	hangs := time.After(handBackTime / 2) // somebody's connection
	for e.turn.may(false) {
		select {
		case f := <-e.fetched:
			e.stockUp(f, true)
			continue
		case <-hangs:
		}
		break
	}
	e.turn.leave()
	for len(e.fetched) > 0 {
		e.stockUp(<-e.fetched, true)
	}
	e.handBack(e.stock.close())
	e.crew.Wait()
	e.runner.Close()
	e.errands.Wait()
	sinks := []*jobSink{e.acks, e.fails, e.returns}
	late := time.AfterFunc(handBackTime/2, func() {
		for _, s := range sinks {
			s.giveUp()
		}
	})
	defer late.Stop()
	for _, s := range sinks {
		s.close()
	}
	e.l.setInFlight(0)
	if e.beatBy > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := e.h.client.ExecutorBeat(ctx, e.id, e.h.workerID(), e.beat("stopped")); err != nil {
			e.l.log.Warn("the executor could not say that it stopped", "executor", e.id, "error", err.Error())
		}
	}
}

// clock is the local time since the loop began; no change of the wall clock moves
// it.
func (e *executor) clock() time.Duration { return time.Since(e.began) }
