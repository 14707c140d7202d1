package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// hostPane returns pane gw: the loops of this process, the other hosts, and
// the latest wake signals.
func hostPane() pane {
	loop := rowTarget(func(at scene) (string, bool) { return at.subject(), at.subject() != "" }, func(name string) string { return name }, "there is no loop under the cursor")
	room := func(at scene, s views.Size) int { return min(max(at.level.grid.view().Need(), 4), max(s.H*2/3, 4)) }
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneHost, Keys: "gw", Title: "Worker host", Short: "Host", Also: "worker",
			From: "queue_host, this process",
			Help: "loops, hosts, the wake stream; start, drain, stop",
		},
		localOnly: true,
		source:    func(at scene) views.Source { return views.Loops(at.local) },
		enter: func(at scene, i int) level {
			name := at.level.grid.src.ID(i)
			return level{id: name, title: name, page: func(at scene) (views.Page, bool) {
				x, ok := queue.Find(loops(at.local), func(x queue.LoopStatus) bool { return x.Name == name })
				return views.LoopPage(x, at.env, at.size.W), ok
			}}
		},
		tableLines: room,
		body: func(at scene, s views.Size) []string {
			t := views.Size{W: s.W, H: room(at, s)}
			out := at.level.grid.view().Lines(at.env, t)
			for len(out) < t.H {
				out = append(out, "")
			}
			return append(out, views.HostBelow(at.snap, at.local, at.subject(), at.env, views.Size{W: s.W, H: s.H - len(out)})...)
		},
		acts: acts{targets: map[queue.ActionID]target{
			queue.ActHostStart: loop, queue.ActHostDrain: loop, queue.ActHostStop: loop, queue.ActTick: tickTarget,
		}},
	}
}

// loops returns the loops of this process.
func loops(local *queue.HostStatus) []queue.LoopStatus {
	if local == nil {
		return nil
	}
	return local.Loops
}
