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
		m.plan(t.Context(), 1, r)()
		m.apply(1, queue.Plan{Request: r})()
	}
	require.Len(t, s.may, 4)
	require.Greater(t, s.may[0], queue.ActionTimeout)
	require.Greater(t, s.may[1], queue.ActionTimeout)
	require.Zero(t, s.may[2])
	require.Zero(t, s.may[3])
}

// waitingStore answers no plan before its context ends.
type waitingStore struct {
	Store
	asked chan struct{}
}

func (s *waitingStore) Plan(ctx context.Context, _ queue.Request) (queue.Plan, error) {
	close(s.asked)
	<-ctx.Done()
	return queue.Plan{}, ctx.Err()
}

// A preview that the operator closes ends: it would hold one of the few connections for actions.
func TestClosedPreviewEnds(t *testing.T) {
	m := newStill(newStore(), newHost(), Options{Actor: "anna"})
	s := &waitingStore{m.calls.store, make(chan struct{})}
	m.calls.store = s
	d := newDialog(1, m.actions.ByID(queue.ActRecount), queue.Request{Action: queue.ActRecount}, m.o.Now(), nil)
	m.over = append(m.over, d)
	plan, ended := m.startPlan(d), make(chan struct{})
	go func() {
		defer close(ended)
		plan()
	}()
	<-s.asked
	m.send(keyOf("esc"))
	require.Empty(t, m.over)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the preview goes on")
	}
}
