package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// Checks of `qtop doctor`: the schema and the data in it.

// shownDifferences is the greatest number of differing objects that the doctor
// names.
const shownDifferences = 20

// schemaFindings lists the differences between the installed schema and the
// schema of this program, the harmful ones first.
func schemaFindings(ctx context.Context, x patient) []finding {
	carried := schema.Current()
	differs, err := inspect.SchemaDifferences(ctx, x.client)
	switch {
	case err != nil:
		return []finding{{"bad", "schema", queue.Said(err), ""}}
	case len(differs) == 0:
		return []finding{{"ok", "schema", queue.Clean(fmt.Sprintf("version %d, code %d (%s), as this program knows it",
			carried.Version(), carried.Code, carried.Hash)), ""}}
	}
	slices.SortStableFunc(differs, func(a, b schema.Difference) int {
		return queue.Choose(a.Harmful(), 0, 1) - queue.Choose(b.Harmful(), 0, 1)
	})
	var out []finding
	for i, d := range differs {
		if i == shownDifferences {
			out = append(out, finding{"note", "schema", queue.Clean(queue.Plural(len(differs)-i, "more object differs", "more objects differ")), "qtop migrate status names all"})
			break
		}
		out = append(out, finding{queue.Choose(d.Harmful(), "bad", "note"), "schema", queue.Clean(d.Object + ": " + d.Why), queue.Clean(d.Remedy).String()})
	}
	return out
}

// rowFinding lists the rows that the code relies on and that are missing.
func rowFinding(ctx context.Context, x patient) []finding {
	missing, same, err := inspect.MissingRows(ctx, x.client)
	switch {
	case err != nil:
		return []finding{x.unread("rows", err)}
	case !same:
		return []finding{{"note", "rows", queue.Clean("not compared: another release of qtop wrote them"), "ask with the qtop of that release"}}
	case len(missing) == 0:
		return []finding{{"ok", "rows", queue.Clean("those that qtop itself needs exist"), ""}}
	}
	var out []finding
	for _, m := range missing {
		more := ""
		if n := len(m.Rows) - shownDifferences; n > 0 {
			m.Rows, more = m.Rows[:shownDifferences], fmt.Sprintf(" and %d more", n)
		}
		out = append(out, finding{"bad", "rows", queue.Clean("missing, as after a restore of some tables or a DELETE: " + m.String() + more), "qtop migrate up puts them back; rows and settings that exist stay as they are"})
	}
	return out
}

// partitionFinding creates the partitions that will be needed next, as
// retention_sweep does, if this login has the right.
func partitionFinding(ctx context.Context, x patient) []finding {
	if x.session.InRecovery {
		return []finding{{"note", "partitions", queue.Clean("not looked at on a standby"), "ask the primary"}}
	}
	if x.session.ReadOnly {
		return []finding{{"note", "partitions", queue.Clean("not looked at: this session is read-only"), "a host's retention_sweep does it every hour"}}
	}
	found, may, err := inspect.EnsurePartitions(ctx, x.client)
	switch {
	case err == nil && !may:
		return []finding{{"note", "partitions", queue.Clean("not looked at: that needs " + x.roles("dot_executor")), "a host's retention_sweep does it every hour"}}
	case queue.KindOf(err) == queue.KindPermission: // of the owner, in whose name the function works
		return []finding{{"bad", "partitions", queue.Said(err), "give the owner of qtop's tables the rights that the check schema names, then run qtop doctor again"}}
	case err != nil:
		return []finding{{"bad", "partitions", queue.Said(err), "run qtop doctor again; a long transaction may hold the table"}}
	}
	var out []finding
	for _, u := range found.Unmade {
		out = append(out, finding{"bad", "partitions", u.Why, u.Remedy.String()})
	}
	switch {
	case found.Caught > 0:
		out = append(out, finding{"bad", "partitions", queue.Clean(queue.Plural(found.Caught, "default partition holds", "default partitions hold") + " rows"),
			queue.Choose(len(out) == 0, "run qtop migrate up", "after that run qtop migrate up")})
	case found.Made > 0:
		out = append(out, finding{"note", "partitions", queue.Clean(queue.Plural(found.Made, "partition was missing and is made now", "partitions were missing and are made now")), "qtop scheduler says why retention_sweep does not run"})
	}
	if len(out) > 0 {
		return out
	}
	return []finding{{"ok", "partitions", queue.Clean("the next partitions exist, and no default partition holds rows"), ""}}
}

// sizeFinding reports the size of the tables from which nothing is ever
// deleted.
func sizeFinding(ctx context.Context, x patient) []finding {
	sizes, err := inspect.KeptSizes(ctx, x.client)
	if err != nil {
		return []finding{x.unread("kept for ever", err)}
	}
	return []finding{{"ok", "kept for ever", sizes, queue.Choose(strings.Contains(sizes.String(), "webhooks"), "set retention.webhooks_days where settled webhook events need not stay", "")}}
}

// driftFinding compares counters and other derived rows with the tables that
// they are derived from.
func driftFinding(ctx context.Context, x patient) []finding {
	drift, n, large, err := inspect.CounterDrift(ctx, x.client)
	if queue.KindOf(err) == queue.KindPermission {
		return []finding{x.unread("counters", err)}
	} else if err != nil {
		return []finding{{"note", "counters", queue.Said(err), "qtop recount --dry-run compares without a time limit"}}
	}
	out := []finding{{"ok", "counters", queue.Clean("they agree with their tables"), ""}}
	if n > 0 {
		out[0] = finding{"bad", "counters", queue.Clean(queue.Plural(n, "counter or derived row differs", "counters or derived rows differ") + " from the tables, as after a load without triggers or a restore of some tables: " + texts(drift)), "qtop recount --reason R"}
	}
	if len(large) > 0 {
		out = append(out, finding{"note", "counters", queue.Clean("not compared, for they are larger than 256 MiB: " + texts(large)), "qtop recount --dry-run compares them too"})
	}
	return out
}

func texts(all []queue.Text) string {
	out := make([]string, len(all))
	for i, t := range all {
		out[i] = t.String()
	}
	return strings.Join(out, "; ")
}

// sequenceFinding reports sequences that would draw ids which exist in their tables.
func sequenceFinding(ctx context.Context, x patient) []finding {
	behind, err := inspect.SequencesBehind(ctx, x.client)
	if err != nil {
		return []finding{x.unread("sequences", err)}
	}
	var out []finding
	for _, b := range behind {
		out = append(out, finding{
			"bad", "sequences", queue.Clean(fmt.Sprintf("%s draws %d next, and %s has ids up to %d, as after a restore of some tables or a move by logical replication: inserts fail with a duplicate key",
				b.Sequence, b.Draws, b.Table, b.Largest)),
			fmt.Sprintf("SELECT setval(%s, (SELECT max(%s) FROM %s)) -- as the login that migrates, or a superuser", literal(b.Sequence.String()), b.Column, b.Table),
		})
	}
	if len(out) == 0 {
		return []finding{{"ok", "sequences", queue.Clean("each draws ids above those of its table"), ""}}
	}
	return out
}

// idFinding lists rows of older releases whose ids the current rules would
// refuse.
func idFinding(ctx context.Context, x patient) []finding {
	ids, n, err := inspect.OddIDs(ctx, x.client)
	switch {
	case queue.KindOf(err) == queue.KindPermission:
		return []finding{x.unread("ids", err)}
	case err != nil:
		return []finding{{"note", "ids", queue.Clean(err.Error()), ""}}
	case n == 0:
		return []finding{{"ok", "ids", queue.Clean("all can be typed as they are shown"), ""}}
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("%q", id.Cut(60).String())
	}
	more := queue.Choose(n > int64(len(ids)), fmt.Sprintf(" and %d more", n-int64(len(ids))), "")
	return []finding{{
		"note", "ids", queue.Clean("of an older release: " + strings.Join(names, ", ") + more),
		"they go on working; register new ones of letters, digits and . _ : @ / - and deregister these",
	}}
}

// neverDueFinding lists jobs that an older release stored with a due time that
// never comes.
func neverDueFinding(ctx context.Context, x patient) []finding {
	lanes, n, err := inspect.NeverDue(ctx, x.client)
	switch {
	case queue.KindOf(err) == queue.KindPermission:
		return []finding{x.unread("due times", err)}
	case err != nil:
		return []finding{{"note", "due times", queue.Clean(err.Error()), ""}}
	case n == 0:
		return []finding{{"ok", "due times", queue.Clean("every job has a time at which it is due"), ""}}
	}
	names := make([]string, len(lanes))
	for i, lane := range lanes {
		names[i] = lane.String()
	}
	return []finding{{
		"note", "due times", queue.Clean(fmt.Sprintf("jobs of an older release that are never due: %d (%s)", n, strings.Join(names, ", "))),
		"qtop job cancel ID --reason R, then enqueue them again with a time",
	}}
}
