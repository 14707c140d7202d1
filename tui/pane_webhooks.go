package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// webhooksPane is pane 7: endpoints and the leases on their jobs; under each its page,
// and what D and L work on.
func webhooksPane() pane {
	p := pane{
		Pane: queue.Pane{
			ID: queue.PaneWebhooks, Keys: "7", Title: "Webhooks", Short: "Hooks",
			From: "subscriptions, webhook_delivery_sagas, webhook_delivery_jobs",
			Help: "endpoints with gate, success, pace and retries, leases in flight; suspend, resume, release",
		},
		badge: views.WebhooksBadge,
		list: list{
			query: queue.Query{Kind: queue.ListEndpoints},
			count: func(p queue.Page) int { return len(queue.Of[queue.EndpointList](p).Endpoints) },
			cut:   func(p queue.Page) bool { return len(queue.Of[queue.EndpointList](p).Leases) >= queue.LeasesShown },
		},
		marks: true, often: true, through: true,
		source: func(at scene) views.Source {
			read := endpointList(at)
			return listed(at, views.Webhooks(read.Endpoints, read.Leases))
		},
		enter: func(at scene, i int) level { return hookLevel(at, at.level.grid.src.ID(i)) },
		land: func(l *level, id string) {
			l.grid.text = hookFilter(id)
			l.list.refilter(l.grid.text)
		},
	}
	p.acts = endpointWorks(func(at scene) (queue.Endpoint, bool) { return endpointOf(at, at.subject()) })
	p.targets[queue.ActLeaseRelease] = hookLeases
	return p
}

func endpointList(at scene) queue.EndpointList {
	return queue.Of[queue.EndpointList](at.base().list.page)
}

// endpointOf is the endpoint of a row; of a lease, the one that it is for.
func endpointOf(at scene, row string) (queue.Endpoint, bool) {
	if job, ok := views.WebhookJob(row); ok {
		if x, ok := leaseOf(at, job); ok {
			row = strconv.FormatInt(x.SubscriptionID, 10)
		}
	}
	return queue.Find(endpointList(at).Endpoints, func(r queue.Endpoint) bool { return strconv.FormatInt(r.ID, 10) == row })
}

func leaseOf(at scene, job string) (queue.WebhookLease, bool) {
	return queue.Find(endpointList(at).Leases, func(x queue.WebhookLease) bool { return strconv.FormatInt(x.JobID, 10) == job })
}

// endpointWorks is what D and :why work on, where a row or a page has an endpoint.
func endpointWorks(endpoint func(at scene) (queue.Endpoint, bool)) acts {
	gate := on(endpoint, func(r queue.Endpoint) string { return strconv.FormatInt(r.ID, 10) }, "there is no endpoint under the cursor")
	return acts{
		targets: map[queue.ActionID]target{queue.ActSuspend: gate, queue.ActResume: gate},
		second: func(at scene) bool { // D resumes what is suspended
			r, ok := endpoint(at)
			return ok && r.Since != nil
		},
		waits: func(at scene) string {
			r, ok := endpoint(at)
			return queue.Choose(ok, "webhook "+r.Endpoint.String(), "")
		},
	}
}

// hookLevel is the page of an endpoint, or that of a lease.
func hookLevel(at scene, id string) level {
	if job, ok := views.WebhookJob(id); ok {
		return level{id: id, title: "webhook job " + job, page: func(at scene) (views.Page, bool) {
			x, ok := leaseOf(at, job)
			return views.WebhookLeasePage(x, at.env, at.size.W), ok
		}}
	}
	row, _ := endpointOf(at, id)
	// now is the endpoint as it was last read.
	now := func(at scene) queue.Endpoint {
		if d := queue.Of[*queue.EndpointDetail](at.level.list.page); d != nil {
			return d.Endpoint
		}
		return row
	}
	l := level{id: id, title: row.Endpoint.String(), list: reads(queue.ListEndpoint, id)}
	l.page = func(at scene) (views.Page, bool) {
		return views.EndpointPage(now(at), queue.Of[*queue.EndpointDetail](at.level.list.page), at.env, at.size.W), true
	}
	l.acts = endpointWorks(func(at scene) (queue.Endpoint, bool) { return now(at), true })
	l.targets[queue.ActLeaseRelease] = func(at scene, req *queue.Request) string {
		if d := queue.Of[*queue.EndpointDetail](at.level.list.page); d != nil {
			expiredOf(req, now(at), d.Leases)
		}
		if len(req.Targets) == 0 {
			return noneExpired(now(at))
		}
		return ""
	}
	return l
}

// expiredOf takes the leases of an endpoint that expired.
func expiredOf(req *queue.Request, r queue.Endpoint, leases []queue.WebhookLease) {
	for _, x := range leases {
		if x.SubscriptionID == r.ID && x.Expired {
			req.Targets = append(req.Targets, strconv.FormatInt(x.JobID, 10))
		}
	}
}

func noneExpired(r queue.Endpoint) string {
	return "no lease of " + r.Endpoint.String() + " has expired: there is nothing to release"
}

// hookLeases is what L works on: the marked leases, the one under the cursor, or
// all of an endpoint that expired.
func hookLeases(at scene, req *queue.Request) string {
	g := &at.level.grid
	if job, ok := views.WebhookJob(at.subject()); ok && len(g.marks) == 0 {
		req.Targets = []string{job}
		return ""
	}
	for _, id := range g.marked() {
		if job, ok := views.WebhookJob(id); ok {
			req.Targets = append(req.Targets, job)
		}
	}
	if r, ok := endpointOf(at, at.subject()); ok && len(req.Targets) == 0 {
		expiredOf(req, r, endpointList(at).Leases) // of all endpoints, the first ones
		switch {
		case int64(len(req.Targets)) < r.Expired:
			return "not all of its leases are listed here; enter opens the endpoint, and L works there"
		case len(req.Targets) == 0:
			return noneExpired(r)
		}
	}
	if len(req.Targets) == 0 {
		return at.noRow("L works on an endpoint or a row under IN FLIGHT")
	}
	return ""
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
