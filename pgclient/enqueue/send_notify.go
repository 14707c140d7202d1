package enqueue

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sendAndNotify sends jobs without a claim. It wakes the listeners of their domains after the
// commit, in the same round trip; if a claimer will look for the jobs (willLook), it looks
// first, and the listeners are woken only for jobs that it has not claimed 5 to 10 ms later.
func (s *sender) sendAndNotify(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, claimer Claimer, willLook bool) (answer, error) {
	if willLook {
		defer claimer.Look() // also after an error: the failed claim might have found other jobs
	}
	statements := []statement{enqueue}
	var later []string // domains that were notified in the last 5 ms
	if !willLook {
		for _, domain := range domainsOf(jobs) {
			if s.reserve(domain) {
				statements = append(statements, statement{notifySQL, [][]byte{[]byte(domain)}})
			} else {
				later = append(later, domain)
			}
		}
	}
	p := startPipeline(ctx, conn, statements, true)
	defer func() { _ = p.Close() }() // reads the rest
	a, err := readAnswer(p)
	if end := readEnd(p); err == nil {
		err = end
	}
	if err != nil {
		return a, err
	}
	if willLook {
		ids := a.ids()
		for i := range min(len(ids), len(jobs)) {
			s.owe(jobs[i].Domain, ids[i])
		}
	}
	for _, domain := range later {
		s.Notify(domain)
	}
	return a, nil
}
