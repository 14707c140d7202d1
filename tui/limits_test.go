package tui

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// timedStore records how long each plan and action may take; 0 = without a limit.
type timedStore struct {
	Store
	may []time.Duration
}

func (s *timedStore) record(ctx context.Context) {
	end, limited := ctx.Deadline()
	s.may = append(s.may, queue.Choose(limited, time.Until(end), 0))
}

func (s *timedStore) Plan(ctx context.Context, r queue.Request) (queue.Plan, error) {
	s.record(ctx)
	return s.Store.Plan(ctx, r)
}

func (s *timedStore) Apply(ctx context.Context, p queue.Plan) (queue.Result, error) {
	s.record(ctx)
	return s.Store.Apply(ctx, p)
}

// The console waits as long for an action and its preview as these may take, and without a limit for
// a recount, which reads the whole history.
func TestConsoleWaitsForActions(t *testing.T) {
	m := newStill(newStore(), newHost(), Options{Actor: "anna"})
	s := &timedStore{Store: m.calls.store}
	m.calls.store = s
	for _, id := range []queue.ActionID{queue.ActAdopt, queue.ActRecount} {
		r := queue.Request{Action: id}
		m.plan(1, r)()
		m.apply(1, queue.Plan{Request: r})()
	}
	require.Len(t, s.may, 4)
	require.Greater(t, s.may[0], queue.ActionTimeout)
	require.Greater(t, s.may[1], queue.ActionTimeout)
	require.Zero(t, s.may[2])
	require.Zero(t, s.may[3])
}
