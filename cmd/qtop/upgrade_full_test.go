package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// plainHTTP lets a host send to the receivers of a test. Programs of before code numbers do not know it.
var plainHTTP = []string{"--delivery-allow-plain-http", "127.0.0.0/8"}

// earlier are the commits whose programs the schema of this tree serves: the last one before programs
// compared the number of the schema's code with their own, and release 0.2.0.
var earlier = map[string]struct {
	commit string
	flags  []string // of its hosts
}{
	"before code numbers": {"50888144795729f15befa3b7b7755aefa3db7069", nil},
	"release 0.2.0":       {"b31bf33a285ee30d390a374dd2bad11b9edb7793", plainHTTP},
}

// builtFrom builds qtop from a commit.
func builtFrom(t *testing.T, commit string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	src := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "-C", root, "archive", "--output", filepath.Join(src, "src.tar"), commit)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Skipf("full: the history of the repository does not reach commit %s: %s", commit, out)
	}
	untar := exec.CommandContext(t.Context(), "tar", "-xf", "src.tar")
	untar.Dir = src
	out, err := untar.CombinedOutput()
	require.NoError(t, err, "%s", out)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", "before", "./cmd/qtop")
	build.Dir, build.Env = src, append(os.Environ(), "CGO_ENABLED=0")
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(src, "before")
}

// jobLedger is a receiver that counts the requests of each job.
type jobLedger struct {
	mu  sync.Mutex
	got map[string]int
}

func (l *jobLedger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got[body.String()]++
	w.WriteHeader(http.StatusNoContent)
}

// This program upgrades a database of an earlier commit, while two hosts and a
// console of that commit are connected to it. No work is lost or done twice,
// and the old programs go on working, also beside a host that was restarted
// with this program.
func TestUpgradeUnderOldHosts(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: builds the programs of two earlier commits and runs their hosts for half a minute each")
	}
	t.Parallel()
	for name, e := range earlier {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upgradeUnder(t, builtFrom(t, e.commit), e.flags)
		})
	}
}

func upgradeUnder(t *testing.T, before string, flags []string) {
	t.Helper()
	db := pgtest.Empty(t)
	out, err := program(t, before, db.DSN(""), "migrate", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	x := story{t, db.Conn(t, ""), db}
	hooks, jobs := &ledger{got: map[string]int{}}, &jobLedger{got: map[string]int{}}
	hookServer, jobServer := httptest.NewServer(hooks), httptest.NewServer(jobs)
	t.Cleanup(hookServer.Close)
	t.Cleanup(jobServer.Close)
	_, err = x.conn.Exec(t.Context(), "INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('t', $1, true, true)", hookServer.URL+"/hook")
	require.NoError(t, err)
	for _, executor := range []string{"a", "b"} {
		for _, sql := range []string{
			"SELECT public.fn_queue_heartbeat_register($1, 'Agent', '{kg}', 60, 3600, 'ann')",
			`SELECT public.fn_job_subscription_set(p_executor_id => $1, p_job_kind => NULL, p_event_domain => NULL, p_priority_floor => 0, p_max_parallel => 100,
				p_enabled => true, p_notes => '', p_actor => 'ann', p_reason => 'test')`,
		} {
			_, err = x.conn.Exec(t.Context(), sql, executor)
			require.NoError(t, err, sql)
		}
	}
	worker := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "queue_viewer")
	logs := map[string]*bytes.Buffer{}
	hosts := map[string]*exec.Cmd{}
	work := func(id string, cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "QTOP_DELIVERY_ALLOW_NETWORKS=127.0.0.0/8", fmt.Sprintf(`QTOP_HANDLERS=[{"kind":"k","url":%q}]`, jobServer.URL))
		logs[id] = &bytes.Buffer{}
		cmd.Stderr = logs[id]
		require.NoError(t, cmd.Start())
		hosts[id] = cmd
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
		})
	}
	ends := func(id string) {
		require.NoError(t, hosts[id].Process.Signal(syscall.SIGTERM))
		require.NoError(t, hosts[id].Wait(), "%s", logs[id])
		for line := range strings.SplitSeq(logs[id].String(), "\n") {
			if strings.Contains(line, "40P01 deadlock detected") { // with the migration, which PostgreSQL may end as well as a tick: both try again
				continue
			}
			require.NotContains(t, line, `"level":"ERROR"`, "host %s", id)
		}
	}
	for _, id := range []string{"a", "b"} {
		work(id, program(t, before, db.DSN(worker), append([]string{"worker", "--host-id", id}, flags...)...))
	}
	x.eventually("both hosts are alive", func() bool { return x.number("SELECT count(*) FROM public.queue_host WHERE stopped_at IS NULL") == 2 })
	console := onScreen(t, 120, 40, program(t, before, db.DSN(operator(t, db))))
	console.until("● live")

	// A producer in a separate session, until the end.
	producing, stop := context.WithCancel(t.Context())
	produced := make(chan [2]int, 1)
	producer := db.Conn(t, pgtest.Login(t, db, "event_ingest_writer"))
	go func() {
		events, enqueued := 0, 0
		for producing.Err() == nil {
			if _, err := producer.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) VALUES ('t', $1)", fmt.Sprintf(`{"n": %d}`, events)); err == nil {
				events++
			}
			if _, err := producer.Exec(t.Context(), "SELECT public.fn_job_enqueue('k', 'kg', 'Agent')"); err == nil {
				enqueued++
			}
			time.Sleep(5 * time.Millisecond) // a steady rate of jobs, whatever the hosts do
		}
		produced <- [2]int{events, enqueued}
	}()
	delivered := func() int { return hooks.distinct() }
	x.eventually("the old hosts deliver", func() bool { return delivered() > 100 })
	out, err = qtop(t, db.DSN(""), "migrate", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	now := delivered()
	x.eventually("they go on delivering", func() bool { return delivered() > now+300 })
	ends("a")
	work("a", qtop(t, db.DSN(worker), append([]string{"worker", "--host-id", "a"}, plainHTTP...)...))
	more := 0
	x.eventually("one of this program works beside an old one", func() bool {
		// many at once, or one host may take all that comes
		_, err := x.conn.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) SELECT 't', jsonb_build_object('more', n) FROM generate_series(1, 100) n")
		require.NoError(t, err)
		more += 100
		return x.number("SELECT count(DISTINCT split_part(worker_id, '/', 1)) FROM public.webhook_delivery_jobs WHERE finished_at > (SELECT started_at FROM public.queue_host WHERE host_id = 'a')") == 2 &&
			x.number("SELECT count(DISTINCT lease_owner) FROM public.job_history WHERE finished_at > (SELECT started_at FROM public.queue_host WHERE host_id = 'a')") == 2
	})
	console.until("● live")
	console.keys("8")
	console.until("kg")
	stop()
	want := <-produced
	want[0] += more
	t.Logf("%d events, %d jobs", want[0], want[1])
	x.eventually("all is done", func() bool {
		return x.number("SELECT (SELECT count(*) FROM public.webhook_delivery_sagas WHERE status <> 'Completed') + (SELECT count(*) FROM public.job_queue)") == 0 &&
			x.number("SELECT count(*) FROM public.webhook_delivery_sagas") == want[0]
	})
	hooks.mu.Lock()
	require.Len(t, hooks.got, want[0], "every event was delivered")
	for id, n := range hooks.got {
		require.Equal(t, 1, n, "%s was delivered more than once", id)
	}
	hooks.mu.Unlock()
	jobs.mu.Lock()
	require.Len(t, jobs.got, want[1], "every job was done")
	for body, n := range jobs.got {
		require.Equal(t, 1, n, "%s was done more than once", body)
	}
	jobs.mu.Unlock()
	require.Equal(t, want[1], x.number("SELECT count(*) FROM public.job_history WHERE status = 'succeeded'"))
	ends("a")
	ends("b")
	console.keys("q")
	settled(t, x.conn)
}
