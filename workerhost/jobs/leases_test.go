package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The flag of the lease length is lowered: leases that were renewed a while ago keep the new length
// from now, because the database still has the old one.
func TestLeasesAreShortenedFromNow(t *testing.T) {
	t.Parallel()
	s := &leases{state: &state{began: time.Now().Add(-time.Hour)}}
	group := func(left time.Duration) *leaseGroup {
		g := &leaseGroup{}
		g.length.Store(int64(300 * time.Second))
		g.from.Store(int64(s.clock() + left - 300*time.Second))
		return g
	}
	renewedLongAgo, nearlyOver := group(210*time.Second), group(10*time.Second)
	s.all = []*leaseGroup{renewedLongAgo, nearlyOver}
	s.shorten(30 * time.Second)
	require.InDelta(t, 30, (renewedLongAgo.until() - s.clock()).Seconds(), 1)
	require.InDelta(t, 10, (nearlyOver.until() - s.clock()).Seconds(), 1)
	require.EqualValues(t, 30*time.Second, nearlyOver.length.Load())
	s.shorten(time.Hour)
	require.EqualValues(t, 30*time.Second, nearlyOver.length.Load(), "a longer one counts from the next renewal")
}
