// Package workerhost is the one external orchestrator of DP1 §4.1 layer 1: it
// ticks every worker of the catalogue, sends the webhooks, and says that it
// lives. It runs inside the console or alone; any number of hosts share one
// database and none of them leads. It knows nothing of terminals.
//
// The catalogue lists the loops and whom each hands work to; package loop is the
// life of one, jobs and webhooks are the bodies of the two that claim, lease is what
// those share, and tick.go is the body of all others.
package workerhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/jobs"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
	"github.com/qtop/qtop/workerhost/webhooks"
)

// Options configures a Host.
type Options struct {
	ID          string // host_id: one live instance may hold it
	Version     string
	Loops       []string // started by Run; nil = all, empty = none
	Concurrency int      // webhook requests in flight, and jobs at work; default 64
	PerEndpoint int      // webhook requests in flight per endpoint; default 8
	Grace       time.Duration
	// Handlers work on jobs, by job kind; a kind without one is never claimed. The
	// names of the tick workers are built in and cannot be given.
	Handlers map[string]handler.Handler
	// Executor is the executor id that the host claims jobs as; default ID. Hosts
	// may share one.
	Executor   string
	JobTimeout time.Duration // of one try; default 1 h, negative = as long as its lease can be renewed
	// Producer puts jobs into the queue for the writers of this process: the host claims
	// in the transaction of theirs, where it has a place. Default: one that nobody uses.
	Producer *enqueue.Producer
	// Operator is who runs the console beside the host: the row of the host names them
	// when its loops are ended there.
	Operator string
	Log      *slog.Logger
	Sender   *sender.Sender
	Secrets  *sender.Secrets
}

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

	ending   atomic.Pointer[time.Time]       // when its end began; nil while it works
	base     atomic.Pointer[context.Context] // of the loops; nil when Run does not run: Start is called from outside it
	listener atomic.Pointer[pgclient.Listener]
	deaf     atomic.Bool // no wakes arrive, and the log says so
}

// New prepares a host; Run makes it work.
func New(c *pgclient.Client, o Options) (*Host, error) {
	if c.Work() == nil {
		return nil, errors.New("workerhost: the client has no work pool (Options.WorkConns)")
	}
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), 64)
	o.PerEndpoint = cmp.Or(max(o.PerEndpoint, 0), 8)
	o.Grace = cmp.Or(max(o.Grace, 0), 20*time.Second)
	o.JobTimeout = cmp.Or(o.JobTimeout, time.Hour) // what hangs would keep its place and its job for ever
	o.Executor = cmp.Or(o.Executor, o.ID)
	if o.Producer == nil {
		o.Producer = enqueue.New(c)
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	db := work.New(c)
	handlers, err := withBuiltIn(db, o.Handlers)
	if err != nil {
		return nil, err
	}
	instance := uuid.New()
	workerID := o.ID + "/" + instance.String()[:8] // names this host in leases and logs
	log := o.Log.With("worker_id", workerID)
	all := newLoops(log)
	h := &Host{opts: o, client: c, log: log, loops: all, settings: settings{pool: c.Work(), loops: all, changed: make(chan struct{}, 1)}}
	listens := make(chan struct{})
	h.signals.loops, h.signals.settings, h.signals.listens = all, &h.settings, listens
	h.ticker = ticker{listens: listens, client: db, loops: all, settings: &h.settings, log: log, outcomes: o.Log}
	budget := lease.NewBudget()
	h.jobs = jobs.Executor{
		Client: db, Budget: budget, Producer: o.Producer, ID: o.Executor, Worker: workerID, Concurrency: o.Concurrency, Timeout: o.JobTimeout, Handlers: handlers, Log: log,
		OnFailed: func() { all.handOn(loopJobs, map[string]int64{"failed": 1}) },
	}
	h.row = registration{
		client: c, db: db, id: o.ID, instance: instance, version: o.Version, operator: o.Operator, loops: all, jobs: &h.jobs, log: log, soon: make(chan struct{}, 1),
	}
	h.row.refused.Store(new(string))
	h.webhooks = webhooks.Worker{
		Client: db, Budget: budget, ID: workerID, Concurrency: o.Concurrency, PerEndpoint: o.PerEndpoint, Sender: o.Sender, Secrets: o.Secrets, Log: log,
		Every:    func() time.Duration { return h.settings.every(loopWebhook) },
		OnReported: func() { all.handOn(loopWebhook, map[string]int64{"reported": 1}) },
		OnUnsigned: h.row.beatNow,
	}
	for _, name := range o.Loops {
		if all.get(name) == nil {
			return nil, queue.NewError(queue.KindConfig, "there is no loop "+name, "loops", "known: "+fmt.Sprint(LoopNames()))
		}
	}
	return h, nil
}

// Run starts the loops that the options name, beats while any loop runs, and
// when ctx ends drains within the grace time, hands back the rest and says
// goodbye, with the cause of that end (context.Cause) as the reason of its stop. A
// host that runs nothing stays unannounced. It fails when another live instance holds
// the host id, as soon as that one has given a sign of life; one that crashed gives way.
func (h *Host) Run(ctx context.Context) error {
	// The loops and the beats outlive ctx: they drain before they are cancelled,
	// and a host that drains still lives.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	h.base.Store(&base)
	err := h.startWanted(ctx)
	if err == nil {
		h.background.Go(func() { h.beatUntil(base) })
		h.background.Go(func() { h.settings.watch(base) })
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil
	}
	h.base.Store(nil) // nothing starts from here on
	h.drainWithin(base)
	cancel()
	h.row.engaging.Lock()
	h.row.engaging.Unlock() //nolint:staticcheck // SA2001: whoever was starting loops has done so
	h.drainAll(base, h.endBegan().Add(h.opts.Grace+handBackSpare))
	h.background.Wait()
	h.row.goodbye(ctx, h.endBegan().Add(h.opts.Grace+goodbyeSpare))
	h.listener.Store(nil)
	return err
}

// The end of a host is bounded, whatever the database, the network or a handler does.
// From its beginning, with grace the grace time:
//
//  1. until grace less a quarter of it, 5 s at most, the loops drain: they take nothing
//     new and finish what they have;
//  2. until grace + handBackSpare they are stopped: requests and handlers are
//     cancelled, and in the second half of that time, when handlers have returned or
//     are abandoned and commands are killed, results are recorded and the rest is
//     handed back;
//  3. until grace + goodbyeSpare the host says that it stopped.
//
// What the database does not hear by then, it learns from leases that expire. The
// connections are closed within half a second more (pgclient.Client.Close).
const (
	handBackSpare = 500 * time.Millisecond
	goodbyeSpare  = time.Second
)

// endBegan is when the end of the host began: now, unless it has begun already.
func (h *Host) endBegan() time.Time {
	now := time.Now()
	h.ending.CompareAndSwap(nil, &now)
	return *h.ending.Load()
}

// drainWithin drains all loops within the grace time and stops what that does not
// finish.
func (h *Host) drainWithin(ctx context.Context) {
	began := h.endBegan()
	ctx, cancel := context.WithDeadline(ctx, began.Add(h.opts.Grace-min(h.opts.Grace/4, loop.HandBackTime)))
	defer cancel()
	h.drainAll(ctx, began.Add(h.opts.Grace+handBackSpare))
}

// startWanted starts the loops of the options and waits for a database that is
// away.
func (h *Host) startWanted(ctx context.Context) error {
	names := h.opts.Loops
	if names == nil {
		names = LoopNames()
	}
	if len(names) == 0 {
		return nil
	}
	var sign string // of the instance that holds the id
	var since time.Time
	for away := 100 * time.Millisecond; ; {
		err := h.startLoops(ctx, names)
		wait := away
		switch held := h.heldBy(); {
		case err == nil:
			return nil
		case queue.KindOf(err) == queue.KindUnavailable:
			h.log.Warn("the database is away, the host waits", "error", err.Error())
			away = min(2*away, 5*time.Second)
		case held != "" && sign == "":
			h.log.Warn("the host waits: the one that holds its id may have crashed", "reason", err.Error())
			sign, since, wait = held, time.Now(), heldAgain
		case held != "" && sign == held && time.Since(since) < heldFor:
			wait = heldAgain
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

// heldBy is a sign of life of the instance that holds the host id instead of this one.
func (h *Host) heldBy() string {
	h.row.engaging.Lock()
	defer h.row.engaging.Unlock()
	return h.row.sign
}

// startLoops takes the host id and starts those of the loops that do not run.
func (h *Host) startLoops(ctx context.Context, names []string) error {
	h.row.engaging.Lock()
	defer h.row.engaging.Unlock()
	base := h.base.Load()
	if base == nil {
		return errors.New("the worker host of this process is not running")
	}
	if err := h.engage(ctx, *base); err != nil {
		return err
	}
	for _, name := range names {
		l := h.loops.get(name)
		if st := l.Status().State; st == loop.Running || st == loop.Draining {
			continue
		}
		h.ending.Store(nil)
		if err := l.Start(*base, h.body(name)); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) body(name string) loop.Body {
	switch name {
	case loopWebhook:
		return h.webhooks.Run
	case loopJobs:
		return h.jobs.Run
	}
	return h.ticker.run
}

// engage takes the host id and starts to listen, once. row.engaging is held.
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
	l, err := h.client.NewListener("wake", h.signals.hear, h.signals.resync)
	if err != nil {
		return err
	}
	l.Tell(h.heard)
	h.listener.Store(l)
	h.background.Go(func() { l.Run(base) })
	return nil
}

// heard logs that wakes arrive no more, or again: without them the loops look at
// their intervals alone.
func (h *Host) heard(s queue.ListenerStatus) {
	switch s.State {
	case "listening":
		if h.deaf.Swap(false) {
			h.log.Info("wakes arrive again", "channels", s.Channels)
		}
	case "polling", "lost":
		h.deaf.Store(true)
		h.log.Warn("no wakes arrive: the host polls", "reason", s.Reason.String())
	}
}

// beatUntil beats until ctx ends.
func (h *Host) beatUntil(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		h.row.beat(ctx)
		select {
		case <-ctx.Done():
			return
		case <-h.row.soon:
		case <-t.C:
		}
	}
}

// Shutdown drains every loop within the grace time; what that, or ctx, does not wait
// for is stopped and handed back at once. Then the host row says that it stopped.
func (h *Host) Shutdown(ctx context.Context) error {
	h.drainWithin(ctx)
	h.row.goodbye(ctx, h.endBegan().Add(h.opts.Grace+goodbyeSpare))
	return nil
}

// drainAll drains every loop; when ctx ends, those that have not ended are stopped, to
// have returned by then.
func (h *Host) drainAll(ctx context.Context, by time.Time) {
	for _, l := range h.loops {
		l.Drain()
	}
	for _, l := range h.loops {
		select {
		case <-l.Ended():
		case <-ctx.Done():
			for _, l := range h.loops {
				l.Stop(by) // together: their hand backs share the time
			}
			<-l.Ended()
		}
	}
}
