package main

// The verbs about the routing of events: the route of each domain, the
// consumers that get a job for each event, and the event types.

import (
	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func routeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "route", Short: "List the routes of events per domain, switch one"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", example: "qtop route list", short: "Which worker routes the events of each domain, its last run and the waiting events", show: listed(queue.ListRoutes, "routes", of(views.Routes))}, &viewOptions{}),
	)
	return cmd
}

func eventTypeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "event-type", Short: "List, register or change the types of events"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", example: "qtop event-type list", short: "Registered types of events, and the values that their events must carry", show: listed(queue.ListEventTypes, "event-types", of(views.EventTypes))}, &viewOptions{}),
	)
	return cmd
}

func consumerCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "consumer", Short: "List, set or disable the consumers of events"}
	entry := actions.Registry().ByID(queue.ActConsumerSet)
	entry.Words, entry.Example, entry.Args = "consumer disable", "qtop consumer disable reindex --reason 'consumer is down'", nil
	entry.Help = "disable a consumer; the jobs it has stay"
	disable := verbOf(a, entry) // consumer set, always with enabled = false
	disable.more = func(r *queue.Request) error {
		r.Args["enabled"] = "false"
		return nil
	}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", example: "qtop consumer list", short: "Which consumers get a job of which events", show: listed(queue.ListConsumers, "consumers", of(views.Consumers))}, &viewOptions{}),
		disable.cmd,
	)
	return cmd
}
