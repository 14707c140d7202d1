package workerhost_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// One delayed job wakes the tick worker of every host. Each host then ticks a few times, however
// many hosts there are: a full run of any host is enough for all of them.
func TestOneWakeOfManyHosts(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "true")
	w.exec("ALTER DATABASE " + pgx.Identifier{w.db.Name}.Sanitize() + " SET track_functions = 'all'")
	w.enqueue("first", 1) // hosts listen only for existing domains
	const n = 8
	var hosts []*hosted
	for i := range n {
		h := runHost(t, w.dsn, workerhost.Options{ID: "h" + strconv.Itoa(i), Loops: []string{"job_queue_default"}})
		h.listens()
		hosts = append(hosts, h)
	}
	w.exec("SELECT public.fn_job_enqueue('work', 'work', 'DOT', p_process_after => clock_timestamp() + interval '100 ms')")
	time.Sleep(5 * time.Second) // nothing to wait for: the hosts must not run
	extra := 0
	for _, h := range hosts {
		extra += h.extraRuns()
		require.NoError(t, h.stop()) // by then the server has counted the statements of its sessions
	}
	eventually(t, func() bool {
		return w.int("SELECT COALESCE(sum(calls), 0)::int FROM pg_stat_user_functions WHERE funcname = 'fn_queue_tick_request'") >= n
	}, "the server counts")
	calls := w.int("SELECT sum(calls)::int FROM pg_stat_user_functions WHERE funcname = 'fn_job_tick'")
	t.Logf("%d runs", calls)
	require.LessOrEqual(t, calls, 4*n+extra)
}
