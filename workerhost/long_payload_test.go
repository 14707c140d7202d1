// Tests of the memory that a host uses for long payloads.
package workerhost_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mostMemory returns the peak memory of the process in MiB; 0 if the system does not report it.
func (c *child) mostMemory() int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		return 0
	}
	kb, _ := strconv.Atoi(string(m[1]))
	return kb >> 10
}

// raced reports whether the race detector is compiled into this binary.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A host works in little memory on jobs and webhooks whose payloads have many MB: they were
// stored before there was a limit, and many more than the memory could hold. Jobs and webhooks
// with short payloads between them are done too.
func TestLongPayloadsInLittleMemory(t *testing.T) {
	t.Parallel()
	n, mb, most := 2, 24, 128
	if os.Getenv("QTOP_TEST_FULL") != "" {
		n, mb = 20, 16
	}
	if raced() { // the memory of the race detector is several times that of the program
		most *= 8
	}
	w := jobWorld(t, 1000, "queue.payload.max_bytes", "999999999", "queue.notify.bridge_enabled", "true")
	var long, short atomic.Int32
	r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if n, _ := io.Copy(io.Discard, req.Body); n > 16_000_000 {
			long.Add(1)
			time.Sleep(300 * time.Millisecond) // so that a host without the limit would hold several payloads at once
		} else {
			short.Add(1)
		}
	}))
	t.Cleanup(r.Close)
	w.subscribe("order.created", r.URL, nil)
	fat := fmt.Sprintf("jsonb_build_object('t', repeat('0123456789abcdef', %d))", mb*1_000_000/16)
	w.exec("INSERT INTO public.events (event_type, payload) SELECT 'order.created', p FROM (SELECT "+fat+" AS p) x, generate_series(1, $1::int)", n)
	w.exec("SELECT public.fn_job_enqueue('work', 'work', 'DOT', p, 200) FROM (SELECT "+fat+" AS p) x, generate_series(1, $1::int)", n)
	w.events("order.created", 20)
	w.enqueue("work", 20)
	w.set("queue.payload.max_bytes", "262144")
	path := filepath.Join(t.TempDir(), "ledger")
	c := w.spawn(childSpec{ID: "host", Executor: "host", Concurrency: 16, Ledger: path, Took: 300 * time.Millisecond})
	w.becomes(n+20, completed)
	w.becomes(n+20, jobsOf, "succeeded")
	require.EqualValues(t, n, long.Load())
	require.EqualValues(t, 20, short.Load())
	require.Len(t, ledger(path, "end"), n+20)
	require.Equal(t, "0", w.text("SELECT max(lost_leases) FROM public.job_history"))
	t.Logf("%d payloads of %d MB: at most %d MiB in memory", 2*n, mb, c.mostMemory())
	require.Less(t, c.mostMemory(), most)
}
