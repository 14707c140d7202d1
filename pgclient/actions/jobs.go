package actions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func jobActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActJobCancel, Words: "job cancel", Example: "qtop job cancel --kind kg.reindex --status queued --reason 'index was dropped'", Key: "C", Panes: []queue.PaneID{queue.PaneQueues}, Verb: "Cancel",
			Help: "cancel live jobs; the worker of a leased one notices at its next report",
			Noun: "job", Button: "Cancel {count} {things}", Leave: "Leave", Targets: queue.Targets{Name: "ID", Many: true, Instead: "filter", List: "queues --kind K", Of: "job"},
			Danger: queue.DangerMany, Function: "public.fn_job_cancel(uuid[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planJobCancel, apply: applyJobCancel, match: matchJobs},
		{Action: queue.Action{
			ID: queue.ActLeaseRelease, Words: "lease release", Example: "qtop lease release 0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11 --reason 'host is dead'", Key: "L", Panes: []queue.PaneID{queue.PaneQueues, queue.PaneWebhooks}, Verb: "Release",
			Help: "return the jobs of an expired lease to the queue now",
			Noun: "lease", Button: "Release {count} {things}", Targets: queue.Targets{Name: "LEASE|WEBHOOK-JOB", Many: true, Of: "lease"},
			Danger: queue.DangerMany, Function: "public.fn_job_lease_release(uuid[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planLeaseRelease, apply: applyLeaseRelease},
	}
}

// mostJobs is the largest number of jobs that one call of fn_job_cancel accepts.
const mostJobs = 100_000

func uuids(targets []string, what string) ([]string, error) {
	ids := make([]string, len(targets))
	for i, t := range targets {
		id, err := parseid.UUID(t, what, "")
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}

// freezeJobs returns the ids of the live jobs that match the filter now. An empty filter is
// refused.
func (c *Planner) freezeJobs(ctx context.Context, filter string) ([]string, error) {
	b, f, err := filtersql.Jobs(filter)
	if err != nil {
		return nil, err
	}
	if f.Empty() {
		return nil, emptyFilter("kind=kg.reindex domain=kg status=queued")
	}
	ids, err := pgrow.Column[string](ctx, c.act, "SELECT q.job_id::text FROM public.job_queue q"+b.Clause()+fmt.Sprintf(" LIMIT %d", mostJobs+1), b.Args...)
	if len(ids) > mostJobs {
		return nil, queue.NewError(queue.KindUsage, fmt.Sprintf("more than %d jobs match", mostJobs), "--filter", "cancel them in parts: by status, domain, priority or age")
	}
	return ids, err
}

func planJobCancel(ctx context.Context, c *Planner, p *queue.Plan) error {
	ids, err := uuids(p.Request.Targets, "job")
	if len(p.Request.Targets) == 0 {
		if len(p.Request.Or) > 0 {
			return queue.NewError(queue.KindUsage, "there is more than one --filter: cancelling jobs takes one", "--filter", "run the command once for each filter")
		}
		ids, err = c.freezeJobs(ctx, p.Request.Filter)
	}
	if err != nil {
		return err
	}
	p.Request.Targets = ids
	if len(p.Request.Targets) == 0 {
		return refuse(p, "empty", "no row matches the selection")
	}
	a, err := c.call(ctx, "SELECT public.fn_job_cancel($1::uuid[], $2::text, $3::text, true)", p.Request.Targets, p.Request.Actor, p.Request.Reason)
	if err != nil {
		return err
	}
	reasons := tally(p, a.outcomes(""))
	kinds, err := c.groups(ctx, "q.job_kind || ' in ' || q.event_domain", "FROM public.job_queue q WHERE q.job_id = ANY ($1::uuid[])", 0, ids)
	if err != nil {
		return err
	}
	names, _ := namesOf(kinds)
	counted(p, "jobs", len(a.Results), names, "not live any more")
	if err := c.cancelLines(ctx, p); err != nil {
		return err
	}
	return reasons.refuseIfNone(p, "none of the selected jobs can be cancelled")
}

// cancelLines adds lines with the number of jobs to cancel per kind, domain and status, and
// the lease owners that hold some of them.
func (c *Planner) cancelLines(ctx context.Context, p *queue.Plan) error {
	type part struct {
		Kind, Domain, Status string
		N                    int64
		Owners               string
	}
	parts, err := pgrow.All[part](ctx, c.act, `SELECT q.job_kind, q.event_domain, q.status, count(*), COALESCE(string_agg(DISTINCT q.lease_owner, ', '), '')
		FROM public.job_queue q WHERE q.job_id = ANY ($1::uuid[]) GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3`, p.Request.Targets)
	if err != nil {
		return err
	}
	held, owners := int64(0), map[string]bool{}
	for i, x := range parts {
		if x.Status == "leased" || x.Status == "in_progress" {
			held += x.N
			for _, o := range strings.Split(x.Owners, ", ") {
				owners[o] = true
			}
		}
		switch {
		case i < partsNamed:
			addLine(p, "of them", "%d × %s (%s) %s", x.N, x.Kind, x.Domain, x.Status)
		case i == partsNamed:
			rest := int64(0)
			for _, y := range parts[i:] {
				rest += y.N
			}
			addLine(p, "of them", "%s", others(int64(len(parts)), rest, "kind and status", "kinds and statuses", "job", "jobs"))
		}
	}
	if held > 0 {
		addLine(p, "held now", "%d by %s: they lose them at their next renewal or report", held, first(slices.Sorted(maps.Keys(owners))))
	} else {
		addLine(p, "held now", "none")
	}
	return nil
}

// applyJobCancel cancels the jobs that the plan selected. If a filter selected them, only those
// that still match are cancelled: an operator who cancels queued jobs does not mean jobs that a
// worker has claimed since, also not while this function runs.
func applyJobCancel(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	ids := p.Request.Targets
	var seen []string // per job, its updated_at
	if p.Request.Filter != "" {
		b, _, err := filtersql.Jobs(p.Request.Filter)
		if err != nil {
			return err
		}
		b.And("q.job_id = ANY (" + b.Arg(ids) + "::uuid[])")
		type match struct {
			ID string
			At string
		}
		still, err := pgrow.All[match](ctx, c.act, "SELECT q.job_id::text, q.updated_at::text FROM public.job_queue q"+b.Clause(), b.Args...)
		if err != nil {
			return err
		}
		meets := map[string]bool{}
		for _, m := range still {
			meets[m.ID] = true
		}
		var gone []queue.Outcome
		for _, id := range ids {
			if !meets[id] {
				gone = append(gone, queue.Outcome{ID: id, Outcome: "skipped", Why: queue.Clean("no longer matches the filter")})
			}
		}
		record(res, gone)
		ids = nil
		for _, m := range still {
			ids, seen = append(ids, m.ID), append(seen, m.At)
		}
		if len(ids) == 0 {
			res.Refused = "none of the selected jobs matches the filter any more"
			return nil
		}
	}
	return c.applyMany(ctx, res, "SELECT public.fn_job_cancel_seen($1::uuid[], $2::text[]::timestamptz[], $3::text, $4::text, false)", ids, seen, p.Request.Actor, p.Request.Reason)
}

func planLeaseRelease(ctx context.Context, c *Planner, p *queue.Plan) error {
	all, err := c.releaseLeases(ctx, p.Request, true)
	if err != nil {
		return err
	}
	reasons := tally(p, all.outcomes)
	held, err := c.groups(ctx, "h.name", `FROM (SELECT 'jobs of ' || l.lease_owner AS name FROM public.v_job_lease l WHERE l.lease_id = ANY ($1::uuid[])
		UNION ALL SELECT 'delivery to ' || s.endpoint || ' by ' || j.worker_id FROM public.webhook_delivery_jobs j
			JOIN public.subscriptions s ON s.id = j.subscription_id WHERE j.id = ANY ($2::bigint[])) h`, 0, all.ids, all.hooks)
	if err != nil {
		return err
	}
	names, _ := namesOf(held)
	counted(p, "leases", len(all.outcomes), names, "none that is held")
	if err := c.leaseLines(ctx, p, all.ids, all.hooks); err != nil {
		return err
	}
	if err := c.blockedLeases(ctx, p, all); err != nil {
		return err
	}
	return reasons.refuseIfNone(p, "none of the selected leases can be released")
}

// leaseLines adds lines with the owners of the expired leases, and how many of their jobs
// become dead letters instead of returning to the queue: on the third lost lease or the
// last attempt.
func (c *Planner) leaseLines(ctx context.Context, p *queue.Plan, ids []string, hooks []int64) error {
	type lease struct {
		Owner   string
		Until   time.Time
		N, Dies int64
	}
	leases, err := pgrow.All[lease](ctx, c.act, `SELECT l.lease_owner, l.lease_until, count(q.job_id),
			count(q.job_id) FILTER (WHERE q.lost_leases + 1 >= 3
				OR q.attempts + 1 >= q.max_attempts AND (q.lost_leases > 0 OR q.status = 'in_progress'))
		FROM public.v_job_lease l CROSS JOIN LATERAL unnest(l.job_ids) i (id)
		LEFT JOIN public.v_leased_job x ON x.job_id = i.id AND x.lease_id = l.lease_id
		LEFT JOIN public.job_queue q ON q.job_id = x.job_id
		WHERE l.lease_id IN (SELECT unnest($1::uuid[]) UNION ALL -- a lease token: the previous release named leases by it
			SELECT left(encode(sha256(uuid_send(t)), 'hex'), 32)::uuid FROM unnest($1::uuid[]) t) AND l.lease_until < clock_timestamp() GROUP BY l.lease_id, l.lease_owner, l.lease_until
		UNION ALL
		SELECT j.worker_id, j.lease_until, 1, (j.lease_resets >= 2)::int FROM public.webhook_delivery_jobs j
		WHERE j.id = ANY ($2::bigint[]) AND j.status = 'Leased' AND j.lease_until < clock_timestamp()
		ORDER BY 2 LIMIT 9`, ids, hooks)
	if err != nil {
		return err
	}
	for i, x := range leases {
		if i == 8 {
			addLine(p, "lease", "and more")
			break
		}
		p.Lines = append(p.Lines, line("lease", "of %s, expired at %s: %s to queued, %s", x.Owner,
			queue.Stamp(x.Until, time.RFC3339), queue.Plural(x.N-x.Dies, "job returns", "jobs return"), queue.Plural(x.Dies, "dies", "die")))
	}
	return nil
}

func applyLeaseRelease(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	all, err := c.releaseLeases(ctx, p.Request, false)
	res.AuditID = all.audit
	record(res, all.outcomes)
	return err
}

// leases holds the targets of a release (lease ids of jobs, ids of webhook jobs) and its results.
type leases struct {
	ids      []string
	hooks    []int64
	outcomes []queue.Outcome
	audit    int64
}

// releaseLeases releases the leases that the request names: of jobs and of webhook jobs.
func (c *Planner) releaseLeases(ctx context.Context, r queue.Request, dry bool) (all leases, err error) {
	for _, t := range r.Targets {
		if n, err := strconv.ParseInt(t, 10, 64); err == nil {
			all.hooks = append(all.hooks, n)
			continue
		}
		id, err := parseid.UUID(t, "lease", "")
		if err != nil {
			return all, err
		}
		all.ids = append(all.ids, id)
	}
	take := func(a answer, err error) error {
		all.audit = max(all.audit, a.AuditID)
		all.outcomes = append(all.outcomes, a.outcomes("")...)
		return err
	}
	if len(all.ids) > 0 {
		if err = take(c.call(ctx, "SELECT public.fn_job_lease_release($1::uuid[], $2::text, $3::text, $4::boolean)", all.ids, r.Actor, r.Reason, dry)); err != nil {
			return all, err
		}
	}
	if len(all.hooks) > 0 {
		err = take(c.call(ctx, "SELECT public.fn_webhook_lease_release($1::bigint[], $2::text, $3::text, $4::boolean)", all.hooks, r.Actor, r.Reason, dry))
	}
	return all, err
}
