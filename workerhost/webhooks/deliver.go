package webhooks

// This file is the loop: one goroutine owns it and waits for no request.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// pacedAgain is how long a host goes on to ask for each slice of a rate after it had
// one; the poll finds rates that allow less than a request in this time.
const pacedAgain = 2 * time.Second

// headEvery is the longest time in which claims read only what is new: a job that
// was handed back waits that long at most.
const headEvery = time.Second

// deliverer is the state of one run of the loop; one goroutine owns it.
type deliverer struct {
	*Worker
	l        *loop.Loop
	leases   *leases
	keys     *keys
	requests *requests
	places   *places
	failing  map[int64]int    // failures of each subscription that are not recorded yet
	where    map[int64]string // endpoint of each subscription, as its last claim said
	claims   chan claim       // of one

	look     bool    // there may be something to claim
	claiming bool    // a claim is under way
	around   []int64 // whom the last claim skipped or left something of
	dry      bool    // it found nothing else
	// pacedUntil: until then a claim is made for each slice of a rate. The last claim
	// that brought something paced set it.
	pacedUntil time.Time

	// Many claims a second need not read each time past the jobs that were claimed
	// before. So a claim from the head of the queue is followed by claims behind
	// claimedTo, the newest job that it brought; 0 when it left something there.
	claimedTo int64
	headAt    time.Time // when the last claim from the head was made
	behind    bool      // claims since then did not look at the head
}

// Run is the body of the loop.
func (w *Worker) Run(ctx context.Context, l *loop.Loop) error {
	p := newPlaces(w.Concurrency, w.PerEndpoint)
	d := &deliverer{
		Worker: w, l: l, places: p, failing: map[int64]int{}, where: map[int64]string{}, claims: make(chan claim, 1),
		leases:   &leases{Worker: w, l: l, flying: map[int64]*delivery{}},
		keys:     &keys{Worker: w, l: l, missing: map[int64]unsigned{}, warned: map[string]bool{}},
		requests: newRequests(w, l, p.leasable()),
	}
	send, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { // also after a panic of run
		stopSending()
		if d.claiming {
			d.leases.take(<-d.claims)
		}
		d.requests.sending.Wait() // at once: their context has ended
		d.requests.results.Close(time.Now().Add(l.Left() / 2))
		d.leases.handBack(ctx)
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
	slice := time.NewTicker(pacedFor)
	defer slice.Stop()
	drain := d.l.Draining()
	draining := false
	var ticked, due time.Time // the last tick, and the next
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
			d.release(ctx, d.places.clear(time.Now()))
		case <-d.l.Kicked():
			d.look = true
		case <-d.l.Retimed():
			if at := ticked.Add(d.Every()); at.Before(due) {
				due = at
				poll.Reset(time.Until(at))
			}
			continue
		case <-poll.C:
			every := d.Every()
			ticked = time.Now()
			d.tick(ctx, every)
			d.keys.lookAgain(ctx)
			due = time.Now().Add(every)
			poll.Reset(every)
			d.look = true
		case c := <-d.claims:
			d.stockUp(ctx, send, c, draining)
		case e := <-d.requests.ended:
			d.end(ctx, e)
		case <-renew.C:
			d.leases.renew(ctx)
			if ctx.Err() == nil {
				d.leases.settleOwed(ctx)
			}
		case <-slice.C:
			now := time.Now()
			d.release(ctx, d.places.stale(now))
			d.look = d.look || now.Before(d.pacedUntil) || d.behind && now.Sub(d.headAt) >= headEvery
		}
		d.catchUp(ctx)
		if draining && len(d.leases.flying) == 0 && !d.claiming {
			return nil
		}
		if ctx.Err() == nil {
			d.begin(send)
		}
		if !draining && !d.requests.results.Stuck() {
			d.claim(ctx)
		}
		d.l.SetInFlight(len(d.leases.flying) - d.places.stocked)
	}
}

// begin starts the requests that there are places for; none while results cannot be
// recorded, for it might have to be sent again.
func (d *deliverer) begin(send context.Context) {
	if d.requests.results.Stuck() {
		return
	}
	now := time.Now()
	for x := d.places.next(now); x != nil; x = d.places.next(now) {
		d.requests.sending.Go(func() { d.requests.send(send, x) })
	}
}

// catchUp takes what else has ended: results come in batches, and one claim does
// for all of them.
func (d *deliverer) catchUp(ctx context.Context) {
	for {
		select {
		case e := <-d.requests.ended:
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
	res, err := d.Client.Tick(ctx, d.l.Name, "external")
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		d.l.Erred(err)
	case err == nil && res.Failed:
		d.l.Erred(errors.New(res.Error))
	case err == nil:
		d.l.Ticked(0, every)
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
	room := min(d.places.room(len(d.leases.flying), now), lease.Most)
	if room <= 0 {
		return
	}
	skip, each := d.saturated(now), d.places.each(now)
	if !d.look && slices.Equal(skip, d.around) {
		return // nobody has got room since it found nothing
	}
	d.claiming, d.look, d.dry = true, false, false
	var after int64
	if len(skip) == 0 && now.Sub(d.headAt) < headEvery {
		after = d.claimedTo
	}
	go func() {
		claiming, cancel := lease.Outlive(ctx, d.l.Left)
		defer cancel()
		jobs, err := d.Client.ClaimWebhooks(claiming, d.ID, room, skip, each, after)
		d.claims <- claim{jobs, err, room, each, skip, after, now, time.Now()}
	}()
}

// stockUp takes what a claim brought. Subscriptions that turn out to share an
// endpoint may bring more than it can use, or one has failed meanwhile: that goes
// back.
func (d *deliverer) stockUp(ctx, send context.Context, c claim, draining bool) {
	d.claiming = false
	xs := d.leases.take(c)
	d.l.Looked(len(xs) > 0)
	if c.err != nil {
		if ctx.Err() == nil {
			d.l.Erred(c.err)
			d.l.Log.Warn("claim failed", "error", c.err.Error())
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
		if x.Paced {
			d.pacedUntil = c.came.Add(pacedAgain)
		}
		perSubscription[x.SubscriptionID]++
		capped = capped || perSubscription[x.SubscriptionID] >= c.each
		if !d.keys.signs(x) || d.failing[x.SubscriptionID] > 0 || !d.places.put(x, time.Now()) {
			surplus, capped = append(surplus, x), true
		}
		d.begin(send)
	}
	d.claimed(c, xs, capped)
	heard := len(surplus) == 0 || d.release(ctx, surplus)
	// others may wait behind the one that got its share
	d.look = d.look || heard && (len(xs) == c.asked || capped && len(xs) > 0)
	d.dry, d.around = capped && len(xs) == 0, c.skip
}

// claimed records up to where the queue is claimed.
func (d *deliverer) claimed(c claim, xs []*delivery, capped bool) {
	switch {
	case c.after != 0:
		d.behind = true
		return
	case capped:
		d.claimedTo = 0
	default:
		for _, x := range xs {
			d.claimedTo = max(d.claimedTo, x.JobID)
		}
	}
	d.headAt, d.behind = c.before, false
}

// release hands deliveries back, which are then somewhere in the queue.
func (d *deliverer) release(ctx context.Context, xs []*delivery) bool {
	if len(xs) > 0 {
		d.claimedTo = 0
	}
	return d.leases.release(ctx, xs)
}

// saturated lists the subscriptions whose endpoint has here what it may have, and
// those whose failure is on its way to the database.
func (d *deliverer) saturated(now time.Time) []int64 {
	full := slices.Collect(maps.Keys(d.failing))
	for sub := range d.keys.missing {
		if d.failing[sub] == 0 {
			full = append(full, sub)
		}
	}
	for sub, endpoint := range d.where {
		if _, out := d.keys.missing[sub]; out || d.failing[sub] > 0 {
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
		d.keys.blame(x.SubscriptionID, *x.SecretRef, x.fault)
		d.release(ctx, append(waiting, x))
	case x.unread:
		d.release(ctx, append(waiting, x))
	case !x.sent:
		delete(d.leases.flying, x.JobID)
	case !x.delivered:
		d.failing[x.SubscriptionID]++
		if ctx.Err() == nil {
			d.release(ctx, waiting)
		}
	}
}

// settle forgets a delivery whose result is recorded, or cannot be.
func (d *deliverer) settle(x *delivery) {
	delete(d.leases.flying, x.JobID)
	if x.delivered {
		return
	}
	if d.failing[x.SubscriptionID]--; d.failing[x.SubscriptionID] <= 0 {
		delete(d.failing, x.SubscriptionID)
	}
}
