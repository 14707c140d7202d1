package main

// The verbs that show bulk operations. The actions on them (plan, start,
// abort, undo) come from the registry.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func opsCmd(a *app) *cobra.Command {
	cmd := a.viewCmd(view{use: "ops", example: "qtop ops --watch", short: "Bulk operations with their progress; plan, start, pause, abort or undo one", list: true, show: listed(queue.ListOperations, "ops", of(views.Operations))}, &viewOptions{})
	show := &viewOptions{limit: 200}
	one := a.viewCmd(view{use: "show ID", of: "operation", example: "qtop ops show 12", short: "One bulk operation with the result of each item, latest first", show: showOp}, show)
	wholeFlag(one.Flags(), &show.limit, "limit", "items at most")
	cmd.AddCommand(one)
	return cmd
}

// requeueAtRate adds the flags of a bulk operation to requeue. With any of
// them, requeue plans a bulk operation and starts it.
func requeueAtRate(a *app, v *verb) {
	plan := actions.Registry().ByID(queue.ActBulkPlan)
	for _, arg := range plan.Args {
		if arg.Name != "what" {
			v.flag(arg.Name, "", arg.Help+"; makes it a bulk operation")
		}
	}
	v.more = func(r *queue.Request) error { return plan.Check(r.Args) }
	v.run = func(ctx context.Context, r queue.Request, o actOptions) error {
		if len(r.Args) == 0 {
			return a.doActThen(ctx, r, o, "")
		}
		r.Action = plan.ID
		return a.doActThen(ctx, r, o, queue.ActBulkRun)
	}
}

func showOp(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListOperation, ID: o.args[0], Limit: o.limit})
	if err != nil {
		return err
	}
	op := queue.Of[*queue.OperationDetail](p)
	op.Items = list(op.Items)
	if a.asJSON(op) {
		a.itemsOfTotal(op, p)
		return nil
	}
	a.printf("operation %d  %s  %s by %s since %s\nselection, as stated when planned: %s\nreason %s\nrate %s/s, brake %d %%, canary %d\n", op.ID, queue.Clean(string(op.Kind)), queue.Clean(string(op.State)), op.StateBy,
		views.PlainTime(&op.StateAt), op.Filter, op.Reason, strconv.FormatFloat(op.Rate, 'f', -1, 64), op.Brake, op.Canary)
	if !op.StateWhy.Empty() {
		fmt.Fprintln(a.out, "paused by "+op.StateWhy.String())
	}
	if !op.Waits.Empty() {
		fmt.Fprintln(a.out, op.Waits.String())
	}
	if op.EndedBadly() {
		a.printf("FAILED  %d requeued, first attempts %d ok / %d failed\n", op.Requeued, op.FirstOK, op.FirstFailed)
	}
	a.printf("ended %s\nitems: %d %s, %d skipped, %d failed, %d undone, %d left\n", views.PlainProgress(op.Operation), op.Requeued, op.Word("done"), op.Skipped, op.Failed, op.Undone, op.Left())
	if op.Kind != queue.BulkResolve {
		a.printf("sent: %d of %d requeued, %d settled\nfirst attempts: %d ok / %d failed, %d not settled\n", op.Sent, op.Requeued, op.Done, op.FirstOK, op.FirstFailed, op.Unknown())
	}
	a.table(views.OperationItems(op.Operation, op.Items), "operation-items")
	a.itemsOfTotal(op, p)
	return nil
}

// itemsOfTotal says how many of the items of an operation are listed, if there are more.
func (a *writer) itemsOfTotal(op *queue.OperationDetail, p queue.Page) {
	if p.Next != "" {
		a.ofTotal(len(op.Items), p)
	}
}
