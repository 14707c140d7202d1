package actions

// The actions on loops have no plan and apply function in this package: the console carries them
// out itself, because its worker host runs in the same process, and sets a mark of each (Past).

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
		loop(queue.Action{ID: queue.ActHostStart, Key: "S", Verb: "Start", Past: "started", Undo: "P drains the loop", Safe: "Not now",
			Function: "public.fn_queue_host_register(text,uuid,text,text[],text)", Role: "dot_executor",
			Help: "start a loop of the worker host in this process", Twin: "qtop worker --loops LOOP", Spellings: []string{"worker --loops"}}),
		loop(queue.Action{ID: queue.ActHostDrain, Key: "P", Verb: "Drain", Past: "drained", Undo: "S starts the loop again",
			Help: "let a loop finish its current work, within the grace time, and claim nothing new", Twin: "SIGTERM to qtop worker"}),
		loop(queue.Action{ID: queue.ActHostStop, Key: "X", Verb: "Stop", Past: "stopped", Undo: "S starts the loop again",
			Help: "stop a loop at once; its unfinished work is returned to the queue", Twin: "SIGTERM twice to qtop worker"}),
	}
}
