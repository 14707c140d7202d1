// Package workerhost is the one external orchestrator of DP1 §4.1 layer 1: it
// ticks every worker of the catalogue, sends the webhooks, and says that it
// lives. It runs inside the console or alone; any number of hosts share one
// database and none of them leads. It knows nothing of terminals.
package workerhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
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
	Log        *slog.Logger
	Sender     *sender.Sender
	Secrets    *sender.Secrets
}

// Host runs loops over one database.
type Host struct {
	opts     Options
	client   *pgclient.Client
	pool     *pgpool.Pool
	log      *slog.Logger
	instance uuid.UUID
	settings settings
	loops    []*loop
	handlers map[string]handler.Handler // with the built-in ones
	jobsDone [jobOutcomes]atomic.Int64
	late     spacing // looks for work that falls due
	reread   spacing // of the intervals, because of a signal

	// engaging is held while the host id is taken or given free and while loops
	// start, so that no running loop is ever without it.
	engaging   sync.Mutex
	background sync.WaitGroup

	mu       sync.Mutex
	base     context.Context //nolint:containedctx // of the loops; nil when Run does not run: Start is called from outside it
	listener *pgclient.Listener
	refused  string
	held     bool // the host row is ours

	beatSoon chan struct{} // of one
}

// beatEvery is how often a host says that it lives; after 15 s of silence
// another instance may take its id.
const beatEvery = 5 * time.Second

// New prepares a host; Run makes it work.
func New(c *pgclient.Client, o Options) (*Host, error) {
	if c.Work() == nil {
		return nil, errors.New("workerhost: the client has no work pool (Options.WorkConns)")
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	if o.PerEndpoint <= 0 {
		o.PerEndpoint = 8
	}
	if o.Grace <= 0 {
		o.Grace = 20 * time.Second
	}
	if o.JobTimeout == 0 {
		o.JobTimeout = time.Hour // what hangs would keep its place and its job for ever
	}
	if o.Executor == "" {
		o.Executor = o.ID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Host{beatSoon: make(chan struct{}, 1), opts: o, client: c, pool: c.Work(), instance: uuid.New()}
	h.log = o.Log.With("worker_id", h.workerID())
	var err error
	if h.handlers, err = h.withBuiltIn(o.Handlers); err != nil {
		return nil, err
	}
	for _, w := range catalogue() {
		h.loops = append(h.loops, newLoop(w, h.log))
	}
	for _, name := range o.Loops {
		if h.loop(name) == nil {
			return nil, &queue.Error{
				Kind: queue.KindConfig, What: queue.Clean("there is no loop " + name), Where: queue.Clean("loops"),
				Do: queue.Clean("known: " + fmt.Sprint(LoopNames())),
			}
		}
	}
	return h, nil
}

// workerID names this host in leases and logs.
func (h *Host) workerID() string { return h.opts.ID + "/" + h.instance.String()[:8] }

// Run starts the loops that the options name, beats while any loop runs, and
// when ctx ends drains within the grace time, hands back the rest and says
// goodbye. A host that runs nothing stays unannounced. It fails at once when
// another live instance holds the host id.
func (h *Host) Run(ctx context.Context) error {
	// The loops and the beats outlive ctx: they drain before they are cancelled,
	// and a host that drains still lives.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	h.mu.Lock()
	h.base = base
	h.mu.Unlock()
	err := h.startWanted(ctx)
	if err == nil {
		h.background.Go(func() { h.beatUntil(base) })
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil
	}
	h.mu.Lock()
	h.base = nil // nothing starts from here on
	h.mu.Unlock()
	grace, stop := context.WithTimeout(base, h.opts.Grace-min(h.opts.Grace/4, handBackTime))
	defer stop()
	h.drainAll(grace)
	cancel()
	h.engaging.Lock()
	h.engaging.Unlock() //nolint:staticcheck // SA2001: whoever was starting loops has done so
	h.drainAll(base)
	h.background.Wait()
	h.goodbye(ctx)
	h.mu.Lock()
	h.listener = nil
	h.mu.Unlock()
	return err
}

// handBackTime of the grace, or a quarter of it where that is less, is kept for
// handing back what the drain did not finish.
const handBackTime = 5 * time.Second

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
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := h.startLoops(ctx, names)
		if err == nil || queue.KindOf(err) != queue.KindUnavailable {
			return err
		}
		h.log.Warn("the database is away, the host waits", "error", err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// startLoops takes the host id and starts those of the loops that do not run.
func (h *Host) startLoops(ctx context.Context, names []string) error {
	h.engaging.Lock()
	defer h.engaging.Unlock()
	h.mu.Lock()
	base := h.base
	h.mu.Unlock()
	if base == nil {
		return errors.New("the worker host of this process is not running")
	}
	if err := h.engage(ctx, base); err != nil {
		return err
	}
	for _, name := range names {
		l := h.loop(name)
		if st := l.status().State; st == stateRunning || st == stateDraining {
			continue
		}
		if err := l.start(base, h.body(name)); err != nil {
			return err
		}
	}
	return nil
}

// engage takes the host id and starts to listen, once. engaging is held.
func (h *Host) engage(ctx, base context.Context) error {
	h.mu.Lock()
	held, listening := h.held, h.listener != nil
	h.mu.Unlock()
	if !held {
		if err := h.announce(ctx); err != nil {
			return err
		}
		h.settings.refresh(ctx, h.pool)
	}
	if listening {
		return nil
	}
	l, err := h.client.NewListener("wake", h.onWake, h.kickAll)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.listener = l
	h.mu.Unlock()
	h.background.Go(func() { l.Run(base) })
	return nil
}

// announce takes the host id, unless this program and the installed code do not
// fit; engaging is held.
func (h *Host) announce(ctx context.Context) error {
	if err := h.client.CheckSchema(ctx); err != nil {
		return err
	}
	if why, err := h.client.UnexpectedServer(ctx); err != nil || !why.Empty() {
		if err == nil {
			err = &queue.Error{Kind: queue.KindConfig, What: why, Where: queue.Clean("expect_server"), Do: queue.Clean("connect to the server that is meant")}
		}
		return err
	}
	refusal, err := h.client.HostRegister(ctx, h.opts.ID, h.instance.String(), h.opts.Version, h.running())
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.refused, h.held = refusal, refusal == ""
	h.mu.Unlock()
	if refusal != "" {
		where := "host_id"
		if cloned(refusal) {
			where = "database"
		}
		return &queue.Error{Kind: queue.KindFailed, What: queue.Clean(refusal), Where: queue.Clean(where)}
	}
	return nil
}

// cloned tells the refusal of a database that is a copy.
func cloned(refusal string) bool { return strings.HasPrefix(refusal, "CLONE OF ") }

// beatUntil beats and re-reads the intervals until ctx ends.
func (h *Host) beatUntil(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		h.beat(ctx)
		select {
		case <-ctx.Done():
			return
		case <-h.settings.stale():
		case <-h.beatSoon:
		case <-t.C:
		}
		h.settings.refresh(ctx, h.pool)
	}
}

// beatNow asks for a beat before its time.
func (h *Host) beatNow() {
	select {
	case h.beatSoon <- struct{}{}:
	default:
	}
}

func (h *Host) beat(ctx context.Context) {
	h.engaging.Lock()
	defer h.engaging.Unlock()
	st := h.Status()
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	switch {
	case !st.Running:
		h.release(ctx)
		h.mu.Lock()
		h.refused = "" // whoever starts a loop asks anew
		h.mu.Unlock()
		return
	case !held:
		// Another instance took the id while this one was silent; when that one
		// is gone the id is ours again.
		if err := h.announce(ctx); err != nil {
			return
		}
		h.log.Info("host id taken back")
	}
	progress := map[string]queue.LoopMark{}
	for _, l := range st.Loops {
		if l.State != stateStopped {
			m := queue.LoopMark{State: l.State, Done: l.Done, Errors: l.Errors, Unsigned: l.Unsigned}
			if !l.LastTick.IsZero() {
				at := l.LastTick
				m.LastTick = &at
			}
			if l.Name == loopJobs {
				m.Executor, m.Kinds = h.opts.Executor, h.jobKinds()
			}
			progress[l.Name] = m
		}
	}
	refusal, err := h.client.HostBeat(ctx, h.opts.ID, h.instance.String(), h.running(), st.InFlight, progress)
	switch {
	case err != nil && ctx.Err() == nil:
		h.log.Warn("the host could not beat", "error", err.Error())
	case refusal != "":
		// The leases still fence what both do, and a clone gives no work to anybody; the
		// operator is told.
		what := "host id lost"
		if cloned(refusal) {
			what = "this host has come to a clone of its database; it works again once that is adopted"
		}
		h.log.Error(what, "reason", refusal)
		h.mu.Lock()
		h.refused, h.held = refusal, false
		h.mu.Unlock()
	}
}

// Shutdown drains every loop; what ctx does not wait for is stopped and handed
// back at once. Then the host row says that it stopped.
func (h *Host) Shutdown(ctx context.Context) error {
	h.drainAll(ctx)
	h.goodbye(ctx)
	return nil
}

func (h *Host) drainAll(ctx context.Context) {
	for _, l := range h.loops {
		l.drainNow()
	}
	for _, l := range h.loops {
		select {
		case <-l.ended():
		case <-ctx.Done():
			for _, l := range h.loops {
				l.stopNow() // together: their hand backs share the time
			}
			<-l.ended()
		}
	}
}

// goodbye says that this host stopped cleanly and gives the id free, unless a
// loop was started again.
func (h *Host) goodbye(ctx context.Context) {
	h.engaging.Lock()
	defer h.engaging.Unlock()
	if len(h.running()) == 0 {
		h.release(ctx)
	}
}

// release gives the id free; engaging is held, so that no beat can follow it. A
// stop does not cancel it: half a goodbye would keep the id for 15 s. One that
// fails is tried again by the next beat, or at the end.
func (h *Host) release(ctx context.Context) {
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	if !held {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := h.client.HostStop(ctx, h.opts.ID, h.instance.String()); err != nil {
		h.log.Warn("the host could not say that it stopped", "error", err.Error())
		return
	}
	h.mu.Lock()
	h.held = false
	h.mu.Unlock()
}
