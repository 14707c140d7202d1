// Who may be sent, without a database: places are a value.
package webhooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// stocking puts n deliveries of one endpoint, a subscription each.
func stocking(p *places, endpoint string, n int, at time.Time) {
	for i := range n {
		p.put(&delivery{WebhookJob: work.WebhookJob{JobID: int64(i), SubscriptionID: int64(i)}, endpoint: endpoint, claimed: at}, at)
	}
}

// begun starts what may start.
func begun(p *places, at time.Time) map[string][]*delivery {
	out := map[string][]*delivery{}
	for x := p.next(at); x != nil; x = p.next(at) {
		out[x.endpoint] = append(out[x.endpoint], x)
	}
	return out
}

// A few endpoints that hang hold half of the places and no more; of the others
// each needs only one, and who delivers gets its share.
func TestPlacesAreNotHeldByAFewThatHang(t *testing.T) {
	t.Parallel()
	for _, total := range []int{4, 16, 64} {
		for _, perEndpoint := range []int{1, 8, 64} {
			p := newPlaces(total, perEndpoint)
			now := p.epoch
			endpoints := 0
			for ; p.taken < total; endpoints++ {
				stocking(p, fmt.Sprint("hangs ", endpoints), perEndpoint, now)
				require.NotEmpty(t, begun(p, now)[fmt.Sprint("hangs ", endpoints)], "a place for one that is new")
			}
			require.Greater(t, endpoints, total/2, "%d places, %d each", total, perEndpoint)
		}
	}
}

func TestPlacesOfOneThatDelivers(t *testing.T) {
	t.Parallel()
	p := newPlaces(17, 8)
	now := p.epoch
	stocking(p, "hangs", 8, now)
	begun(p, now)
	stocking(p, "fine", 8, now)
	first := begun(p, now)["fine"]
	require.Len(t, first, 1, "half is taken with it")
	require.Equal(t, endpointFull, p.state("fine", now))
	first[0].delivered = true
	p.landed(first[0], now)
	stocking(p, "fine", 8, now)
	require.Len(t, begun(p, now)["fine"], 8, "its whole share, once it has delivered")
	require.Equal(t, endpointFull, p.state("fine", now))
	require.Equal(t, endpointFull, p.state("hangs", now))
	require.Equal(t, endpointAway, p.state("nobody", now))
}

// Between two claims all that was claimed may have been sent: the endpoint is
// known all the same, for as long as it is trusted.
func TestPlacesRememberWhoDelivers(t *testing.T) {
	t.Parallel()
	p := newPlaces(16, 16)
	now := p.epoch
	stocking(p, "fine", 1, now)
	x := begun(p, now)["fine"][0]
	x.delivered = true
	p.landed(x, now)
	require.Equal(t, endpointAway, p.state("fine", now))
	stocking(p, "fine", 16, now)
	require.Len(t, begun(p, now)["fine"], 16)
	stocking(p, "hangs", 16, now)
	for _, x := range []string{"fine", "hangs"} {
		for p.endpoints[x].busy > 0 {
			p.landed(&delivery{endpoint: x}, now.Add(trustedFor))
			if p.endpoints[x] == nil {
				break
			}
		}
	}
	p.stale(now.Add(trustedFor + stockedFor))
	require.Empty(t, p.endpoints)
}

// After a failure the stock of the same subscription goes back, and what has
// waited for a second does.
func TestStockGoesBack(t *testing.T) {
	t.Parallel()
	p := newPlaces(4, 2)
	now := p.epoch
	stocking(p, "e", 2, now)
	running := begun(p, now)["e"]
	require.Len(t, running, 2)
	stocking(p, "e", 2, now)
	require.Zero(t, p.stocked, "nothing waits for one that has not delivered")
	p.endpoints["e"].delivered = now
	stocking(p, "e", 2, now) // subscriptions 0 and 1 again
	require.Empty(t, begun(p, now))
	back := p.landed(running[0], now)
	require.Len(t, back, 1)
	require.Equal(t, running[0].SubscriptionID, back[0].SubscriptionID)
	require.Len(t, begun(p, now)["e"], 1, "the other one's is sent")
	p.endpoints["e"].delivered = now.Add(stockedFor)
	stocking(p, "e", 2, now.Add(stockedFor))
	require.Empty(t, p.stale(now.Add(stockedFor)))
	require.Len(t, p.stale(now.Add(2*stockedFor+1)), 2)
	require.Zero(t, p.stocked)
}

func TestPlacesGoByTurn(t *testing.T) {
	t.Parallel()
	p := newPlaces(6, 6)
	now := p.epoch
	for _, e := range []string{"a", "b", "c"} {
		stocking(p, e, 1, now)
		p.endpoints[e].delivered = now
		stocking(p, e, 6, now)
	}
	held := begun(p, now)
	require.Equal(t, 6, p.taken)
	for _, e := range []string{"a", "b", "c"} {
		require.Len(t, held[e], 2, e)
	}
}

// A claim takes many of one subscription only while everybody who is here delivers.
func TestPlacesHowManyOfEach(t *testing.T) {
	t.Parallel()
	p := newPlaces(64, 8)
	now := p.epoch
	require.Equal(t, 8, p.each(now), "nobody is here")
	stocking(p, "fine", 8, now)
	require.Equal(t, 8, p.each(now), "not known yet")
	for range 10 {
		for _, x := range begun(p, now)["fine"] {
			x.delivered = true
			p.landed(x, now)
		}
		stocking(p, "fine", 8, now)
	}
	each := p.each(now)
	require.Greater(t, each, 64)
	here := p.stocked
	stocking(p, "fine", 2*each, now)
	require.Equal(t, here+each, p.stocked, "what a claim brings is kept")
	stocking(p, "hangs", 1, now)
	require.Equal(t, 8, p.each(now), "one has not delivered")
}

// What spent the token of a rate is sent within 250 ms of its claim or goes back; what
// waits beside it is sent.
func TestPacedDeliveriesExpire(t *testing.T) {
	t.Parallel()
	p := newPlaces(4, 1)
	now := p.epoch
	one := func(id int64, paced bool) *delivery {
		x := &delivery{WebhookJob: work.WebhookJob{JobID: id, SubscriptionID: id, Paced: paced}, endpoint: fmt.Sprint(id), claimed: now, came: now}
		require.True(t, p.put(x, now))
		return x
	}
	late, other := one(1, true), one(2, false)
	require.Empty(t, p.stale(now.Add(pacedFor)))
	now = now.Add(pacedFor + time.Millisecond)
	fresh := one(3, true)
	require.ElementsMatch(t, []*delivery{other, fresh}, []*delivery{p.next(now), p.next(now)})
	require.Nil(t, p.next(now))
	require.Equal(t, []*delivery{late}, p.stale(now))
}
