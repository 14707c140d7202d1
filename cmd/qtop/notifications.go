package main

// `qtop notifications`.

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func showNotifications(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListNotify, Filter: o.filter, Limit: o.limit})
	if err != nil {
		return err
	}
	n := *queue.Of[*queue.Notifications](p)
	n.Groups, n.Failures, n.Log = list(n.Groups), list(n.Failures), list(n.Log)
	if a.asJSON(n) {
		a.groupsLeftOut(&n)
		return nil
	}
	a.printf("%d staged: %d due, %s waiting for more (debounce %ds); %d failed; a document from %s\n", n.Waiting, n.Due(),
		views.PlainBound(n.Debouncing, n.DebouncingBound), n.DebounceSeconds, n.Failed, queue.Plural(n.Threshold, "piece", "pieces"))
	every := queue.Choose(n.IntervalSeconds == 0, "switched OFF", "every "+views.PlainAge(n.IntervalSeconds))
	a.printf("iu_notification_worker last ran %s, %s%s\n", views.PlainTime(n.LastRunAt), every, queue.Choose(n.Stale, ", STALE", ""))
	for _, f := range n.Failures {
		a.printf("FAILED  %d since %s: %s\n", f.N, views.PlainTime(&f.FirstAt), f.Failure)
		for _, r := range f.Rows {
			a.printf("        %s  %s  %s\n", r.ID, r.Address, r.Actor)
		}
	}
	src := views.Notifications(&n)
	if len(n.Groups) > 0 {
		fmt.Fprintln(a.out)
		a.table(src, "notifications")
		a.groupsLeftOut(&n)
	}
	if len(n.Log) > 0 {
		fmt.Fprintln(a.out)
		a.table(src, "notification-log")
		if len(n.Log) == queue.RunsShown {
			a.printf("the last %d runs\n", len(n.Log))
		}
	}
	return nil
}

// groupsLeftOut says how many of the staged groups are listed, if there may be more.
func (a *writer) groupsLeftOut(n *queue.Notifications) {
	if shown := int64(len(n.Groups)); n.GroupsBound {
		line := fmt.Sprintf("%d of %s groups", shown, views.PlainBound(shown, true))
		a.leftOut(line, "the list has "+line)
	}
}

func notificationsCmd(a *app) *cobra.Command {
	return a.viewCmd(view{use: "notifications", example: "qtop notifications", short: "Staged notifications and how they will be sent, failures, and the log of the worker", list: true, show: showNotifications}, &viewOptions{})
}
