package workerhost

// This file lists the loops a host can run. Each is named like the tick worker
// it drives; job_executor drives none. A tick worker is added here, its function in
// pgclient/schema/code, its row with the interval in pgclient/schema/seeds.sql and its
// name in the list of scheduler_test.go there; docs/schema.md follows.
//
// The function needs no arguments and answers a JSON object. The numbers in it are work
// done, but for held, waiting, in_flight, checked and total. A number of lease.Most or
// more, whatever its name, says that there is more: the loop looks again at once
// (handOn). In a copy of a database only the workers run that fn_queue_tick_clone names.

import (
	"log/slog"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
)

// The loops that hand work to each other inside one process.
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

// worker is a loop, and whom it hands work to.
type worker struct {
	name, what string
	wakes      []handOff
}

// handOff makes the loop next look at once when a pass brought some of a count of
// its result.
type handOff struct{ count, next string }

func catalogue() []worker {
	return []worker{
		{loopRoutes, "routes events of the outbox to their recipients and consumers", []handOff{{"jobs", loopJobs}}},
		{loopStaging, "routes the events of the domain staging", []handOff{{"jobs", loopJobs}}},
		{loopRouter, "makes a saga per webhook event and subscription", []handOff{{"sagas", loopOrchestrator}}},
		{loopOrchestrator, "settles attempts, retries, dead-letters, makes jobs", []handOff{{"jobs_created", loopWebhook}}},
		{loopWebhook, "sends webhooks and reports what came back", []handOff{{"reported", loopOrchestrator}}},
		{"lease_reset_cleaner", "takes expired webhook leases back", []handOff{{"reset", loopWebhook}, {"failed", loopOrchestrator}}},
		{loopJobs, "claims jobs and runs their handlers", []handOff{{"failed", loopDue}}}, // it learns when the retry is due
		{loopDue, "finds jobs and retries that fall due", []handOff{{"promoted", loopJobs}}},
		{loopReaper, "takes expired job leases back", []handOff{{"returned", loopJobs}}},
		{loopBulk, "carries bulk operations out, at their rate", []handOff{{"done", loopOrchestrator}, {"done", loopJobs}}}, // its brake looks at how the first tries end: soon
		{"iu_notification_worker", "tells staged pieces, a document as one notification", nil},
		{"staging_cleanup_sweep", "deletes staged rows that were told long ago", nil},
		{"stale_heartbeat_check", "raises the alert when an executor is silent", nil},
		{"counter_compactor", "folds the counters that the panes read", nil},
		{"metrics_sampler", "keeps once a minute what an incident is told by", nil},
		{"config_expiry", "takes expired flag values back", nil},
		{"retention_sweep", "makes partitions, drops what is old enough", nil},
	}
}

// LoopNames lists all loops.
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
		all = append(all, loop.New(w.name, w.what, log))
	}
	return all
}

// get is nil when there is no such loop.
func (ls loops) get(name string) *loop.Loop {
	for _, l := range ls {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// status is that of all.
func (ls loops) status() (st queue.HostStatus) {
	for _, l := range ls {
		s := l.Status()
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

// wake makes a loop look for a signal; false when there is no such loop.
func (ls loops) wake(name string) bool {
	l := ls.get(name)
	if l != nil {
		l.Wake()
	}
	return l != nil
}

// handOn kicks the loops that have the next step after a pass of one, inside this
// process, and the loop itself when there is more.
func (ls loops) handOn(name string, result map[string]int64) {
	for key, n := range result {
		if work.Counted(key) && n >= lease.MaxBatch {
			ls.get(name).Kick()
		}
	}
	for _, w := range catalogue() {
		if w.name != name {
			continue
		}
		for _, h := range w.wakes {
			if result[h.count] > 0 {
				ls.get(h.next).Kick()
			}
		}
	}
}
