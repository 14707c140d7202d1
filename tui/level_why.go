package tui

import (
	"errors"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// whyLevel returns the page of :why, which explains why the work of a queue
// waits, or how it is with an executor whose name no queue has. Every pane can open it.
func whyLevel(name string) level {
	return level{
		id: name, title: "why " + name, isWhy: true, list: listOf(queue.ListWhy, name),
		page: func(at scene) (views.Page, bool) {
			if errors.Is(at.level.list.err, queue.ErrNoQueue) {
				if x, ok := queue.Find(at.snap.OrEmpty().Executors, func(x queue.Executor) bool { return x.ID.String() == name }); ok {
					return views.ExecutorPage(x, at.snap, at.env, at.size.W), true
				}
			}
			return views.WhyPage(name, queue.Of[*queue.Why](at.level.list.page), at.env, at.size.W), true
		},
	}
}

// waitingAt returns the name of the queue that the row with this id is about;
// "" if it is about none.
func waitingAt(snap *queue.Snapshot, id string) string {
	if snap == nil || id == "" {
		return ""
	}
	for _, x := range snap.Waiting {
		if id == views.LaneID(x.Domain.String(), x.Subject.String()) || id == x.Subject.String() || id == x.Queue.String() {
			return x.Name()
		}
	}
	if lane, ok := views.LaneAt(snap, id); ok {
		return "job " + lane.Kind.String() + " in " + lane.Domain.String()
	}
	return ""
}
