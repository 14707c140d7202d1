// Tests on a cluster that pg_auto_failover manages and whose primary crashes under load.
package workerhost_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/schema"
)

// managed is a cluster of pg_auto_failover: a monitor and two nodes, one of them the primary and
// the other its synchronous standby.
type managed struct {
	t       *testing.T
	dir     string
	who     *syscall.Credential
	env     []string
	bin     string
	monitor string // the connection string of the monitor
	nodes   map[string]*node
}

// node is a PostgreSQL server and the pg_autoctl process that manages it.
type node struct {
	name, data string
	port       int
	cmd        *exec.Cmd
	ended      chan struct{} // closed when cmd has ended
}

// newManaged starts the cluster. It skips the test if pg_auto_failover is not installed.
func newManaged(t *testing.T) *managed {
	t.Helper()
	if _, err := exec.LookPath("pg_autoctl"); err != nil {
		t.Skip("SKIP: pg_auto_failover is not installed; make test-full installs it on Debian as root")
	}
	found, _ := filepath.Glob("/usr/share/postgresql/*/extension/pgautofailover.control")
	who, err := user.Lookup("postgres")
	if err != nil || len(found) == 0 || os.Getuid() != 0 {
		t.Skip("SKIP: a test of pg_auto_failover needs its extension, root, and the user postgres of Debian")
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	dir, err := os.MkdirTemp("", "qtop-failover-") //nolint:usetesting // short, for sockets, and owned by another user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chown(dir, uid, gid))
	major := strings.Split(found[len(found)-1], "/")[4]
	m := &managed{
		t: t, dir: dir, who: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, bin: "/usr/lib/postgresql/" + major + "/bin", //nolint:gosec // ids of users
		nodes: map[string]*node{},
		env: []string{
			"PATH=/usr/lib/postgresql/" + major + "/bin:/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C.UTF-8", "TZ=UTC", "XDG_CONFIG_HOME=" + dir + "/config",
			"XDG_DATA_HOME=" + dir + "/share", "XDG_RUNTIME_DIR=" + dir + "/run", "PGHOST=127.0.0.1",
		},
	}
	t.Cleanup(m.end)
	mon := m.add("monitor")
	m.run(mon, "create", "monitor", "--auth", "trust", "--no-ssl", "--hostname", "127.0.0.1")
	m.monitor = fmt.Sprintf("postgres://autoctl_node@127.0.0.1:%d/pg_auto_failover?sslmode=disable", mon.port)
	m.waits("the monitor", m.monitor, "SELECT true FROM pg_extension WHERE extname = 'pgautofailover'")
	for name, value := range map[string]string{
		"health_check_period": "1000", "health_check_timeout": "1000", "health_check_retry_delay": "500", "health_check_max_retries": "1",
		"node_considered_unhealthy_timeout": "3000", "primary_demote_timeout": "5000", "startup_grace_period": "1000",
	} {
		m.psql(mon.port, "ALTER SYSTEM SET pgautofailover."+name+" = "+value)
	}
	m.psql(mon.port, "SELECT pg_reload_conf()")
	for _, name := range []string{"a", "b"} {
		n := m.add(name)
		m.run(n, "create", "postgres", "--auth", "trust", "--no-ssl", "--hostname", "127.0.0.1", "--name", name, "--monitor", m.monitor)
		m.waits("node "+name, m.monitor, fmt.Sprintf("SELECT reportedstate IN ('single', 'secondary') FROM pgautofailover.node WHERE nodeport = %d", n.port))
	}
	m.synchronous()
	return m
}

func (m *managed) add(name string) *node {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(m.t, err)
	n := &node{name: name, data: filepath.Join(m.dir, name), port: l.Addr().(*net.TCPAddr).Port} //nolint:forcetypeassert // a TCP listener has a TCPAddr
	require.NoError(m.t, l.Close())
	m.nodes[name] = n
	return n
}

// run starts the pg_autoctl process of a node. create holds its further arguments at the first
// start.
func (m *managed) run(n *node, create ...string) {
	m.t.Helper()
	args := []string{"run"}
	if len(create) > 0 {
		args = append(create, "--pgport", fmt.Sprint(n.port), "--pgctl", m.bin+"/pg_ctl", "--run")
	}
	n.cmd = exec.Command("pg_autoctl", append(args, "--pgdata", n.data)...) //nolint:gosec // ended at cleanup
	n.cmd.Env, n.cmd.Dir = m.env, m.dir
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: m.who}
	log, err := os.OpenFile(filepath.Join(m.t.TempDir(), n.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(m.t, err)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	require.NoError(m.t, n.cmd.Start())
	cmd, ended := n.cmd, make(chan struct{})
	n.ended = ended
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(ended)
	}()
	m.t.Cleanup(func() {
		if m.t.Failed() {
			b, _ := os.ReadFile(log.Name())
			m.t.Logf("%s:\n%s", n.name, tail(string(b), 3000))
		}
	})
}

// crash kills a node: first its server, then pg_autoctl.
func (m *managed) crash(n *node) {
	if b, err := os.ReadFile(filepath.Join(n.data, "postmaster.pid")); err == nil {
		first, _, _ := strings.Cut(string(b), "\n")
		if pid, err := strconv.Atoi(first); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL)
}

// end stops the nodes and then the monitor: a worker process of the monitor's server would
// survive a crash of that server.
func (m *managed) end() {
	for _, n := range m.nodes {
		if n.cmd != nil {
			_ = n.cmd.Process.Signal(syscall.SIGINT)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, n := range m.nodes {
		if n.cmd == nil {
			continue
		}
		select {
		case <-n.ended:
		case <-ctx.Done():
			m.crash(n)
		}
	}
}

// psql runs a statement as the superuser.
func (m *managed) psql(port int, sql string) {
	m.t.Helper()
	database := "postgres"
	if port == m.nodes["monitor"].port {
		database = "pg_auto_failover"
	}
	cmd := exec.Command(m.bin+"/psql", "-XqAt", "-h", "127.0.0.1", "-p", fmt.Sprint(port), "-d", database, "-c", sql) //nolint:gosec // runs for a moment only
	cmd.Env, cmd.Dir = m.env, m.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.who}
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%s: %s", sql, out)
}

// waits until a statement returns true.
func (m *managed) waits(what, dsn, sql string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		var yes bool
		return conn.QueryRow(ctx, sql).Scan(&yes) == nil && yes
	}, 2*time.Minute, 100*time.Millisecond, "%s: %s", what, sql)
}

// synchronous waits for a primary with a synchronous standby.
func (m *managed) synchronous() {
	m.t.Helper()
	m.waits("the nodes", m.monitor, `SELECT count(*) = 2 AND bool_and(reportedstate = goalstate AND reportedstate IN ('primary', 'secondary'))
		AND count(*) FILTER (WHERE reportedstate = 'primary') = 1 FROM pgautofailover.node`)
	m.waits("replication", m.dsn("postgres"), "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') AND state = 'streaming'")
}

// primary returns the node that accepts writes.
func (m *managed) primary() *node {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.dsn("postgres"))
	if err != nil {
		return nil
	}
	defer conn.Close(context.Background())
	var port int
	if conn.QueryRow(ctx, "SELECT current_setting('port')::int").Scan(&port) != nil {
		return nil
	}
	for _, n := range m.nodes {
		if n.port == port {
			return n
		}
	}
	return nil
}

// dsn returns a connection string that names both nodes and connects to the node that accepts
// writes.
func (m *managed) dsn(login string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=2",
		login, m.nodes["a"].port, m.nodes["b"].port)
}

// The primary crashes three times under load. Within a minute after the database accepts writes
// again, every acknowledged job and event is finished and the console names the new primary. No
// host has ended.
func TestFailover(t *testing.T) {
	t.Parallel()
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: a cluster of pg_auto_failover that fails over three times takes minutes")
	}
	m := newManaged(t)
	require.NoError(t, schema.Up(t.Context(), m.dsn("postgres"), func(string) {}))
	config, err := pgsession.PoolConfig(m.dsn("postgres"))
	require.NoError(t, err)
	admin, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	d := &drill{
		world: &world{t: t, admin: admin, dsn: m.dsn("test_host")}, ledgers: t.TempDir(), hosts: map[string]*drillHost{}, producer: m.dsn("postgres"),
		acknowledged: acknowledged{jobs: map[int]bool{}, events: map[int]bool{}},
	}
	t.Cleanup(d.logState)
	d.exec("CREATE ROLE test_host LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner, queue_viewer")
	executor(t, admin, "host", "", 1000)
	d.receiver = receive(t, ok)
	d.subscribe("drill", d.receiver.URL, nil)
	for _, id := range []string{"h0", "h1"} {
		d.start(&drillHost{spec: childSpec{ID: id, Executor: "host", Concurrency: 8, Grace: 5 * time.Second, Took: 20 * time.Millisecond}})
	}
	console, err := pgclient.Open(t.Context(), pgclient.Options{DSN: m.dsn("test_host"), Actor: "test"})
	require.NoError(t, err)
	t.Cleanup(console.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var producers sync.WaitGroup
	producers.Go(func() { d.produce(ctx, d.enqueueJob) })
	producers.Go(func() { d.produce(ctx, d.insertEvent) })
	for crash := range 3 {
		m.synchronous()
		begun := d.count()
		eventually(t, func() bool { return d.count() > begun+100 }, "no load")
		old := m.primary()
		require.NotNil(t, old)
		down := time.Now()
		m.crash(old)
		require.Eventually(t, func() bool {
			now := m.primary()
			if now == nil || now == old {
				return false
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_, err := admin.Exec(ctx, "CREATE TABLE public.test_written_"+strconv.Itoa(crash)+" ()")
			return err == nil
		}, 2*time.Minute, 50*time.Millisecond, "no node takes writes")
		writable := time.Now()
		before := d.acknowledgedSoFar()
		for left := d.waiting(t, before); len(left) > 0; left = d.waiting(t, before) {
			require.Less(t, time.Since(writable), time.Minute, "not all that was acknowledged is worked on within a minute: %v", left)
			time.Sleep(200 * time.Millisecond) // between two reads of the files
		}
		worked := time.Since(writable)
		now := m.primary()
		eventually(t, func() bool {
			s, err := console.Session(t.Context())
			return err == nil && strings.HasSuffix(s.Address.String(), fmt.Sprint(":", now.port))
		}, "the console does not name the new primary, port %d", now.port)
		t.Logf("crash %d: writable after %s; %d acknowledged jobs and events, all worked on %s later", crash+1, writable.Sub(down).Round(100*time.Millisecond),
			len(before.jobs)+len(before.events), worked.Round(100*time.Millisecond))
		m.run(old)
	}
	cancel()
	producers.Wait()
	jobs, events := d.lost(t) // events that are not routed yet are in no table of work, but count here
	for calm := time.Now(); len(jobs)+len(events) > 0 && time.Since(calm) < time.Minute; jobs, events = d.lost(t) {
		holdFor(t.Context(), 200*time.Millisecond)
	}
	require.Empty(t, jobs, "jobs are lost")
	require.Empty(t, events, "events are lost")
	d.becomes(0, "SELECT (SELECT count(*) FROM public.job_queue)::int + ("+unfinished+")")
	require.Zero(t, d.int("SELECT count(*)::int FROM (SELECT 1 FROM public.job_history WHERE job_kind = 'drill' GROUP BY idempotency_key HAVING count(*) > 1) x"))
	for id, h := range d.hosts {
		select {
		case <-h.done:
			t.Errorf("host %s has ended", id)
		default:
		}
	}
}

// count returns how many jobs and events were acknowledged.
func (d *drill) count() int {
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	return len(d.acknowledged.jobs) + len(d.acknowledged.events)
}

// acknowledgedSoFar returns a copy of the acknowledged numbers.
func (d *drill) acknowledgedSoFar() *acknowledged {
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	out := &acknowledged{jobs: map[int]bool{}, events: map[int]bool{}}
	for n := range d.acknowledged.jobs {
		out.jobs[n] = true
	}
	for n := range d.acknowledged.events {
		out.events[n] = true
	}
	return out
}

// waiting returns the jobs and events of before that are not finished.
func (d *drill) waiting(t *testing.T, before *acknowledged) (out []string) {
	t.Helper()
	jobs, events := d.lost(t)
	for _, n := range jobs {
		if before.jobs[n] {
			out = append(out, fmt.Sprint("job ", n))
		}
	}
	for _, n := range events {
		if before.events[n] {
			out = append(out, fmt.Sprint("event ", n))
		}
	}
	return out
}
