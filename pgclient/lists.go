package pgclient

// The calls that read lists and the report.

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// reading runs a call on the connections for reading, whose error is translated, and notes whether the server answered.
func (c *Client) reading(ctx context.Context, call func() error) error {
	end := c.Watch(ctx, "read")
	err := call()
	if slow := end(err); queue.KindOf(err) != queue.KindFailed { // such as a filter that takes too long
		err = slow
	}
	c.Note(ctx, err)
	return err
}

// List reads one page of the list that the query names.
func (c *Client) List(ctx context.Context, q queue.Query) (p queue.Page, err error) {
	err = c.reading(ctx, func() (err error) {
		if q.Kind != queue.ListSession {
			p, err = lists.Read(ctx, c.read, q)
			return err
		}
		var s queue.Session
		p.AsOf = time.Now()
		if s, err = c.Session(ctx); err == nil {
			p.Rows = &s
		}
		return err
	})
	return p, err
}

// Now returns the time of the server.
func (c *Client) Now(ctx context.Context) (now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	err = c.reading(ctx, func() error { return pgerror.Translate(c.read.QueryRow(ctx, "SELECT now()").Scan(&now)) })
	return now, err
}

// Report reads what happened between since and until; a zero until means now.
func (c *Client) Report(ctx context.Context, since, until time.Time) (r queue.Report, err error) {
	err = c.reading(ctx, func() error {
		r, err = lists.Report(ctx, c.read, c.Actor(), since, until)
		return err
	})
	return r, err
}

// EveryDeadGroup adds to a snapshot the groups of open dead letters that the snapshot leaves out,
// possibly hundreds of thousands. They are read page by page, without the counts of the last hour.
func (c *Client) EveryDeadGroup(ctx context.Context, s *queue.Snapshot) error {
	if s.DeadMore.Groups == 0 {
		return nil
	}
	type key struct {
		source, code, endpoint, domain string
		subscription                   int64
	}
	of := func(g queue.DeadGroup) key {
		return key{g.Source, g.Code.String(), g.Endpoint.String(), g.Domain.String(), g.SubscriptionID}
	}
	shown := map[key]bool{}
	for _, g := range s.DeadGroups {
		shown[of(g)] = true
	}
	for q := (queue.Query{Kind: queue.ListDeadGroups, Limit: queue.MostPage, Bare: true}); ; {
		p, err := c.List(ctx, q)
		if err != nil {
			return err
		}
		for _, g := range queue.Of[[]queue.DeadGroup](p) {
			if !shown[of(g)] {
				s.DeadGroups = append(s.DeadGroups, g)
			}
		}
		if q.After = p.Next; q.After == "" {
			s.DeadMore = queue.DeadMore{}
			return nil
		}
	}
}
