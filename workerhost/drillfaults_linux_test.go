// The faults of the fire drill. Each fault checks that it had its effect, and records its kind, the
// host that it affected, and its time.
package workerhost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/soak/fault"
)

const (
	// recordedWithin is the longest time from the end of an attempt to the record of its result.
	recordedWithin = 4 * time.Second
	// soon is how long a fault may keep results from the database after its end: hosts connect again,
	// the receiver reads the request of a host that was killed, and hosts look at their leases. It is
	// that long only where this machine has other work too.
	soon = 5 * time.Second
	// unnoticed is that time if connections are broken without notice: until the calls on them end.
	unnoticed = work.JobTimeout + soon
	// poolerPause is that time behind PgBouncer if the server refused it: it tries again after 15 s
	// (server_login_retry).
	poolerPause = 16 * time.Second
	// unlimited is that time after the server's clock was set back by a day. PostgreSQL's own timeouts, also
	// that of a deadlock, are then late by a day for the statements that run, and a tick ends when its
	// host gives up.
	unlimited = pgpool.WorkTimeout + 15*time.Second + soon
)

// replyDropped is a fault that both hosts and producers meet.
const replyDropped = "reply dropped at COMMIT"

// cuts collects the faults of a drill, and the reasons why some were left out.
type cuts struct {
	mu      sync.Mutex
	all     []fault.Fault
	skipped []string
}

// add records a fault that ends now.
func (c *cuts) add(name, host string, from time.Time, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, fault.Fault{Name: name, Host: host, From: from, To: time.Now(), After: after})
}

func (c *cuts) skip(name string, why any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if what := fmt.Sprintf("%s: %v", name, why); !slices.Contains(c.skipped, what) {
		c.skipped = append(c.skipped, what)
	}
}

// explain returns the faults that can have kept the result of an attempt from the database.
func (c *cuts) explain(a fault.Attempt) (out []fault.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.all {
		if f.Explains(a, recordedWithin) {
			out = append(out, f)
		}
	}
	return out
}

// counts says how often each fault happened. A fault that affected two hosts counts once.
func (c *cuts) counts() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]map[time.Time]bool{}
	for _, f := range c.all {
		if n[f.Name] == nil {
			n[f.Name] = map[time.Time]bool{}
		}
		n[f.Name][f.From] = true
	}
	var out []string
	for name, times := range n {
		out = append(out, fmt.Sprintf("%s: %d", name, len(times)))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// everywhere records a fault of all hosts, during which the server refused the pooler.
func (d *drill) everywhere(name string, from time.Time) {
	d.log.add(name, "", from, soon)
	for _, id := range d.pooled {
		d.log.add(name, id, from, poolerPause)
	}
}

// within repeats a check until it succeeds, for at most patience. If it does not succeed, the fault
// did not have its effect, and the test fails, with every error and what the server does then.
func (d *drill) within(name, what string, check func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	var errs []string
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		errs = append(errs, fmt.Sprintf("until %.1fs: %v", time.Since(began).Seconds(), err))
		if ctx.Err() != nil {
			break
		}
		holdFor(ctx, 20*time.Millisecond)
	}
	d.t.Errorf("%s: %s, in %d tries:\n%s", name, what, len(errs), strings.Join(errs[max(0, len(errs)-20):], "\n"))
	d.logState()
}

// refused returns an error unless err is a refusal of the server with a SQLSTATE.
func refused(err error, code string) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == code {
		return nil
	}
	return fmt.Errorf("not refused with %s: %v", code, err) //nolint:errorlint // it may be nil
}

// faults returns all faults as functions. Each fault lasts for the given time.
func (d *drill) faults() []func(context.Context, time.Duration) {
	return []func(context.Context, time.Duration){
		d.crash("kill -9", func(h *drillHost) { h.kill() }),
		d.crash("out of memory", d.outOfMemory),
		d.freezeHost,
		d.onNetwork("network cut", soon, func(ctx context.Context, hold time.Duration) {
			d.network.Cut(true)
			holdFor(ctx, hold)
			d.network.Cut(false)
		}),
		d.onNetwork("black hole", unnoticed, func(ctx context.Context, hold time.Duration) {
			d.network.Hole(true)
			holdFor(ctx, hold)
			d.network.Hole(false)
			if d.short { // the test could wait long until a host notices that its connection is broken
				d.network.Cut(false)
			}
		}),
		d.onNetwork("half open", unnoticed, func(ctx context.Context, hold time.Duration) {
			d.network.HalfOpen()
			holdFor(ctx, hold)
			if d.short {
				d.network.Cut(false)
			}
		}),
		d.onNetwork(replyDropped, soon, d.dropReplies),
		d.limitConnections,
		d.freezeServer,
		d.fillDisk,
		d.stepClock,
		func(context.Context, time.Duration) { d.restart("server restarted") },
	}
}

func (d *drill) crash(name string, how func(*drillHost)) func(context.Context, time.Duration) {
	return func(ctx context.Context, hold time.Duration) {
		for _, id := range d.someHosts() {
			h := d.hosts[id]
			d.busy(ctx, h)
			from := time.Now()
			how(h)
			<-h.done
			d.log.add(name, id, from, soon)
			d.start(h)
		}
		holdFor(ctx, hold)
	}
}

func (d *drill) outOfMemory(h *drillHost) {
	how, err := limitMemory(d.t, h.cmd.Process.Pid, 192<<20)
	if err != nil { // on cgroup v2, and without root
		d.log.skip("the kernel's OOM kill (a host ended at a limit of its address space instead)", err)
	}
	_ = h.cmd.Process.Signal(syscall.SIGUSR1)
	select {
	case <-h.done:
		if state, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil && (!ok || state.Signal() != syscall.SIGKILL) {
			d.t.Errorf("out of memory: the kernel did not kill the host: %s", h.cmd.ProcessState)
		}
	case <-time.After(20 * time.Second):
		d.t.Errorf("the limit of memory (%s) does not end the host", how)
		h.kill()
	}
}

// freezeHost stops a host for longer than its leases last.
func (d *drill) freezeHost(ctx context.Context, hold time.Duration) {
	h := d.hosts[d.someHosts()[0]]
	d.busy(ctx, h)
	from := time.Now()
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		d.t.Errorf("host frozen: %v", err)
	}
	holdFor(ctx, 4*time.Second+hold)
	_ = h.cmd.Process.Signal(syscall.SIGCONT)
	d.log.add("host frozen", h.spec.ID, from, soon)
}

func (d *drill) onNetwork(name string, after time.Duration, do func(context.Context, time.Duration)) func(context.Context, time.Duration) {
	if d.short {
		after = soon
	}
	return func(ctx context.Context, hold time.Duration) {
		d.within(name, "no host has a connection", func(context.Context) error {
			if d.network.Open() == 0 {
				return errors.New("0 connections")
			}
			return nil
		})
		from := time.Now()
		do(ctx, hold)
		for _, id := range d.direct {
			d.log.add(name, id, from, after)
		}
	}
}

func (d *drill) dropReplies(ctx context.Context, hold time.Duration) {
	for _, p := range []*pgtest.Path{d.network, d.producing} {
		before := len(p.Dropped())
		p.DropReplies(3)
		for end := time.Now().Add(hold + 5*time.Second); len(p.Dropped()) < before+3 && time.Now().Before(end); {
			holdFor(ctx, 20*time.Millisecond)
		}
		d.within(replyDropped, "none was dropped", func(context.Context) error { // after "half open", hosts wait until their calls end
			if len(p.Dropped()) == before {
				return errors.New("0 replies")
			}
			return nil
		})
		p.DropReplies(0)
	}
}

func (d *drill) limitConnections(ctx context.Context, hold time.Duration) {
	const name = "connection limit"
	from := time.Now()
	d.within(name, "it is not set", func(ctx context.Context) error {
		_, err := d.admin.Exec(ctx, "ALTER ROLE test_host CONNECTION LIMIT 1")
		if err == nil {
			_, err = d.admin.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'test_host'")
		}
		return err
	})
	d.within(name, "the server refuses no connection", func(ctx context.Context) error {
		var err error
		for range 2 { // a host may have the one that is allowed, or not
			var conn *pgx.Conn
			if conn, err = pgx.Connect(ctx, d.dsn); err == nil {
				defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			}
		}
		return refused(err, "53300")
	})
	holdFor(ctx, hold)
	d.within(name, "it is not lifted", func(ctx context.Context) error {
		_, err := d.admin.Exec(ctx, "ALTER ROLE test_host CONNECTION LIMIT -1")
		return err
	})
	d.everywhere(name, from)
}

func (d *drill) freezeServer(ctx context.Context, hold time.Duration) {
	from := time.Now()
	thaw := pgtest.Freeze(d.t, d.server.Server)
	waiting, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	if conn, err := pgx.Connect(waiting, d.dsn); err == nil {
		_ = conn.Close(context.Background())
		d.t.Errorf("server frozen: it answers")
	}
	cancel()
	holdFor(ctx, hold)
	thaw()
	d.log.add("server frozen", "", from, soon)
}

// fillDisk fills the disk of the server. Meanwhile the server refuses writes, and a console shows
// everything.
func (d *drill) fillDisk(ctx context.Context, hold time.Duration) {
	const name = "disk full"
	if d.server.disk == "" {
		d.log.skip(name, d.server.noDisk)
		return
	}
	var lacking int
	d.within(name, "the console cannot read before it", func(ctx context.Context) (err error) {
		if _, err = d.admin.Exec(ctx, "SELECT pg_switch_wal()"); err == nil { // the server ends when the new file of its log is full
			lacking, err = d.consoleReads(ctx)
		}
		return err
	})
	from := time.Now()
	empty, err := d.server.fill()
	if err != nil {
		d.t.Errorf("%s: %v", name, err)
		return
	}
	ended := func() bool { // a server that cannot write its log ends
		select {
		case <-d.server.Done():
			return true
		default:
			return false
		}
	}
	reads := func() (lacks int, err error) { // its sessions end before the server does
		require.Eventually(d.t, func() bool {
			lacks, err = d.consoleReads(context.Background())
			return err == nil || ended()
		}, patience, 100*time.Millisecond, "%s: the console cannot read", name)
		return lacks, err
	}
	d.within(name, "the server refuses no write", func(ctx context.Context) error {
		if ended() {
			return nil
		}
		_, err := d.admin.Exec(ctx, "INSERT INTO public.test_filler SELECT string_agg(md5(g::text || i::text), '') FROM generate_series(1, 20) i, generate_series(1, 200) g GROUP BY i")
		return refused(err, "53100")
	})
	began := time.Now()
	lacks, err := reads()
	switch {
	case err != nil:
		d.fullDisk.ended++
	case lacks != lacking:
		d.t.Errorf("%s: the snapshot lacks %d sections, and %d before", name, lacks, lacking)
	default:
		d.fullDisk.read++
		d.fullDisk.slowest = max(d.fullDisk.slowest, time.Since(began))
	}
	holdFor(ctx, hold)
	empty()
	d.everywhere(name, from)
	if ended() {
		d.restart(name)
	}
}

func (d *drill) stepClock(ctx context.Context, hold time.Duration) {
	if d.server.clock == "" {
		d.log.skip("clock step", d.server.noClock)
		return
	}
	const day = 24 * time.Hour
	for _, by := range []time.Duration{time.Second, -time.Second, day, -day} {
		name := "clock step of " + map[bool]string{true: "a day", false: "a second"}[by.Abs() == day]
		for _, to := range []time.Duration{by, 0} {
			from := time.Now()
			if err := d.server.step(to); err != nil {
				d.t.Errorf("%s: %v", name, err)
			}
			d.within(name, fmt.Sprintf("the server's clock did not become %s ahead", to), func(ctx context.Context) error {
				began := time.Now()
				var at time.Time
				if err := d.admin.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
					return err
				}
				early, late := time.Until(at), at.Sub(began)
				if to < early-100*time.Millisecond || to > late+100*time.Millisecond {
					return fmt.Errorf("it is %s ahead", late)
				}
				return nil
			})
			if to != 0 {
				holdFor(ctx, (hold+time.Second)/2)
			}
			after := soon
			if by.Abs() == day {
				after = unlimited
			}
			d.log.add(name, "", from, after)
		}
	}
}

func (d *drill) restart(name string) {
	from, before := time.Now(), d.server.Pid()
	if err := d.server.Restart(context.Background()); err != nil {
		d.t.Errorf("%s: the server does not start again: %v", name, err)
	}
	if d.server.Pid() == before {
		d.t.Errorf("%s: the server was not restarted", name)
	}
	d.everywhere(name, from)
}

// someHosts returns a host with a direct connection and, if there is one, a host behind the
// pooler.
func (d *drill) someHosts() []string {
	k := rand.IntN(2) //nolint:gosec // not for secrets
	out := []string{fmt.Sprint("direct", k)}
	if d.pooled != nil {
		out = append(out, fmt.Sprint("pooled", k))
	}
	return out
}
