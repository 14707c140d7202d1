package main

// This file is the verbs of bulk operations: freeze, start, watch, take back.

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

func (a *app) opsCmd() *cobra.Command {
	cmd := a.viewCmd(view{use: "ops", short: "Bulk operations with their progress; freeze, start, pause, abort or undo one", list: true, show: showOps}, &viewOptions{})
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
func (a *app) requeueCmd() *cobra.Command {
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

func showOps(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListOperations, Filter: o.filter, Limit: o.limit})
	list := queue.Of[[]queue.Operation](p)
	var rows [][]string
	for _, op := range list {
		rows = append(rows, []string{
			strconv.FormatInt(op.ID, 10), op.Kind, op.State, opProgress(op), strconv.FormatFloat(op.Rate, 'f', -1, 64) + "/s", opEnd(op),
			op.CreatedBy.String(), stamp(&op.CreatedAt), op.Filter.String(),
		})
	}
	if list == nil {
		list = []queue.Operation{}
	}
	return a.answer(err, list, []string{"ID", "KIND", "STATE", "TRIED", "RATE", "LEFT", "BY", "PLANNED", "CLAIMED SELECTION"}, rows)
}

func opProgress(op queue.Operation) string {
	return fmt.Sprintf("%d of %d (%d %%)", op.Tried(), op.Frozen, op.Tried()*100/max(op.Frozen, 1))
}

func opEnd(op queue.Operation) string {
	if left, ok := op.EndsIn(); ok {
		return left.Round(time.Second).String()
	}
	return "-"
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
		stamp(&op.StateAt), op.Filter, op.Reason, strconv.FormatFloat(op.Rate, 'f', -1, 64), op.Brake, op.Canary)
	if !op.StateWhy.Empty() {
		fmt.Fprintln(a.out, "paused by "+op.StateWhy.String())
	}
	a.printf("tried %s: %d done, %d skipped, %d failed, %d undone\nfirst tries: %d succeeded, %d failed, %d not known yet\n", opProgress(op.Operation),
		op.Done, op.Skipped, op.Failed, op.Undone, op.FirstOK, op.FirstFailed, op.Unknown())
	var rows [][]string
	for _, i := range op.Items {
		rows = append(rows, []string{strconv.FormatInt(i.No, 10), i.Target.String(), i.Outcome, i.NewID.String(), i.FirstResult, i.FirstCode.String(), stamp(i.At), i.Why.String()})
	}
	a.print(nil, []string{"ITEM", "LETTER", "OUTCOME", "BECAME", "FIRST TRY", "CODE", "AT", "WHY"}, rows)
	return nil
}
