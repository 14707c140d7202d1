package webhooks

// This file is who of the claimed deliveries may be sent now: the host's places,
// shared so that endpoints that hang never hold all of them.

import (
	"slices"
	"time"

	"github.com/qtop/qtop/workerhost/loop"
)

const (
	// trustedFor is how long after a success an endpoint may have its whole share.
	trustedFor = time.Second
	// stockedFor bounds how long a claimed delivery waits here: what its endpoint
	// has no place for may be sent by another host, and a suspension is judged at
	// the claim.
	stockedFor = time.Second
	// pacedFor bounds how long a delivery that spent the token of a rate may wait:
	// beyond that it would go out together with the tokens of later.
	pacedFor = 250 * time.Millisecond
	// stockFactor × the number of places is the most that waits here.
	stockFactor = 4
)

// places are the requests that may be in flight, and the stock of deliveries that
// wait for one. An endpoint has at most perEndpoint of them, and once half of all
// are taken a single one, unless it has just delivered. So a few endpoints that
// hang hold half of the host together and it takes as many more of them as there
// are places left to hold the rest. One goroutine owns it.
type places struct {
	total, perEndpoint int
	taken, stocked     int
	endpoints          map[string]*endpoint
	turn               []*endpoint // those with stock, the one that had its turn last
	done               *loop.Pace  // successes of all
	epoch              time.Time
}

// endpoint is a host:port with a request in flight or in stock, or that has just
// delivered.
type endpoint struct {
	name      string
	busy      int
	stock     []*delivery
	delivered time.Time // when a request of it succeeded last
	done      *loop.Pace
}

// newPace is of the last 250 ms.
func newPace() *loop.Pace { return loop.NewPace(50*time.Millisecond, 6) }

func newPlaces(total, perEndpoint int) *places {
	return &places{total: total, perEndpoint: perEndpoint, endpoints: map[string]*endpoint{}, done: newPace(), epoch: time.Now()}
}

// leasable is how many deliveries can be leased here.
func (p *places) leasable() int { return p.total * (1 + stockFactor) }

// share is how many requests of the endpoint may be in flight now.
func (p *places) share(e *endpoint, now time.Time) int {
	if p.trusts(e, now) || 2*p.taken < p.total {
		return p.perEndpoint
	}
	return 1
}

func (p *places) trusts(e *endpoint, now time.Time) bool { return now.Sub(e.delivered) < trustedFor }

// ahead is how much of what is claimed may wait: what was delivered in the last
// 250 ms, so that it waits no longer than that.
func (p *places) ahead(done *loop.Pace, now time.Time) int {
	return min(done.Recent(now.Sub(p.epoch)), p.total*stockFactor)
}

// room is how many more deliveries may be here beside those that are; 0 while no
// place is free and the stock is half full, for claims are cheaper by the dozen.
func (p *places) room(leased int, now time.Time) int {
	ahead := p.ahead(p.done, now)
	if p.taken >= p.total && 2*p.stocked > ahead {
		return 0
	}
	return p.total + ahead - leased
}

// each is how many of one subscription a claim may bring: what its endpoint may
// have, and where all that are here deliver, as much as any of them can stock, for
// claims are cheaper by the hundred.
func (p *places) each(now time.Time) int {
	most := 0
	for _, e := range p.endpoints {
		if e.busy+len(e.stock) == 0 {
			continue
		}
		if !p.trusts(e, now) {
			return p.perEndpoint
		}
		if left := p.most(e, now) - e.busy - len(e.stock); most == 0 || left < most {
			most = left
		}
	}
	return max(most, p.perEndpoint)
}

// The states of an endpoint in the eyes of a claim.
const (
	endpointOpen = iota
	endpointFull
	endpointAway // nothing of it is here
)

func (p *places) state(name string, now time.Time) int {
	e := p.endpoints[name]
	switch {
	case e == nil || e.busy+len(e.stock) == 0:
		return endpointAway
	case e.busy >= p.share(e, now) && 2*len(e.stock) >= p.ahead(e.done, now):
		return endpointFull
	}
	return endpointOpen
}

// most is how much of an endpoint may be here: beyond its share only one that
// delivers has a stock.
func (p *places) most(e *endpoint, now time.Time) int {
	n := p.share(e, now) + p.ahead(e.done, now)
	if p.trusts(e, now) {
		n += p.perEndpoint
	}
	return n
}

// put stocks a delivery; false when it would wait here in vain.
func (p *places) put(x *delivery, now time.Time) bool {
	e := p.endpoints[x.endpoint]
	if e == nil {
		e = &endpoint{name: x.endpoint, done: newPace()}
		p.endpoints[e.name] = e
	}
	if e.busy+len(e.stock) >= p.most(e, now) {
		return false
	}
	if len(e.stock) == 0 {
		p.turn = append(p.turn, e)
	}
	e.stock = append(e.stock, x)
	p.stocked++
	return true
}

// next takes a place for the next delivery, endpoint by endpoint in turn; nil when
// none may start.
func (p *places) next(now time.Time) *delivery {
	if p.taken >= p.total {
		return nil
	}
	for i, e := range p.turn {
		x := e.stock[0]
		if e.busy >= p.share(e, now) || x.expired(now) {
			continue
		}
		e.stock = e.stock[1:]
		p.stocked--
		e.busy++
		p.taken++
		p.turn = append(p.turn[:i], p.turn[i+1:]...)
		if len(e.stock) > 0 {
			p.turn = append(p.turn, e)
		}
		return x
	}
	return nil
}

// landed gives the place of a delivery free; after a failure it returns the stock
// of the same subscription.
func (p *places) landed(x *delivery, now time.Time) (back []*delivery) {
	e := p.endpoints[x.endpoint]
	e.busy--
	p.taken--
	if x.delivered {
		e.delivered = now
		at := now.Sub(p.epoch)
		e.done.Add(at, 1)
		p.done.Add(at, 1)
	} else {
		back = p.withdraw(e, func(w *delivery) bool { return w.SubscriptionID == x.SubscriptionID })
	}
	p.forget(e, now)
	return back
}

// stale returns what has waited for too long.
func (p *places) stale(now time.Time) []*delivery {
	return p.withdrawAll(now, func(x *delivery) bool { return now.Sub(x.claimed) > stockedFor || x.expired(now) })
}

// clear returns the whole stock.
func (p *places) clear(now time.Time) []*delivery {
	return p.withdrawAll(now, func(*delivery) bool { return true })
}

func (p *places) withdrawAll(now time.Time, which func(*delivery) bool) (back []*delivery) {
	for _, e := range p.endpoints {
		back = append(back, p.withdraw(e, which)...)
		p.forget(e, now)
	}
	return back
}

func (p *places) withdraw(e *endpoint, which func(*delivery) bool) (back []*delivery) {
	var stay []*delivery
	for _, x := range e.stock {
		if which(x) {
			back = append(back, x)
		} else {
			stay = append(stay, x)
		}
	}
	e.stock = stay
	p.stocked -= len(back)
	if len(stay) == 0 && len(back) > 0 {
		p.turn = slices.DeleteFunc(p.turn, func(t *endpoint) bool { return t == e })
	}
	return back
}

// forget drops an endpoint that has nothing here; the next of one that has just
// delivered is still trusted.
func (p *places) forget(e *endpoint, now time.Time) {
	if e.busy == 0 && len(e.stock) == 0 && !p.trusts(e, now) {
		delete(p.endpoints, e.name)
	}
}
