package tui

// This file is pane 8 and what an executor may claim: from a lane to its jobs,
// and what C, L and E work on there.

import (
	"slices"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// lane is the level under a row of pane 8: the jobs of a lane, or the page of a
// lease.
func (m *root) lane(id string, page level) level {
	l, ok := views.LaneAt(m.feed.picture, id)
	if !ok {
		page.title = "lease " + views.ShortID(id)
		return page
	}
	next := level{kind: kindJobs, id: id, title: l.Kind.String() + " in " + l.Domain.String(), grid: newGrid(true), within: queue.LaneFilter(l.Kind.String(), l.Domain.String(), "")}
	next.list.query = queue.Query{Kind: queue.ListJobs, ID: id}
	return next
}

// jobs is what C works on: all live jobs of a lane by their filter, all that
// match, the marked ones, or the one under the cursor.
func (m *root) jobs(req queue.Request) (queue.Request, string) {
	l := m.pane().top()
	switch {
	case l.job.ID != "":
		req.Targets = []string{l.job.ID}
	case l.kind != kindJobs:
		lane, ok := views.LaneAt(m.feed.picture, m.subject())
		if !ok {
			return req, m.noRow("C cancels jobs: those of a lane, or single ones in it (enter)")
		}
		req.Filter = queue.LaneFilter(lane.Kind.String(), lane.Domain.String(), "")
	case l.grid.all:
		req.Filter = l.within
		if f := l.list.query.Filter; f != "" {
			req.Filter += " " + f
		}
	case len(l.grid.marks) > 0:
		req.Targets = l.grid.marked()
	default:
		i, ok := l.grid.current()
		if !ok {
			return req, m.noRow("there is no job under the cursor")
		}
		req.Targets = []string{queue.Of[[]queue.Job](l.list.page)[i].ID}
	}
	return req, ""
}

// leases is what L works on: the marked leases, the one under the cursor, or
// those that hold the jobs that are marked or under the cursor.
func (m *root) leases(req queue.Request) (queue.Request, string) {
	l := m.pane().top()
	switch {
	case l.job.ID != "":
		job := l.job
		if d := queue.Of[*queue.JobDetail](l.list.page); d != nil {
			job = d.Job
		}
		return held(req, []queue.Job{job})
	case l.kind == kindJobs:
		if l.grid.all {
			return req, "L releases leases one by one: mark their jobs, or go to STUCK LEASES (8)"
		}
		var of []queue.Job
		i, ok := l.grid.current()
		for n, j := range queue.Of[[]queue.Job](l.list.page) {
			if l.grid.marks[j.ID] || (ok && len(l.grid.marks) == 0 && n == i) {
				of = append(of, j)
			}
		}
		if len(of) == 0 {
			return req, m.noRow("there is no job under the cursor")
		}
		return held(req, of)
	case len(l.grid.marks) > 0:
		req.Targets = l.grid.marked()
		return req, ""
	}
	lease, ok := views.LeaseAt(m.feed.picture, m.subject())
	if !ok {
		return req, m.noRow("L works on a row under STUCK LEASES; there is none under the cursor")
	}
	req.Targets = []string{lease.Token}
	return req, ""
}

// held are the leases of jobs, each once.
func held(req queue.Request, jobs []queue.Job) (queue.Request, string) {
	for _, j := range jobs {
		if j.LeaseToken != "" && j.FinishedAt == nil && !slices.Contains(req.Targets, j.LeaseToken) {
			req.Targets = append(req.Targets, j.LeaseToken)
		}
	}
	if len(req.Targets) == 0 {
		return req, "no lease holds it: there is nothing to release"
	}
	return req, ""
}

// executor is the id of the executor that a row of pane 4 is about.
func (m *root) executor() string {
	id := m.subject()
	if x, ok := views.SubscriptionOf(m.feed.picture, id); ok {
		return x.ExecutorID.String()
	}
	return id
}

// subscription starts the form of E: with the rule under the cursor, else with
// the first of the executor, else empty.
func (m *root) subscription(req queue.Request) (queue.Request, string) {
	id := m.executor()
	if id == "" {
		return req, m.noRow("there is no executor under the cursor")
	}
	rules := m.rules(id)
	if x, ok := views.SubscriptionOf(m.feed.picture, m.subject()); ok {
		rules = []queue.JobSubscription{x}
	}
	req.Targets = []string{id}
	if len(rules) > 0 {
		req = filled(req, rules[0])
	}
	return req, ""
}

// filled is a request whose form starts with a rule.
func filled(req queue.Request, x queue.JobSubscription) queue.Request {
	req.Args["kind"], req.Args["domain"] = x.JobKind.String(), x.Domain.String()
	req.Args["floor"], req.Args["parallel"] = strconv.FormatInt(x.PriorityFloor, 10), strconv.FormatInt(x.MaxParallel, 10)
	req.Args["enabled"], req.Args["notes"] = strconv.FormatBool(x.Enabled), x.Notes.String()
	return req
}

// rules are the subscriptions of an executor.
func (m *root) rules(executor string) (out []queue.JobSubscription) {
	if m.feed.picture == nil {
		return nil
	}
	for _, x := range m.feed.picture.JobSubscriptions {
		if x.ExecutorID.String() == executor {
			out = append(out, x)
		}
	}
	return out
}

// executorPage is the page of a row of pane 4: an executor, or the one that a
// subscription is of.
func (m *root) executorPage(i int, e views.Env, w int) (views.Page, bool) {
	pic := m.feed.picture
	if n := len(pic.Executors); i >= n {
		id := pic.JobSubscriptions[i-n].ExecutorID
		i = slices.IndexFunc(pic.Executors, func(x queue.Executor) bool { return x.ID == id })
		if i < 0 {
			return views.Page{}, false
		}
	}
	return views.ExecutorPage(pic.Executors[i], pic.JobSubscriptions, e, w), true
}

// stands says how an executor's rules stand, above the form that makes one.
func (m *root) stands(executor string) []queue.PlanLine {
	rules := m.rules(executor)
	if len(rules) == 0 {
		return []queue.PlanLine{{Label: "now", Value: queue.Clean("no subscription: it gets no job")}}
	}
	var out []queue.PlanLine
	for i, x := range rules {
		if i == 3 && len(rules) > 4 {
			out = append(out, queue.PlanLine{Value: queue.Clean("and " + strconv.Itoa(len(rules)-i) + " more")})
			break
		}
		out = append(out, queue.PlanLine{Label: map[bool]string{true: "now"}[i == 0], Value: queue.Clean(views.Rule(x))})
	}
	return append(out, queue.PlanLine{Label: "to know", Value: queue.Clean("another kind or domain makes one more; it does not change these")})
}
