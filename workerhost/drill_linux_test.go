// The fire drill: hosts, server and network fail in many ways under load.
// Producers, handlers and the receiver write what they did into files outside
// of qtop (the ledger). At the end the test compares the ledger with the
// database.
package workerhost_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
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
	ledgers      string       // the directory for the ledgers of the hosts
	hosts        map[string]*drillHost
	direct       []string // hosts with a direct connection, whose network fails
	pooled       []string // hosts behind the pooler
	log          cuts
	short        bool
	acknowledged acknowledged
	receiver     *receiver
	console      *pgclient.Client
	fullDisk     fullDisk
}

// fullDisk counts what happened while the disk was full.
type fullDisk struct {
	read, ended int // how often the console read everything, and how often the server ended
	slowest     time.Duration
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
// outcomes. If work was done twice, a fault of the first host must have prevented the record of the
// first result, and the database must have recorded the loss of the lease.
func TestFireDrill(t *testing.T) {
	t.Parallel()
	d := &drill{hosts: map[string]*drillHost{}, short: os.Getenv("QTOP_TEST_FULL") == ""}
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
		givenUp, failed := d.givenUp()
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
	d.ledgers = d.server.ledgers
	super := d.server.DSN(embedded.Superuser, "postgres")
	require.NoError(t, schema.Up(t.Context(), super, func(string) {}))
	config, err := pgsession.PoolConfig(super)
	require.NoError(t, err)
	admin, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	d.world = &world{t: t, admin: admin, dsn: d.server.DSN("test_host", "postgres")}
	t.Cleanup(d.logState)
	d.watchWaits(t)
	d.exec("CREATE ROLE test_host LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner")
	d.quick("webhook.timeout_seconds", "1", "webhook.lease_seconds", "11", "webhook.max_attempts", "100",
		"queue.lease.duration_seconds", "4", "queue.tick.lease_reaper.interval_seconds", "1", "queue.retry.max_attempts_default", "100")
	d.exec("CREATE TABLE public.test_outcome (job_id bigint, status text)")
	d.exec(`CREATE FUNCTION public.test_outcome() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN INSERT INTO public.test_outcome VALUES (new.id, new.status::text); RETURN NULL; END $$`)
	d.exec(`CREATE TRIGGER test_outcome AFTER UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
		WHEN (new.status IN ('Completed', 'Failed') AND old.settled_at IS NOT DISTINCT FROM new.settled_at) EXECUTE FUNCTION public.test_outcome()`)
	d.recordLeases()
	d.receiver = receive(t, ok)
	d.subscribe("drill", d.receiver.URL, nil)
	d.exec("CREATE ROLE test_viewer LOGIN IN ROLE queue_viewer")
	d.console, err = pgclient.Open(t.Context(), pgclient.Options{DSN: d.server.DSN("test_viewer", "postgres"), Actor: "test"})
	require.NoError(t, err)
	t.Cleanup(d.console.Close)

	door := pgtest.TCP(t, d.server.Server)
	d.network, d.producing = pgtest.NewPath(t, door), pgtest.NewPath(t, door)
	d.producer = pgtest.OverTCP(d.t, super, d.producing.Addr())
	over := pgtest.OverTCP(t, d.dsn, d.network.Addr())
	dsns := map[string]string{"direct0": over, "direct1": over}
	d.direct = []string{"direct0", "direct1"}
	if _, err := exec.LookPath("pgbouncer"); err == nil {
		b := pgtest.NewBouncer(t, &pgtest.DB{Server: d.server.Server, Name: "postgres"}, "transaction", []string{"test_host"})
		d.pooled = []string{"pooled0", "pooled1"}
		for _, id := range d.pooled {
			dsns[id] = b.DSN("test_host")
		}
	} else {
		d.log.skip("a pooler in front of half the hosts", "pgbouncer is not installed; make test-full installs it on Debian as root")
	}
	for id, dsn := range dsns {
		executor(t, admin, id, "", 1000) // each lease has its name
		d.start(&drillHost{spec: childSpec{DSN: dsn, ID: id, Executor: id, Concurrency: 8, Grace: 5 * time.Second, Took: 20 * time.Millisecond}})
	}
	d.watchAborts(t)
}

// watchWaits looks every second for statements that take over 5 s, and logs them if the drill fails:
// what they wait for, and which sessions block them.
func (d *drill) watchWaits(t *testing.T) {
	const slow = `SELECT concat_ws(' ', a.pid, a.usename, a.state, a.wait_event_type, a.wait_event, 'blocked by ' || NULLIF(pg_blocking_pids(a.pid)::text, '{}'),
			left(regexp_replace(a.query, '\s+', ' ', 'g'), 100), (SELECT string_agg(concat_ws(' ', l.mode, l.relation::regclass), ', ') FROM pg_locks l WHERE l.pid = a.pid
				AND (NOT l.granted OR l.mode IN ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND l.relation IS NOT NULL)))
		FROM pg_stat_activity a WHERE a.backend_type IN ('client backend', 'autovacuum worker') AND a.state <> 'idle' AND a.pid <> pg_backend_pid()
			AND (clock_timestamp() - a.query_start > interval '5 s' OR EXISTS (SELECT FROM pg_stat_activity b
				WHERE a.pid = ANY (pg_blocking_pids(b.pid)) AND clock_timestamp() - b.query_start > interval '5 s'))`
	ctx, cancel := context.WithCancel(t.Context())
	var seen []string
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			holdFor(ctx, time.Second)
			look, done := context.WithTimeout(ctx, 5*time.Second)
			rows, _ := d.admin.Query(look, slow)
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			done()
			if err != nil && ctx.Err() == nil {
				found = append(found, err.Error())
			}
			for _, line := range found {
				seen = append(seen, time.Now().Format(clock)+" "+line)
			}
			seen = seen[max(0, len(seen)-2000):]
		}
	})
	t.Cleanup(func() {
		cancel()
		watch.Wait()
		if t.Failed() {
			t.Logf("statements of over 5 s:\n%s", strings.Join(seen, "\n"))
		}
	})
}

// watchAborts records as a fault that a process of the server aborted, if it says nothing itself: then the server ends all others and
// starts again. The clock causes that: libfaketime reads its file also where PostgreSQL handles a signal, and
// allocates memory for that, perhaps while the interrupted code does so too.
func (d *drill) watchAborts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		var read int64
		said := false // the server says itself why
		for last := time.Now(); ctx.Err() == nil; holdFor(ctx, 100*time.Millisecond) {
			now := time.Now()
			if log, err := os.Open(d.server.LogFile()); err == nil {
				if at, err := log.Seek(0, io.SeekEnd); err == nil && at < read {
					read, said = 0, false // the server was restarted
				}
				if b, err := io.ReadAll(io.NewSectionReader(log, read, 1<<40)); err == nil {
					read += int64(len(b))
					said = said || bytes.Contains(b, []byte("PANIC:")) || bytes.Contains(b, []byte("TRAP:"))
					if bytes.Contains(b, []byte("was terminated by signal 6")) && !said {
						d.everywhere("server aborted", last)
					}
				}
				_ = log.Close()
			}
			last = now
		}
	})
	t.Cleanup(func() {
		cancel()
		watch.Wait()
	})
}

// start starts the process of a host, with the same id at each start.
func (d *drill) start(h *drillHost) {
	h.spec.Ledger = filepath.Join(d.ledgers, fmt.Sprintf("%s.%d", h.spec.ID, h.times))
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
	_, err := conn.Exec(ctx, `SELECT public.fn_job_enqueue('drill', 'work', 'DOT', pg_catalog.jsonb_build_object('n', $1::pg_catalog.int4), p_idempotency_key => $2)`, n, strconv.Itoa(n))
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
