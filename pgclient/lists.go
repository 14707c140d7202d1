package pgclient

// This file answers List and Report.

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/queue"
)

// List reads one page.
func (c *Client) List(ctx context.Context, q queue.Query) (p queue.Page, err error) {
	if q.Kind == queue.ListSession {
		var s queue.Session
		p.AsOf = time.Now()
		if s, err = c.Session(ctx); err == nil {
			p.Rows = &s
		}
	} else {
		p, err = lists.Read(ctx, c.read, q)
	}
	c.Note(err)
	return p, err
}

// Report reads the span from since until until; the zero until is now.
func (c *Client) Report(ctx context.Context, since, until time.Time) (queue.Report, error) {
	r, err := lists.Report(ctx, c.read, c.Actor(), since, until)
	c.Note(err)
	return r, err
}
