package tui

import (
	"slices"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// flagsPane returns pane gf: the switches and settings of the database.
func flagsPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneFlags, Keys: "gf", Title: "Flags",
			From: "dot_config",
			Help: "switches and settings; change with a reason and an expiry",
		},
		badge:  views.FlagsBadge,
		source: func(at scene) views.Source { return snapshotSource(at, views.Flags(at.snap)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: id, rowBelow: true, list: listOf(queue.ListFlagHistory, id), page: rowPage(id, func(at scene, i int) views.Page {
				return views.FlagPage(at.snap.Flags[i], loaded(at.level, queue.Of[[]queue.AuditEntry](at.level.list.page)), at.env, at.size.W)
			})}
		},
		acts: acts{
			targets: map[queue.ActionID]target{queue.ActFlagSet: setFlag(scene.subject)},
			forms:   map[queue.ActionID]form{queue.ActFlagSet: {prefill: flagPrefill, facts: flagFacts}},
		},
	}
}

// setFlag returns the target function of E where rows are or belong to flags:
// key returns the key of the flag.
func setFlag(key func(at scene) string) target {
	return rowTarget(func(at scene) (queue.Flag, bool) { return at.snap.Flag(key(at)) }, func(f queue.Flag) string { return f.Key.String() },
		"E needs a flag: a row marked OFF in 1, an interval or the mode in 9, or any row in gf")
}

// flagPrefill fills in the current value of a flag, and for a switch the
// opposite value, which the operator most likely wants.
func flagPrefill(snap *queue.Snapshot, req queue.Request, args []queue.Arg) {
	key := req.Targets[0]
	f, ok := snap.Flag(key)
	value := slices.IndexFunc(args, func(a queue.Arg) bool { return a.Name == "value" })
	if !ok || value < 0 {
		return
	}
	a := &args[value]
	a.Default = f.Value.String()
	switch {
	case f.Kind == "boolean":
		a.Choices, a.Default = []string{"true", "false"}, strconv.FormatBool(a.Default != "true")
	case key == queue.SchedulerMode:
		a.Choices = queue.SchedulerModes()
	}
}

// flagFacts returns the current value and the description of a flag.
func flagFacts(snap *queue.Snapshot, key string) []queue.PlanLine {
	f, ok := snap.Flag(key)
	if !ok {
		return nil
	}
	return []queue.PlanLine{{Label: "now", Value: f.Value}, {Label: "what", Value: f.Description}}
}
