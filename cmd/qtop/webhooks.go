package main

// This file is the verbs that look at webhooks and at what blocks a queue.

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

func showWebhooks(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 1 {
		return showEndpoint(ctx, a, c, o.args[0])
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListEndpoints, Filter: o.filter, Limit: o.limit})
	list := queue.Of[queue.EndpointList](p).Endpoints
	var rows [][]string
	for _, e := range list {
		rows = append(rows, []string{
			strconv.FormatInt(e.ID, 10), e.Endpoint.String(), gateWord(e), count(e.Waiting), age(e.AgeSeconds), count(e.PendingRetry), count(e.Leased), count(e.Expired),
			okWord(e), millis(e.P50MS), millis(e.P95MS), count(e.DeadOpen), stamp(e.LastSuccessAt), e.EventType.String(),
		})
	}
	heads := []string{"SUBSCRIPTION", "ENDPOINT", "GATE", "WAITING", "OLDEST", "RETRY", "IN FLIGHT", "EXPIRED", "OK", "P50", "P95", "DEAD", "LAST SUCCESS", "TYPE"}
	if err := a.answer(err, list, heads, rows); err != nil {
		return err
	}
	a.ofTotal(len(rows), p)
	return nil
}

func gateWord(e queue.Endpoint) string {
	if e.Gate != "suspended" && e.Gate != "half_open" {
		return e.Gate
	}
	s := e.Gate + " (" + e.Reason.String() + ")"
	if e.Until != nil {
		s += " until " + stamp(e.Until)
	}
	return s
}

func okWord(e queue.Endpoint) string {
	if e.Recent == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", e.RecentOK, e.Recent)
}

func millis(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return strconv.FormatFloat(*ms, 'f', 0, 64) + " ms"
}

func showEndpoint(ctx context.Context, a *app, c *pgclient.Client, id string) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListEndpoint, ID: id})
	if err != nil {
		return err
	}
	d := queue.Of[*queue.EndpointDetail](p)
	e := d.Endpoint
	if a.output == "json" {
		a.encode(a.out, d)
		return nil
	}
	a.printf("subscription %d  %s  %s\ngate %s", e.ID, e.EventType, e.URL, gateWord(e))
	if e.Since != nil {
		a.printf(" by %s since %s", e.SuspendedBy, stamp(e.Since))
	}
	a.printf("\nwaiting %d: %d new, %d in progress, %d wait for their next attempt\nin flight %d, %d with an expired lease\nended %d delivered, %d dead, %d of them open\n",
		e.Waiting, e.Pending, e.InProgress, e.PendingRetry, e.Leased, e.Expired, e.Completed, e.DeadLettered, e.DeadOpen)
	a.printf("recent attempts that succeeded %s, p50 %s, p95 %s, %d failures in a row\n", okWord(e), millis(e.P50MS), millis(e.P95MS), e.FailuresInRow)
	a.chain(d.Why)
	for _, s := range d.Retries {
		if s.N > 0 {
			a.printf("RETRY   %s%d %s\n", bound(s.Bound), s.N, slot(s))
		}
	}
	var rows [][]string
	for _, t := range d.Attempts {
		code := t.Code.String()
		if t.HTTPStatus != nil && code == "" {
			code = "HTTP_" + strconv.Itoa(*t.HTTPStatus)
		}
		rows = append(rows, []string{count(t.JobID), strconv.Itoa(t.No), t.Status, code, stamp(t.StartedAt), stamp(t.FinishedAt), t.Worker.String()})
	}
	a.print(nil, []string{"JOB", "ATTEMPT", "STATUS", "ANSWER", "STARTED", "FINISHED", "WORKER"}, rows)
	return nil
}

func slot(s queue.RetrySlot) string {
	switch {
	case s.From < 0:
		return "due now"
	case s.To == 0:
		return "due after " + age(s.From)
	}
	return "due in " + age(s.From) + " to " + age(s.To)
}

// showWhy says why one queue waits, or of all that wait the first link.
func showWhy(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if len(o.args) == 0 {
		s, err := snapshot(ctx, c)
		var rows [][]string
		for _, w := range s.Waiting {
			name := w.Queue.String()
			if w.Source == "job" {
				name += " in " + w.Domain.String()
			}
			why := w.Why.String()
			if why == "" {
				why = "nothing blocks it"
			}
			rows = append(rows, []string{name, bound(w.WaitingBound) + count(w.Waiting), age(w.AgeSeconds), why})
		}
		return a.answer(err, s.Waiting, []string{"QUEUE", "WAITING", "OLDEST", "WHY"}, rows)
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListWhy, ID: o.args[0]})
	if err != nil {
		return err
	}
	y := queue.Of[*queue.Why](p)
	if a.output == "json" {
		a.encode(a.out, y)
		return nil
	}
	a.printf("%s: %s%d wait, the oldest for %s\n", y.Queue, bound(y.WaitingBound), y.Waiting, age(y.AgeSeconds))
	a.chain(y)
	return nil
}

// chain prints every link, those that do not block too: what was ruled out is
// half of the answer.
func (a *app) chain(y *queue.Why) {
	for _, l := range y.Links {
		a.printf("%-7s %-13s %s\n", strings.ToUpper(l.State), l.Link, l.Text)
		if !l.Detail.Empty() {
			a.printf("%21s %s\n", "", l.Detail)
		}
		if !l.Do.Empty() {
			keys := ""
			if l.Keys != "" {
				keys = l.Keys + ", or "
			}
			a.printf("%21s cure: %s%s\n", "", keys, l.Do)
		}
	}
}
