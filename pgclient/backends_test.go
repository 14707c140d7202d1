package pgclient_test

import (
	"context"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// backends counts the sessions that qtop has on the server, by the use in their application_name.
func (w *world) backends() map[string]int {
	w.t.Helper()
	rows, err := w.root.Query(context.Background(), `SELECT application_name, count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'qtop %' GROUP BY 1`)
	require.NoError(w.t, err)
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var use string
		var n int
		require.NoError(w.t, rows.Scan(&use, &n))
		found[use] = n
	}
	require.NoError(w.t, rows.Err())
	return found
}

func TestBackendsOfConsole(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer", "dead_letter_operator", "workflow_admin")
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan error)
	go func() { listening <- c.Listen(ctx) }()
	defer func() { cancel(); require.NoError(t, <-listening) }()
	<-c.Changes() // wait until the listener has subscribed
	require.NoError(t, c.Serves(ctx))
	rest := map[string]int{"qtop read": 1, "qtop listen": 1}
	look := func() {
		for _, kind := range []queue.ListKind{queue.ListSession, queue.ListDeadLetters, queue.ListJobs} {
			_, err := c.Snapshot(ctx, 0)
			require.NoError(t, err)
			_, err = c.List(ctx, queue.Query{Kind: kind})
			require.NoError(t, err)
		}
	}
	become := func(want map[string]int) {
		t.Helper()
		require.Eventually(t, func() bool { look(); return maps.Equal(want, w.backends()) }, time.Minute, 10*time.Millisecond, want)
	}
	become(rest)

	_, err := c.Plan(ctx, queue.Request{Action: queue.ActMark, Actor: "ann", Args: map[string]string{"label": "x"}})
	require.NoError(t, err)
	acted := time.Now()
	become(map[string]int{"qtop read": 1, "qtop listen": 1, "qtop act": 1})
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: the connection of the actions closes after a minute")
	}
	require.Eventually(t, func() bool { look(); return maps.Equal(rest, w.backends()) }, 2*time.Minute, time.Second)
	require.GreaterOrEqual(t, time.Since(acted), time.Minute)
	require.Less(t, time.Since(acted), 75*time.Second)
}

// A caller that gives up ends its statement on the server at once; the connection goes on being
// used.
func TestReadCancelled(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	const sessions = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'qtop read'"
	for name, q := range map[string]struct {
		table string
		queue.Query
	}{
		"statement":   {"public.job_dead_letter", queue.Query{Kind: queue.ListDeadLetters, Filter: "source:job"}},
		"transaction": {"public.iu_notification_pending", queue.Query{Kind: queue.ListNotify}},
	} {
		_, err := c.List(t.Context(), q.Query)
		require.NoError(t, err, name)
		pid := get[int](w, sessions)
		lock, err := w.root.Begin(t.Context())
		require.NoError(t, err)
		_, err = lock.Exec(t.Context(), "LOCK TABLE "+q.table+" IN ACCESS EXCLUSIVE MODE")
		require.NoError(t, err)
		ctx, leave := context.WithCancel(t.Context())
		read := make(chan error)
		go func() { _, err := c.List(ctx, q.Query); read <- err }()
		require.Eventually(t, func() bool {
			return get[int](w, "SELECT count(*) FROM ("+sessions+" AND wait_event_type = 'Lock') s") == 1
		}, time.Minute, 5*time.Millisecond, name)
		leave()
		require.Error(t, <-read, name)
		require.Eventually(t, func() bool {
			return get[int](w, "SELECT count(*) FROM ("+sessions+" AND state = 'idle') s") == 1
		}, time.Minute, 5*time.Millisecond, "%s: while the table is locked, nothing but the cancel request ends the statement", name)
		require.Equal(t, pid, get[int](w, sessions), name)
		require.Equal(t, "live", c.Link().State, "%s: nobody lost anything", name)
		require.NoError(t, lock.Rollback(t.Context()))
		_, err = c.List(t.Context(), q.Query)
		require.NoError(t, err, name)
		require.Equal(t, pid, get[int](w, sessions), name)
	}
}

// A server that does not answer in time gets no cancel request: its connection is closed.
func TestReadOverdue(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	_, err := c.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	const session = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'qtop read'"
	lock, err := w.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE public.job_dead_letter IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.List(ctx, queue.Query{Kind: queue.ListDeadLetters, Filter: "source:job"})
	require.Equal(t, queue.KindUnavailable, queue.KindOf(err))
	require.NoError(t, lock.Rollback(t.Context()))
	require.Eventually(t, func() bool { return get[int](w, session) == 0 }, time.Minute, 5*time.Millisecond)
}
