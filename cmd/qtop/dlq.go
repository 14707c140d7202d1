package main

// The verb that shows dead letters of webhooks, jobs and events.

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func showDead(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 1 {
		return showDeadLetter(ctx, a, c, o.args[0], revealOptions{})
	}
	return listed(queue.ListDeadLetters, "dlq", of(views.DeadLetters))(ctx, a, c, o)
}

func showDeadLetter(ctx context.Context, a *app, c *pgclient.Client, id string, o revealOptions) error {
	d, done, err := detailed(ctx, a, c, queue.Query{Kind: queue.ListDeadLetter, ID: id}, o, func(d *queue.DeadLetterDetail, payload queue.Text) {
		d.Payload, d.PayloadWhyNot, d.Revealed = payload, queue.Text{}, int(queue.RevealFor.Seconds())
	})
	if err != nil || done {
		return err
	}
	switch d.Source {
	case "job":
		a.jobDeadLetterHead(d)
	case "event":
		a.eventDeadLetterHead(d)
	default:
		a.webhookDeadLetterHead(d)
	}
	a.payload(d.Payload, d.PayloadWhyNot, d.Revealed)
	if d.LineageLeft > 0 {
		a.printf("lineage: %s further away not shown\n", queue.Plural(d.LineageLeft, "generation", "generations"))
	}
	for _, l := range d.Lineage {
		a.printf("%s %d  %s  %s %s  %s  %s\n", queue.Choose(l.Current, "*", " "), l.Generation, views.PlainTime(l.At), l.Kind, l.ID, l.Status, l.By)
	}
	return nil
}

func (a *writer) webhookDeadLetterHead(d *queue.DeadLetterDetail) {
	a.printf("%s  %s  %s  %s\nsaga %d, event %d %s, subscription %d %s\nwebhook-id %s, headers: %s\nfailed %s (%s ago), generation %d\n", d.ID, d.State, d.Code, d.Endpoint,
		d.SagaID, d.EventID, d.EventType, d.SubscriptionID, d.CallbackURL, d.WebhookID, views.HeadersNote, views.PlainTime(&d.FailedAt), views.PlainAge(d.AgeSeconds), d.Generation)
	var rows [][]string
	for _, t := range d.Attempts {
		status := "-"
		if t.HTTPStatus != nil {
			status = strconv.Itoa(*t.HTTPStatus)
		}
		rows = append(rows, []string{strconv.Itoa(t.No), strconv.FormatInt(t.JobID, 10), t.Status, status, t.Code.String(), views.PlainTime(t.StartedAt), t.Worker.String(), t.Excerpt.String()})
	}
	a.print(nil, []string{"ATTEMPT", "JOB", "STATUS", "HTTP", "CODE", "AT", "WORKER", "ANSWER"}, rows)
}

func (a *writer) jobDeadLetterHead(d *queue.DeadLetterDetail) {
	a.printf("%s  %s  %s  %s (%s)\njob %s for %s, %s, generation %d\nfailed %s (%s ago), first %s\n", d.ID, d.State, d.Code, d.Endpoint,
		d.Domain, d.JobID, d.Executor, queue.Plural(d.Tries, "attempt", "attempts"), d.Generation, views.PlainTime(&d.FailedAt), views.PlainAge(d.AgeSeconds), views.PlainTime(d.FirstFailedAt))
	a.printf("last error: "+"%s\n", d.LastError)
	a.fate(d)
}

func (a *writer) eventDeadLetterHead(d *queue.DeadLetterDetail) {
	a.printf("%s  %s  %s  %s (%s)\nevent %s, by %s\nfailed %s (%s ago)\n", d.ID, d.State, d.Code, d.EventType, d.Domain, d.RoutedID, d.Worker,
		views.PlainTime(&d.FailedAt), views.PlainAge(d.AgeSeconds))
	a.printf("last error: "+"%s\n", d.LastError)
	a.fate(d)
}

// fate prints how a dead letter was closed: requeued or resolved, by whom and
// when.
func (a *writer) fate(d *queue.DeadLetterDetail) {
	switch d.State {
	case "requeued":
		if d.Source == "event" {
			a.printf("routed again by %s at %s\n", d.RequeuedBy, views.PlainTime(d.RequeuedAt))
			return
		}
		a.printf("requeued by %s at %s as job %s\n", d.RequeuedBy, views.PlainTime(d.RequeuedAt), d.ReplayedJobID)
	case "resolved":
		a.printf("resolved as %s by %s at %s: %s\n", d.Resolution, d.ResolvedBy, views.PlainTime(d.ResolvedAt), d.ResolvedNote)
	}
}

func deadLettersCmd(a *app) *cobra.Command {
	cmd := a.viewCmd(view{use: "dlq [ID]", of: "dead letter", example: "qtop dlq --filter 'code:HTTP_5* age>2h' --limit 20", short: "Open dead letters, or one with its attempts and lineage", list: true, show: showDead}, &viewOptions{})
	cmd.AddCommand(revealing(a, "dead letter", "qtop dlq show 4812", "One dead letter with its attempts and lineage", showDeadLetter))
	return cmd
}
