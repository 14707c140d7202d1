// Package workerhost works on jobs, sends webhooks and runs the tick workers: it is the one
// external orchestrator of DP1 §4.1 layer 1. A host runs inside the console, as the command qtop
// worker, or in your own process. Any number of hosts share one database, and none of them leads.
//
// Start from [Host]: [New] prepares one from a pgclient.Client and [Options], [Host.Run] makes it
// work until its context ends, then drains it. To work on jobs, four things are needed:
//
//  1. A registered executor with a job subscription for the kind, once per database: qtop
//     executor register and qtop executor subscribe. [Options.Executor] is its id.
//  2. A handler per kind in [Options.Handlers]: see package handler.
//  3. pgclient.Options.WorkConns, the connections of the host, such as 4.
//  4. A login that is a member of dot_executor and of the executor's owner role; for the loop
//     webhook_worker also of webhook_worker. Every other loop needs dot_executor alone.
//
// [Options.Loops] chooses the loops of the host. A program that only works on its jobs runs
// job_executor, job_queue_default and lease_reaper; some other host, such as qtop worker, has to
// run the other loops. A loop whose passes fail goes on running, and its host is ready: the
// reason is LastErr of the loop in [Host.Status], and in the log. See [Host.Ready].
//
// The console controls the host of its process with [Host.Start], [Host.Drain], [Host.Stop] and
// [Host.Status].
//
// The parts:
//
//   - catalogue.go lists the loops and which loop passes work to which.
//   - Package loop starts, wakes, drains and stops one loop. The body of the webhook loop is in
//     package webhooks, the body of the job loop in package jobs (both use package lease). All
//     other loops have the body in tick.go.
//   - register.go holds the host id: one row of queue_host, one live instance.
//   - wake.go turns wake signals of the database into checks of the loops.
//
// Invariants: no loop runs in a host that does not hold its host id; the database decides which
// work is due; a lost wake signal costs latency only; the end of a host takes a bounded time: at
// most a second and a half longer than [Options.Grace].
package workerhost

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/jobs"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
	"github.com/qtop/qtop/workerhost/webhooks"
)

// Host runs loops over one database.
type Host struct {
	opts     Options
	client   *pgclient.Client
	log      *slog.Logger
	settings settings
	loops    loops
	row      registration
	signals  signals
	ticker   ticker
	jobs     jobs.Executor
	webhooks webhooks.Worker

	background sync.WaitGroup
	inRun      atomic.Bool // Run has not returned

	ending    atomic.Pointer[time.Time]       // when the host began to end; nil before that
	waits     atomic.Pointer[string]          // why its loops have not started yet; nil: it does not wait
	base      atomic.Pointer[context.Context] // the context of the loops; nil while Run does not run, when Start fails
	listener  atomic.Pointer[pgclient.Listener]
	wakesLost atomic.Bool // the listener receives no wake signals, and this was logged
}

// New prepares a host; Run starts its work. New fails if the client has no work pool, if the producer
// has another client, or with the error of Check.
func New(c *pgclient.Client, o Options) (*Host, error) {
	if c.Work() == nil {
		return nil, queue.NewError(queue.KindConfig, "the client has no work pool", "host "+o.ID, "set pgclient.Options.WorkConns, such as 4")
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), 64)
	o.PerEndpoint = cmp.Or(max(o.PerEndpoint, 0), 8)
	o.Grace = cmp.Or(max(o.Grace, 0), 20*time.Second)
	o.JobTimeout = cmp.Or(o.JobTimeout, time.Hour) // without a limit, a handler that hangs would keep its slot and its job for ever
	o.Executor = cmp.Or(o.Executor, o.ID)
	if o.Producer == nil {
		o.Producer = enqueue.New(c)
	} else if o.Producer.Client() != c { // its claims would not be found again: fn_job_claim_lost looks for this client's sessions
		return nil, queue.NewError(queue.KindConfig, "the producer has another pgclient.Client", "host "+o.ID, "make it with enqueue.New of the host's client, or leave Options.Producer out")
	}
	if o.Sender == nil {
		o.Sender = sender.New(sender.Config{Version: o.Version, Concurrency: o.Concurrency})
	}
	o.Log = quieten(cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
	db := work.New(c)
	handlers := withBuiltIn(db, o.Handlers)
	instance := uuid.New()
	workerID := o.ID + "/" + instance.String()[:8] // names this host in leases and logs
	log := o.Log.With("worker_id", workerID)
	all := newLoops(log)
	h := &Host{opts: o, client: c, log: log, loops: all, settings: settings{pool: c.Work(), loops: all, changed: make(chan struct{}, 1)}}
	listening := make(chan struct{})
	h.signals.loops, h.signals.settings, h.signals.listening = all, &h.settings, listening
	h.ticker = ticker{listening: listening, client: db, loops: all, settings: &h.settings, log: log, outcomeLog: o.Log}
	h.jobs = jobs.Executor{
		Client: db, Budget: lease.NewBudget(), Producer: o.Producer, ID: o.Executor, Worker: workerID, Concurrency: o.Concurrency, Timeout: o.JobTimeout, Handlers: handlers, Log: log,
		OnFailed: func() { all.notifyNext(loopJobs, map[string]int64{"failed": 1}) },
	}
	h.row = registration{
		engaging: make(gate, 1),
		client:   c, db: db, id: o.ID, instance: instance, version: o.Version, operator: o.Operator, loops: all, jobs: &h.jobs, secrets: o.Secrets, log: log, logReturned: h.ticker.logOutcomes, clockStepped: h.ticker.calls.clockStepped, heartbeatRequested: make(chan struct{}, 1),
	}
	h.row.refused.Store(new(string))
	h.webhooks = webhooks.Worker{
		Client: db, Budget: lease.NewBudget(), ID: workerID, Concurrency: o.Concurrency, PerEndpoint: o.PerEndpoint, Sender: o.Sender, Secrets: o.Secrets, Log: log,
		Every:      func() time.Duration { return h.settings.every(loopWebhook) },
		OnReported: func() { all.notifyNext(loopWebhook, map[string]int64{"reported": 1}) },
		OnUnsigned: h.row.heartbeatNow,
	}
	return h, nil
}

// Run starts the loops that the options name and records a heartbeat while any loop runs. When
// ctx ends, Run drains the loops within the grace time, hands back unfinished work and records
// the stop, with context.Cause(ctx) as the reason, and returns nil. A host without running loops has
// no host row.
// If another instance has the host id, Run waits: it fails when that instance records a further
// heartbeat, and takes over the id of an instance that has crashed. Run may be called again when it has
// returned; before that, it fails.
func (h *Host) Run(ctx context.Context) error {
	if !h.inRun.CompareAndSwap(false, true) {
		return queue.NewError(queue.KindFailed, "Run of this host has not returned yet", "host "+h.opts.ID, "call it again when it has returned, or make another host with New")
	}
	defer h.inRun.Store(false)
	// The loops and the heartbeat continue after the end of ctx: the loops drain before they are
	// cancelled, and a draining host is still alive.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	h.base.Store(&base)
	err := h.startConfigured(ctx)
	if err == nil {
		h.background.Go(func() { h.heartbeatUntil(base) })
		h.background.Go(func() { h.settings.watch(base) })
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil
	}
	h.base.Store(nil) // from here on no loop can start
	began := h.endBegan()
	h.drainInGrace(base, began)
	cancel()
	h.row.engaging.Lock()
	h.row.engaging.Unlock() //nolint:staticcheck // SA2001: waits for a startLoops that is under way
	h.drainAll(base, began.Add(h.opts.Grace+handBackSpare))
	h.forgetExecutor()
	h.background.Wait()
	h.row.goodbye(ctx, began.Add(h.opts.Grace+goodbyeSpare))
	h.listener.Store(nil)
	h.opts.Sender.CloseIdle()
	return err
}

// The end of a host takes a bounded time, whatever the database, the network or a handler does.
// The times below are counted from the beginning of the end; grace is the grace time:
//
//  1. Until grace minus a quarter of grace (at most 5 s) the loops drain: they take no new work
//     and finish the current work.
//  2. Until grace + handBackSpare the loops are stopped: requests and handlers are cancelled. In
//     the second half of that time, when handlers have returned or are abandoned and commands are
//     killed, results are recorded and unfinished work is handed back.
//  3. Until grace + goodbyeSpare the host records that it stopped.
//
// If work could not be handed back by then, its lease expires and another host gets the work. The
// connections are closed within another half a second (pgclient.Client.Close).
const (
	handBackSpare = 500 * time.Millisecond
	goodbyeSpare  = time.Second
)

// endBegan returns when the end of the host began. The first call sets that time to now. A start of
// loops resets it at any moment, so an end calls it once.
func (h *Host) endBegan() time.Time {
	now := time.Now()
	for !h.ending.CompareAndSwap(nil, &now) {
		if began := h.ending.Load(); began != nil {
			return *began
		}
	}
	return now
}

// drainInGrace drains all loops within the grace time since began and stops the loops that have not
// ended by then.
func (h *Host) drainInGrace(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithDeadline(ctx, h.drainedBy(began))
	defer cancel()
	h.drainAll(ctx, began.Add(h.opts.Grace+handBackSpare))
}

// drainedBy returns when a drain that began at that time gives up: loops that still work are then
// stopped.
func (h *Host) drainedBy(began time.Time) time.Time {
	return began.Add(h.opts.Grace - min(h.opts.Grace/4, loop.HandBackTime))
}

// startConfigured starts the loops of the options. It waits while the database is away, and
// while another instance that may have crashed has the host id.
func (h *Host) startConfigured(ctx context.Context) error {
	names := h.opts.Loops
	if names == nil {
		names = LoopNames()
	}
	if len(names) == 0 {
		return nil
	}
	defer h.waits.Store(nil)
	var otherSign string // last sign of life of the instance that has the id, when it was first seen
	var since time.Time
	for pause := 100 * time.Millisecond; ; {
		err := h.startLoops(ctx, names)
		wait := pause
		switch sign := h.heldBy(); {
		case err == nil:
			return nil
		case queue.KindOf(err) == queue.KindUnavailable:
			h.log.Warn("the database is unavailable: the host waits", "error", err.Error())
			h.waits.Store(new("waits for the database: " + err.Error()))
			pause = min(2*pause, 5*time.Second)
		case sign != "" && otherSign == "":
			h.log.Warn("another instance has the host id and may have crashed: the host waits", "reason", err.Error())
			otherSign, since, wait = sign, time.Now(), retryHeldID
		case sign != "" && otherSign == sign && time.Since(since) < waitForHeldID:
			wait = retryHeldID
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// heldBy returns the last sign of life of the other instance that has the host
// id; "" if no other instance has it.
func (h *Host) heldBy() string {
	h.row.engaging.Lock()
	defer h.row.engaging.Unlock()
	return h.row.sign
}

// startLoops takes the host id and starts those of the named loops that do not run.
func (h *Host) startLoops(ctx context.Context, names []string) error {
	h.row.engaging.Lock()
	defer h.row.engaging.Unlock()
	base := h.base.Load()
	if base == nil {
		return queue.NewError(queue.KindFailed, "the worker host of this process is not running", "", "")
	}
	if slices.Contains(names, loopJobs) {
		if err := h.checkExecutor(); err != nil {
			return err
		}
		if err := h.client.CanClaimJobs(ctx); err != nil {
			return err
		}
	}
	if err := h.engage(ctx, *base); err != nil {
		return err
	}
	if h.base.Load() == nil { // Run ended meanwhile
		return queue.NewError(queue.KindFailed, "the worker host of this process is ending", "", "")
	}
	for _, name := range names {
		l := h.loops.get(name)
		if st := l.Status().State; st == loop.Running || st == loop.Draining {
			continue
		}
		h.ending.Store(nil)
		start := func() error { return l.Start(*base, h.body(name)) }
		if name == loopJobs {
			start = func() error { return h.startJobs(*base, l) }
		}
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}

// body returns the body of any loop but job_executor: see startJobs.
func (h *Host) body(name string) loop.Body {
	if name == loopWebhook {
		return h.webhooks.Run
	}
	return h.ticker.run
}

// engage takes the host id and starts the listener for wake signals, unless
// that is done already. The caller holds row.engaging.
func (h *Host) engage(ctx, base context.Context) error {
	if !h.row.held {
		if err := h.row.announce(ctx); err != nil {
			return err
		}
		h.settings.refresh(ctx)
	}
	if h.listener.Load() != nil {
		return nil
	}
	l, err := h.client.NewListener("wake", h.signals.handle, h.signals.resync)
	if err != nil {
		return err
	}
	l.Tell(h.listenerChanged)
	h.listener.Store(l)
	h.background.Go(func() { l.Run(base) })
	return nil
}

// listenerChanged logs when wake signals stop and start to arrive. Without them the loops
// check for work at their intervals only.
func (h *Host) listenerChanged(s queue.ListenerStatus) {
	switch s.State {
	case "listening":
		if h.wakesLost.Swap(false) {
			h.log.Info("wake signals arrive again", "channels", s.Channels)
		}
	case "polling", "lost":
		h.wakesLost.Store(true)
		h.log.Warn("no wake signals arrive: the host polls", "reason", s.Reason.String())
	}
}

// heartbeatUntil records heartbeats until ctx ends.
func (h *Host) heartbeatUntil(ctx context.Context) {
	t := time.NewTicker(heartbeatInterval)
	defer t.Stop()
	for {
		h.row.heartbeat(ctx)
		select {
		case <-ctx.Done():
			return
		case <-h.row.heartbeatRequested:
		case <-t.C:
		}
	}
}

// Shutdown drains every loop within the grace time or until ctx ends, whichever is first. Loops
// that have not ended by then are stopped and return their claimed work to the queue. Then Shutdown records that
// the host stopped.
func (h *Host) Shutdown(ctx context.Context) error {
	began := h.endBegan()
	h.drainInGrace(ctx, began)
	h.row.goodbye(ctx, began.Add(h.opts.Grace+goodbyeSpare))
	return nil
}

// drainAll drains every loop. When ctx ends, the loops that have not ended are stopped and must
// return by deadline.
func (h *Host) drainAll(ctx context.Context, deadline time.Time) {
	for _, l := range h.loops {
		l.Drain()
	}
	for _, l := range h.loops {
		select {
		case <-l.Ended():
		case <-ctx.Done():
			for _, l := range h.loops {
				l.Stop(deadline) // stop all before waiting for any: they hand back their work in parallel
			}
			<-l.Ended()
		}
	}
}
