package main

// The verbs that print a list unchanged; package views declares the columns.

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// lists returns the verbs that print a list and have no flags except the common
// ones.
func lists(a *app) (cmds []*cobra.Command) {
	for _, v := range []view{
		{use: "health", example: "qtop health --at 02:14", short: "The rows of v_queue_health; of more than 200 groups of dead letters, the subjects with the most", past: true, show: snapshotList("health")},
		{use: "alerts", example: "qtop alerts --watch", short: "Alerts (silences, backlogs, circuits, broadcast shares over their limit) with their owners", past: true, show: snapshotList("alerts")},
		{use: "executors", example: "qtop executors --output json", short: "Executors with their state", past: true, show: snapshotList("executors")},
		{use: "hosts", example: "qtop hosts", short: "Worker hosts with their loops", past: true, show: snapshotList("hosts")},
		{use: "dlq-groups", example: "qtop dlq-groups", short: "Open dead letters by code and endpoint", past: true, show: snapshotList("dlq-groups")},
		{use: "flags", example: "qtop flags", short: "Flags with who set them and when they revert", past: true, show: snapshotList("flags")},
		{use: "audit", example: "qtop audit --filter 'age<8h action:endpoint_*|flag_set !actor:ben'", short: "Who did what, why, before and after", list: true, show: listed(queue.ListAudit, "audit", of(views.Audit))},
		{use: "quarantine", example: "qtop quarantine", short: "Rows that are set aside because a step of a tick worker fails on them", show: listed(queue.ListQuarantine, "quarantine", of(views.Quarantine))},
		{use: "activity", example: "qtop activity --watch", short: "Sessions that may hold queues up: the oldest snapshot, who blocks whom, open transactions", show: listed(queue.ListActivity, "activity", of(views.Activity))},
	} {
		cmds = append(cmds, a.viewCmd(v, &viewOptions{}))
	}
	return cmds
}

// of adapts a function that makes a table from rows of type T: it takes the
// rows from a page.
func of[T any](table func([]T) views.Source) func(queue.Page) views.Source {
	return func(p queue.Page) views.Source { return table(queue.Of[[]T](p)) }
}

func endpointRows(p queue.Page) views.Source {
	return views.Webhooks(queue.Of[queue.EndpointList](p).Endpoints, nil)
}

// showJobSubscriptions prints the job subscriptions of all executors, or of the
// executor that the argument names.
func showJobSubscriptions(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := snapshot(ctx, c)
	if err != nil {
		return err
	}
	if len(o.args) == 1 {
		s.JobSubscriptions = slices.DeleteFunc(s.JobSubscriptions, func(r queue.JobSubscription) bool {
			return r.ExecutorID.String() != queue.Clean(o.args[0]).String()
		})
	}
	a.rows(views.Executors(&s), "executor-rules")
	return nil
}
