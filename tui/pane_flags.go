package tui

import (
	"slices"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// flagsPane is pane gf, and setting a flag wherever a row stands for one.
func flagsPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneFlags, Keys: "gf", Title: "Flags",
			From: "dot_config",
			Help: "flip or edit with reason and expiry",
		},
		badge:  views.FlagsBadge,
		source: func(at scene) views.Source { return pictured(at, views.Flags(at.pic)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: id, list: reads(queue.ListFlagHistory, id), page: rowPage(id, func(at scene, i int) views.Page {
				return views.FlagPage(at.pic.Flags[i], known(at.level, queue.Of[[]queue.AuditEntry](at.level.list.page)), at.env, at.size.W)
			})}
		},
		acts: acts{
			targets: map[queue.ActionID]target{queue.ActFlagSet: setFlag(scene.subject)},
			forms:   map[queue.ActionID]form{queue.ActFlagSet: {start: turned, about: flagNow}},
		},
	}
}

// setFlag is what E works on: the flag of this key.
func setFlag(key func(at scene) string) target {
	return on(func(at scene) (queue.Flag, bool) { return at.pic.Flag(key(at)) }, func(f queue.Flag) string { return f.Key.String() },
		"E works on a flag: those that stand OFF in 1, the intervals and the mode in 9, or all of them in gf")
}

// turned offers the value of a flag, and a switch turned.
func turned(pic *queue.Snapshot, key string, args []queue.Arg) {
	f, ok := pic.Flag(key)
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

func flagNow(pic *queue.Snapshot, key string) []queue.PlanLine {
	f, ok := pic.Flag(key)
	if !ok {
		return nil
	}
	return []queue.PlanLine{{Label: "now", Value: f.Value}, {Label: "what", Value: f.Description}}
}
