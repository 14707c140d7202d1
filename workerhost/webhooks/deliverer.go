package webhooks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// pacedClaimsFor is how long a host claims more often (once per pacedFor)
// after a claim returned a delivery with a rate limit. At rates below one
// request in this time, the regular poll is often enough.
const pacedClaimsFor = 2 * time.Second

// headEvery is the longest time between two claims that read the queue from
// its beginning. Claims in between read only newer jobs, so they do not find a
// delivery that was handed back.
const headEvery = time.Second

// deliverer is one run of the loop. One goroutine owns it.
type deliverer struct {
	*Worker
	l         *loop.Loop
	leases    *leases
	keys      *keys
	requests  *requests
	slots     *slots
	failing   map[int64]int    // failures not recorded yet, by webhook subscription
	endpoints map[int64]string // endpoint by webhook subscription, as last claimed
	returning []*delivery      // to hand back when all queued ends of requests are handled
	claims    chan claim       // size 1

	claimWanted   bool    // there may be deliveries to claim
	claiming      bool    // a claim is under way
	lastSkip      []int64 // webhook subscriptions that the last claim skipped
	retryWhenRoom bool    // the last claim returned no delivery but skipped subscriptions: claim again when one of them has room
	// pacedUntil is the time until which a claim is made every pacedFor. A
	// claim that returns a delivery with a rate limit sets it to
	// pacedClaimsFor from now.
	pacedUntil time.Time

	// Of many claims a second, each would read past the jobs that were claimed before. So after a
	// claim from the head of the queue, the next claims read only jobs newer than claimedTo, the
	// newest job of that claim. claimedTo is 0 if the claim left jobs behind; then the next claim
	// also reads from the head.
	claimedTo int64
	headAt    time.Time // when the last claim from the head of the queue was made
	headDue   bool      // the claims since headAt did not read the head of the queue
}

// Run is the body of the loop.
func (w *Worker) Run(ctx context.Context, l *loop.Loop) error {
	p := newSlots(w.Concurrency, w.PerEndpoint)
	d := &deliverer{
		Worker: w, l: l, slots: p, failing: map[int64]int{}, endpoints: map[int64]string{}, claims: make(chan claim, 1),
		leases:   &leases{Worker: w, l: l, leased: map[int64]*delivery{}},
		keys:     &keys{Worker: w, l: l, missing: map[int64]unsigned{}, warned: map[string]bool{}},
		requests: newRequests(w, l, p.leasable()),
	}
	send, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { // also after a panic of run
		stopSending()
		if d.claiming {
			d.leases.add(<-d.claims)
		}
		d.requests.sending.Wait() // takes little time: the context of the requests has ended
		d.requests.results.Close(time.Now().Add(l.Remaining() / 2))
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
	var lastTick, nextTick time.Time // the last tick, and the next
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
			d.release(ctx, d.slots.takeAll(time.Now()))
		case <-d.l.Kicked():
			d.claimWanted = true
		case <-d.l.IntervalChanged():
			if at := lastTick.Add(d.Every()); at.Before(nextTick) {
				nextTick = at
				poll.Reset(time.Until(at))
			}
			continue
		case <-poll.C:
			every := d.Every()
			lastTick = time.Now()
			d.tick(ctx, every)
			d.keys.recheck(ctx)
			nextTick = loop.Following(lastTick, every)
			poll.Reset(time.Until(nextTick))
			d.claimWanted = true
		case c := <-d.claims:
			d.handleClaim(ctx, send, c, draining)
		case e := <-d.requests.ended:
			d.end(e)
		case <-renew.C:
			d.leases.renew(ctx)
			if ctx.Err() == nil {
				d.leases.retryRelease(ctx)
			}
		case <-slice.C:
			now := time.Now()
			d.release(ctx, d.slots.takeStale(now))
			d.claimWanted = d.claimWanted || now.Before(d.pacedUntil) || d.headDue && now.Sub(d.headAt) >= headEvery
		}
		d.drainEnded(ctx)
		if draining && len(d.leases.leased) == 0 && !d.claiming {
			return nil
		}
		if ctx.Err() == nil {
			d.begin(send)
		}
		if !draining && !d.requests.results.Stuck() {
			d.claim(ctx)
		}
		d.l.SetInFlight(len(d.leases.leased) - d.slots.buffered)
	}
}

// begin starts requests as slots allow. It starts none while results cannot be recorded, because
// a request whose result is lost is sent again.
func (d *deliverer) begin(send context.Context) {
	if d.requests.results.Stuck() {
		return
	}
	now := time.Now()
	for x := d.slots.start(now); x != nil; x = d.slots.start(now) {
		d.requests.sending.Go(func() { d.requests.send(send, x) })
	}
}

// drainEnded handles all queued ends of requests before the next claim.
// Results arrive in batches, and one claim after the batch is cheaper than one
// per result; what is handed back after them is one statement too.
func (d *deliverer) drainEnded(ctx context.Context) {
	for {
		select {
		case e := <-d.requests.ended:
			d.end(e)
		default:
			if ctx.Err() == nil { // else the loop was stopped; Run hands them back
				d.release(ctx, d.returning)
			}
			d.returning = nil
			return
		}
	}
}

// tick records the heartbeat of the webhook worker. The loop that sends webhooks calls tick, so
// that the heartbeat stops when the loop hangs.
func (d *deliverer) tick(ctx context.Context, every time.Duration) {
	// A database connection that hangs must not delay claims and renewals for long.
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := d.Client.WebhookHeartbeat(ctx, d.l.Name)
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		d.l.RecordError(err)
	case err == nil && res.Failed:
		d.l.RecordError(errors.New(res.Error))
	case err == nil:
		d.l.RecordTick(0, every)
	}
}

// claim claims as many deliveries as there is room for, unless a claim is under way. An endpoint
// that hangs must not occupy every slot: a claim returns at most slots.perSubscription deliveries
// of one webhook subscription, and none if the endpoint of the subscription has its full share in
// this host.
func (d *deliverer) claim(ctx context.Context) {
	if d.claiming || (!d.claimWanted && !d.retryWhenRoom) {
		return
	}
	now := time.Now()
	room := min(d.slots.room(len(d.leases.leased), now), lease.MaxBatch)
	if room <= 0 {
		return
	}
	skip, each := d.saturated(now), d.slots.perSubscription(now)
	if !d.claimWanted && slices.Equal(skip, d.lastSkip) {
		return // the last claim found nothing, and since then no skipped subscription has got room
	}
	d.claiming, d.claimWanted, d.retryWhenRoom = true, false, false
	var after int64
	if len(skip) == 0 && now.Sub(d.headAt) < headEvery {
		after = d.claimedTo
	}
	var known []string
	releaseFirst := d.leases.unanswered.Due(now)
	if releaseFirst {
		known = d.leases.tokens()
	}
	go func() {
		claiming, cancel := lease.Outlive(ctx, d.l.Remaining)
		defer cancel()
		c := claim{limit: room, perSubscription: each, skipped: skip, after: after, sent: now}
		if releaseFirst {
			c.releaseBegan = time.Now()
			if c.err = d.leases.releaseUnanswered(claiming, known); c.err == nil {
				c.releaseEnded, c.sent = time.Now(), time.Now()
			}
		}
		if c.err == nil {
			c.jobs, c.err = d.Client.ClaimWebhooks(claiming, d.ID, room, skip, each, after)
		}
		c.returned = time.Now()
		d.claims <- c
	}()
}

// handleClaim takes the result of a claim. It hands back deliveries that cannot be buffered:
// webhook subscriptions may share an endpoint and together exceed its share, or a request of the
// subscription may have failed since the claim was sent.
func (d *deliverer) handleClaim(ctx, send context.Context, c claim, draining bool) {
	d.claiming = false
	xs := d.leases.add(c)
	d.l.RecordCheck(len(xs) > 0)
	if c.err != nil {
		if ctx.Err() == nil {
			d.l.RecordError(c.err)
			d.l.Log.Warn("claim failed", "error", c.err.Error())
		}
		return
	}
	if ctx.Err() != nil {
		return // the loop was stopped; Run hands the deliveries back
	}
	if draining {
		d.release(ctx, xs)
		return
	}
	perSubscription := map[int64]int{}
	capped := len(c.skipped) > 0
	var surplus []*delivery
	for _, x := range xs {
		d.endpoints[x.SubscriptionID] = x.endpoint
		if x.Paced {
			d.pacedUntil = c.returned.Add(pacedClaimsFor)
		}
		perSubscription[x.SubscriptionID]++
		capped = capped || perSubscription[x.SubscriptionID] >= c.perSubscription
		if !d.keys.canSign(x) || d.failing[x.SubscriptionID] > 0 || !d.slots.add(x, time.Now()) {
			surplus, capped = append(surplus, x), true
		}
		d.begin(send)
	}
	d.recordClaim(c, xs, capped)
	released := len(surplus) == 0 || d.release(ctx, surplus)
	// The claim left out deliveries of a subscription that had its share;
	// behind these, the queue may hold deliveries of other subscriptions.
	d.claimWanted = d.claimWanted || released && (len(xs) == c.limit || capped && len(xs) > 0)
	d.retryWhenRoom, d.lastSkip = capped && len(xs) == 0, c.skipped
}

// recordClaim remembers up to which job id the queue was claimed. capped is
// true if the claim left out deliveries of some subscription, which a later
// claim must find.
func (d *deliverer) recordClaim(c claim, xs []*delivery, capped bool) {
	switch {
	case c.after != 0:
		d.headDue = true
		return
	case capped:
		d.claimedTo = 0
	default:
		for _, x := range xs {
			d.claimedTo = max(d.claimedTo, x.JobID)
		}
	}
	d.headAt, d.headDue = c.sent, false
}

// release hands deliveries back. Their job ids are then below claimedTo, so the next claim reads
// from the head of the queue.
func (d *deliverer) release(ctx context.Context, xs []*delivery) bool {
	if len(xs) > 0 {
		d.claimedTo = 0
	}
	return d.leases.release(ctx, xs)
}

// saturated returns the webhook subscriptions that the next claim must skip, because their
// endpoint has its full share in this host, a failure of theirs is not recorded yet, or this host
// has no secret to sign them or lacked something to send them.
func (d *deliverer) saturated(now time.Time) []int64 {
	full := slices.Concat(slices.Collect(maps.Keys(d.failing)), slices.Collect(maps.Keys(d.keys.missing)), d.requests.pauses.Paused())
	for sub, endpoint := range d.endpoints {
		switch d.slots.state(endpoint, now) {
		case endpointFull:
			full = append(full, sub)
		case endpointIdle:
			delete(d.endpoints, sub)
		}
	}
	slices.Sort(full)
	return slices.Compact(full)
}

func (d *deliverer) end(e end) {
	if e.result {
		d.resultEnded(e.x)
	} else {
		d.requestEnded(e.x)
	}
}

// requestEnded handles the end of a request. After a failure, the buffered deliveries of the same
// webhook subscription are handed back, and none is claimed until the failure is recorded,
// because the failure may suspend the subscription or open its circuit.
func (d *deliverer) requestEnded(x *delivery) {
	waiting := d.slots.release(x, time.Now())
	switch {
	case x.fault != nil: // the secret became unavailable between the claim and the request
		d.keys.markUnsigned(x.SubscriptionID, *x.SecretRef, x.fault)
		d.returning = append(d.returning, x)
	case x.payloadUnread, x.shortage != nil:
		d.returning = append(d.returning, x)
	case !x.sent:
		d.leases.forget(x)
	case !x.delivered:
		d.failing[x.SubscriptionID]++
	}
	d.returning = append(d.returning, waiting...)
}

// resultEnded removes a delivery whose result is recorded or lost.
func (d *deliverer) resultEnded(x *delivery) {
	if x.resultLost.Load() {
		d.leases.refuse(x)
	} else {
		d.leases.forget(x)
	}
	if x.delivered {
		return
	}
	if d.failing[x.SubscriptionID]--; d.failing[x.SubscriptionID] <= 0 {
		delete(d.failing, x.SubscriptionID)
	}
}
