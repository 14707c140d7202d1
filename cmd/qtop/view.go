package main

// The verbs that only read. They print once, or repeatedly with --watch.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// view is a verb that only reads and prints one answer.
type view struct {
	use, short string
	example    string // a whole command line
	of         string // kind of ids that complete its argument, see completeIDs; "": none
	list       bool   // takes --filter and --limit
	past       bool   // all its rows are part of the snapshot, so --at can show them as they were stored
	show       show
}

// show reads and prints the answer of a view once.
type show func(context.Context, *app, *pgclient.Client, viewOptions) error

// filterHelp is the help of --filter of every list: each has its own fields.
const filterHelp = "rows that match, such as 'code:HTTP_5* age>2h' of dlq; an error about an unknown field names those of the list"

type viewOptions struct {
	filter string
	limit  int
	cut    bool // --limit is given
	at     string
	failOn string // of status
	args   []string
}

func (a *app) viewCmd(v view, o *viewOptions) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Example: v.example, Args: cobra.NoArgs, Annotations: map[string]string{settingsKey: "connection caller watch"},
	}
	switch {
	case strings.Contains(v.use, "[QUEUE]"):
		cmd.Args = cobra.ArbitraryArgs
	case strings.Contains(v.use, "[ID]"):
		cmd.Args = cobra.MaximumNArgs(1)
	case strings.Contains(v.use, "ID"):
		cmd.Args = cobra.ExactArgs(1)
	}
	cmd.ValidArgsFunction = queue.Choose(v.of == "", cobra.NoFileCompletions, a.completeIDs(v.of, 1))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.args, o.cut = args, cmd.Flags().Changed("limit")
		if cmd.Flags().Lookup("limit") != nil && (o.limit < 1 || o.limit > queue.MostPage) {
			return usage(fmt.Sprintf("--limit cannot be %d", o.limit), "--limit", fmt.Sprintf("use 1 to %d; qtop export writes all", queue.MostPage))
		}
		switch {
		case v.list && len(args) > 0 && cmd.Flags().Changed("filter"):
			return usage("--filter has no effect on one row", "--filter", "leave it out")
		case v.list && len(args) > 0 && o.cut:
			return usage("--limit has no effect on one row", "--limit", "leave it out")
		case watch && o.at != "":
			return usage("--at shows a stored snapshot, which does not change", "command line", "leave out --watch")
		case !watch && cmd.Flags().Changed("refresh"):
			return usage("--refresh has no effect without --watch", "--refresh", "add --watch, or leave it out")
		}
		client, err := a.reader(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Close()
		for first := true; ; first = false {
			a.nextAnswer()
			err := v.show(cmd.Context(), a, client, *o)
			switch {
			case !watch:
				return err
			case cmd.Context().Err() != nil: // the signal for which --watch waits
				return nil
			case a.cutOff(): // the next answer could not be written either
				return nil
			case first && err != nil && slices.Contains([]queue.Kind{queue.KindUsage, queue.KindConfig, queue.KindPermission}, queue.KindOf(err)):
				return err // the next answer would be the same
			case err != nil:
				a.exit(err)
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(a.settings.Refresh):
			}
		}
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print again at each --refresh, until a signal")
	if v.past {
		cmd.Flags().StringVar(&o.at, "at", "", "as it was then, of the last 24 hours: 02:14, 2026-11-22T02:14:00Z, 45m")
	}
	if v.list {
		cmd.Flags().StringVar(&o.filter, "filter", "", filterHelp)
		o.limit = 200
		wholeFlag(cmd.Flags(), &o.limit, "limit", "rows at most")
		if strings.HasPrefix(v.use, "dlq") {
			_ = cmd.RegisterFlagCompletionFunc("filter", a.completeCodes)
		}
	}
	return cmd
}

// snapshot reads the current snapshot. If no section of it could be read, it
// returns an error, where the console would show the reasons.
func snapshot(ctx context.Context, c *pgclient.Client) (queue.Snapshot, error) {
	s, err := c.Snapshot(ctx, 0)
	if err == nil && s.Refused != nil {
		return s, s.Refused
	}
	return s, err
}

// snapshot reads the current snapshot, or the one stored at --at.
func (o viewOptions) snapshot(ctx context.Context, c *pgclient.Client) (queue.Snapshot, error) {
	if o.at == "" {
		return snapshot(ctx, c)
	}
	now, err := c.Now(ctx)
	if err != nil {
		return queue.Snapshot{}, err
	}
	at, err := when("--at", o.at, now)
	if err != nil {
		return queue.Snapshot{}, err
	}
	s, first, err := c.SnapshotAt(ctx, at, 0)
	if err != nil || !s.TakenAt.IsZero() {
		return s, err
	}
	do := "the tick metrics_sampler keeps one each minute"
	if !first.IsZero() {
		do = "the oldest is of " + views.PlainTime(&first)
	}
	return s, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("no snapshot is stored for " + views.PlainTime(&at)), Where: queue.Clean("--at"), Do: queue.Clean(do)}
}

// snapshotList returns a show that prints a list of the snapshot; list is its
// name in queue.ExportLists.
func snapshotList(list string) show {
	return func(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
		s, err := o.snapshot(ctx, c)
		if err != nil {
			return err
		}
		if list == "dlq-groups" && o.at == "" {
			if err := c.EveryDeadGroup(ctx, &s); err != nil {
				return err
			}
		}
		a.rows(views.SnapshotTable(list, &s), list)
		if o.at != "" && a.output == "table" {
			a.printf("snapshot of %s\n", views.PlainTime(&s.TakenAt))
		}
		return nil
	}
}

// listed returns a show that prints one page of a list that is read from the
// database; list is its name in queue.ExportLists.
func listed(kind queue.ListKind, list string, source func(queue.Page) views.Source) show {
	return func(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
		p, err := c.List(ctx, queue.Query{Kind: kind, Filter: o.filter, Limit: o.limit})
		if err != nil {
			return err
		}
		a.ofTotal(a.rows(source(p), list), p)
		return nil
	}
}
