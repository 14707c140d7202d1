package actions

// This file is the actions on the loops of the worker host of this process, which
// plans and applies them itself.

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

func loopActions() []entry {
	loop := func(a queue.Action) entry {
		a.Panes, a.Danger, a.Targets = []queue.PaneID{queue.PaneHost}, queue.DangerLocal, queue.Targets{Name: "LOOP", Of: "loop"}
		a.Words, a.Title, a.Button = strings.ToLower(a.Verb), a.Verb+" a loop of this process", a.Verb+" {targets}"
		return entry{Action: a}
	}
	return []entry{
		loop(queue.Action{ID: queue.ActHostStart, Key: "S", Verb: "Start", Undo: "P drains it", Safe: "Not now",
			Help: "start a loop of the worker host in this process", Twin: "qtop worker --loops LOOP"}),
		loop(queue.Action{ID: queue.ActHostDrain, Key: "P", Verb: "Drain", Undo: "S starts it again",
			Help: "let a loop finish what it has and take nothing new", Twin: "SIGTERM to qtop worker"}),
		loop(queue.Action{ID: queue.ActHostStop, Key: "X", Verb: "Stop", Undo: "S starts it again",
			Help: "stop a loop at once; what it had is handed back", Twin: "SIGTERM twice to qtop worker"}),
	}
}
