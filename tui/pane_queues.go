package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// queuesPane returns pane 8: queue lanes and stuck leases. Enter on a lane
// lists its jobs, on a lease it opens the page of the lease.
func queuesPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneQueues, Keys: "8", Title: "Queues", Short: "Queue",
			From: "job_queue, job_history",
			Help: "jobs per kind and domain, oldest wait and its reason, stuck leases, dead rows; cancel, release",
		},
		badge:      views.QueuesBadge,
		selectable: true,
		source:     func(at scene) views.Source { return snapshotSource(at, views.Lanes(at.snap, at.size.W)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			if lane, ok := views.LaneAt(at.snap, id); ok {
				return jobsLevel(id, lane)
			}
			return level{id: id, title: "lease " + views.ShortID(id), page: func(at scene) (views.Page, bool) {
				return views.QueuesPage(at.snap, id, at.env, at.size.W)
			}}
		},
		nested: jobs{},
		tableLines: func(at scene, s views.Size) int {
			n, _ := views.QueuesTable(at.snap, at.level.grid.view(), at.env, s)
			return n
		},
		body: func(at scene, s views.Size) []string { return views.Queues(at.snap, at.level.grid.view(), at.env, s) },
		acts: acts{
			targets:   map[queue.ActionID]target{queue.ActJobCancel: laneJobs, queue.ActLeaseRelease: stuckLeases},
			elsewhere: map[queue.ActionID]string{queue.ActReveal: openPayloadFirst},
			queueName: func(at scene) string { return waitingAt(at.snap, at.subject()) },
		},
	}
}

// laneJobs fills in a filter that matches all live jobs of the queue lane
// under the cursor.
func laneJobs(at scene, req *queue.Request) string {
	lane, ok := views.LaneAt(at.snap, at.subject())
	if !ok {
		return at.noRow("C needs a lane under the cursor, or a job (enter opens the jobs of a lane)")
	}
	req.Filter = queue.LaneFilter(lane.Kind.String(), lane.Domain.String(), "")
	return ""
}

// stuckLeases fills in the selected leases, else the one under the cursor.
func stuckLeases(at scene, req *queue.Request) string {
	if g := &at.level.grid; len(g.selected) > 0 {
		req.Targets = g.selectedIDs()
		_, problem := at.chosen()
		return problem
	}
	lease := func(at scene) (queue.JobLease, bool) { return views.LeaseAt(at.snap, at.subject()) }
	return rowTarget(lease, func(l queue.JobLease) string { return l.ID }, "L needs a row under STUCK LEASES under the cursor")(at, req)
}
