package main

import (
	"context"
	"slices"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// idsOf returns the ids of a kind that completion offers.
func idsOf(ctx context.Context, c *pgclient.Client, of string) []queue.ID {
	if of == "executor kind" {
		return fixedIDs(queue.ExecutorKinds())
	}
	if of == "executor" { // the verbs that complete one refuse a tick worker
		s, err := c.Snapshot(ctx, completionAge)
		if err != nil {
			return nil
		}
		s.Executors = slices.DeleteFunc(s.Executors, func(x queue.Executor) bool { return x.TickWorker })
		return s.IDs(of)
	}
	ids, _ := c.IDs(ctx, of, completionAge) // completion has no place for an error
	return ids
}

func fixedIDs(values []string) (all []queue.ID) {
	for _, v := range values {
		all = append(all, queue.ID{ID: v})
	}
	return all
}

// flagValues returns the values that a flag of the database can have, if the
// kind of the flag limits them; else its current value.
func flagValues(ctx context.Context, c *pgclient.Client, key string) []queue.ID {
	s, err := c.Snapshot(ctx, completionAge)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(s.Flags, func(f queue.Flag) bool { return f.Key.String() == key })
	if i < 0 {
		return nil
	}
	values := []string{s.Flags[i].Value.String()}
	switch s.Flags[i].Kind {
	case "boolean":
		values = []string{"true", "false"}
	case "mode":
		values = queue.SchedulerModes()
	}
	return fixedIDs(values)
}
