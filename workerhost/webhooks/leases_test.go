package webhooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// A job that lost its lease and was claimed again is not forgotten when the old request ends.
func TestForgetOnlyTheSameDelivery(t *testing.T) {
	t.Parallel()
	s := &leases{leased: map[int64]*delivery{}}
	job := work.WebhookJob{JobID: 7}
	before, again := &delivery{WebhookJob: job}, &delivery{WebhookJob: job}
	s.leased[7] = again
	s.forget(before)
	require.Same(t, again, s.leased[7])
	s.forget(again)
	require.Empty(t, s.leased)
}

// Until its lease has ended, a delivery whose result was lost is not handed back as one of a lost
// claim, and its lease is not renewed.
func TestTokensOfLostResultsAreKept(t *testing.T) {
	t.Parallel()
	d := &deliverer{leases: &leases{leased: map[int64]*delivery{}}, failing: map[int64]int{}}
	end := func(id int64, token string, left time.Duration, lost bool) {
		x := &delivery{WebhookJob: work.WebhookJob{JobID: id, LeaseToken: token}, delivered: true, until: time.Now().Add(left)}
		d.leases.leased[id] = x
		x.resultLost.Store(lost)
		d.resultEnded(x)
	}
	end(1, "ended", -time.Hour, true)
	end(2, "lost", time.Minute, true)
	end(3, "recorded", time.Minute, false)
	require.Equal(t, []string{"lost"}, d.leases.tokens())
	require.Empty(t, d.leases.leased)
}

// A delivery knows the server's clock from the end of its lease.
func TestServerAhead(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, 0, 24 * time.Hour} {
		sent := time.Now().Add(-3 * time.Second)
		x := &delivery{WebhookJob: work.WebhookJob{LeaseSeconds: 60, LeaseUntil: sent.Add(ahead + time.Minute)}, claimSent: sent}
		require.InDelta(t, ahead.Seconds(), x.serverAhead().Seconds(), 0.1)
	}
}
