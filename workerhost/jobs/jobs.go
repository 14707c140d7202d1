// Package jobs is the job executor: claim, hand out, report. One goroutine owns the
// loop and never waits for the database: what it asks for comes back as an event. A
// claim has committed before a job is handed out, every result is fenced by its lease
// token, and what is unfinished at the end is handed back at once.
package jobs

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

const (
	// jobPoll is the floor under the wakes.
	jobPoll = time.Second
	// standingEvery is how often the executor's standing is asked for. While it is
	// refused nothing else is asked.
	standingEvery = 5 * time.Second
)

// Executor is what the loop needs of its host.
type Executor struct {
	Client      *work.Client
	Producer    *enqueue.Producer // of this process: a claim goes with its jobs
	ID          string            // of the executor, which hosts may share
	Worker      string            // this host
	Concurrency int               // jobs at work
	Timeout     time.Duration
	Handlers    map[string]handler.Handler // by kind; others are not claimed
	Log         *slog.Logger
	Budget      *lease.Budget // of this host, for payloads that are read apart from their claim
	Failed      func()        // tries that failed are in the database
	Done        Outcomes
}

// Kinds are the kinds that are claimed.
func (x *Executor) Kinds() []string { return slices.Sorted(maps.Keys(x.Handlers)) }

// The outcomes of a try, as the metrics name them.
const (
	succeeded = iota
	failed
	permanent
	released
	leaseLost
	outcomes
)

// Outcomes counts tries, over all runs of the loop.
type Outcomes [outcomes]atomic.Int64

// Totals are the counts by the outcome's name.
func (o *Outcomes) Totals() map[string]int64 {
	all := map[string]int64{}
	for i, name := range [outcomes]string{"succeeded", "failed", "permanent", "released", "lease_lost"} {
		all[name] = o[i].Load()
	}
	return all
}

// worked counts those that were worked on to an end.
func (o *Outcomes) worked() (n int64) {
	for i := range o[:released] {
		n += o[i].Load()
	}
	return n
}

// state is what the parts of one run of the loop share.
type state struct {
	*Executor
	l     *loop.Loop
	kinds []string
	began time.Time // zero of the local clock
	pace  *loop.Pace
	open  atomic.Int64 // claimed and not settled
	ticks atomic.Int64 // of keepEvery

	stock   *stock
	errands sync.WaitGroup // claims, standings, renewals
}

// clock is the local time since the loop began; no change of the wall clock moves
// it.
func (s *state) clock() time.Duration { return time.Since(s.began) }
