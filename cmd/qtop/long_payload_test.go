package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// mostMemory returns the peak memory of a process in MiB. The test is skipped
// if the system does not report it.
func mostMemory(t *testing.T, pid int) int {
	t.Helper()
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Skip("SKIP: /proc does not say here how much memory a process used at most")
	}
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return kb >> 10
}

// A host works in little memory on webhooks, on jobs for a URL and on jobs for
// a command whose payloads have many MB: they were stored before there was a
// limit, and many more than the memory could hold. Work with short payloads
// between them is done too. The host is the built program, without the race
// detector.
func TestLongPayloadsInLittleMemory(t *testing.T) {
	t.Parallel()
	webhooks, calls, commands := 3, 3, 3
	if os.Getenv("QTOP_TEST_FULL") != "" {
		webhooks, calls, commands = 14, 13, 13
	}
	const mb, most, short = 16, 128, 20
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	must := func(sql string, args ...any) {
		t.Helper()
		_, err := x.conn.Exec(t.Context(), sql, args...)
		require.NoError(t, err, sql)
	}
	var long [2]atomic.Int32
	var got [2]atomic.Int32
	r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		i := 0
		if req.URL.Path == "/job" {
			i = 1
		}
		if n, _ := io.Copy(io.Discard, req.Body); n > 16_000_000 {
			long[i].Add(1)
		}
		got[i].Add(1)
	}))
	t.Cleanup(r.Close)
	must("UPDATE public.dot_config SET value = '999999999' WHERE key = 'queue.payload.max_bytes'")
	must("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('t', $1, true, true)", r.URL+"/hook")
	must("SELECT public.fn_queue_executor_register('a', 'Agent', '{kg}', 60, 3600, 'dot_executor', 'ann')")
	must("SELECT public.fn_job_subscription_set('a', NULL, NULL, 0, 100, true, '', 'ann', 'test')")
	fat := fmt.Sprintf("jsonb_build_object('t', repeat('0123456789abcdef', %d))", mb*1_000_000/16)
	must("INSERT INTO public.events (event_type, payload) SELECT 't', p FROM (SELECT "+fat+" AS p) x, generate_series(1, $1::int)", webhooks)
	for kind, n := range map[string]int{"call": calls, "command": commands} {
		must("SELECT public.fn_job_enqueue($2, 'kg', 'Agent', p, 200) FROM (SELECT "+fat+" AS p) x, generate_series(1, $1::int)", n, kind)
	}
	must("UPDATE public.dot_config SET value = '262144' WHERE key = 'queue.payload.max_bytes'")
	must(`INSERT INTO public.events (event_type, payload) SELECT 't', '{"n": 1}' FROM generate_series(1, $1::int)`, short)
	must("SELECT public.fn_job_enqueue('call', 'kg', 'Agent', '{}') FROM generate_series(1, $1::int)", short)

	login := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner")
	c := program(t, filepath.Join(built, "qtop"), db.DSN(login), "worker", "--host-id", "one", "--executor", "a")
	handlers := fmt.Sprintf(`[{"kind":"call","url":%q},{"kind":"command","command":["sh","-c","test $(wc -c) -gt 16000000"]}]`, r.URL+"/job")
	c.Env = append(c.Env, "QTOP_DELIVERY_ALLOW_NETWORKS=127.0.0.0/8", "QTOP_DELIVERY_ALLOW_PLAIN_HTTP=127.0.0.0/8", "QTOP_HANDLERS="+handlers)
	said, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer said.Close()
	c.Stderr = said
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	began := time.Now()
	require.Eventually(t, func() bool {
		return x.number("SELECT count(*) FROM public.webhook_delivery_sagas WHERE status = 'Completed'") == webhooks+short &&
			x.number("SELECT count(*) FROM public.job_history WHERE status = 'succeeded'") == calls+commands+short
	}, 2*patience, 50*time.Millisecond, "%s", lastWords(func() string {
		text, _ := os.ReadFile(said.Name())
		return string(text)
	}))
	used := mostMemory(t, c.Process.Pid)
	t.Logf("%d payloads of %d MB: at most %d MiB in memory, %s", webhooks+calls+commands, mb, used, time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, webhooks, long[0].Load())
	require.EqualValues(t, calls, long[1].Load())
	require.EqualValues(t, webhooks+short, got[0].Load())
	require.EqualValues(t, calls+short, got[1].Load())
	require.Zero(t, x.number("SELECT max(lost_leases) FROM public.job_history"))
	require.Less(t, used, most)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.NoError(t, c.Wait())
}
