package main

// This file is the verb that looks at dead letters, of webhooks and of jobs.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

func showDead(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 1 {
		return showLetter(ctx, a, c, o.args[0])
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListDeadLetters, Filter: o.filter, Limit: o.limit})
	var rows [][]string
	for _, d := range p.DeadLetters {
		rows = append(rows, []string{
			d.ID, d.State, d.Code.String(), d.Endpoint.String(), d.EventType.String(), age(d.AgeSeconds), stamp(&d.FailedAt), strconv.Itoa(d.Generation),
			d.Domain.String(),
		})
	}
	if err := a.answer(err, p.DeadLetters, []string{"ID", "STATE", "CODE", "ENDPOINT / KIND", "TYPE", "AGE", "FAILED", "REQUEUED BEFORE", "DOMAIN"}, rows); err != nil {
		return err
	}
	a.ofTotal(len(rows), p)
	return nil
}

// ofTotal says under a table how much of the list it is.
func (a *app) ofTotal(rows int, p queue.Page) {
	if a.output == "table" && int64(rows) < p.Total {
		fmt.Fprintf(a.out, "%d of %s%d\n", rows, bound(p.TotalBound), p.Total)
	}
}

func showLetter(ctx context.Context, a *app, c *pgclient.Client, id string) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListDeadLetter, ID: id})
	if err != nil {
		return err
	}
	d := p.Detail
	if a.output == "json" {
		a.encode(a.out, d)
		return nil
	}
	if d.Source == "job" {
		a.jobLetterHead(d)
	} else {
		a.hookLetterHead(d)
	}
	fmt.Fprintln(a.out, "payload (secrets masked): "+d.Payload.String()+d.PayloadWhyNot.String())
	for _, l := range d.Lineage {
		fmt.Fprintf(a.out, "%s  %s %s  %s  %s\n", stamp(l.At), l.Kind, l.ID, l.Status, l.By)
	}
	return nil
}

func (a *app) hookLetterHead(d *queue.DeadLetterDetail) {
	fmt.Fprintf(a.out, "%s  %s  %s  %s\nsaga %d, event %d %s, subscription %d %s\nfailed %s (%s ago), generation %d\n", d.ID, d.State, d.Code, d.Endpoint,
		d.SagaID, d.EventID, d.EventType, d.SubscriptionID, d.CallbackURL, stamp(&d.FailedAt), age(d.AgeSeconds), d.Generation)
	var rows [][]string
	for _, t := range d.Attempts {
		status := "-"
		if t.HTTPStatus != nil {
			status = strconv.Itoa(*t.HTTPStatus)
		}
		rows = append(rows, []string{strconv.Itoa(t.No), strconv.FormatInt(t.JobID, 10), t.Status, status, t.Code.String(), stamp(t.StartedAt), t.Worker.String(), t.Excerpt.String()})
	}
	a.print(nil, []string{"ATTEMPT", "JOB", "STATUS", "HTTP", "CODE", "AT", "WORKER", "ANSWER"}, rows)
}

func (a *app) jobLetterHead(d *queue.DeadLetterDetail) {
	fmt.Fprintf(a.out, "%s  %s  %s  %s (%s)\njob %s for %s, tried %d times, generation %d\nfailed %s (%s ago), first %s\n", d.ID, d.State, d.Code, d.Endpoint,
		d.Domain, d.JobID, d.Executor, d.Tries, d.Generation, stamp(&d.FailedAt), age(d.AgeSeconds), stamp(d.FirstFailedAt))
	fmt.Fprintln(a.out, "last error: "+d.LastError.String())
	switch d.State {
	case "requeued":
		fmt.Fprintf(a.out, "requeued by %s at %s as job %s\n", d.RequeuedBy, stamp(d.RequeuedAt), d.ReplayedJobID)
	case "resolved":
		fmt.Fprintf(a.out, "resolved as %s by %s at %s: %s\n", d.Resolution, d.ResolvedBy, stamp(d.ResolvedAt), d.ResolvedNote)
	}
}
