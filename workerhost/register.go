package workerhost

// This file is the row of queue_host by which one live instance holds the host id.

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/jobs"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// beatEvery is how often a host says that it lives. Another instance may take its id
// when none of its sessions is left on the server, or after 15 s of silence.
const beatEvery = 5 * time.Second

// A host that finds its id held looks again every heldAgain: the other one may have
// crashed, and gives way within 15 s. Once that one gives a sign of life, after
// beatEvery at most, or at the latest after heldFor, it is refused. A service manager
// that starts a host again and again so has no more than a start in a few seconds.
const (
	heldAgain = 500 * time.Millisecond
	heldFor   = 25 * time.Second
)

// registration is the host id as this instance has it.
type registration struct {
	client   *pgclient.Client
	db       *work.Client
	id       string
	instance uuid.UUID
	version  string
	operator string // who may end its loops in the console
	loops    loops
	jobs     *jobs.Executor
	log      *slog.Logger
	soon     chan struct{} // of one: a beat is wanted before its time

	// engaging is held while the host id is taken or given free and while loops
	// start, so that no running loop is ever without it.
	engaging sync.Mutex
	held     bool   // the host row is ours; engaging guards it
	sign     string // of life of the instance that holds the id instead; "" = none does
	refused  atomic.Pointer[string]
}

// announce takes the host id, unless this program and the installed code do not
// fit; engaging is held.
func (r *registration) announce(ctx context.Context) error {
	if err := r.client.CheckSchema(ctx); err != nil {
		return err
	}
	if err := r.client.Writable(ctx); err != nil {
		return err
	}
	_, _ = r.client.PoolMode(ctx) // before the loops take their connections; a beat asks again
	if why, err := r.client.UnexpectedServer(ctx); err != nil || !why.Empty() {
		if err == nil {
			err = &queue.Error{Kind: queue.KindConfig, What: why, Where: queue.Clean("expect_server"), Do: queue.Clean("connect to the server that is meant")}
		}
		return err
	}
	refusal, sign, err := r.db.HostRegister(ctx, r.id, r.instance.String(), r.version, r.loops.running())
	r.sign = sign
	if err != nil {
		return err
	}
	r.refused.Store(&refusal)
	r.held = refusal == ""
	if refusal != "" {
		where := "host_id"
		if lease.IsCloneRefusal(refusal) {
			where = "database"
		}
		return queue.NewError(queue.KindFailed, refusal, where, "")
	}
	return nil
}

// beatNow asks for a beat before its time.
func (r *registration) beatNow() { loop.Signal(r.soon) }

func (r *registration) beat(ctx context.Context) {
	_, _ = r.client.PoolMode(ctx) // asked again by the next beat where the pooler is full
	r.engaging.Lock()
	defer r.engaging.Unlock()
	st := r.loops.status()
	switch {
	case !st.Running:
		r.release(ctx, r.ended(), time.Now().Add(2*time.Second))
		r.refused.Store(new(string)) // whoever starts a loop asks anew
		return
	case !r.held:
		// Another instance took the id while this one was silent; when that one
		// is gone the id is ours again.
		if err := r.announce(ctx); err != nil {
			return
		}
		r.log.Info("host id taken back")
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
			progress[l.Name] = m
		}
	}
	refusal, err := r.db.HostBeat(ctx, r.id, r.instance.String(), r.loops.running(), st.InFlight, progress)
	switch {
	case err != nil && ctx.Err() == nil:
		r.log.Warn("the host could not beat", "error", err.Error())
	case refusal != "":
		// The leases still fence what both do, and a clone gives no work to anybody; the
		// operator is told.
		what := "host id lost"
		if lease.IsCloneRefusal(refusal) {
			what = "this host has come to a clone of its database; it works again once that is adopted"
		}
		r.log.Error(what, "reason", refusal)
		r.refused.Store(&refusal)
		r.held = false
	}
}

// goodbye says that this host stopped cleanly, and why, and gives the id free,
// unless a loop was started again. The cause of the end of ctx is the reason. It is
// given up at a time.
func (r *registration) goodbye(ctx context.Context, by time.Time) {
	r.engaging.Lock()
	defer r.engaging.Unlock()
	if len(r.loops.running()) == 0 {
		r.release(ctx, cmp.Or(stopReason(ctx), r.ended()), by)
	}
}

// stopReason is the cause with which ctx was cancelled, "" where none was given.
func stopReason(ctx context.Context) string {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err.Error()
	}
	return ""
}

// ended is the reason where no signal asked for the stop: somebody ended the
// loops in the console.
func (r *registration) ended() string {
	return strings.TrimSpace("loops ended " + queue.Choose(r.operator == "", "", "by "+r.operator))
}

// release gives the id free; engaging is held, so that no beat can follow it. A
// stop does not cancel it: half a goodbye would keep the id for 15 s. One that
// fails is tried again by the next beat, or at the end.
func (r *registration) release(ctx context.Context, why string, by time.Time) {
	if !r.held {
		return
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	defer cancel()
	if err := r.db.HostStop(ctx, r.id, r.instance.String(), why); err != nil {
		r.log.Warn("the host could not say that it stopped", "error", err.Error())
		return
	}
	r.held = false
}
