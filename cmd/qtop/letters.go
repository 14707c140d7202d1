package main

// This file is the verb that looks at dead letters, of webhooks and of jobs.

import (
	"context"
	"strconv"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

func showDead(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 1 {
		return showLetter(ctx, a, c, o.args[0], o)
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListDeadLetters, Filter: o.filter, Limit: o.limit})
	letters := queue.Of[[]queue.DeadLetter](p)
	var rows [][]string
	for _, d := range letters {
		rows = append(rows, []string{
			d.ID, d.State, d.Code.String(), d.Endpoint.String(), d.EventType.String(), age(d.AgeSeconds), stamp(&d.FailedAt), strconv.Itoa(d.Generation),
			d.Domain.String(),
		})
	}
	if err := a.answer(err, letters, []string{"ID", "STATE", "CODE", "ENDPOINT / KIND", "TYPE", "AGE", "FAILED", "REQUEUED BEFORE", "DOMAIN"}, rows); err != nil {
		return err
	}
	a.ofTotal(len(rows), p)
	return nil
}

// ofTotal says under a table how much of the list it is.
func (a *app) ofTotal(rows int, p queue.Page) {
	if a.output == "table" && int64(rows) < p.Total {
		a.printf("%d of %s%d\n", rows, bound(p.TotalBound), p.Total)
	}
}

func showLetter(ctx context.Context, a *app, c *pgclient.Client, id string, o viewOptions) error {
	payload, done, err := a.revealed(ctx, c, id, o.reveal)
	if err != nil || done {
		return err
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListDeadLetter, ID: id, Whole: payload.Empty()})
	if err != nil {
		return err
	}
	d := queue.Of[*queue.DeadLetterDetail](p)
	if !payload.Empty() {
		d.Payload, d.PayloadWhyNot, d.Revealed = payload, queue.Text{}, int(queue.RevealFor.Seconds())
	}
	if a.output == "json" {
		a.encode(a.out, d)
		return nil
	}
	switch d.Source {
	case "job":
		a.jobLetterHead(d)
	case "event":
		a.eventLetterHead(d)
	default:
		a.hookLetterHead(d)
	}
	a.payload(d.Payload, d.PayloadWhyNot, d.Revealed)
	if d.LineageLeft > 0 {
		a.printf("lineage: %d generations further away are not shown\n", d.LineageLeft)
	}
	for _, l := range d.Lineage {
		mark := " "
		if l.Current {
			mark = "*"
		}
		a.printf("%s %d  %s  %s %s  %s  %s\n", mark, l.Generation, stamp(l.At), l.Kind, l.ID, l.Status, l.By)
	}
	return nil
}

func (a *app) hookLetterHead(d *queue.DeadLetterDetail) {
	a.printf("%s  %s  %s  %s\nsaga %d, event %d %s, subscription %d %s\nfailed %s (%s ago), generation %d\n", d.ID, d.State, d.Code, d.Endpoint,
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
	a.printf("%s  %s  %s  %s (%s)\njob %s for %s, tried %d times, generation %d\nfailed %s (%s ago), first %s\n", d.ID, d.State, d.Code, d.Endpoint,
		d.Domain, d.JobID, d.Executor, d.Tries, d.Generation, stamp(&d.FailedAt), age(d.AgeSeconds), stamp(d.FirstFailedAt))
	a.printf("last error: "+"%s\n", d.LastError)
	a.fate(d)
}

func (a *app) eventLetterHead(d *queue.DeadLetterDetail) {
	a.printf("%s  %s  %s  %s (%s)\nevent %s, by %s\nfailed %s (%s ago)\n", d.ID, d.State, d.Code, d.EventType, d.Domain, d.RoutedID, d.Worker,
		stamp(&d.FailedAt), age(d.AgeSeconds))
	a.printf("last error: "+"%s\n", d.LastError)
	a.fate(d)
}

// fate is what became of a letter.
func (a *app) fate(d *queue.DeadLetterDetail) {
	switch d.State {
	case "requeued":
		if d.Source == "event" {
			a.printf("routed again by %s at %s\n", d.RequeuedBy, stamp(d.RequeuedAt))
			return
		}
		a.printf("requeued by %s at %s as job %s\n", d.RequeuedBy, stamp(d.RequeuedAt), d.ReplayedJobID)
	case "resolved":
		a.printf("resolved as %s by %s at %s: %s\n", d.Resolution, d.ResolvedBy, stamp(d.ResolvedAt), d.ResolvedNote)
	}
}
