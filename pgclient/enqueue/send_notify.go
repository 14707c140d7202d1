package enqueue

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sendAndNotify sends jobs without a claim. If none of their domains was notified in the last 2 ms,
// the wake trigger sends the wake signal with the commit: nothing reaches a host sooner, and one
// commit per 2 ms with the lock of NOTIFY delays other writers little. Otherwise the signal follows
// when the 2 ms are over. If a claimer has promised to look for the jobs (willLook), it looks first,
// and 8 to 10 ms later the listeners are woken for the jobs that it has not claimed.
func (s *sender) sendAndNotify(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, claimer Claimer, willLook bool) (answer, error) {
	if willLook {
		defer claimer.Look() // also after an error: there may be other jobs to claim
	}
	domains := domainsOf(jobs)
	byTrigger := !willLook && s.reserve(domains)
	if !byTrigger {
		enqueue.sql += noTrigger
	}
	p := startPipeline(ctx, conn, []statement{enqueue})
	defer func() { _ = p.Close() }() // reads the remaining results
	a, err := readAnswer(p)
	if end := readEnd(p); err == nil {
		err = end
	}
	if err != nil {
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
			s.Notify(domain)
		}
	}
	return a, nil
}
