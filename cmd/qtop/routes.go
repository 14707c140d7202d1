package main

// This file is the verbs about where events go: the route of each domain, and the
// consumers that get a job of each event.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

func (a *app) routeCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "route", Short: "List the routes of events per domain, switch one"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", short: "Which worker routes each domain's events, when it last did, what waits and what is held", show: showRoutes}, &viewOptions{}),
		a.act(actVerb{use: "set DOMAIN", action: queue.ActRouteSet, args: cobra.ExactArgs(1), list: "route list", into: targets}),
	)
	return cmd
}

func (a *app) consumerCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "consumer", Short: "List, set or disable the consumers of events"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", short: "Which consumers get a job of which events", show: showConsumers}, &viewOptions{}),
		a.act(actVerb{use: "set ID", action: queue.ActConsumerSet, args: cobra.ExactArgs(1), list: "consumer list", into: targets}),
	)
	disable := a.act(actVerb{
		use: "disable ID", action: queue.ActConsumerSet, args: cobra.ExactArgs(1), list: "consumer list",
		skip: []string{"domain", "type", "kind", "executor", "enabled"},
		into: func(r *queue.Request, args []string) { r.Targets, r.Args["enabled"] = args, "false" },
	})
	disable.Short = "Disable a consumer; the jobs it has stay"
	cmd.AddCommand(disable)
	return cmd
}

func showRoutes(ctx context.Context, a *app, c *pgclient.Client, _ viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListRoutes})
	routes := queue.Of[[]queue.Route](p)
	if routes == nil {
		routes = []queue.Route{}
	}
	var rows [][]string
	for _, r := range routes {
		waiting := strconv.FormatInt(min(r.Waiting, 10_000), 10)
		if r.Waiting > 10_000 {
			waiting = "≥" + waiting
		}
		rows = append(rows, []string{
			r.Domain.String(), r.Worker.String(), onOff(r.Enabled), stamp(r.LastRunAt), waiting, stamp(r.OldestAt), strconv.FormatInt(r.Held, 10),
			strconv.FormatInt(r.EventsSeen, 10), strconv.FormatInt(r.Attempts, 10), strconv.FormatInt(r.DeadLettered, 10), r.UpdatedBy.String(),
		})
	}
	return a.answer(err, routes, []string{"DOMAIN", "WORKER", "ROUTE", "LAST RUN", "WAITING", "OLDEST", "HELD", "SEEN", "ATTEMPTS", "DEAD", "SET BY"}, rows)
}

func showConsumers(ctx context.Context, a *app, c *pgclient.Client, _ viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListConsumers})
	consumers := queue.Of[[]queue.Consumer](p)
	if consumers == nil {
		consumers = []queue.Consumer{}
	}
	var rows [][]string
	for _, x := range consumers {
		rows = append(rows, []string{
			x.ID.String(), fmt.Sprintf("%s/%s", x.Domain, x.EventType), x.JobKind.String(), x.Executor.String(), onOff(x.Enabled), x.UpdatedBy.String(), stamp(&x.UpdatedAt),
		})
	}
	return a.answer(err, consumers, []string{"CONSUMER", "EVENT", "JOB KIND", "EXECUTOR", "STATE", "SET BY", "AT"}, rows)
}

func onOff(on bool) string {
	if on {
		return "enabled"
	}
	return "disabled"
}
