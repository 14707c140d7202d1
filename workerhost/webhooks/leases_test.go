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

// A delivery knows the server's clock from the end of its lease.
func TestServerAhead(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, 0, 24 * time.Hour} {
		sent := time.Now().Add(-3 * time.Second)
		x := &delivery{WebhookJob: work.WebhookJob{LeaseSeconds: 60, LeaseUntil: sent.Add(ahead + time.Minute)}, claimSent: sent}
		require.InDelta(t, ahead.Seconds(), x.serverAhead().Seconds(), 0.1)
	}
}
