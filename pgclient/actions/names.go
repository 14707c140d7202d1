package actions

import (
	"context"
	"fmt"
	"slices"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// group is a name with the number of selected rows that have it.
type group = queue.Counted

// mostMatches is the largest number of rows that a preview counts for Request.Within, the filter
// of the list in which the operator selected rows.
const mostMatches = 100_000

// groups counts the rows of a selection by name: name is an SQL expression, from the rest of the
// statement, such as "FROM t WHERE …". It counts the first limit rows only; 0 = all.
func (c *Planner) groups(ctx context.Context, name, from string, limit int, args ...any) ([]group, error) {
	some := ""
	if limit > 0 {
		some = fmt.Sprintf(" LIMIT %d", limit)
	}
	return pgrow.All[group](ctx, c.act, "SELECT x.name, count(*) FROM (SELECT "+name+" AS name "+from+some+") x GROUP BY 1 ORDER BY 2 DESC, 1", args...)
}

// namesOf returns the names of all groups, the most frequent first, and the number of rows of all
// groups.
func namesOf(all []group) (names string, n int64) {
	for _, g := range all {
		n += g.N
	}
	return queue.Names(all), n
}

// deadNames returns the names of the groups of dead letters with these ids, such as "HTTP_500 at
// hooks.acme" (see title).
func (c *Planner) deadNames(ctx context.Context, ids [3][]string) (string, error) {
	var all []group
	for i, s := range deadLetterSources() {
		if len(ids[i]) == 0 {
			continue
		}
		some, err := c.groups(ctx, s.title(), "FROM "+s.from+s.given(), 0, ids[i])
		if err != nil {
			return "", err
		}
		all = append(all, some...)
	}
	names, _ := namesOf(all)
	return names, nil
}

// title returns an SQL expression for the name of a dead letter: its error code and its
// destination.
func (s deadLetterSource) title() string {
	return s.code + queue.Choose(s.name == "webhook", " || ' at ' || ", " || ' of ' || ") + s.place
}

func matchDeadLetters(ctx context.Context, c *Planner, filter string) (*queue.Match, error) {
	s, err := filtersql.Dead(filter)
	if err != nil || s.All() {
		return nil, err
	}
	var parts [][]group
	for i, b := range [...]*filtersql.Builder{s.Hooks, s.Jobs, s.Events} {
		x := deadLetterSources()[i]
		some, err := c.groups(ctx, x.place, "FROM "+b.From+b.Clause(), mostMatches, b.Args...)
		if err != nil {
			return nil, err
		}
		parts = append(parts, some)
	}
	return matchOf(parts...), nil
}

func matchJobs(ctx context.Context, c *Planner, filter string) (*queue.Match, error) {
	b, f, err := filtersql.Jobs(filter)
	if err != nil || f.Empty() {
		return nil, err
	}
	all, err := c.groups(ctx, "q.job_kind || ' in ' || q.event_domain || ', ' || q.status", "FROM public.job_queue q"+b.Clause(), mostMatches, b.Args...)
	return matchOf(all), err
}

func matchOf(parts ...[]group) *queue.Match {
	m := &queue.Match{}
	for _, part := range parts { // groups stops counting at mostMatches rows per source
		_, n := namesOf(part)
		m.AtLeast = m.AtLeast || n >= mostMatches
	}
	names, n := namesOf(slices.Concat(parts...))
	m.Count, m.What = n, queue.Clean(names)
	return m
}
