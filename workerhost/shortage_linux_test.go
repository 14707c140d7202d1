// Tests of worker processes that have no file descriptor left.
package workerhost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openNoFiles lets a process open no further file, until end is called.
func (c *child) openNoFiles() (end func()) {
	c.t.Helper()
	var before unix.Rlimit
	require.NoError(c.t, unix.Prlimit(c.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &before))
	require.NoError(c.t, unix.Prlimit(c.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}, nil))
	return func() {
		c.t.Helper()
		require.NoError(c.t, unix.Prlimit(c.cmd.Process.Pid, unix.RLIMIT_NOFILE, &before, nil))
	}
}

// While a host has no file descriptor left, it starts no command: the jobs are handed back, and no attempt is
// counted. Jobs of other kinds go on. Afterwards the commands run.
func TestJobsOfHostWithoutFileDescriptors(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000)
	c := w.spawn(childSpec{
		ID: "w", Executor: "host", Concurrency: 8, Grace: 5 * time.Second, Ledger: t.TempDir() + "/ledger",
		Loops: []string{"job_executor", "job_queue_default"},
	})
	w.enqueue("command", 1)
	w.becomes(1, jobsOf, "succeeded")
	began := time.Now()
	end := c.openNoFiles()
	w.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'command', 'event_domain', 'work',
		'executor', 'DOT', 'payload', '{}'::jsonb, 'max_attempts', 1)) FROM generate_series(1, 20)))`)
	const said = "jobs are handed back and claimed later"
	eventually(t, func() bool { return strings.Contains(c.text(), said) }, "the host does not say it")
	w.enqueue("work", 20)
	w.becomes(20, jobsOf+" AND job_kind = 'work'", "succeeded")
	require.Equal(t, 20, w.int("SELECT count(*)::int FROM public.job_queue WHERE job_kind = 'command' AND attempts = 0"), "an attempt was counted")
	times := strings.Count(c.text(), said)
	require.LessOrEqual(t, times, 1+int(time.Since(began)/time.Minute), "said more often than once a minute")
	require.Contains(t, c.text(), "this host has no file descriptor left: raise its limit of open files")
	end()
	w.becomes(41, jobsOf, "succeeded")
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.job_history WHERE attempts > 0"), "an attempt was counted")
}

// While a host has no file descriptor left, webhooks are handed back: no receiver is at fault.
func TestWebhooksOfHostWithoutFileDescriptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "webhook.max_attempts", "1")
	r, other := receive(t, ok), receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	w.subscribe("order.packed", other.URL, nil) // its requests need a new connection
	c := w.spawn(childSpec{ID: "w", Concurrency: 8, Grace: 5 * time.Second})
	w.events("order.created", 1)
	w.becomes(1, completed)
	end := c.openNoFiles()
	w.events("order.packed", 20)
	eventually(t, func() bool { return strings.Contains(c.text(), "webhooks are handed back and claimed later") }, "the host does not say it")
	require.Equal(t, 0, other.count())
	end()
	w.becomes(21, completed)
	require.Equal(t, 21, w.int(jobs), "an attempt was counted")
	require.Equal(t, 0, w.int("SELECT count(*)::int FROM public.dead_letters"))
}
