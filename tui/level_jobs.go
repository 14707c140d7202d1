package tui

import (
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// jobs is the table of the live jobs of a lane.
type jobs struct {
	within string // the filter that means the lane
}

func jobsLevel(id string, lane queue.Lane) level {
	t := jobs{within: queue.LaneFilter(lane.Kind.String(), lane.Domain.String(), "")}
	return level{
		id: id, title: lane.Kind.String() + " in " + lane.Domain.String(), table: t, grid: newGrid(true),
		list: rowsOf(queue.Query{Kind: queue.ListJobs, ID: id}, func(x queue.Job) string { return x.ID }),
		acts: acts{
			targets: map[queue.ActionID]target{queue.ActJobCancel: t.cancel, queue.ActLeaseRelease: t.release},
			waits:   func(at scene) string { return waitingAt(at.pic, id) },
		},
	}
}

func (jobs) rows(at scene) views.Source {
	return listed(at, views.Jobs(queue.Of[[]queue.Job](at.level.list.page), at.size.W))
}

func (jobs) under(at scene, i int) level {
	return jobLevel(queue.Of[[]queue.Job](at.level.list.page)[i])
}

// cancel works on all that match, the marked ones, or the one under the cursor.
func (t jobs) cancel(at scene, req *queue.Request) string {
	l := at.level
	switch {
	case l.grid.all:
		req.Filter = t.within
		if f := l.list.query.Filter; f != "" {
			req.Filter += " " + f
		}
	case len(l.grid.marks) > 0:
		req.Targets = l.grid.marked()
	default:
		i, ok := l.grid.current()
		if !ok {
			return at.noRow("there is no job under the cursor")
		}
		req.Targets = []string{queue.Of[[]queue.Job](l.list.page)[i].ID}
	}
	return ""
}

// release works on the leases of the jobs that are marked or under the cursor.
func (jobs) release(at scene, req *queue.Request) string {
	l := at.level
	if l.grid.all {
		return "L releases leases one by one: mark their jobs, or go to STUCK LEASES (8)"
	}
	var of []queue.Job
	i, ok := l.grid.current()
	for n, j := range queue.Of[[]queue.Job](l.list.page) {
		if l.grid.marks[j.ID] || (ok && len(l.grid.marks) == 0 && n == i) {
			of = append(of, j)
		}
	}
	if len(of) == 0 {
		return at.noRow("there is no job under the cursor")
	}
	return held(req, of)
}

// held are the leases of jobs, each once.
func held(req *queue.Request, jobs []queue.Job) string {
	for _, j := range jobs {
		if j.LeaseToken != "" && j.FinishedAt == nil && !slices.Contains(req.Targets, j.LeaseToken) {
			req.Targets = append(req.Targets, j.LeaseToken)
		}
	}
	if len(req.Targets) == 0 {
		return "no lease holds it: there is nothing to release"
	}
	return ""
}

func jobLevel(j queue.Job) level {
	this := func(_ scene, req *queue.Request) string {
		req.Targets = []string{j.ID}
		return ""
	}
	l := level{id: j.ID, title: "job " + views.ShortID(j.ID), list: reads(queue.ListJob, j.ID)}
	l.targets = map[queue.ActionID]target{
		queue.ActJobCancel: this, queue.ActReveal: this,
		queue.ActLeaseRelease: func(at scene, req *queue.Request) string {
			if d := queue.Of[*queue.JobDetail](at.level.list.page); d != nil {
				return held(req, []queue.Job{d.Job})
			}
			return held(req, []queue.Job{j})
		},
	}
	l.page = func(at scene) (views.Page, bool) {
		d := queue.Of[*queue.JobDetail](at.level.list.page)
		if d != nil {
			shown := *d
			shown.Payload, shown.PayloadWhyNot, shown.Revealed = at.level.shown(at.now, d.Payload, d.PayloadWhyNot)
			d = &shown
		}
		return views.JobPage(j, d, at.env, at.size.W), true
	}
	return l
}
