package tui

import (
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// jobs is the table that lists the live jobs of a queue lane.
type jobs struct{}

const noJob = "there is no job under the cursor"

// jobsLevel returns the level that lists the live jobs of a queue lane. id is
// the row id of the lane.
func jobsLevel(id string, lane queue.Lane) level {
	l := level{
		id: id, title: lane.Kind.String() + " in " + lane.Domain.String(), table: jobs{}, grid: newGrid(true),
		list: pagedList(queue.Query{Kind: queue.ListJobs, ID: id}, func(x queue.Job) string { return x.ID }),
		acts: acts{
			targets:   map[queue.ActionID]target{queue.ActJobCancel: selectionTarget(noJob), queue.ActLeaseRelease: jobs{}.release},
			queueName: func(at scene) string { return waitingAt(at.snap, id) },
		},
	}
	l.list.byFilter, l.list.within = true, queue.LaneFilter(lane.Kind.String(), lane.Domain.String(), "")
	return l
}

func (jobs) what() string { return "jobs of a lane" }

func (jobs) rows(at scene) views.Source {
	return listSource(at, views.Jobs(queue.Of[[]queue.Job](at.level.list.page), at.size.W))
}

func (jobs) under(at scene, i int) level {
	return jobLevel(queue.Of[[]queue.Job](at.level.list.page)[i])
}

// release fills in the leases of the selected jobs, else that of the job under
// the cursor. A lease may hold several jobs, and is released as a whole.
func (jobs) release(at scene, req *queue.Request) string {
	l := at.level
	if l.grid.all {
		return "L releases single leases: select their jobs, or go to STUCK LEASES in Queues (8)"
	}
	rows, problem := at.chosen()
	if problem != "" {
		return problem
	}
	if len(rows) == 0 {
		return at.noRow(noJob)
	}
	var of []queue.Job
	for _, i := range rows {
		of = append(of, queue.Of[[]queue.Job](l.list.page)[i])
	}
	return leaseTargets(req, of)
}

// leaseTargets adds the leases of jobs to the targets of req, each lease once.
// If no job has a lease, it returns the reason.
func leaseTargets(req *queue.Request, jobs []queue.Job) string {
	for _, j := range jobs {
		if j.LeaseID != "" && j.FinishedAt == nil && !slices.Contains(req.Targets, j.LeaseID) {
			req.Targets = append(req.Targets, j.LeaseID)
		}
	}
	if len(req.Targets) == 0 {
		return "no lease to release: no live job here is claimed"
	}
	return ""
}

// jobLevel returns the page of one job.
func jobLevel(j queue.Job) level {
	l := level{id: j.ID, title: "job " + views.ShortID(j.ID), list: listOf(queue.ListJob, j.ID)}
	l.targets = map[queue.ActionID]target{
		queue.ActJobCancel: fixedTarget(j.ID), queue.ActReveal: fixedTarget(j.ID),
		queue.ActLeaseRelease: func(at scene, req *queue.Request) string {
			now := j
			if d := queue.Of[*queue.JobDetail](at.level.list.page); d != nil {
				now = d.Job
			}
			return leaseTargets(req, []queue.Job{now})
		},
	}
	l.page = func(at scene) (views.Page, bool) {
		d := queue.Of[*queue.JobDetail](at.level.list.page)
		if d == nil && j.Kind.Empty() { // only the id is known: no list had the row
			return views.ReadingPage("Job "+j.ID, at.env, at.size.W), true
		}
		if d != nil {
			shown := *d
			shown.Payload, shown.PayloadWhyNot, shown.Revealed = at.level.shown(at.now, d.Payload, d.PayloadWhyNot)
			d = &shown
		}
		return views.JobPage(j, d, at.env, at.size.W), true
	}
	return l
}
