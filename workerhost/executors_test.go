package workerhost_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// Two hosts on one client would release each other's running jobs: the second is refused until
// the loop of the first has ended.
func TestOneHostPerClientAndExecutor(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	jobs := []string{"job_executor"}
	first := w.run(workerhost.Options{ID: "first", Executor: "host", Loops: jobs})
	first.is("job_executor", "running")
	next := func(client *pgclient.Client, id, executor string) *workerhost.Host {
		h, err := workerhost.New(client, workerhost.Options{ID: id, Executor: executor, Loops: jobs})
		require.NoError(t, err)
		return h
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // without the refusal it would run
	defer cancel()
	err := next(first.client, "second", "host").Run(ctx)
	require.EqualError(t, err, "host first on the same pgclient.Client claims jobs for executor host (host second): open a Client for each host that shares an executor")
	require.Equal(t, queue.KindConfig, queue.KindOf(err))
	require.Zero(t, w.int("SELECT count(*)::int FROM public.queue_host WHERE host_id = 'second'"), "it has not taken its id")

	runs := func(h *workerhost.Host) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		eventually(t, func() bool {
			for _, l := range h.Status().Loops {
				if l.Name == "job_executor" && l.State == "running" {
					return true
				}
			}
			return false
		}, "it does not run")
		cancel()
		require.NoError(t, <-done)
	}
	runs(next(first.client, "third", "other"))
	own, err := pgclient.Open(t.Context(), pgclient.Options{DSN: w.dsn, WorkConns: hostConns})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	runs(next(own, "fourth", "host"))

	require.NoError(t, first.Drain("job_executor"))
	first.is("job_executor", "stopped")
	runs(next(first.client, "fifth", "host"))
	require.NoError(t, first.Start("job_executor"), "the fifth has ended")
	first.is("job_executor", "running")
}

// Run of one host may follow itself. Beside itself it is refused: neither would have loops once the other ends, and
// the first would not return.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: w.dsn, WorkConns: hostConns})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	h, err := workerhost.New(client, workerhost.Options{ID: "again", Executor: "host", Loops: []string{"job_executor"}})
	require.NoError(t, err)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		eventually(t, func() bool { return h.Ready() == "" }, "it does not run")
		beside, end := context.WithTimeout(t.Context(), patience)
		require.EqualError(t, h.Run(beside), "Run of this host has not returned yet (host again): call it again when it has returned, or make another host with New")
		require.NoError(t, beside.Err())
		end()
		require.Empty(t, h.Ready())
		cancel()
		require.NoError(t, <-done)
	}
}
