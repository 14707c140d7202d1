// Tests of slots, without a database.
package webhooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// fill buffers n deliveries to one endpoint, each for another webhook subscription.
func fill(p *slots, endpoint string, n int, at time.Time) {
	for i := range n {
		p.add(&delivery{WebhookJob: work.WebhookJob{JobID: int64(i), SubscriptionID: int64(i)}, endpoint: endpoint, claimSent: at}, at)
	}
}

// startAll starts all deliveries that may start, and returns them by endpoint.
func startAll(p *slots, at time.Time) map[string][]*delivery {
	out := map[string][]*delivery{}
	for x := p.start(at); x != nil; x = p.start(at) {
		out[x.endpoint] = append(out[x.endpoint], x)
	}
	return out
}

// A few endpoints that hang occupy only half of the slots; each slot of the other half takes one
// more endpoint that hangs.
func TestFewHangingEndpointsOccupyHalfOfTheSlots(t *testing.T) {
	t.Parallel()
	for _, total := range []int{4, 16, 64} {
		for _, perEndpoint := range []int{1, 8, 64} {
			p := newSlots(total, perEndpoint)
			now := p.epoch
			endpoints := 0
			for ; p.taken < total; endpoints++ {
				fill(p, fmt.Sprint("hangs ", endpoints), perEndpoint, now)
				require.NotEmpty(t, startAll(p, now)[fmt.Sprint("hangs ", endpoints)], "a slot for a new endpoint")
			}
			require.Greater(t, endpoints, total/2, "%d slots, %d per endpoint", total, perEndpoint)
		}
	}
}

func TestSlotsOfAnEndpointThatDelivers(t *testing.T) {
	t.Parallel()
	p := newSlots(17, 8)
	now := p.epoch
	fill(p, "hangs", 8, now)
	startAll(p, now)
	fill(p, "fine", 8, now)
	first := startAll(p, now)["fine"]
	require.Len(t, first, 1, "half of the slots are taken by then")
	require.Equal(t, endpointFull, p.state("fine", now))
	first[0].delivered = true
	p.release(first[0], now)
	fill(p, "fine", 8, now)
	require.Len(t, startAll(p, now)["fine"], 8, "its full share, once it has delivered")
	require.Equal(t, endpointFull, p.state("fine", now))
	require.Equal(t, endpointFull, p.state("hangs", now))
	require.Equal(t, endpointIdle, p.state("nobody", now))
}

// Between two claims, all claimed deliveries may have been sent. The endpoint is remembered as
// long as its last success counts.
func TestSlotsRememberSuccesses(t *testing.T) {
	t.Parallel()
	p := newSlots(16, 16)
	now := p.epoch
	fill(p, "fine", 1, now)
	x := startAll(p, now)["fine"][0]
	x.delivered = true
	p.release(x, now)
	require.Equal(t, endpointIdle, p.state("fine", now))
	fill(p, "fine", 16, now)
	require.Len(t, startAll(p, now)["fine"], 16)
	fill(p, "hangs", 16, now)
	for _, x := range []string{"fine", "hangs"} {
		for p.endpoints[x].inFlight > 0 {
			p.release(&delivery{endpoint: x}, now.Add(trustedFor))
			if p.endpoints[x] == nil {
				break
			}
		}
	}
	p.takeStale(now.Add(trustedFor + bufferedFor))
	require.Empty(t, p.endpoints)
}

// A buffered delivery is handed back when a delivery of the same webhook subscription has failed,
// and when it has been buffered for one second.
func TestBufferedAreHandedBack(t *testing.T) {
	t.Parallel()
	p := newSlots(4, 2)
	now := p.epoch
	fill(p, "e", 2, now)
	running := startAll(p, now)["e"]
	require.Len(t, running, 2)
	fill(p, "e", 2, now)
	require.Zero(t, p.buffered, "nothing is buffered for an endpoint that has not delivered")
	p.endpoints["e"].delivered = now
	fill(p, "e", 2, now) // subscriptions 0 and 1 again
	require.Empty(t, startAll(p, now))
	back := p.release(running[0], now)
	require.Len(t, back, 1)
	require.Equal(t, running[0].SubscriptionID, back[0].SubscriptionID)
	require.Len(t, startAll(p, now)["e"], 1, "the delivery of the other subscription is sent")
	p.endpoints["e"].delivered = now.Add(bufferedFor)
	fill(p, "e", 2, now.Add(bufferedFor))
	require.Empty(t, p.takeStale(now.Add(bufferedFor)))
	require.Len(t, p.takeStale(now.Add(2*bufferedFor+1)), 2)
	require.Zero(t, p.buffered)
}

func TestEndpointsShareSlots(t *testing.T) {
	t.Parallel()
	p := newSlots(6, 6)
	now := p.epoch
	for _, e := range []string{"a", "b", "c"} {
		fill(p, e, 1, now)
		p.endpoints[e].delivered = now
		fill(p, e, 6, now)
	}
	held := startAll(p, now)
	require.Equal(t, 6, p.taken)
	for _, e := range []string{"a", "b", "c"} {
		require.Len(t, held[e], 2, e)
	}
}

// A claim returns many deliveries of one webhook subscription only if requests to all endpoints
// of the host succeed.
func TestDeliveriesPerSubscription(t *testing.T) {
	t.Parallel()
	p := newSlots(64, 8)
	now := p.epoch
	require.Equal(t, 8, p.perSubscription(now), "no endpoint is here")
	fill(p, "fine", 8, now)
	require.Equal(t, 8, p.perSubscription(now), "not trusted yet")
	for range 10 {
		for _, x := range startAll(p, now)["fine"] {
			x.delivered = true
			p.release(x, now)
		}
		fill(p, "fine", 8, now)
	}
	each := p.perSubscription(now)
	require.Greater(t, each, 64)
	here := p.buffered
	fill(p, "fine", 2*each, now)
	require.Equal(t, here+each, p.buffered, "all deliveries of a claim are kept")
	fill(p, "hangs", 1, now)
	require.Equal(t, 8, p.perSubscription(now), "one endpoint has not delivered")
}

// A delivery that took a token of a rate limit is sent or handed back within 250 ms of its claim.
// Other deliveries may stay in the buffer for longer.
func TestPacedDeliveriesExpire(t *testing.T) {
	t.Parallel()
	p := newSlots(4, 1)
	now := p.epoch
	one := func(id int64, paced bool) *delivery {
		x := &delivery{WebhookJob: work.WebhookJob{JobID: id, SubscriptionID: id, Paced: paced}, endpoint: fmt.Sprint(id), claimSent: now, claimed: now}
		require.True(t, p.add(x, now))
		return x
	}
	late, other := one(1, true), one(2, false)
	require.Empty(t, p.takeStale(now.Add(pacedFor)))
	now = now.Add(pacedFor + time.Millisecond)
	fresh := one(3, true)
	require.ElementsMatch(t, []*delivery{other, fresh}, []*delivery{p.start(now), p.start(now)})
	require.Nil(t, p.start(now))
	require.Equal(t, []*delivery{late}, p.takeStale(now))
}
