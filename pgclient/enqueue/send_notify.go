package enqueue

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sendAndNotify sends jobs without a claim. After the commit it wakes the listeners of their
// domains, in the same round trip. If a claimer has promised to look for the jobs (willLook), it
// looks first, and 5 to 10 ms later the listeners are woken for the jobs that it has not claimed.
func (s *sender) sendAndNotify(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, claimer Claimer, willLook bool) (answer, error) {
	if willLook {
		defer claimer.Look() // also after an error: there may be other jobs to claim
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
	defer func() { _ = p.Close() }() // reads the remaining results
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
