package workerhost

// This file is the webhook worker: claim, send, report. A claim commits before
// any request starts, no transaction spans HTTP, every result is fenced by its
// lease token, and what is unfinished at the end is handed back at once.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
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
	// until is the local end of the lease, counted from before the claim was
	// sent: the server's clock and the way there can only make it later.
	until time.Time
	// lost is set when a renewal found the lease gone.
	lost bool
	// settled is set when the database answered for the result.
	settled atomic.Bool
}

// deliverer is the state of one run of the loop; one goroutine owns it.
type deliverer struct {
	h       *Host
	l       *loop
	reports *reporter
	flying  map[int64]*delivery
	busy    map[string]int         // requests in flight per endpoint
	waiting map[string][]*delivery // claimed beyond what their endpoint may have
	where   map[int64]string       // endpoint of each subscription, as its last claim said
	ended   chan *delivery         // as large as flying can get: a send never blocks
	sending sync.WaitGroup
	mu      sync.Mutex // guards until, which a renewal moves
}

// tickWithin bounds the delivery loop's beat; a tick is a few milliseconds.
const tickWithin = 5 * time.Second

func (h *Host) deliver(ctx context.Context, l *loop) error {
	d := &deliverer{
		h: h, l: l, flying: map[int64]*delivery{}, busy: map[string]int{}, waiting: map[string][]*delivery{}, where: map[int64]string{},
		ended: make(chan *delivery, h.opts.Concurrency),
	}
	send, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	d.reports = newReporter(h, l)
	defer func() { // also after a panic of run
		stopSending()
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
	draining, more := false, false
	for {
		look := false
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			draining, drain = true, nil
		case <-d.l.kick:
			look = true
		case <-poll.C:
			every := d.h.settings.every(loopWebhook)
			d.tick(ctx, every)
			poll.Reset(every)
			look = true
		case x := <-d.ended:
			d.land(send, x)
			for more := true; more; { // a batch of results ends together: one claim for all
				select {
				case x := <-d.ended:
					d.land(send, x)
				default:
					more = false
				}
			}
			look = more
		case <-renew.C:
			d.renew(ctx)
		}
		if draining && len(d.flying) == 0 {
			return nil
		}
		if look && !draining && len(d.flying) < d.h.opts.Concurrency {
			more = d.claim(ctx, send)
		}
		d.l.setInFlight(len(d.flying))
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

// claim leases what fits and starts it; true when there may be more. One that
// hangs must not take every place: a subscription gets at most its endpoint's
// share, and none while the endpoint has its share in flight. Subscriptions that
// turn out to share an endpoint may queue one share more; the rest goes back.
func (d *deliverer) claim(ctx, send context.Context) bool {
	room := min(d.h.opts.Concurrency-len(d.flying), fullBatch)
	skip := d.saturated()
	before := time.Now()
	claiming, cancel := outlive(ctx, handBackTime/2)
	defer cancel()
	jobs, err := d.h.client.ClaimWebhooks(claiming, d.h.workerID(), room, skip, d.h.opts.PerEndpoint)
	if err != nil {
		if ctx.Err() == nil {
			d.l.erred(err)
			d.h.log.Warn("claim failed", "loop", d.l.name, "error", err.Error())
		}
		return false
	}
	perSubscription := map[int64]int{}
	capped := len(skip) > 0
	var surplus []*delivery
	for _, j := range jobs {
		x := &delivery{WebhookJob: j, endpoint: endpointOf(j.CallbackURL), until: before.Add(time.Duration(j.LeaseSeconds) * time.Second)}
		d.flying[j.JobID] = x
		if ctx.Err() != nil {
			continue // stopped meanwhile: handed back unsent
		}
		d.where[j.SubscriptionID] = x.endpoint
		perSubscription[j.SubscriptionID]++
		capped = capped || perSubscription[j.SubscriptionID] >= d.h.opts.PerEndpoint
		switch {
		case d.busy[x.endpoint] < d.h.opts.PerEndpoint:
			d.begin(send, x)
		case len(d.waiting[x.endpoint]) < d.h.opts.PerEndpoint:
			d.waiting[x.endpoint] = append(d.waiting[x.endpoint], x)
		default:
			surplus, capped = append(surplus, x), true
		}
	}
	if len(surplus) > 0 && !d.release(ctx, surplus) {
		capped = false // not again at once
	}
	if len(jobs) > 0 && capped {
		d.l.kickNow() // others may wait behind the one that got its share
	}
	return capped || len(jobs) == room
}

// outlive is ctx that ends only some time after it. A claim that is cancelled in
// flight may have been committed: nobody would know of its jobs until their
// leases run out.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() { stop(); cancel() }
}

// begin starts a request; its endpoint has a place for it.
func (d *deliverer) begin(send context.Context, x *delivery) {
	d.busy[x.endpoint]++
	d.sending.Go(func() { d.send(send, x) })
}

// saturated lists the subscriptions whose endpoint has its share in flight.
func (d *deliverer) saturated() []int64 {
	var full []int64
	for sub, endpoint := range d.where {
		switch n := d.busy[endpoint]; {
		case n >= d.h.opts.PerEndpoint:
			full = append(full, sub)
		case n == 0:
			delete(d.where, sub)
		}
	}
	slices.Sort(full)
	return full
}

func (d *deliverer) land(send context.Context, x *delivery) {
	delete(d.flying, x.JobID)
	d.busy[x.endpoint]--
	if next := d.waiting[x.endpoint]; len(next) > 0 && send.Err() == nil {
		d.waiting[x.endpoint] = next[1:]
		d.begin(send, next[0])
	}
	if d.busy[x.endpoint] <= 0 {
		delete(d.busy, x.endpoint)
		delete(d.waiting, x.endpoint)
	}
}

// send makes the request and queues its result. A request cut off by a stop
// before its answer came is no attempt: it is not reported, and handBack returns
// the job.
func (d *deliverer) send(ctx context.Context, x *delivery) {
	log := d.h.log.With("saga_id", x.SagaID, "job_id", x.JobID, "lease_expiration", x.LeaseUntil)
	res, sent := d.attempt(ctx, x)
	if !sent {
		log.Warn("lease too short for a request, job left to the cleaner", "error_code", "")
	}
	if !sent || (ctx.Err() != nil && res.Status == 0) {
		d.ended <- x
		return
	}
	log.Info("attempt", "error_code", res.Code, "status", res.Status, "took_ms", res.Took.Milliseconds(), "detail", res.Detail)
	rep := pgclient.WebhookReport{
		JobID: x.JobID, LeaseToken: x.LeaseToken, Delivered: res.Delivered, Excerpt: res.Excerpt,
		TookMS: float64(res.Took.Microseconds()) / 1000,
	}
	if res.Status != 0 {
		rep.Status = &res.Status
	}
	if res.Code != "" {
		rep.Code = &res.Code
	}
	if !res.RetryAfter.IsZero() {
		rep.RetryAfter = &res.RetryAfter
	}
	d.reports.add(pending{WebhookReport: rep, x: x, until: d.untilOf(x), done: func() { d.ended <- x }})
}

// untilOf reads the end of a lease when the result is recorded: it may have been
// renewed since.
func (d *deliverer) untilOf(x *delivery) func() time.Time {
	return func() time.Time {
		d.mu.Lock()
		defer d.mu.Unlock()
		return x.until
	}
}

// attempt is the request itself, bounded by what is left of the lease.
func (d *deliverer) attempt(ctx context.Context, x *delivery) (res sender.Result, sent bool) {
	defer func() {
		if p := recover(); p != nil {
			d.h.log.Error("delivery panicked", "job_id", x.JobID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, sent = sender.Result{Code: sender.CodeWorkerPanic, Detail: "panic in the worker", Started: time.Now()}, true
		}
	}()
	d.mu.Lock()
	left := time.Until(x.until) - 2*time.Second // to report in
	d.mu.Unlock()
	timeout := min(time.Duration(x.TimeoutSeconds)*time.Second, left)
	if timeout < 500*time.Millisecond {
		return sender.Result{}, false
	}
	req := sender.Request{URL: x.CallbackURL, ID: x.WebhookID, Body: []byte(x.Payload), Timeout: timeout}
	if x.SecretRef != nil && *x.SecretRef != "" {
		secrets, err := d.h.opts.Secrets.Resolve(*x.SecretRef)
		if err != nil || len(secrets) == 0 {
			return sender.Result{Code: sender.CodeSigningFailed, Detail: "secret_ref cannot be resolved", Started: time.Now()}, true
		}
		req.Secrets = secrets
	}
	return d.h.opts.Sender.Send(ctx, req), true
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
	if len(open) > 0 {
		d.release(context.Background(), open)
	}
}

// release returns jobs to Pending, no attempt spent; false when the database did
// not hear it, and their leases will expire.
func (d *deliverer) release(ctx context.Context, xs []*delivery) bool {
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

// endpointOf is host:port in lower case; what cannot be parsed is its own.
func endpointOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}
