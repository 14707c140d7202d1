// A host is killed and started again with the same id: the jobs and deliveries that the killed
// host had leased are worked on at once, not when the leases expire.
package workerhost_test

import (
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSuccessorWorksOnWhatItsPredecessorHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.retry.schedule", "0s") // job leases last 300 s, webhook leases 60 s
	executor(t, w.admin, "host", "work", 1000)
	executor(t, w.admin, "neighbour", "stuck", 100) // it must not take the jobs that are returned
	release := make(chan struct{})
	answer := hanging(release)
	r := receive(t, func(rw http.ResponseWriter, req *http.Request) { answer(rw, req) })
	w.subscribe("order.created", r.URL, nil)
	path := filepath.Join(t.TempDir(), "ledger")
	spawn := func(id, executor string, took time.Duration, loops ...string) *child {
		return w.spawn(childSpec{ID: id, Executor: executor, Concurrency: 16, Grace: time.Second, Ledger: path + id + took.String(), Took: took, Loops: loops})
	}
	w.enqueue("work", 3)
	dead := spawn("box", "host", time.Hour)
	w.events("order.created", 3)
	eventually(t, func() bool { return len(ledger(path+"box", "begin")) == 3 && r.count() == 3 }, "no load")
	w.enqueue("stuck", 1)
	beside := spawn("other", "neighbour", time.Hour, "job_executor")
	w.becomes(4, jobsHeld)

	dead.kill()
	close(release)
	start := time.Now()
	next := spawn("box", "host", 0)
	w.becomes(3, jobsOf, "succeeded")
	w.becomes(3, completed)
	took := time.Since(start)
	t.Logf("done %v after the kill", took.Round(10*time.Millisecond))
	require.Less(t, took, 20*time.Second, "that is the end of the leases, not the takeover")
	require.Equal(t, "0 1", w.text("SELECT max(attempts) || ' ' || min(lost_leases) FROM public.job_history"), "a lost lease is counted as such")
	require.Equal(t, "1 1", w.text("SELECT max(attempt_no) || ' ' || min(lease_resets) FROM public.webhook_delivery_jobs"), "as is what may have been sent")
	ids := map[string]int{}
	for _, got := range r.all() {
		ids[got.id]++
	}
	require.Len(t, ids, 3, "what is sent again is the same message")
	require.Equal(t, 1, w.int(jobsHeld), "others keep what they hold")
	require.Contains(t, next.text(), "the previous instance crashed")
	require.Contains(t, next.text(), `"error_code":"LEASE_LOST"`)
	for _, c := range []*child{next, beside} {
		c.signal(syscall.SIGTERM)
		require.Equal(t, 0, c.exit())
	}
}
