package workerhost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/jobs"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
)

// heartbeatInterval is the interval of a host's heartbeats. Another instance may take the host id when no
// session of this instance remains on the server, or after 15 s without a heartbeat.
const heartbeatInterval = 5 * time.Second

// A host that finds its id held by another instance asks again every
// retryHeldID: that instance may have crashed, and then its id becomes free
// within 15 s. If the other instance records a further heartbeat (it does so
// every heartbeatInterval) it is alive, and the host is refused; it is also
// refused after waitForHeldID. So a service manager that restarts a refused
// host again and again does so only every few seconds.
const (
	retryHeldID   = 500 * time.Millisecond
	waitForHeldID = 25 * time.Second
)

// registration holds the host id for this instance: the row of queue_host that only one live
// instance may have.
type registration struct {
	client             *pgclient.Client
	db                 *work.Client
	id                 string
	instance           uuid.UUID
	version            string
	operator           string // the person who runs the console in this process
	loops              loops
	jobs               *jobs.Executor
	secrets            *sender.Secrets
	log                *slog.Logger
	logReturned        func(context.Context, []work.Outcome) // logs the previous instance's work that was returned
	clockStepped       func(by time.Duration)                // called when the server's clock was set
	heartbeatRequested chan struct{}                         // size 1: requests a heartbeat at once

	// engaging is locked while the host id is taken or released and while loops start, so
	// that no loop ever runs without the id. It guards held and sign.
	engaging gate
	held     bool   // this instance has the id
	sign     string // last sign of life of another instance that has the id; "" = no other instance has it
	refused  atomic.Pointer[string]
	failing  atomic.Pointer[failing] // nil = the last heartbeat was recorded

	clock serverClock // guarded by engaging
}

// failing is since when and why heartbeats cannot be recorded.
type failing struct {
	since time.Time
	why   string
}

func (f *failing) String() string {
	if f == nil {
		return ""
	}
	return "no heartbeat recorded since " + f.since.UTC().Format("2006-01-02 15:04:05 UTC") + ": " + f.why
}

// gate is a mutex for which a caller can wait until a time; it has the size 1.
type gate chan struct{}

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

// LockBy locks the gate, or returns false if it is still locked at the time by.
func (g gate) LockBy(by time.Time) bool {
	select {
	case g <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(time.Until(by))
	defer late.Stop()
	select {
	case g <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// announce takes the host id. It fails if the installed schema does not fit this program or the
// server is not the expected one. The caller holds engaging.
func (r *registration) announce(ctx context.Context) error {
	if err := r.client.CheckSchema(ctx); err != nil {
		return err
	}
	if err := r.client.Writable(ctx); err != nil {
		return err
	}
	_, _ = r.client.PoolMode(ctx) // before the loops occupy the pool; a later heartbeat asks again
	if why, err := r.client.UnexpectedServer(ctx); err != nil || !why.Empty() {
		if err == nil {
			err = &queue.Error{Kind: queue.KindFailed, What: why, Where: queue.Clean("expect_server"), Do: queue.Clean("connect to the expected server")}
		}
		return err
	}
	answer, err := r.db.HostRegister(ctx, r.id, r.instance.String(), r.version, r.loops.running())
	r.sign = ""
	if answer.Holder != "" {
		r.sign = answer.Holder + " " + answer.LastSeen
	}
	if err != nil {
		return oddID(err)
	}
	refusal := answer.Reason
	r.refused.Store(&refusal)
	r.held = refusal == ""
	if back := answer.Returned; back.Jobs+back.Webhooks > 0 {
		r.log.Warn("the previous instance crashed: its jobs and deliveries were returned", "jobs", back.Jobs, "webhooks", back.Webhooks)
		r.logReturned(ctx, back.Log)
	}
	if refusal != "" {
		where := "host_id"
		if lease.IsCloneRefusal(refusal) {
			where = "database"
		}
		return queue.NewError(queue.KindFailed, refusal, where, "")
	}
	return nil
}

// oddID makes a configuration error of the database's refusal of a host id with characters that a
// new host may not have. Only the database knows whether an older release stored that id, which may stay.
func oddID(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22023" || !strings.HasPrefix(pg.Message, "host id ") {
		return err
	}
	return queue.NewError(queue.KindConfig, pg.Message, "host_id", pg.Hint).Because(err)
}

// heartbeatNow requests a heartbeat now.
func (r *registration) heartbeatNow() { loop.Signal(r.heartbeatRequested) }

func (r *registration) heartbeat(ctx context.Context) {
	_, _ = r.client.PoolMode(ctx) // asks again, at intervals, if the pooler had no free connection
	r.engaging.Lock()
	defer r.engaging.Unlock()
	st := r.loops.status()
	switch {
	case !st.Running:
		r.release(ctx, r.ended(), time.Now().Add(2*time.Second))
		r.refused.Store(new(string)) // the next start of a loop asks for the id again
		return
	case !r.held:
		// Another instance took the id while this instance recorded no heartbeat. Take the id
		// again when the other instance has ended.
		if err := r.announce(ctx); err != nil {
			return
		}
		r.log.Info("this host has its host id again")
	}
	progress := map[string]queue.LoopMark{}
	for _, l := range st.Loops {
		if l.State != loop.Stopped {
			m := queue.LoopMark{State: l.State, Done: l.Done, Errors: l.Errors, Unsigned: l.Unsigned}
			if !l.LastTick.IsZero() {
				at := l.LastTick
				m.LastTick = &at
			}
			if l.Name == loopJobs {
				m.Executor, m.Kinds = r.jobs.ID, r.jobs.Kinds()
			}
			if l.Name == loopWebhook {
				known := r.secrets.Usable()
				m.Secrets = &known
			}
			progress[l.Name] = m
		}
	}
	asked := time.Now()
	at, refusal, err := r.db.HostHeartbeat(ctx, r.id, r.instance.String(), r.loops.running(), st.InFlight, progress)
	if err == nil {
		r.failing.Store(nil)
	} else if ctx.Err() == nil {
		now := &failing{since: asked, why: err.Error()}
		if f := r.failing.Load(); f != nil {
			now.since = f.since
		}
		r.failing.Store(now)
	}
	if err == nil && refusal == "" {
		r.reportStep(ctx, r.clock.read(at, asked, time.Now()))
	}
	switch {
	case err != nil && ctx.Err() == nil:
		r.log.Warn("could not record the heartbeat of the host", "error", err.Error())
	case refusal != "":
		// This warning only informs the operator. Two instances do no harm, because leases fence
		// their results; and in a clone no work can be claimed.
		what := "host id lost"
		if lease.IsCloneRefusal(refusal) {
			what = "this host is connected to a clone of its database: it works again once the clone is adopted"
		}
		r.log.Error(what, "reason", refusal)
		r.refused.Store(&refusal)
		r.held = false
	}
}

// reportStep records in the history that the server's clock was set by the duration by; 0 = no
// step, and nothing is recorded.
func (r *registration) reportStep(ctx context.Context, by time.Duration) {
	if by == 0 {
		return
	}
	r.clockStepped(by)
	r.log.Warn("the clock of the server stepped, or another server answers now", "by", by.String())
	if err := r.db.ClockStepped(ctx, r.id, r.instance.String(), by); err != nil {
		r.log.Warn("could not record the step of the server's clock", "error", err.Error())
	}
}

// goodbye records that this host stopped and why, and releases the id, unless a loop was started
// again. The reason is context.Cause(ctx). goodbye gives up at the time by.
func (r *registration) goodbye(ctx context.Context, by time.Time) {
	if !r.engaging.LockBy(by.Add(-goodbyeSpare / 2)) { // a heartbeat waits for a server that does not answer
		r.log.Warn("could not record that the host stopped", "error", "the server does not answer")
		return
	}
	defer r.engaging.Unlock()
	if len(r.loops.running()) == 0 {
		r.release(ctx, cmp.Or(stopReason(ctx), r.ended()), by)
	}
}

// stopReason returns the cause with which ctx was cancelled, "" if ctx has no separate cause.
func stopReason(ctx context.Context) string {
	cause := context.Cause(ctx)
	if cause == nil || cause == ctx.Err() { //nolint:errorlint // the cause of signal.NotifyContext is a context.Canceled too
		return ""
	}
	return cause.Error()
}

// ended returns the reason to record for a stop without a cause: an operator ended the loops in
// the console.
func (r *registration) ended() string {
	return strings.TrimSpace("loops ended " + queue.Choose(r.operator == "", "", "by "+r.operator))
}

// release records the stop and releases the id. The caller holds engaging, so that no heartbeat
// can follow. The end of ctx does not cancel the statement, because without it nobody else gets
// the id for 15 s. If the statement fails, the next heartbeat, or the end of the host, calls
// release again.
func (r *registration) release(ctx context.Context, why string, by time.Time) {
	if !r.held {
		return
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	defer cancel()
	if err := r.db.HostStop(ctx, r.id, r.instance.String(), why); err != nil {
		r.log.Warn("could not record that the host stopped", "error", err.Error())
		return
	}
	r.held = false
}
