// A test of the tokens of rate limits.
package webhooks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/sender"
)

// The token of a rate limit must be young when the payload of its delivery begins to be read. How
// long that takes does not count, because a payload that always takes longer would never be sent.
func TestRateTokenCountsUntilThePayloadIsRead(t *testing.T) {
	t.Parallel()
	w, _, claimed, admin := claimedWorker(t)
	var received atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	t.Cleanup(receiver.Close)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	w.Sender = sender.New(sender.Config{Allow: loopback, PlainHTTP: loopback})
	t.Cleanup(w.Sender.Close)
	w.Budget = lease.NewBudget()
	r := &requests{Worker: w}
	paced := func(j work.WebhookJob, claimed time.Time) *delivery {
		j.Payload, j.Paced, j.CallbackURL = nil, true, receiver.URL
		return &delivery{WebhookJob: j, claimed: claimed, until: time.Now().Add(time.Minute)}
	}

	late := paced(claimed[0], time.Now().Add(-time.Hour))
	_, sent := r.attempt(t.Context(), late)
	require.False(t, sent)
	require.True(t, late.payloadUnread, "it is handed back")

	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "LOCK TABLE public.events IN ACCESS EXCLUSIVE MODE") // the read of the payload waits
	require.NoError(t, err)
	slow := paced(claimed[1], time.Now().Add(2*time.Second)) // the goroutine may begin late
	var res sender.Result
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		res, sent = r.attempt(t.Context(), slow)
	}()
	require.Eventually(t, func() bool {
		var reads bool
		err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'public.events'::regclass
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&reads)
		return err == nil && reads
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return slow.rateTokenExpired(time.Now()) }, time.Minute, time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	<-ended
	require.True(t, sent)
	require.True(t, res.Delivered, res.Detail)
	require.EqualValues(t, 1, received.Load())
}
