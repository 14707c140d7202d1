package sender

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A resolver that does not end when it is cancelled holds up no delivery longer than Config.Resolve, and one
// name costs one lookup at a time, however many deliveries wait for it.
func TestResolverThatNeverAnswers(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	var running atomic.Int32
	s := newSender(t, Config{Resolve: 200 * time.Millisecond, Lookup: func(context.Context, string) ([]netip.Addr, error) {
		running.Add(1)
		<-end
		return nil, nil
	}})
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			r := s.Send(context.Background(), request("https://hook.invalid/x"))
			require.Equal(t, CodeDNSFailure, r.Code)
			require.Contains(t, r.Detail, "hook.invalid")
			require.Contains(t, r.Detail, "no answer after")
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), 10*time.Second)
	require.EqualValues(t, 1, running.Load())
	close(end)
}
