package workerhost

// This file is the webhook worker: claim, send, report. A claim commits before
// any request starts, no transaction spans HTTP, every result is fenced by its
// lease token, and what is unfinished at the end is handed back at once.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost/sender"
)

// delivery is one claimed job inside this process.
type delivery struct {
	pgclient.WebhookJob
	endpoint string
	claimed  time.Time // before the claim was sent
	// until is the local end of the lease, counted from before the claim was
	// sent: the server's clock and the way there can only make it later.
	until time.Time
	// lost is set when a renewal found the lease gone.
	lost bool
	// sent, delivered and fault (it could not be signed) are written before the
	// request's end is told.
	sent, delivered bool
	fault           *sender.Fault
	// settled is set when the database answered for the result.
	settled atomic.Bool
}

// deliverer is the state of one run of the loop; one goroutine owns it.
type deliverer struct {
	h       *Host
	l       *loop
	reports *reporter
	places  *places
	flying  map[int64]*delivery // leased here and not settled
	failing map[int64]int       // failures of each subscription that are not recorded yet
	where   map[int64]string    // endpoint of each subscription, as its last claim said
	ended   chan end            // twice as large as flying can get: a send never blocks
	claims  chan claim          // of one
	// unsigned are the subscriptions that cannot be signed here; warned the
	// references of weak secrets that were named.
	unsigned map[int64]unsigned
	warned   map[string]bool
	sending  sync.WaitGroup
	mu       sync.Mutex // guards until, which a renewal moves

	look     bool    // there may be something to claim
	claiming bool    // a claim is under way
	around   []int64 // whom the last claim skipped or left something of
	dry      bool    // it found nothing else
}

// end is that of a request, then that of its result: recorded, or beyond hope.
type end struct {
	x      *delivery
	result bool
}

// claim is one that came back.
type claim struct {
	jobs   []pgclient.WebhookJob
	err    error
	asked  int
	each   int // of one subscription
	skip   []int64
	before time.Time
}

// tickWithin bounds the delivery loop's beat; a tick is a few milliseconds.
const tickWithin = 5 * time.Second

func (h *Host) deliver(ctx context.Context, l *loop) error {
	p := newPlaces(h.opts.Concurrency, h.opts.PerEndpoint)
	d := &deliverer{
		h: h, l: l, places: p, flying: map[int64]*delivery{}, failing: map[int64]int{}, where: map[int64]string{},
		unsigned: map[int64]unsigned{}, warned: map[string]bool{},
		ended: make(chan end, 2*p.leasable()), claims: make(chan claim, 1),
	}
	send, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	d.reports = newReporter(h, l)
	defer func() { // also after a panic of run
		stopSending()
		if d.claiming {
			d.lease(<-d.claims)
		}
		d.sending.Wait() // at once: their context has ended
		d.handBack()
		d.reports.close()
	}()
	return d.run(ctx, send)
}

// run claims and sends until ctx ends, or until the loop drains and nothing is
// in flight.
func (d *deliverer) run(ctx, send context.Context) error {
	poll := time.NewTimer(0)
	defer poll.Stop()
	renew := time.NewTicker(time.Second)
	defer renew.Stop()
	drain := d.l.draining()
	draining := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
			d.release(ctx, d.places.clear(time.Now()))
		case <-d.l.kick:
			d.look = true
		case <-poll.C:
			every := d.h.settings.every(loopWebhook)
			d.tick(ctx, every)
			d.lookAgain(ctx)
			poll.Reset(every)
			d.look = true
		case c := <-d.claims:
			d.stockUp(ctx, send, c, draining)
		case e := <-d.ended:
			d.end(ctx, e)
		case <-renew.C:
			d.release(ctx, d.places.stale(time.Now()))
			d.renew(ctx)
		}
		d.catchUp(ctx)
		if draining && len(d.flying) == 0 && !d.claiming {
			return nil
		}
		if ctx.Err() == nil {
			d.begin(send)
		}
		if !draining {
			d.claim(ctx)
		}
		d.l.setInFlight(len(d.flying) - d.places.stocked)
	}
}

// begin starts the requests that there are places for.
func (d *deliverer) begin(send context.Context) {
	now := time.Now()
	for x := d.places.next(now); x != nil; x = d.places.next(now) {
		d.sending.Go(func() { d.send(send, x) })
	}
}

// catchUp takes what else has ended: results come in batches, and one claim does
// for all of them.
func (d *deliverer) catchUp(ctx context.Context) {
	for {
		select {
		case e := <-d.ended:
			d.end(ctx, e)
		default:
			return
		}
	}
}

// tick makes the heartbeat come from the loop that does the work.
func (d *deliverer) tick(ctx context.Context, every time.Duration) {
	// The beat must not hold up claims and renewals behind a dead connection.
	ctx, cancel := context.WithTimeout(ctx, tickWithin)
	defer cancel()
	res, err := d.h.client.Tick(ctx, loopWebhook, "external")
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		d.l.erred(err)
	case err == nil && res.Failed:
		d.l.erred(errors.New(res.Error))
	case err == nil:
		d.l.ticked(0, every)
	}
}

// claim asks for what fits, unless a claim is under way. One that hangs must not
// take every place: of a subscription one claim takes what places.each says, and
// none while its endpoint has here what it may have.
func (d *deliverer) claim(ctx context.Context) {
	if d.claiming || (!d.look && !d.dry) {
		return
	}
	now := time.Now()
	room := min(d.places.room(len(d.flying), now), fullBatch)
	if room <= 0 {
		return
	}
	skip, each := d.saturated(now), d.places.each(now)
	if !d.look && slices.Equal(skip, d.around) {
		return // nobody has got room since it found nothing
	}
	d.claiming, d.look, d.dry = true, false, false
	go func() {
		claiming, cancel := outlive(ctx, handBackTime/2)
		defer cancel()
		jobs, err := d.h.client.ClaimWebhooks(claiming, d.h.workerID(), room, skip, each)
		d.claims <- claim{jobs, err, room, each, skip, now}
	}()
}

// lease keeps what a claim brought until it is settled or handed back.
func (d *deliverer) lease(c claim) []*delivery {
	d.claiming = false
	xs := make([]*delivery, len(c.jobs))
	for i, j := range c.jobs {
		xs[i] = &delivery{
			WebhookJob: j, endpoint: endpointOf(j.CallbackURL), claimed: c.before,
			until: c.before.Add(time.Duration(j.LeaseSeconds) * time.Second),
		}
		d.flying[j.JobID] = xs[i]
	}
	return xs
}

// stockUp takes what a claim brought. Subscriptions that turn out to share an
// endpoint may bring more than it can use, or one has failed meanwhile: that goes
// back.
func (d *deliverer) stockUp(ctx, send context.Context, c claim, draining bool) {
	xs := d.lease(c)
	d.l.looked(len(xs) > 0)
	if c.err != nil {
		if ctx.Err() == nil {
			d.l.erred(c.err)
			d.h.log.Warn("claim failed", "loop", d.l.name, "error", c.err.Error())
		}
		return
	}
	if ctx.Err() != nil {
		return // stopped meanwhile: handed back unsent
	}
	if draining {
		d.release(ctx, xs)
		return
	}
	perSubscription := map[int64]int{}
	capped := len(c.skip) > 0
	var surplus []*delivery
	for _, x := range xs {
		d.where[x.SubscriptionID] = x.endpoint
		perSubscription[x.SubscriptionID]++
		capped = capped || perSubscription[x.SubscriptionID] >= c.each
		if !d.signs(x) || d.failing[x.SubscriptionID] > 0 || !d.places.put(x, time.Now()) {
			surplus, capped = append(surplus, x), true
		}
		d.begin(send)
	}
	heard := len(surplus) == 0 || d.release(ctx, surplus)
	// others may wait behind the one that got its share
	d.look = d.look || heard && (len(xs) == c.asked || capped && len(xs) > 0)
	d.dry, d.around = capped && len(xs) == 0, c.skip
}

// outlive is ctx that ends only some time after it. A claim that is cancelled in
// flight may have been committed: nobody would know of its jobs until their
// leases run out.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() { stop(); cancel() }
}

// saturated lists the subscriptions whose endpoint has here what it may have, and
// those whose failure is on its way to the database.
func (d *deliverer) saturated(now time.Time) []int64 {
	full := slices.Collect(maps.Keys(d.failing))
	for sub := range d.unsigned {
		if d.failing[sub] == 0 {
			full = append(full, sub)
		}
	}
	for sub, endpoint := range d.where {
		if _, out := d.unsigned[sub]; out || d.failing[sub] > 0 {
			continue
		}
		switch d.places.state(endpoint, now) {
		case endpointFull:
			full = append(full, sub)
		case endpointAway:
			delete(d.where, sub)
		}
	}
	slices.Sort(full)
	return full
}

func (d *deliverer) end(ctx context.Context, e end) {
	if e.result {
		d.settle(e.x)
	} else {
		d.land(ctx, e.x)
	}
}

// land takes a request that ended. After a failure what waits for the same
// subscription goes back and nothing is claimed of it until the failure is
// recorded: by then its suspension or circuit may stand.
func (d *deliverer) land(ctx context.Context, x *delivery) {
	waiting := d.places.landed(x, time.Now())
	switch {
	case x.fault != nil: // between its claim and its turn
		d.blame(x.SubscriptionID, *x.SecretRef, x.fault)
		d.release(ctx, append(waiting, x))
	case !x.sent:
		delete(d.flying, x.JobID)
	case !x.delivered:
		d.failing[x.SubscriptionID]++
		if ctx.Err() == nil {
			d.release(ctx, waiting)
		}
	}
}

// settle forgets a delivery whose result is recorded, or cannot be.
func (d *deliverer) settle(x *delivery) {
	delete(d.flying, x.JobID)
	if x.delivered {
		return
	}
	if d.failing[x.SubscriptionID]--; d.failing[x.SubscriptionID] <= 0 {
		delete(d.failing, x.SubscriptionID)
	}
}

// renew prolongs the leases that are a third old.
func (d *deliverer) renew(ctx context.Context) {
	var ids []int64
	var tokens []string
	for _, x := range d.flying {
		lease := time.Duration(x.LeaseSeconds) * time.Second
		d.mu.Lock()
		due := !x.lost && time.Until(x.until) < lease*2/3
		d.mu.Unlock()
		if due {
			ids, tokens = append(ids, x.JobID), append(tokens, x.LeaseToken)
		}
	}
	if len(ids) == 0 {
		return
	}
	before := time.Now()
	out, err := d.h.client.RenewWebhooks(ctx, ids, tokens)
	if err != nil {
		d.l.erred(err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range out {
		switch x := d.flying[o.JobID]; {
		case x == nil:
		case o.Outcome == "done":
			x.until = before.Add(time.Duration(x.LeaseSeconds) * time.Second)
		default: // too late to send; what is under way is fenced
			x.lost, x.until = true, before
		}
	}
}

// handBack flushes the results that are in, then releases what has none.
func (d *deliverer) handBack() {
	d.reports.finish(handBackTime / 2)
	var open []*delivery
	for _, x := range d.flying {
		if !x.settled.Load() {
			open = append(open, x)
		}
	}
	d.release(context.Background(), open)
}

// release returns jobs to Pending, no attempt spent; false when the database did
// not hear it, and their leases will expire.
func (d *deliverer) release(ctx context.Context, xs []*delivery) bool {
	if len(xs) == 0 {
		return true
	}
	ids, tokens := make([]int64, len(xs)), make([]string, len(xs))
	for i, x := range xs {
		ids[i], tokens[i] = x.JobID, x.LeaseToken
		delete(d.flying, x.JobID)
	}
	// A stop must not cancel it: nobody else knows of these leases any more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBackTime/2)
	defer cancel()
	if _, err := d.h.client.ReleaseWebhooks(ctx, ids, tokens); err != nil {
		d.h.log.Error("jobs could not be handed back; their leases will expire", "jobs", len(ids), "error", err.Error())
		return false
	}
	d.h.log.Info("jobs handed back", "jobs", len(ids))
	return true
}
