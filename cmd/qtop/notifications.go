package main

// This file is `qtop notifications` with its requeue, and `qtop doctor --staging`.

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

func showNotifications(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListNotify, Filter: o.filter, Limit: o.limit})
	if err != nil {
		return err
	}
	n := *queue.Of[*queue.Notifications](p)
	if a.output == "json" {
		if n.Groups == nil {
			n.Groups = []queue.StagedGroup{}
		}
		if n.Failures == nil {
			n.Failures = []queue.StagedFailure{}
		}
		if n.Log == nil {
			n.Log = []queue.NotificationRun{}
		}
		a.encode(a.out, n)
		return nil
	}
	a.printf("%d staged: %d due, %s%d wait for more (debounce %ds); %d failed; a document from %d pieces\n", n.Waiting, n.Due(),
		bound(n.DebouncingBound), n.Debouncing, n.DebounceSeconds, n.Failed, n.Threshold)
	every := "every " + age(n.IntervalSeconds)
	if n.IntervalSeconds == 0 {
		every = "switched OFF"
	}
	if n.Stale {
		every += ", STALE"
	}
	a.printf("iu_notification_worker last ran %s, %s\n", stamp(n.LastRunAt), every)
	for _, f := range n.Failures {
		a.printf("FAILED  %d since %s: %s\n", f.N, stamp(&f.FirstAt), f.Failure)
		for _, r := range f.Rows {
			a.printf("        %s  %s  %s\n", r.ID, r.Address, r.Actor)
		}
	}
	var rows [][]string
	for _, g := range n.Groups {
		kind, events := g.Told(n.Threshold)
		rows = append(rows, []string{stagedKey(g), count(g.Pieces), count(g.Due), stamp(&g.OldestAt), count(events) + " " + kind, g.FirstUnit.String(), g.Actor.String()})
	}
	if len(rows) > 0 {
		fmt.Fprintln(a.out)
		a.print(nil, []string{"STAGED", "PIECES", "DUE", "OLDEST", "TOLD AS", "FIRST PIECE", "ACTOR"}, rows)
	}
	if len(n.Log) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	rows = nil
	for _, r := range n.Log {
		rows = append(rows, []string{
			stamp(&r.At), count(r.Taken), count(r.Groups), count(r.Pieces), count(r.Conflicts), count(r.Marked), count(r.Left), count(r.Errors), millis(&r.TookMS),
			r.Error.String(),
		})
	}
	a.print(nil, []string{"RUN", "TOOK UP", "DOCUMENTS", "PIECES", "TOLD BEFORE", "MARKED", "LEFT", "ERRORS", "TOOK", "ERROR"}, rows)
	return nil
}

func stagedKey(g queue.StagedGroup) string {
	switch {
	case !g.Keyed:
		return "(no document or batch)"
	case g.Document:
		return "document " + g.Key.String()
	}
	return "batch " + g.Key.String()
}

func (a *app) requeueNotificationsCmd() *cobra.Command {
	all := false
	cmd := a.act(actVerb{use: "requeue [ID...]", action: queue.ActNotifyRequeue, args: cobra.ArbitraryArgs, into: targets})
	cmd.Flags().BoolVar(&all, "all", false, "all that failed")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usage("name ids, or say --all, one of the two", "command line", "see qtop notifications")
		}
		return run(cmd, args)
	}
	return cmd
}

func (a *app) doctorStaging(ctx context.Context, c *pgclient.Client) error {
	lines, err := inspect.Staging(ctx, c)
	if err != nil {
		return err
	}
	bad := false
	for _, l := range lines {
		bad = bad || l.Bad()
		if a.output != "json" {
			fmt.Fprintln(a.out, l.Key+"="+l.Value)
		}
	}
	if a.output == "json" {
		a.encode(a.out, lines)
	}
	if bad {
		return &exitError{1}
	}
	return nil
}
