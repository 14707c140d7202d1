package main

// The doctor lists ids and times that old rows have and that new rows are refused.

import (
	"context"
	"fmt"
	"strings"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

func idFinding(ctx context.Context, c *pgclient.Client) finding {
	ids, n, err := inspect.OddIDs(ctx, c)
	switch {
	case queue.KindOf(err) == queue.KindPermission:
		return finding{"note", "ids", queue.Clean("this login may not read them"), "ask with the role queue_viewer"}
	case err != nil:
		return finding{"note", "ids", queue.Clean(err.Error()), ""}
	case n == 0:
		return finding{"ok", "ids", queue.Clean("all can be typed as they are shown"), ""}
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("%q", id.Cut(60).String())
	}
	more := ""
	if n > int64(len(ids)) {
		more = fmt.Sprintf(" and %d more", n-int64(len(ids)))
	}
	return finding{
		"note", "ids", queue.Clean("of an older release: " + strings.Join(names, ", ") + more),
		"they go on working; register new ones of letters, digits and . _ : @ / - and deregister these",
	}
}

func neverDueFinding(ctx context.Context, c *pgclient.Client) finding {
	lanes, n, err := inspect.NeverDue(ctx, c)
	switch {
	case queue.KindOf(err) == queue.KindPermission:
		return finding{"note", "due times", queue.Clean("this login may not read them"), "ask with the role queue_viewer"}
	case err != nil:
		return finding{"note", "due times", queue.Clean(err.Error()), ""}
	case n == 0:
		return finding{"ok", "due times", queue.Clean("every job has a time at which it is due"), ""}
	}
	names := make([]string, len(lanes))
	for i, lane := range lanes {
		names[i] = lane.String()
	}
	return finding{
		"note", "due times", queue.Clean(fmt.Sprintf("jobs of an older release that are never due: %d (%s)", n, strings.Join(names, ", "))),
		"qtop job cancel ID --reason R, then enqueue them again with a time",
	}
}
