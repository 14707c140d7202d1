package pgclient_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// held locks a table in a transaction that is open for a while, and returns its pid.
func (w *world) held(table string) (lock pgx.Tx, pid int) {
	w.t.Helper()
	lock, err := w.root.Begin(context.Background())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = lock.Rollback(context.Background()) })
	_, err = lock.Exec(context.Background(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	require.NoError(w.t, err)
	require.NoError(w.t, lock.QueryRow(context.Background(), "SELECT pg_backend_pid()").Scan(&pid))
	return lock, pid
}

// A read that waits for a lock until its time is over names who holds it, and since when: the server is not lost.
func TestAReadThatWaitsForALockNamesItsHolder(t *testing.T) {
	within := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 4900*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for name, of := range map[string]struct {
		table string
		read  func(*testing.T, *console) error
	}{
		"snapshot": {"job_dead_letter", func(t *testing.T, c *console) error { _, err := c.Snapshot(t.Context(), 0); return err }},
		"stored snapshot": {"queue_past_picture", func(t *testing.T, c *console) error {
			_, _, err := c.SnapshotAt(t.Context(), time.Now(), 0)
			return err
		}},
		"list": {"job_dead_letter", func(t *testing.T, c *console) error {
			_, err := c.List(within(t), queue.Query{Kind: queue.ListDeadLetters, Filter: "source:job"})
			return err
		}},
		"report": {"queue_mark", func(t *testing.T, c *console) error {
			_, err := c.Report(within(t), time.Now().Add(-time.Hour), time.Time{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.client("queue_viewer")
			_, err := c.Snapshot(t.Context(), 0)
			require.NoError(t, err)
			lock, pid := w.held("public." + of.table)
			err = of.read(t, c)
			require.ErrorIs(t, err, pgclient.ErrSlow)
			require.Regexp(t, fmt.Sprintf(`^no result after (4\.9|5|5\.\d)s: waits for a lock that session %d \(.*\) holds, whose transaction is open since \d\d:\d\d:\d\dZ \(\ds\): see Activity`, pid), err.Error())
			require.Equal(t, "slow", c.Link().State)
			require.NoError(t, lock.Rollback(t.Context()))
			_, err = c.Snapshot(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, "live", c.Link().State)
		})
	}
}

// An action that waits for a lock names its holder, also behind another session that waits.
func TestAnActionThatWaitsForALockNamesItsHolder(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer", "workflow_admin")
	p := plan(t, c, queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"})
	_, pid := w.held("public.dot_config")
	ctx, cancel := context.WithCancel(t.Context())
	behind := make(chan struct{})
	go func() {
		defer close(behind)
		_, _ = w.root.Exec(ctx, "LOCK TABLE public.dot_config IN ACCESS EXCLUSIVE MODE")
	}()
	t.Cleanup(func() { cancel(); <-behind })
	_, err := c.Apply(t.Context(), p)
	require.ErrorContains(t, err, fmt.Sprintf("waits for a lock that session %d ", pid))
	require.NotEqual(t, "lost", c.Link().State)
}

// A call that takes too long without a lock says that the server is slow.
func TestASlowReadIsNotALostConnection(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := c.List(ctx, queue.Query{Kind: queue.ListAudit})
	require.ErrorIs(t, err, pgclient.ErrSlow)
	require.ErrorContains(t, err, "the server answers, but is slow")
	require.Equal(t, "slow", c.Link().State)
}
