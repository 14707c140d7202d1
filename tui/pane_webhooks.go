package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// webhooksPane returns pane 7: webhook subscriptions with their endpoints, and
// leases on delivery jobs.
func webhooksPane() pane {
	p := pane{
		Pane: queue.Pane{
			ID: queue.PaneWebhooks, Keys: "7", Title: "Webhooks", Short: "Hooks",
			From: "subscriptions, webhook_delivery_sagas, webhook_delivery_jobs",
			Help: "endpoints with state, success rate, pace and retries; leases in flight; suspend, resume, release",
		},
		badge: views.WebhooksBadge,
		list: list{
			query:     queue.Query{Kind: queue.ListEndpoints},
			least:     rereadMax, // the order changes with every read, so there are no further pages
			count:     func(p queue.Page) int { return len(queue.Of[queue.EndpointList](p).Endpoints) },
			truncated: func(p queue.Page) bool { return len(queue.Of[queue.EndpointList](p).Leases) >= queue.LeasesShown },
		},
		selectable: true, rereadOften: true, rowBehindWhy: true,
		source: func(at scene) views.Source {
			read := endpointList(at)
			src := listSource(at, views.Webhooks(read.Endpoints, read.Leases))
			if n := at.base().list.unread(); n > 0 && src.Note == "" {
				src.Note = "not read: " + views.Plural(n, "more subscription", "more subscriptions") + " and the leases of these; / filters"
			}
			return src
		},
		enter: func(at scene, i int) level { return webhookLevel(at, at.level.grid.src.ID(i)) },
		beforeFollow: func(l *level, id string) {
			if l.refilter(endpointFilter(id)) {
				l.grid.toFirst()
			}
		},
	}
	p.acts = endpointActs(func(at scene) (queue.Endpoint, bool) { return endpointOf(at, at.subject()) })
	p.targets[queue.ActLeaseRelease] = webhookLeases
	return p
}

func endpointList(at scene) queue.EndpointList {
	return queue.Of[queue.EndpointList](at.base().list.page)
}

// endpointOf returns the endpoint that a row is about: its own, or for the row
// of a lease that of the leased delivery job.
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

// endpointActs returns the targets for a row or page that is about an
// endpoint: D (suspend, resume), E (rotate the secret), M (rate limit) and :why.
func endpointActs(endpoint func(at scene) (queue.Endpoint, bool)) acts {
	gate := rowTarget(endpoint, func(r queue.Endpoint) string { return strconv.FormatInt(r.ID, 10) }, "there is no endpoint under the cursor")
	return acts{
		targets: map[queue.ActionID]target{queue.ActSuspend: gate, queue.ActResume: gate, queue.ActWebhookRotate: gate, queue.ActWebhookLimit: gate},
		usesSecond: func(at scene) bool { // D suspends, or resumes an endpoint that is suspended
			r, ok := endpoint(at)
			return ok && r.Since != nil
		},
		queueName: func(at scene) string {
			r, ok := endpoint(at)
			return queue.Choose(ok, "webhook "+r.Endpoint.String(), "")
		},
	}
}

// webhookLevel returns the page of an endpoint, or of a lease if the row is
// one.
func webhookLevel(at scene, id string) level {
	if job, ok := views.WebhookJob(id); ok {
		lease, _ := leaseOf(at, job) // keys act on its endpoint also when the delivery has ended
		to := strconv.FormatInt(lease.SubscriptionID, 10)
		return level{acts: endpointActs(func(at scene) (queue.Endpoint, bool) { return endpointOf(at, to) }), id: id, title: "webhook job " + job, rowBelow: true, page: func(at scene) (views.Page, bool) {
			x, ok := leaseOf(at, job)
			return views.WebhookLeasePage(x, at.env, at.size.W), ok
		}}
	}
	row, _ := endpointOf(at, id)
	// now returns the endpoint as it was last read.
	now := func(at scene) queue.Endpoint {
		if d := queue.Of[*queue.EndpointDetail](at.level.list.page); d != nil {
			return d.Endpoint
		}
		return row
	}
	l := level{id: id, title: row.Endpoint.String(), list: listOf(queue.ListEndpoint, id)}
	l.page = func(at scene) (views.Page, bool) {
		return views.EndpointPage(now(at), queue.Of[*queue.EndpointDetail](at.level.list.page), at.env, at.size.W), true
	}
	l.acts = endpointActs(func(at scene) (queue.Endpoint, bool) { return now(at), true })
	l.targets[queue.ActLeaseRelease] = func(at scene, req *queue.Request) string {
		if d := queue.Of[*queue.EndpointDetail](at.level.list.page); d != nil {
			addExpired(req, now(at), d.Leases)
		}
		if len(req.Targets) == 0 {
			return noneExpired(now(at))
		}
		return ""
	}
	return l
}

// addExpired adds the expired leases of an endpoint to the targets of req.
func addExpired(req *queue.Request, r queue.Endpoint, leases []queue.WebhookLease) {
	for _, x := range leases {
		if x.SubscriptionID == r.ID && x.Expired {
			req.Targets = append(req.Targets, strconv.FormatInt(x.JobID, 10))
		}
	}
}

func noneExpired(r queue.Endpoint) string {
	return "no lease of " + r.Endpoint.String() + " has expired: there is nothing to release"
}

// webhookLeases fills in the targets of L (release leases): the selected
// leases, else the lease under the cursor, else all expired leases of the
// endpoint under the cursor.
func webhookLeases(at scene, req *queue.Request) string {
	g := &at.level.grid
	if job, ok := views.WebhookJob(at.subject()); ok && len(g.selected) == 0 {
		req.Targets = []string{job}
		return ""
	}
	if _, problem := at.chosen(); problem != "" {
		return problem
	}
	for _, id := range g.selectedIDs() {
		if job, ok := views.WebhookJob(id); ok {
			req.Targets = append(req.Targets, job)
		}
	}
	if r, ok := endpointOf(at, at.subject()); ok && len(req.Targets) == 0 {
		addExpired(req, r, endpointList(at).Leases) // only the leases that were read: that list has a limit
		switch {
		case int64(len(req.Targets)) < r.Expired:
			return "not all leases of this endpoint are listed here; open the endpoint (enter) and press L there"
		case len(req.Targets) == 0:
			return noneExpired(r)
		}
	}
	if len(req.Targets) == 0 {
		return at.noRow("L needs an endpoint or a row under IN FLIGHT")
	}
	return ""
}

// endpointFilter returns the filter of pane 7 that matches one webhook
// subscription (if id is a number), else the webhook subscriptions of one
// endpoint host:port.
func endpointFilter(id string) string {
	t := exactly("endpoint", queue.FieldText, id)
	if _, err := strconv.ParseInt(id, 10, 64); err == nil {
		t = exactly("id", queue.FieldNumber, id)
	}
	f := queue.Filter{Terms: []queue.Term{t}}
	return f.String()
}
