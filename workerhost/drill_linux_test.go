// The fire drill: hosts, server and network fail in many ways under load.
// Producers, handlers and the receiver write what they did into files outside
// of qtop (the ledger). At the end the test compares the ledger with the
// database.
package workerhost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// drill is one fire drill.
type drill struct {
	*world
	server       *drillServer
	network      *pgtest.Path // from the hosts without pooler to the server
	producing    *pgtest.Path // from the producers to the server
	producer     string       // the connection string of the producers
	dir          string
	hosts        map[string]*drillHost
	direct       []string // hosts with a direct connection, whose network fails
	log          cuts
	short        bool
	acknowledged acknowledged
	receiver     *receiver
}

// drillHost is a worker process and how often it has been started.
type drillHost struct {
	*child
	spec  childSpec
	times int
}

// acknowledged holds the numbers of the jobs and events that the database confirmed to producers.
type acknowledged struct {
	mu            sync.Mutex
	jobs, events  map[int]bool
	doubt         int // events whose insert got no answer
	again         int // jobs enqueued a second time with the same idempotency key, because the first call got no answer
	slowestAnswer time.Duration
}

// TestFireDrill runs for 10 minutes with QTOP_TEST_FULL (QTOP_TEST_DRILL sets another time);
// otherwise each fault happens once. No acknowledged job or event may be lost or have two
// outcomes. If work was done twice, a fault must have prevented the record of its first result.
func TestFireDrill(t *testing.T) {
	t.Parallel()
	d := &drill{dir: t.TempDir(), hosts: map[string]*drillHost{}, short: os.Getenv("QTOP_TEST_FULL") == ""}
	d.acknowledged.jobs, d.acknowledged.events = map[int]bool{}, map[int]bool{}
	lasts := 10 * time.Minute
	if text := os.Getenv("QTOP_TEST_DRILL"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err, "QTOP_TEST_DRILL")
		d.short = false
	}
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // random numbers for a test, not for secrets
	d.open(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	producers.Go(func() { d.produce(ctx, d.enqueueJob) })
	producers.Go(func() { d.produce(ctx, d.insertEvent) })
	if d.short {
		for _, f := range d.faults() {
			f(ctx, time.Second)
		}
	} else {
		for all := d.faults(); time.Since(began) < lasts; {
			for _, i := range rnd.Perm(len(all)) {
				if time.Since(began) < lasts {
					all[i](ctx, time.Second+rand.N(4*time.Second))
					holdFor(ctx, rand.N(2*time.Second))
				}
			}
		}
	}
	cancel()
	producers.Wait()
	calm := time.Now()
	w := d.world
	const left = "SELECT (SELECT count(*) FROM public.job_queue)::int + (" + unfinished + ")"
	worked := func() bool {
		var n int
		err := w.admin.QueryRow(t.Context(), left).Scan(&n)
		jobs, events := d.lost(t) // events that are not routed yet are in no table of work, but count here
		givenUp, failed := d.givenUp(t)
		return err == nil && failed == nil && n == 0 && len(without(jobs, givenUp))+len(events) == 0
	}
	all := worked()
	for ; !all && time.Since(calm) < 3*time.Minute; all = worked() {
		holdFor(t.Context(), 100*time.Millisecond)
	}
	settled := time.Since(calm)
	d.judge(t, seed, time.Since(began), settled) // reports the work that remains
	require.True(t, all, "some jobs or events are not finished")
	for id, h := range d.hosts {
		h.signal(syscall.SIGTERM)
		require.Equal(t, 0, h.exit(), id)
	}
}

// open starts server, receiver and hosts.
func (d *drill) open(t *testing.T) {
	t.Helper()
	size := int64(1 << 30)
	if !d.short {
		size = 4 << 30
	}
	d.server = newDrillServer(t, size)
	super := d.server.DSN(embedded.Superuser, "postgres")
	require.NoError(t, schema.Up(t.Context(), super, func(string) {}))
	config, err := pgsession.PoolConfig(super)
	require.NoError(t, err)
	admin, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	d.world = &world{t: t, admin: admin, dsn: d.server.DSN("test_host", "postgres")}
	t.Cleanup(d.logState)
	d.exec("CREATE ROLE test_host LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner")
	d.quick("webhook.timeout_seconds", "1", "webhook.lease_seconds", "11", "webhook.max_attempts", "100",
		"queue.lease.duration_seconds", "4", "queue.tick.lease_reaper.interval_seconds", "1", "queue.retry.max_attempts_default", "100")
	d.exec("CREATE TABLE public.test_outcome (job_id bigint, status text)")
	d.exec(`CREATE FUNCTION public.test_outcome() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN INSERT INTO public.test_outcome VALUES (new.id, new.status::text); RETURN NULL; END $$`)
	d.exec(`CREATE TRIGGER test_outcome AFTER UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
		WHEN (new.status IN ('Completed', 'Failed') AND old.settled_at IS NOT DISTINCT FROM new.settled_at) EXECUTE FUNCTION public.test_outcome()`)
	executor(t, admin, "host", "", 1000)
	d.receiver = receive(t, ok)
	d.subscribe("drill", d.receiver.URL, nil)

	door := pgtest.TCP(t, d.server.Server)
	d.network, d.producing = pgtest.NewPath(t, door), pgtest.NewPath(t, door)
	d.producer = pgtest.OverTCP(d.t, super, d.producing.Addr())
	over := pgtest.OverTCP(t, d.dsn, d.network.Addr())
	dsns := map[string]string{"direct0": over, "direct1": over}
	d.direct = []string{"direct0", "direct1"}
	if _, err := exec.LookPath("pgbouncer"); err == nil {
		b := pgtest.NewBouncer(t, &pgtest.DB{Server: d.server.Server, Name: "postgres"}, "transaction", []string{"test_host"})
		dsns["pooled0"], dsns["pooled1"] = b.DSN("test_host"), b.DSN("test_host")
	} else {
		d.log.skip("a pooler in front of half the hosts", "pgbouncer is not installed; make test-full installs it on Debian as root")
	}
	for id, dsn := range dsns {
		d.start(&drillHost{spec: childSpec{DSN: dsn, ID: id, Executor: "host", Concurrency: 8, Grace: 5 * time.Second, Took: 20 * time.Millisecond}})
	}
}

// start starts the process of a host, with the same id at each start.
func (d *drill) start(h *drillHost) {
	h.spec.Ledger = filepath.Join(d.dir, fmt.Sprintf("%s.%d", h.spec.ID, h.times))
	h.times++
	h.child = d.spawn(h.spec)
	d.hosts[h.spec.ID] = h
}

// produce calls one with the numbers 0, 1, 2, … until ctx ends. one returns
// whether the database acknowledged the work of that number.
func (d *drill) produce(ctx context.Context, one func(context.Context, *pgx.Conn, int) bool) {
	var conn *pgx.Conn
	for n := 0; ctx.Err() == nil; holdFor(ctx, 20*time.Millisecond) {
		// The last call may complete even if ctx ends: otherwise it would be
		// unknown whether its work was acknowledged.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		if conn == nil {
			conn, _ = pgx.Connect(call, d.producer)
		}
		if conn != nil {
			began := time.Now()
			if one(call, conn, n) {
				n++
			}
			d.acknowledged.mu.Lock()
			d.acknowledged.slowestAnswer = max(d.acknowledged.slowestAnswer, time.Since(began))
			d.acknowledged.mu.Unlock()
			if conn.IsClosed() {
				conn = nil
			}
		}
		cancel()
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

// enqueueJob enqueues job n under an idempotency key. It repeats the call
// until it gets an answer.
func (d *drill) enqueueJob(ctx context.Context, conn *pgx.Conn, n int) bool {
	_, err := conn.Exec(ctx, `SELECT public.fn_job_enqueue('drill', 'work', 'DOT', pg_catalog.jsonb_build_object('n', $1::int), p_idempotency_key => $1::int::text)`, n)
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	if err != nil {
		d.acknowledged.again++
		return false
	}
	d.acknowledged.jobs[n] = true
	return true
}

// insertEvent inserts event n, once: events have no idempotency key here, so a
// repetition could insert it twice.
func (d *drill) insertEvent(ctx context.Context, conn *pgx.Conn, n int) bool {
	_, err := conn.Exec(ctx, `INSERT INTO public.events (event_type, payload) VALUES ('drill', pg_catalog.jsonb_build_object('n', $1::int))`, n)
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	if err != nil {
		d.acknowledged.doubt++
	} else {
		d.acknowledged.events[n] = true
	}
	return true
}

// faults returns all faults as functions. Each fault lasts for the given time.
func (d *drill) faults() []func(context.Context, time.Duration) {
	restart := func(name string) {
		from := time.Now()
		if err := d.server.Restart(context.Background()); err != nil {
			d.t.Errorf("%s: the server does not start again: %v", name, err)
		}
		d.log.add(name, "", from)
	}
	network := func(name string, do func(context.Context, time.Duration)) func(context.Context, time.Duration) {
		return func(ctx context.Context, hold time.Duration) {
			from := time.Now()
			do(ctx, hold)
			for _, id := range d.direct {
				d.log.add(name, id, from)
			}
		}
	}
	crash := func(name string, how func(*drillHost)) func(context.Context, time.Duration) {
		return func(ctx context.Context, hold time.Duration) {
			for _, id := range d.someHosts() {
				h := d.hosts[id]
				d.busy(ctx, h)
				from := time.Now()
				how(h)
				<-h.done
				d.log.add(name, id, from)
				d.start(h)
			}
			holdFor(ctx, hold)
		}
	}
	return []func(context.Context, time.Duration){
		crash("kill -9", func(h *drillHost) { h.kill() }),
		crash("out of memory", func(h *drillHost) {
			how := limitMemory(d.t, h.cmd.Process.Pid, 192<<20)
			_ = h.cmd.Process.Signal(syscall.SIGUSR1)
			select {
			case <-h.done:
			case <-time.After(20 * time.Second):
				d.t.Errorf("the limit of memory (%s) does not end the host", how)
				h.kill()
			}
		}),
		func(ctx context.Context, hold time.Duration) { // a host is stopped for longer than its leases last
			h := d.hosts[d.someHosts()[0]]
			d.busy(ctx, h)
			from := time.Now()
			_ = h.cmd.Process.Signal(syscall.SIGSTOP)
			holdFor(ctx, 4*time.Second+hold)
			_ = h.cmd.Process.Signal(syscall.SIGCONT)
			d.log.add("host frozen", h.spec.ID, from)
		},
		network("network cut", func(ctx context.Context, hold time.Duration) {
			d.network.Cut(true)
			holdFor(ctx, hold)
			d.network.Cut(false)
		}),
		network("black hole", func(ctx context.Context, hold time.Duration) {
			d.network.Hole(true)
			holdFor(ctx, hold)
			d.network.Hole(false)
			if d.short { // the test could wait long until a host notices that its connection is broken
				d.network.Cut(false)
			}
		}),
		network("half open", func(ctx context.Context, hold time.Duration) {
			d.network.HalfOpen()
			holdFor(ctx, hold)
			if d.short {
				d.network.Cut(false)
			}
		}),
		network("reply dropped at COMMIT", func(ctx context.Context, hold time.Duration) {
			for _, p := range []*pgtest.Path{d.network, d.producing} {
				before := len(p.Dropped())
				p.DropReplies(3)
				for end := time.Now().Add(hold + 5*time.Second); len(p.Dropped()) < before+3 && time.Now().Before(end); {
					holdFor(ctx, 20*time.Millisecond)
				}
				p.DropReplies(0)
			}
		}),
		func(ctx context.Context, hold time.Duration) {
			from := time.Now()
			_, err := d.admin.Exec(ctx, "ALTER ROLE test_host CONNECTION LIMIT 1")
			if err == nil {
				_, err = d.admin.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'test_host'")
			}
			holdFor(ctx, hold)
			for end := time.Now().Add(patience); time.Now().Before(end); {
				if _, again := d.admin.Exec(context.Background(), "ALTER ROLE test_host CONNECTION LIMIT -1"); again == nil {
					break
				}
			}
			if err != nil {
				d.t.Errorf("connection limit: %v", err)
			}
			d.log.add("connection limit", "", from)
		},
		func(ctx context.Context, hold time.Duration) {
			from := time.Now()
			thaw := pgtest.Freeze(d.t, d.server.Server)
			holdFor(ctx, hold)
			thaw()
			d.log.add("server frozen", "", from)
		},
		func(ctx context.Context, hold time.Duration) {
			if d.server.disk == "" {
				d.log.skip("disk full", d.server.noDisk)
				return
			}
			from := time.Now()
			empty, err := d.server.fill()
			if err != nil {
				d.t.Errorf("disk full: %v", err)
				return
			}
			holdFor(ctx, hold)
			empty()
			d.log.add("disk full", "", from)
			select {
			case <-d.server.Done(): // a server that cannot write its log ends
				restart("disk full")
			default:
			}
		},
		func(ctx context.Context, hold time.Duration) {
			if d.server.clock == "" {
				d.log.skip("clock step", d.server.noClock)
				return
			}
			for _, step := range []string{"+1", "-1"} {
				from := time.Now()
				_ = os.WriteFile(d.server.clock, []byte(step), 0o644) //nolint:gosec // the server reads it
				holdFor(ctx, hold/2+time.Second)
				_ = os.WriteFile(d.server.clock, []byte("+0"), 0o644) //nolint:gosec // the server reads it
				d.log.add("clock step", "", from)
			}
		},
		func(context.Context, time.Duration) { restart("server restarted") },
	}
}

// someHosts returns a host with a direct connection and, if there is one, a host behind the
// pooler.
func (d *drill) someHosts() []string {
	k := rand.IntN(2) //nolint:gosec // not for secrets
	out := []string{fmt.Sprint("direct", k)}
	if d.hosts["pooled0"] != nil {
		out = append(out, fmt.Sprint("pooled", k))
	}
	return out
}

// busy waits until the host runs a job, so that a fault hits work in progress;
// at most 2 s.
func (d *drill) busy(ctx context.Context, h *drillHost) {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && ctx.Err() == nil; holdFor(ctx, 2*time.Millisecond) {
		b, _ := os.ReadFile(h.spec.Ledger)
		if bytes.Count(b, []byte("begin")) > bytes.Count(b, []byte("end")) {
			return
		}
	}
}

// requests returns, by event number, the times of the requests that the receiver got, and their
// webhook-ids.
func (d *drill) requests() (at map[int][]time.Time, ids map[int]map[string]bool) {
	at, ids = map[int][]time.Time{}, map[int]map[string]bool{}
	for _, g := range d.receiver.all() {
		var body struct{ N int }
		if json.Unmarshal(g.body, &body) != nil {
			continue
		}
		at[body.N] = append(at[body.N], g.at)
		if ids[body.N] == nil {
			ids[body.N] = map[string]bool{}
		}
		ids[body.N][g.id] = true
	}
	return at, ids
}

// begun is the record that a handler started a job: which host, and when.
type begun struct {
	host  string
	at    time.Time
	ended bool
}

// handled returns the starts of handlers that the hosts wrote into their ledgers, by job number.
func (d *drill) handled(t *testing.T) map[int][]begun {
	t.Helper()
	all := map[int][]begun{}
	files, err := filepath.Glob(filepath.Join(d.dir, "*.*"))
	require.NoError(t, err)
	for _, file := range files {
		host, _, _ := strings.Cut(filepath.Base(file), ".")
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			var what string
			var n int
			var at int64
			if got, _ := fmt.Sscanf(line, "%s %d %d", &what, &n, &at); got != 3 {
				continue // a kill cut the line off
			}
			if what == "begin" {
				all[n] = append(all[n], begun{host, time.UnixMilli(at), false})
				continue
			}
			for i := len(all[n]) - 1; i >= 0; i-- {
				if all[n][i].host == host && !all[n][i].ended {
					all[n][i].ended = true
					break
				}
			}
		}
	}
	for _, one := range all {
		slices.SortFunc(one, func(a, b begun) int { return a.at.Compare(b.at) })
	}
	return all
}

// lost returns the acknowledged jobs and events that are not finished.
func (d *drill) lost(t *testing.T) (jobs, events []int) {
	t.Helper()
	handled := d.handled(t)
	at, _ := d.requests()
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	for n := range d.acknowledged.jobs {
		if !slices.ContainsFunc(handled[n], func(b begun) bool { return b.ended }) {
			jobs = append(jobs, n)
		}
	}
	for n := range d.acknowledged.events {
		if len(at[n]) == 0 {
			events = append(events, n)
		}
	}
	return jobs, events
}
