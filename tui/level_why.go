package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// whyLevel is the page that says why a queue waits; every pane can open it.
func whyLevel(name string) level {
	return level{
		id: name, title: "why " + name, aside: true, list: reads(queue.ListWhy, name),
		page: func(at scene) (views.Page, bool) {
			return views.WhyPage(name, queue.Of[*queue.Why](at.level.list.page), at.env, at.size.W), true
		},
	}
}

// waitingAt names the queue that waits under a row's id.
func waitingAt(pic *queue.Snapshot, id string) string {
	if pic == nil || id == "" {
		return ""
	}
	for _, x := range pic.Waiting {
		if id == views.LaneID(x.Domain.String(), x.Subject.String()) || id == x.Subject.String() || id == x.Queue.String() {
			return x.Name()
		}
	}
	if lane, ok := views.LaneAt(pic, id); ok {
		return "job " + lane.Kind.String() + " in " + lane.Domain.String()
	}
	return ""
}
