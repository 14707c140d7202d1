package webhooks

import (
	"slices"
	"time"

	"github.com/qtop/qtop/workerhost/loop"
)

const (
	// trustedFor is how long after a success an endpoint may use its full share of slots.
	trustedFor = time.Second
	// bufferedFor bounds how long a claimed delivery waits in this host. Another host may have a
	// slot for it, and suspensions are checked only when a delivery is claimed.
	bufferedFor = time.Second
	// pacedFor bounds how long a delivery that took a token of a rate limit may wait. If it were
	// sent later, together with the deliveries of later tokens, it would exceed the rate.
	pacedFor = 250 * time.Millisecond
	// bufferFactor × the number of slots is how many deliveries the buffer holds at most.
	bufferFactor = 4
)

// slots decides which requests may be in flight, and buffers the deliveries that wait for a slot.
// An endpoint has at most perEndpoint slots. Once half of all slots are taken, an endpoint may
// have only one slot, unless a request to it has just succeeded. So a few endpoints that hang can
// occupy only half of the slots: each slot of the other half takes one more endpoint that hangs.
// One goroutine owns slots.
type slots struct {
	total, perEndpoint int
	taken, buffered    int
	endpoints          map[string]*endpoint
	ready              []*endpoint // endpoints with buffered deliveries, the least recently served first
	done               *loop.Pace  // successes of all endpoints
	epoch              time.Time
}

// endpoint is a host:port with a request in flight or buffered, or with a recent success.
type endpoint struct {
	name      string
	inFlight  int
	buffer    []*delivery
	delivered time.Time // when a request to the endpoint last succeeded
	done      *loop.Pace
}

// newPace counts over the last 250 ms.
func newPace() *loop.Pace { return loop.NewPace(50*time.Millisecond, 6) }

func newSlots(total, perEndpoint int) *slots {
	return &slots{total: total, perEndpoint: perEndpoint, endpoints: map[string]*endpoint{}, done: newPace(), epoch: time.Now()}
}

// leasable returns how many deliveries this host can lease at once: in slots and in the buffer.
func (p *slots) leasable() int { return p.total * (1 + bufferFactor) }

// share returns how many requests to the endpoint may be in flight at once.
func (p *slots) share(e *endpoint, now time.Time) int {
	if p.trusts(e, now) || 2*p.taken < p.total {
		return p.perEndpoint
	}
	return 1
}

func (p *slots) trusts(e *endpoint, now time.Time) bool { return now.Sub(e.delivered) < trustedFor }

// bufferable returns how many claimed deliveries may wait for a slot: as many
// as succeeded in the last 250 ms (counted by done), so that each waits for
// about 250 ms.
func (p *slots) bufferable(done *loop.Pace, now time.Time) int {
	return min(done.Recent(now.Sub(p.epoch)), p.total*bufferFactor)
}

// room returns how many more deliveries this host may lease. It returns 0 while no slot is free
// and the buffer is more than half full, because few large claims are cheaper than many small
// ones.
func (p *slots) room(leased int, now time.Time) int {
	ahead := p.bufferable(p.done, now)
	if p.taken >= p.total && 2*p.buffered > ahead {
		return 0
	}
	return p.total + ahead - leased
}

// perSubscription returns how many deliveries of one webhook subscription a claim may return: the
// share of an endpoint or, if requests to all endpoints of this host succeed, as many as each
// endpoint can buffer, because large claims are cheaper.
func (p *slots) perSubscription(now time.Time) int {
	most := 0
	for _, e := range p.endpoints {
		if e.inFlight+len(e.buffer) == 0 {
			continue
		}
		if !p.trusts(e, now) {
			return p.perEndpoint
		}
		if room := p.limit(e, now) - e.inFlight - len(e.buffer); most == 0 || room < most {
			most = room
		}
	}
	return max(most, p.perEndpoint)
}

// The states of an endpoint for a claim.
const (
	endpointOpen = iota
	endpointFull
	endpointIdle // this host has no delivery to the endpoint
)

func (p *slots) state(name string, now time.Time) int {
	e := p.endpoints[name]
	switch {
	case e == nil || e.inFlight+len(e.buffer) == 0:
		return endpointIdle
	case e.inFlight >= p.share(e, now) && 2*len(e.buffer) >= p.bufferable(e.done, now):
		return endpointFull
	}
	return endpointOpen
}

// limit returns how many deliveries to an endpoint this host may hold, sent or buffered. Only an
// endpoint with recent successes may have more than its share.
func (p *slots) limit(e *endpoint, now time.Time) int {
	limit := p.share(e, now) + p.bufferable(e.done, now)
	if p.trusts(e, now) {
		limit += p.perEndpoint
	}
	return limit
}

// add buffers a delivery; false when its endpoint has reached its limit.
func (p *slots) add(x *delivery, now time.Time) bool {
	e := p.endpoints[x.endpoint]
	if e == nil {
		e = &endpoint{name: x.endpoint, done: newPace()}
		p.endpoints[e.name] = e
	}
	if e.inFlight+len(e.buffer) >= p.limit(e, now) {
		return false
	}
	if len(e.buffer) == 0 {
		p.ready = append(p.ready, e)
	}
	e.buffer = append(e.buffer, x)
	p.buffered++
	return true
}

// start takes a slot for the next delivery and returns the delivery; nil when no delivery may
// start. Endpoints are served in rotation.
func (p *slots) start(now time.Time) *delivery {
	if p.taken >= p.total {
		return nil
	}
	for i, e := range p.ready {
		x := e.buffer[0]
		if e.inFlight >= p.share(e, now) || x.rateTokenExpired(now) {
			continue
		}
		e.buffer = e.buffer[1:]
		p.buffered--
		e.inFlight++
		p.taken++
		p.ready = append(p.ready[:i], p.ready[i+1:]...)
		if len(e.buffer) > 0 {
			p.ready = append(p.ready, e)
		}
		return x
	}
	return nil
}

// release frees the slot of a delivery. After a failure it removes and returns the buffered
// deliveries of the same webhook subscription.
func (p *slots) release(x *delivery, now time.Time) (removed []*delivery) {
	e := p.endpoints[x.endpoint]
	e.inFlight--
	p.taken--
	if x.delivered {
		e.delivered = now
		at := now.Sub(p.epoch)
		e.done.Add(at, 1)
		p.done.Add(at, 1)
	} else {
		removed = p.remove(e, func(w *delivery) bool { return w.SubscriptionID == x.SubscriptionID })
	}
	p.forget(e, now)
	return removed
}

// takeStale removes and returns the deliveries that have waited longer than bufferedFor, or whose
// rate token has expired.
func (p *slots) takeStale(now time.Time) []*delivery {
	return p.removeAll(now, func(x *delivery) bool { return now.Sub(x.claimSent) > bufferedFor || x.rateTokenExpired(now) })
}

// takeAll removes and returns all buffered deliveries.
func (p *slots) takeAll(now time.Time) []*delivery {
	return p.removeAll(now, func(*delivery) bool { return true })
}

func (p *slots) removeAll(now time.Time, which func(*delivery) bool) (removed []*delivery) {
	for _, e := range p.endpoints {
		removed = append(removed, p.remove(e, which)...)
		p.forget(e, now)
	}
	return removed
}

func (p *slots) remove(e *endpoint, which func(*delivery) bool) (removed []*delivery) {
	var kept []*delivery
	for _, x := range e.buffer {
		if which(x) {
			removed = append(removed, x)
		} else {
			kept = append(kept, x)
		}
	}
	e.buffer = kept
	p.buffered -= len(removed)
	if len(kept) == 0 && len(removed) > 0 {
		p.ready = slices.DeleteFunc(p.ready, func(t *endpoint) bool { return t == e })
	}
	return removed
}

// forget drops an endpoint without deliveries in this host, unless its last success still counts
// (trustedFor).
func (p *slots) forget(e *endpoint, now time.Time) {
	if e.inFlight == 0 && len(e.buffer) == 0 && !p.trusts(e, now) {
		delete(p.endpoints, e.name)
	}
}
