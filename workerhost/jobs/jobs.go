// Package jobs is the job executor of a worker host: it claims jobs, runs their handlers and
// records the results.
//
// Start from Executor, whose Run is the body of the loop, and from executor, one run of it. One
// goroutine, the owner of the loop, makes all decisions and never waits for the database:
// statements run in the background and their answers arrive on channels. The parts:
//
//   - claimer claims jobs: how many, from which queue lanes, and when.
//   - suspects isolates jobs that may have killed a host.
//   - buffer holds claimed jobs that wait for a worker.
//   - workers run the handlers, one goroutine per slot.
//   - results record outcomes in batches (see lease.Results).
//   - leases renews the leases of open jobs.
//   - standing holds whether the executor may claim, and sends the heartbeat.
//
// Invariants: a claim has committed before one of its jobs begins; the lease token fences every
// result; jobs that are unfinished at the end, or that cannot begin for lack of something in this host, are handed
// back at once, and no attempt is counted.
package jobs

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

const (
	// jobPoll is the interval of claims when no wake signal arrives.
	jobPoll = time.Second
	// standingEvery is the interval at which the database is asked whether the executor may
	// claim. While it may not claim, the loop sends no other statement.
	standingEvery = 5 * time.Second
)

// Executor is the configuration of the loop.
type Executor struct {
	Client      *work.Client
	Producer    *enqueue.Producer // the producer of this process; claims can share its transactions
	ID          string            // id of the executor; several hosts may share one
	Worker      string            // the name of this host
	Concurrency int               // slots: handlers that run at once
	Timeout     time.Duration
	Handlers    map[string]handler.Handler // by kind; jobs of other kinds are not claimed
	Log         *slog.Logger
	Budget      *lease.Budget // of this host, for payloads that were too long to be returned by the claim
	OnFailed    func()        // called after failed attempts were recorded
	Outcomes    Outcomes
}

// Kinds returns the job kinds that are claimed, sorted.
func (x *Executor) Kinds() []string { return slices.Sorted(maps.Keys(x.Handlers)) }

// The outcomes of an attempt, in the order of the metrics' names in Totals.
const (
	succeeded = iota
	failed
	permanent
	released
	leaseLost
	outcomes
)

// Outcomes counts attempts by outcome, over all runs of the loop.
type Outcomes [outcomes]atomic.Int64

// Totals returns the counts by the name of the outcome.
func (o *Outcomes) Totals() map[string]int64 {
	all := map[string]int64{}
	for i, name := range [outcomes]string{"succeeded", "failed", "permanent", "released", "lease_lost"} {
		all[name] = o[i].Load()
	}
	return all
}

// worked returns how many attempts ended because the handler returned: succeeded, failed or
// permanent.
func (o *Outcomes) worked() (n int64) {
	for i := range o[:released] {
		n += o[i].Load()
	}
	return n
}

// state is shared by the parts of one run of the loop.
type state struct {
	*Executor
	l      *loop.Loop
	kinds  []string
	began  time.Time // when the loop began, from which clock counts
	pace   *loop.Pace
	open   atomic.Int64                      // jobs that are claimed and not settled
	ticks  atomic.Int64                      // how many intervals checkEvery have passed
	pauses lease.Pauses[string, pgtype.UUID] // by kind

	buffer     *buffer
	background sync.WaitGroup // claims, standings, renewals
}

// clock returns the time since the loop began. Changes of the wall clock do not affect it.
func (s *state) clock() time.Duration { return time.Since(s.began) }
