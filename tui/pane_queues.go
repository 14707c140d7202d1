package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// queuesPane is pane 8: queue lanes and stuck leases; under a lane its jobs, under a
// lease its page.
func queuesPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneQueues, Keys: "8", Title: "Queues", Short: "Queue",
			From: "job_queue, job_history",
			Help: "jobs per kind and domain, oldest wait and why, stuck leases, dead rows; cancel",
		},
		badge:  views.QueuesBadge,
		marks:  true,
		source: func(at scene) views.Source { return pictured(at, views.Lanes(at.pic, at.size.W)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			if lane, ok := views.LaneAt(at.pic, id); ok {
				return jobsLevel(id, lane)
			}
			return level{id: id, title: "lease " + views.ShortID(id), page: func(at scene) (views.Page, bool) {
				return views.QueuesPage(at.pic, id, at.env, at.size.W)
			}}
		},
		room: func(at scene, s views.Size) int {
			n, _ := views.QueuesTable(at.pic, at.level.grid.view(), at.env, s)
			return n
		},
		body: func(at scene, s views.Size) []string { return views.Queues(at.pic, at.level.grid.view(), at.env, s) },
		acts: acts{
			targets: map[queue.ActionID]target{queue.ActJobCancel: laneJobs, queue.ActLeaseRelease: stuckLeases, queue.ActReveal: unrevealed},
			waits:   func(at scene) string { return waitingAt(at.pic, at.subject()) },
		},
	}
}

// laneJobs is all live jobs of a lane, by their filter.
func laneJobs(at scene, req *queue.Request) string {
	lane, ok := views.LaneAt(at.pic, at.subject())
	if !ok {
		return at.noRow("C cancels jobs: those of a lane, or single ones in it (enter)")
	}
	req.Filter = queue.LaneFilter(lane.Kind.String(), lane.Domain.String(), "")
	return ""
}

// stuckLeases are the marked leases, or the one under the cursor.
func stuckLeases(at scene, req *queue.Request) string {
	if g := &at.level.grid; len(g.marks) > 0 {
		req.Targets = g.marked()
		return ""
	}
	lease := func(at scene) (queue.JobLease, bool) { return views.LeaseAt(at.pic, at.subject()) }
	return on(lease, func(l queue.JobLease) string { return l.ID }, "L works on a row under STUCK LEASES; there is none under the cursor")(at, req)
}
