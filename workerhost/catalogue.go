package workerhost

import (
	"log/slog"
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// Names of the loops that wake each other in this process, see handOff.
const (
	loopRoutes       = "iu_outbound_default"
	loopStaging      = "staging_outbound"
	loopRouter       = "webhook_router"
	loopOrchestrator = "saga_orchestrator"
	loopWebhook      = "webhook_worker"
	loopJobs         = "job_executor"
	loopDue          = "job_queue_default"
	loopReaper       = "lease_reaper"
	loopBulk         = "bulk_operation_runner"
)

// worker names a loop, and which other loops it wakes after which results. queue.Purpose says what it does.
type worker struct {
	name string
	next []handOff
}

// everyLoop is the role that every loop needs.
const everyLoop = "dot_executor"

// Roles returns the roles that a login needs to run these loops (none given = all loops). Every loop
// needs the first of them. To claim jobs, the login must also be a member of its executor's owner
// role.
func Roles(loops []string) []string {
	need := []string{everyLoop}
	for _, w := range catalogue() {
		if r := role(w.name); r != "" && (len(loops) == 0 || slices.Contains(loops, w.name)) {
			need = append(need, r)
		}
	}
	return need
}

// role returns the role that a loop needs beside everyLoop; "" = none.
func role(name string) string {
	return map[string]string{loopWebhook: "webhook_worker"}[name]
}

// handOff says which loop does the next step: after a pass of the loop whose
// result has a number above 0 under the key count, the loop named next checks
// for work at once, without waiting for its interval.
type handOff struct{ count, next string }

// catalogue lists the loops that a host can run. A loop has the name of the tick worker that it
// runs; only job_executor runs no tick worker.
//
// docs/architecture.md describes how to add a tick worker, and the result that its function must
// return.
func catalogue() []worker {
	return []worker{
		{loopRoutes, []handOff{{"jobs", loopJobs}}},
		{loopStaging, []handOff{{"jobs", loopJobs}}},
		{loopRouter, []handOff{{"sagas", loopOrchestrator}}},
		{loopOrchestrator, []handOff{{"jobs_created", loopWebhook}}},
		{loopWebhook, []handOff{{"reported", loopOrchestrator}}},
		{"lease_reset_cleaner", []handOff{{"reset", loopWebhook}, {"failed", loopOrchestrator}}},
		{loopJobs, []handOff{{"failed", loopDue}}}, // that loop then reads when the retry is due
		{loopDue, []handOff{{"promoted", loopJobs}}},
		{loopReaper, []handOff{{"returned", loopJobs}}},
		{loopBulk, []handOff{{"done", loopOrchestrator}, {"done", loopJobs}}}, // an operation may pause until its first attempts have ended: handle its jobs soon
		{"iu_notification_worker", nil},
		{"staging_cleanup_sweep", nil},
		{"stale_heartbeat_check", nil},
		{"counter_compactor", nil},
		{"metrics_sampler", nil},
		{"config_expiry", nil},
		{"retention_sweep", nil},
	}
}

// LoopNames returns the names of all loops.
func LoopNames() []string {
	var names []string
	for _, w := range catalogue() {
		names = append(names, w.name)
	}
	return names
}

type loops []*loop.Loop

func newLoops(log *slog.Logger) (all loops) {
	for _, w := range catalogue() {
		all = append(all, loop.New(w.name, queue.Purpose(w.name), log))
	}
	return all
}

// get returns a loop by its name; nil when there is none.
func (ls loops) get(name string) *loop.Loop {
	for _, l := range ls {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// status returns the status of all loops.
func (ls loops) status() (st queue.HostStatus) {
	for _, l := range ls {
		s := l.Status()
		s.Role = role(l.Name)
		st.Loops = append(st.Loops, s)
		st.InFlight += s.InFlight
		st.Running = st.Running || s.State != loop.Stopped
	}
	return st
}

func (ls loops) running() []string {
	names := []string{}
	for _, l := range ls {
		if l.Status().State != loop.Stopped {
			names = append(names, l.Name)
		}
	}
	return names
}

// wake makes the loop name check for work because of a wake signal. It returns false if there is
// no such loop.
func (ls loops) wake(name string) bool {
	l := ls.get(name)
	if l != nil {
		l.Wake()
	}
	return l != nil
}

// handsOn reports whether other loops continue with the results of the loop name.
func handsOn(name string) bool {
	return slices.ContainsFunc(catalogue(), func(w worker) bool { return w.name == name && len(w.next) > 0 })
}

// notifyNext makes other loops of this process check for work after a pass of the loop name:
// those that do the next step for its result. If more work remains, the loop itself checks again
// too.
func (ls loops) notifyNext(name string, result map[string]int64) {
	for key, n := range result {
		if work.Counted(key) && n >= lease.MaxBatch {
			ls.get(name).Kick()
		}
	}
	for _, w := range catalogue() {
		if w.name != name {
			continue
		}
		for _, h := range w.next {
			if result[h.count] > 0 {
				ls.get(h.next).Kick()
			}
		}
	}
}
