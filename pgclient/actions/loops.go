package actions

// This file is the actions on the loops of the worker host of this process, which
// plans and applies them itself.

import "github.com/qtop/qtop/pgclient/queue"

func loopActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActHostStart, Words: "start", Key: "S", Panes: []queue.PaneID{queue.PaneHost}, Verb: "Start", Undo: "P drains it",
			Help: "start a loop of the worker host in this process", Twin: "qtop worker --loops LOOP", Title: "Start a loop of this process", Button: "Start {targets}", Safe: "Not now", Targets: queue.Targets{Name: "LOOP", Of: "loop"},
			Danger: queue.DangerLocal,
		}},
		{Action: queue.Action{
			ID: queue.ActHostDrain, Words: "drain", Key: "P", Panes: []queue.PaneID{queue.PaneHost}, Verb: "Drain", Undo: "S starts it again",
			Help: "let a loop finish what it has and take nothing new", Twin: "SIGTERM to qtop worker", Title: "Drain a loop of this process", Button: "Drain {targets}", Targets: queue.Targets{Name: "LOOP", Of: "loop"},
			Danger: queue.DangerLocal,
		}},
		{Action: queue.Action{
			ID: queue.ActHostStop, Words: "stop", Key: "X", Panes: []queue.PaneID{queue.PaneHost}, Verb: "Stop", Undo: "S starts it again",
			Help: "stop a loop at once; what it had is handed back", Twin: "SIGTERM twice to qtop worker", Title: "Stop a loop of this process", Button: "Stop {targets}", Targets: queue.Targets{Name: "LOOP", Of: "loop"},
			Danger: queue.DangerLocal,
		}},
	}
}
