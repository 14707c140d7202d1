package main

// This file is the verbs about where events go: the route of each domain, and the
// consumers that get a job of each event.

import (
	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/queue"
)

func routeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "route", Short: "List the routes of events per domain, switch one"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", short: "Which worker routes each domain's events, when it last did, what waits and what is held", show: listed(queue.ListRoutes, "routes", routeRows)}, &viewOptions{}),
		a.act(actVerb{use: "set DOMAIN", action: queue.ActRouteSet, args: cobra.ExactArgs(1), list: "route list", into: targets}),
	)
	return cmd
}

func consumerCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "consumer", Short: "List, set or disable the consumers of events"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", short: "Which consumers get a job of which events", show: listed(queue.ListConsumers, "consumers", consumerRows)}, &viewOptions{}),
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
