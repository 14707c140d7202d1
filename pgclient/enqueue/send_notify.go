package enqueue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
)

// sendAndNotify sends jobs without a claim. If the last wake signal of none of their domains is younger
// than its pause (pauseAfter), the wake trigger sends the wake signal with the commit: nothing reaches
// a host sooner, and with these pauses the lock of NOTIFY delays other writers little. Otherwise the
// signal follows when the pause is over. If a claimer has promised to look for the jobs (willLook), it
// looks first, and after owedFor the listeners are woken for the jobs that it has not claimed.
func (s *sender) sendAndNotify(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, claimer Claimer, willLook bool) (answer, error) {
	if willLook {
		defer claimer.Look() // also after an error: there may be other jobs to claim
	}
	domains := domainsOf(jobs)
	var byTrigger bool
	if !willLook {
		var ended func()
		if ended, byTrigger = s.reserve(domains); byTrigger {
			defer ended()
		}
	}
	if !byTrigger {
		enqueue.sql += noTrigger
	}
	p := startPipeline(ctx, conn, []statement{enqueue})
	defer func() { _ = p.Close() }() // reads the remaining results
	a, err := readAnswer(p)
	if end := readEnd(p); err == nil {
		err = end
	}
	if err != nil && (willLook || !pgerror.MayHaveCommitted(err)) {
		return a, err
	}
	switch {
	case willLook:
		ids := a.ids()
		for i := range min(len(ids), len(jobs)) {
			s.owe(jobs[i].Domain, ids[i])
		}
	case !byTrigger:
		for _, domain := range domains {
			s.Notify(domain) // also for jobs that may be enqueued although the answer did not arrive
		}
	}
	return a, err
}
