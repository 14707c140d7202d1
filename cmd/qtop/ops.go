package main

// This file is the verbs of bulk operations: freeze, start, watch, take back.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func opsCmd(a *app) *cobra.Command {
	cmd := a.viewCmd(view{use: "ops", short: "Bulk operations with their progress; freeze, start, pause, abort or undo one", list: true, show: listed(queue.ListOperations, "ops", operationRows)}, &viewOptions{})
	show := &viewOptions{limit: 200}
	one := a.viewCmd(view{use: "show ID", short: "One operation with what became of its items, those tried last first", show: showOp}, show)
	one.Flags().IntVar(&show.limit, "limit", 200, "items at most")
	cmd.AddCommand(one, a.act(actVerb{use: "plan [ID...]", action: queue.ActBulkPlan, args: cobra.ArbitraryArgs, filter: true, into: targets}))
	for _, v := range []struct {
		use    string
		action queue.ActionID
	}{
		{"run", queue.ActBulkRun}, {"pause", queue.ActBulkPause}, {"resume", queue.ActBulkResume}, {"abort", queue.ActBulkAbort},
		{"rate", queue.ActBulkRate}, {"undo", queue.ActBulkUndo},
	} {
		cmd.AddCommand(a.act(actVerb{use: v.use + " OPERATION", action: v.action, args: cobra.ExactArgs(1), into: targets}))
	}
	return cmd
}

// requeueCmd requeues at once, or with --rate as a bulk operation that it starts.
func requeueCmd(a *app) *cobra.Command {
	cmd := a.act(actVerb{use: "requeue [ID...]", action: queue.ActRequeue, args: cobra.ArbitraryArgs, filter: true, into: targets})
	entry, _ := queue.ActionByID(queue.ActBulkPlan)
	values := map[string]*string{}
	for _, arg := range entry.Args {
		if arg.Name != "what" {
			values[arg.Name] = cmd.Flags().String(arg.Name, "", arg.Help+"; makes it a bulk operation")
		}
	}
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := queue.Request{Action: queue.ActBulkPlan, Targets: args, Args: map[string]string{}, Actor: a.settings.Actor}
		for name, v := range values {
			if cmd.Flags().Changed(name) {
				r.Args[name] = *v
			}
		}
		if len(r.Args) == 0 {
			return once(cmd, args)
		}
		var o actOptions
		f := cmd.Flags()
		r.Filter, _ = f.GetString("filter")
		r.Reason, _ = f.GetString("reason")
		o.dryRun, _ = f.GetBool("dry-run")
		o.yes, _ = f.GetBool("yes")
		if (len(r.Targets) > 0) == (r.Filter != "") {
			return usage("name ids, or give --filter, one of the two", "command line", "see qtop dlq")
		}
		return a.doActThen(cmd.Context(), r, o, queue.ActBulkRun)
	}
	return cmd
}

func showOp(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListOperation, ID: o.args[0], Limit: o.limit})
	if err != nil {
		return err
	}
	op := queue.Of[*queue.OperationDetail](p)
	if op.Items == nil {
		op.Items = []queue.OperationItem{}
	}
	if a.output == "json" {
		a.encode(a.out, op)
		return nil
	}
	a.printf("operation %d  %s  %s by %s since %s\nselection, claimed: %s\nreason %s\nrate %s/s, brake %d %%, canary %d\n", op.ID, op.Kind, op.State, op.StateBy,
		views.PlainTime(&op.StateAt), op.Filter, op.Reason, strconv.FormatFloat(op.Rate, 'f', -1, 64), op.Brake, op.Canary)
	if !op.StateWhy.Empty() {
		fmt.Fprintln(a.out, "paused by "+op.StateWhy.String())
	}
	a.printf("tried %s: %d done, %d skipped, %d failed, %d undone\nfirst tries: %d succeeded, %d failed, %d not known yet\n", views.PlainProgress(op.Operation),
		op.Done, op.Skipped, op.Failed, op.Undone, op.FirstOK, op.FirstFailed, op.Unknown())
	a.table(views.OperationItems(op.Items), "operation-items")
	return nil
}
