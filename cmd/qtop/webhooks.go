package main

// The verbs that show webhooks and the causes that block a queue.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func showEndpoint(ctx context.Context, a *app, c *pgclient.Client, id string) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListEndpoint, ID: id})
	if err != nil {
		return err
	}
	d := queue.Of[*queue.EndpointDetail](p)
	e := d.Endpoint
	if a.asJSON(d) {
		return nil
	}
	a.printf("subscription %d  %s  %s\nstate %s", e.ID, e.EventType, e.URL, views.PlainGate(e))
	if e.Since != nil {
		a.printf(" by %s since %s", e.SuspendedBy, views.PlainTime(e.Since))
		if !e.Note.Empty() {
			a.printf(", %q", e.Note.String())
		}
	}
	a.printf("\nwaiting %d: %d new, %d in progress, %d waiting for their next attempt\nin flight %d, %d with an expired lease\nended %d delivered, %d dead, %d of them open\n",
		e.Waiting, e.Pending, e.InProgress, e.PendingRetry, e.Leased, e.Expired, e.Completed, e.DeadLettered, e.DeadOpen)
	a.printf("recent attempts that succeeded %s, p50 %s, p95 %s, %s in a row\n", views.PlainOK(e), views.PlainMillis(e.P50MS), views.PlainMillis(e.P95MS), queue.Plural(e.FailuresInRow, "failure", "failures"))
	a.chain(d.Why)
	for _, s := range d.Retries {
		if s.N > 0 {
			a.printf("RETRY   %s %s\n", views.PlainBound(s.N, s.Bound), slot(s))
		}
	}
	var rows [][]string
	for _, t := range d.Attempts {
		code := t.Code.String()
		if t.HTTPStatus != nil && code == "" {
			code = "HTTP_" + strconv.Itoa(*t.HTTPStatus)
		}
		rows = append(rows, []string{fmt.Sprint(t.JobID), strconv.Itoa(t.No), t.Status, code, views.PlainTime(t.StartedAt), views.PlainTime(t.FinishedAt), t.Worker.String(), t.WebhookID})
	}
	a.print(nil, []string{"JOB", "ATTEMPT", "STATUS", "ANSWER", "STARTED", "FINISHED", "WORKER", "WEBHOOK-ID"}, rows)
	return nil
}

func slot(s queue.RetrySlot) string {
	switch {
	case s.From < 0:
		return "due now"
	case s.To == 0:
		return "due after " + views.PlainAge(s.From)
	}
	return "due in " + views.PlainAge(s.From) + " to " + views.PlainAge(s.To)
}

// showWhy prints why the named queue waits; without a name, the first cause for each waiting queue.
// A name such as "webhook example.com" needs no quotes.
func showWhy(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 0 {
		return snapshotList("waiting")(ctx, a, c, o)
	}
	name := strings.Join(o.args, " ")
	p, err := c.List(ctx, queue.Query{Kind: queue.ListWhy, ID: name})
	if errors.Is(err, queue.ErrNoQueue) {
		if done, x := showExecutorWhy(ctx, a, c, name); done || x != nil {
			return x
		}
		near := cmp.Or(c.Nearest(ctx, "queue", name), c.Nearest(ctx, "executor", name))
		if q, ok := asQueueError(err); ok && near != "" {
			q.Do = queue.Clean("did you mean " + near + "? " + q.Do.String())
		}
	}
	if err != nil {
		return err
	}
	y := queue.Of[*queue.Why](p)
	if a.asJSON(y) {
		return nil
	}
	switch {
	case y.Waiting == 0:
		a.printf("%s: nothing waits\n", y.Queue)
	case y.OldestAt == nil:
		a.printf("%s: %s, none is due yet\n", y.Queue, waits(y))
	default:
		a.printf("%s: %s, the oldest for %s\n", y.Queue, waits(y), views.PlainAge(y.AgeSeconds))
	}
	a.chain(y)
	return nil
}

func waits(y *queue.Why) string {
	return views.PlainBound(y.Waiting, y.WaitingBound) + queue.Choose(y.Waiting == 1 && !y.WaitingBound, " waits", " wait")
}

// chain prints everything that can block a queue, also what does not block
// now, so that the reader knows what is ruled out.
func (a *writer) chain(y *queue.Why) {
	for _, l := range y.Links {
		a.printf("%-7s %-13s %s\n", strings.ToUpper(l.State), l.Link, l.Text)
		if !l.Detail.Empty() {
			a.printf("%21s %s\n", "", l.Detail)
		}
		if !l.Do.Empty() {
			a.printf("%21s cure: %s%s\n", "", queue.Choose(l.Keys != "", l.Keys+", or ", ""), l.Do)
		}
	}
}

func showWebhooks(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 1 {
		return showEndpoint(ctx, a, c, o.args[0])
	}
	return listed(queue.ListEndpoints, "webhooks", endpointRows)(ctx, a, c, o)
}

func webhooksCmd(a *app) *cobra.Command {
	return a.viewCmd(view{use: "webhooks [ID]", of: "endpoint", example: "qtop webhooks --filter 'gate:suspended'", short: "Endpoints with state, success rate, pace and waiting webhooks, or one endpoint with its attempts and retries", list: true, show: showWebhooks}, &viewOptions{})
}

func whyCmd(a *app) *cobra.Command {
	cmd := a.viewCmd(view{use: "why [QUEUE]", example: "qtop why", short: "Why a queue waits: everything that could block it, each with its remedy, or which queues wait because of an executor; without a name, all waiting queues", show: showWhy}, &viewOptions{})
	cmd.ValidArgsFunction = a.completeQueue
	return cmd
}
