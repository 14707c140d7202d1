package main

import (
	"context"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// foreignFindings lists objects that other owners have put on the queue's
// tables or beside its functions, publications that stop their changes, roles
// that could create objects in the schemas of the queue, and those that have
// rights on its objects beside the roles of qtop.
func foreignFindings(ctx context.Context, x patient) []finding {
	found, err := inspect.ForeignObjects(ctx, x.client)
	if err != nil {
		return []finding{{"bad", "foreign", queue.Said(err), ""}}
	}
	if len(found) == 0 {
		return []finding{{"ok", "foreign", queue.Clean("no object of others shadows the queue's own, and nobody else may create objects in its schemas"), ""}}
	}
	var out []finding
	for _, f := range found {
		out = append(out, finding{queue.Choose(f.Bad, "bad", "note"), "foreign", f.What, f.Remedy.String()})
	}
	return append(out, leftOut("foreign", len(found), found[0].Of)...)
}
