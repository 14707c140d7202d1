package main

// The verbs of the scheduler: which tick workers run and when, and the jobs of
// pg_cron.

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func schedulerCmd(a *app) *cobra.Command {
	cmd := a.viewCmd(view{use: "scheduler", example: "qtop scheduler", short: "Tick workers with cadence and last run; pause or resume one, pg_cron's jobs", past: true, show: snapshotList("scheduler")}, &viewOptions{})
	cmd.AddCommand(
		a.viewCmd(view{use: "status", example: "qtop scheduler status", short: "Tick workers, and what pg_cron has of them", show: showSchedulerStatus}, &viewOptions{}),
	)
	return cmd
}

func showSchedulerStatus(ctx context.Context, a *app, c *pgclient.Client, _ viewOptions) error {
	s, err := snapshot(ctx, c)
	if err != nil {
		return err
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListCron})
	if err != nil {
		return err
	}
	cron := queue.Of[*queue.Cron](p)
	mode, _ := s.Flag(queue.SchedulerMode)
	if a.asJSON(map[string]any{"mode": mode.Value, "workers": list(s.Ticks), "pg_cron": cron}) {
		return nil
	}
	fmt.Fprintf(a.out, "mode %s\n", mode.Value)
	a.table(views.Scheduler(&s), "scheduler")
	fmt.Fprintln(a.out)
	if !cron.Lacks.Empty() {
		fmt.Fprintln(a.out, cron.Lacks.String())
	}
	a.table(views.CronJobs(cron.Jobs), "cron")
	return nil
}
