package enqueue

// This file sends jobs without a claim: the bells of their domains follow the commit.

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// ringBehind rings for the jobs that were made, or has the taker look first.
func (s *sender) ringBehind(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, taker Taker, takes bool) (answer, error) {
	if takes {
		defer taker.Look() // also after an error: a claim that gave way was to see others
	}
	statements := []statement{enqueue}
	var later []string // domains that rang a moment ago
	if !takes {
		for _, domain := range domainsOf(jobs) {
			if s.take(domain) {
				statements = append(statements, statement{ringSQL, [][]byte{[]byte(domain)}})
			} else {
				later = append(later, domain)
			}
		}
	}
	p := inOneGo(ctx, conn, statements, true)
	defer func() { _ = p.Close() }() // reads the rest
	a, err := readAnswer(p)
	if end := readOn(p); err == nil {
		err = end
	}
	if err != nil {
		return a, err
	}
	if takes {
		ids := a.ids()
		for i := range min(len(ids), len(jobs)) {
			s.owe(jobs[i].Domain, ids[i])
		}
	}
	for _, domain := range later {
		s.Ring(domain)
	}
	return a, nil
}
