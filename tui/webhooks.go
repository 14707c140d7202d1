package tui

// This file is pane 7 and why: from a row to its page, and what D and L work on.

import (
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// hook is the level under a row of pane 7: the page of an endpoint, or that of a
// lease.
func (m *root) hook(id string, page level) level {
	if job, ok := views.WebhookJob(id); ok {
		page.title = "webhook job " + job
		return page
	}
	for _, r := range queue.Of[queue.EndpointList](m.pane().levels[0].list.page).Endpoints {
		if strconv.FormatInt(r.ID, 10) == id {
			page.hook, page.title = r, r.Endpoint.String()
			page.list.query = queue.Query{Kind: queue.ListEndpoint, ID: id}
		}
	}
	return page
}

func (m *root) hookPage(p *pane, l *level, e views.Env, w int) (views.Page, bool) {
	if job, ok := views.WebhookJob(l.id); ok {
		for _, x := range queue.Of[queue.EndpointList](p.levels[0].list.page).Leases {
			if strconv.FormatInt(x.JobID, 10) == job {
				return views.WebhookLeasePage(x, e, w), true
			}
		}
		return views.Page{}, false
	}
	read := queue.Of[*queue.EndpointDetail](l.list.page)
	if read != nil {
		l.hook = read.Endpoint
	}
	return views.EndpointPage(l.hook, read, e, w), true
}

// endpoint is the one that is open or under the cursor; of a lease, the one that
// it is for; of a why, the one that it was asked of.
func (m *root) endpoint() (queue.Endpoint, bool) {
	p := m.pane()
	l, at := p.top(), m.subject()
	if m.at != queue.PaneWebhooks {
		return queue.Endpoint{}, false
	}
	if l.why != "" {
		l = &p.levels[len(p.levels)-2]
		if i, ok := l.grid.current(); ok {
			at = l.grid.src.ID(i)
		}
	}
	if l.kind == kindPage && l.hook.ID != 0 {
		return l.hook, true
	}
	for _, r := range queue.Of[queue.EndpointList](p.levels[0].list.page).Endpoints {
		if id := strconv.FormatInt(r.ID, 10); id == at || id == m.leaseOf(at) {
			return r, true
		}
	}
	return queue.Endpoint{}, false
}

// leaseOf is the subscription of a lease's row.
func (m *root) leaseOf(id string) string {
	job, ok := views.WebhookJob(id)
	for _, x := range queue.Of[queue.EndpointList](m.pane().levels[0].list.page).Leases {
		if ok && strconv.FormatInt(x.JobID, 10) == job {
			return strconv.FormatInt(x.SubscriptionID, 10)
		}
	}
	return ""
}

// hookLeases is what L works on in pane 7: the marked leases, the one under the
// cursor, or all of an endpoint that expired.
func (m *root) hookLeases(req queue.Request) (queue.Request, string) {
	l := m.pane().top()
	if job, ok := views.WebhookJob(m.subject()); ok && len(l.grid.marks) == 0 {
		req.Targets = []string{job}
		return req, ""
	}
	for _, id := range l.grid.marked() {
		if job, ok := views.WebhookJob(id); ok {
			req.Targets = append(req.Targets, job)
		}
	}
	if r, ok := m.endpoint(); ok && len(req.Targets) == 0 {
		leases := queue.Of[queue.EndpointList](m.pane().levels[0].list.page).Leases // of all endpoints, the first ones
		if l.hook.ID != 0 {
			leases = nil
			if d := queue.Of[*queue.EndpointDetail](l.list.page); d != nil {
				leases = d.Leases // of this one
			}
		}
		for _, x := range leases {
			if x.SubscriptionID == r.ID && x.Expired {
				req.Targets = append(req.Targets, strconv.FormatInt(x.JobID, 10))
			}
		}
		switch {
		case int64(len(req.Targets)) < r.Expired && l.hook.ID == 0:
			return req, "not all of its leases are listed here; enter opens the endpoint, and L works there"
		case len(req.Targets) == 0:
			return req, "no lease of " + r.Endpoint.String() + " has expired: there is nothing to release"
		}
	}
	if len(req.Targets) == 0 {
		return req, m.noRow("L works on an endpoint or a row under IN FLIGHT")
	}
	return req, ""
}

// hookFilter is the filter of pane 7 for a subscription's number or an endpoint.
func hookFilter(id string) string {
	t := exactly("endpoint", queue.FieldText, id)
	if _, err := strconv.ParseInt(id, 10, 64); err == nil {
		t = exactly("id", queue.FieldNumber, id)
	}
	f := queue.Filter{Terms: []queue.Term{t}}
	return f.String()
}

// waitingName is the name of a queue as why takes it.
func waitingName(x queue.Waiting) string {
	name := x.Queue.String()
	if x.Source == "job" {
		name += " in " + x.Domain.String()
	}
	return name
}

// why opens the page that says why a queue waits; without a name that of the row
// under the cursor.
func (m *root) why(name string) tea.Cmd {
	if name == "" {
		if name = m.waitingHere(); name == "" {
			m.warn(":why needs a queue: a row that waits (1, 7, 8), or its name; tab completes")
			return nil
		}
	}
	next := level{kind: kindPage, id: name, title: "why " + name, why: name}
	next.list.query = queue.Query{Kind: queue.ListWhy, ID: name}
	return m.push(next)
}

// waitingHere names the queue of the row under the cursor.
func (m *root) waitingHere() string {
	p, l := m.pane(), m.pane().top()
	if r, ok := m.endpoint(); ok {
		return "webhook " + r.Endpoint.String()
	}
	id := ""
	switch {
	case m.at == queue.PaneOverview && p.armed:
		id = p.target.ID
	case m.at == queue.PaneQueues && l.kind == kindJobs:
		id = l.id
	case m.at == queue.PaneQueues:
		id = m.subject()
	}
	if m.feed.picture == nil || id == "" {
		return ""
	}
	for _, x := range m.feed.picture.Waiting {
		if id == views.LaneID(x.Domain.String(), x.Subject.String()) || id == x.Subject.String() || id == x.Queue.String() {
			return waitingName(x)
		}
	}
	if lane, ok := views.LaneAt(m.feed.picture, id); ok {
		return "job " + lane.Kind.String() + " in " + lane.Domain.String()
	}
	return ""
}
