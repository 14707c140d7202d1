package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A filter that the database cannot evaluate in time has a separate error. The connection is
// not lost, because the database answers. The lock stands for a long search; the time limit of 5 s
// is what the test is about.
func TestSlowFilter(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	_, err := c.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	lock, err := w.root.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), "LOCK TABLE public.job_dead_letter IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	slow := func() time.Duration {
		began := time.Now()
		_, err := c.List(t.Context(), queue.Query{Kind: queue.ListDeadLetters, Filter: "acme"})
		took := time.Since(began)
		require.ErrorContains(t, err, "the database could not evaluate this filter within 5 s: add a term that leaves few rows")
		require.Equal(t, queue.KindFailed, queue.KindOf(err))
		require.Equal(t, "live", c.Link().State)
		return took
	}
	// On a busy machine an answer may take longer, so the test tries again until one is quick enough.
	for deadline := time.Now().Add(time.Minute); slow() >= 7*time.Second; {
		require.True(t, time.Now().Before(deadline), "each answer took 7 s or more")
	}
	ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	_, err = c.List(ctx, queue.Query{Kind: queue.ListDeadLetters, Filter: "acme"})
	require.Equal(t, queue.KindUnavailable, queue.KindOf(err), "the caller's time was too short")
}

// A preview that its caller gave no more time for does not prove that the server is away.
func TestActionOutOfTimeIsNoLoss(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	c := w.client("workflow_admin", "queue_viewer")
	_, err := c.Snapshot(ctx, 0)
	require.NoError(t, err)
	ended, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	p, err := c.Plan(ended, queue.Request{Action: queue.ActFlagSet, Actor: "ann", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"})
	kind(t, queue.KindUnavailable, err)
	require.Equal(t, "live", c.Link().State)
	_, err = c.Apply(ended, p)
	require.Error(t, err)
	require.Equal(t, "live", c.Link().State)
}
