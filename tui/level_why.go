package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// whyLevel returns the page of :why, which explains why the work of a queue
// waits. Every pane can open it.
func whyLevel(name string) level {
	return level{
		id: name, title: "why " + name, isWhy: true, list: listOf(queue.ListWhy, name),
		page: func(at scene) (views.Page, bool) {
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
