package actions

// The functions here find the queues to which the work of each kind of action belongs; blocked.go
// adds the lines about what blocks these queues.

import (
	"context"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// How the texts begin that blockedHooks writes about a webhook subscription to which nothing is
// sent.
const (
	gateSuspended  = "endpoint suspended"
	gateCircuit    = "circuit"
	gateInactive   = "subscription inactive"
	gateUnverified = "subscription unverified"
)

// allOf is a query for blockedHooks: the webhook subscriptions with the ids $1.
const allOf = "SELECT s, 1 FROM unnest($1::bigint[]) s"

// itemsAsked is how many waiting items of an operation are read to find their queue lanes.
const itemsAsked = 10_000

// blockedDeadLetters adds what blocks dead letters that are requeued now. A requeue skips the dead
// letters of a subscription that is suspended, inactive or not verified, which another line of the
// preview reports; a requeue does not skip those behind an open circuit.
func (c *Planner) blockedDeadLetters(ctx context.Context, p *queue.Plan, ids [3][]string) error {
	for i, s := range deadLetterSources() {
		if len(ids[i]) == 0 {
			continue
		}
		if err := c.blockedFrom(ctx, p, s, s.given(), []string{gateSuspended, gateInactive, gateUnverified}, ids[i]); err != nil {
			return err
		}
	}
	return nil
}

// blockedPart adds what blocks the dead letters that a bulk operation requeues from one source.
func (c *Planner) blockedPart(ctx context.Context, p *queue.Plan, x bulkPart) error {
	if x.bulk == queue.BulkResolve {
		return nil
	}
	return c.blockedFrom(ctx, p, x.deadLetterSource, x.where, nil, x.b.Args...)
}

// blockedFrom adds what blocks the dead letters of a source. Events need no line here: the requeue
// itself routes them.
func (c *Planner) blockedFrom(ctx context.Context, p *queue.Plan, s deadLetterSource, where string, frees []string, args ...any) error {
	switch s.name {
	case "webhook":
		return c.blockedHooks(ctx, p, subscriptionsOf(s, where), frees, args...)
	case "job":
		return c.blockedLanes(ctx, p, "SELECT d.job_kind, d.event_domain, count(*) FROM "+filtersql.DeadJobFrom+where+" GROUP BY 1, 2", nil, args...)
	}
	return nil
}

// subscriptionsOf is a query for blockedHooks: the webhook subscriptions of the dead letters of a source.
func subscriptionsOf(s deadLetterSource, where string) string {
	return "SELECT d.subscription_id, count(*) FROM " + s.from + where + " GROUP BY 1"
}

// subscriptionsWaiting is a query for blockedHooks: the webhook subscriptions of those items of the
// operation $1 that are not carried out yet; one index look-up for each, however many items wait.
const subscriptionsWaiting = `WITH RECURSIVE lane (sub) AS (
		(SELECT i.subscription_id FROM public.queue_bulk_operation_item i WHERE i.operation_id = $1 AND i.outcome IS NULL ORDER BY i.subscription_id LIMIT 1)
		UNION ALL
		SELECT (SELECT i.subscription_id FROM public.queue_bulk_operation_item i WHERE i.operation_id = $1 AND i.outcome IS NULL
			AND i.subscription_id > l.sub ORDER BY i.subscription_id LIMIT 1) FROM lane l WHERE l.sub IS NOT NULL)
	SELECT l.sub, 1 FROM lane l WHERE l.sub IS NOT NULL`

// blockedOperation adds what blocks the items of an operation that are not carried out yet.
func (c *Planner) blockedOperation(ctx context.Context, p *queue.Plan, o queue.Operation) error {
	switch o.Kind {
	case "requeue_webhook":
		return c.blockedHooks(ctx, p, subscriptionsWaiting, nil, o.ID)
	case "replay_job":
		return c.blockedLanes(ctx, p, `SELECT d.job_kind, d.event_domain, count(*) FROM (SELECT i.target FROM public.queue_bulk_operation_item i
				WHERE i.operation_id = $1 AND i.outcome IS NULL LIMIT `+strconv.Itoa(itemsAsked)+`) x
			JOIN public.job_dead_letter d ON d.dead_letter_id = substr(x.target, 5)::uuid GROUP BY 1, 2`, nil, o.ID)
	}
	return nil
}

// blockedLeases adds what blocks the jobs and deliveries of leases that are released.
func (c *Planner) blockedLeases(ctx context.Context, p *queue.Plan, all leases) error {
	if len(all.ids) > 0 {
		err := c.blockedLanes(ctx, p, `SELECT q.job_kind, q.event_domain, count(*) FROM public.v_job_lease l CROSS JOIN LATERAL unnest(l.job_ids) i (id)
			JOIN public.job_queue q ON q.job_id = i.id WHERE l.lease_id = ANY ($1::uuid[]) GROUP BY 1, 2`, nil, all.ids)
		if err != nil {
			return err
		}
	}
	if len(all.hooks) > 0 {
		return c.blockedHooks(ctx, p, "SELECT j.subscription_id, count(*) FROM public.webhook_delivery_jobs j WHERE j.id = ANY ($1::bigint[]) GROUP BY 1", nil, all.hooks)
	}
	return nil
}

// blockedEvents adds what blocks the routing of events of a domain; "" = of every domain.
func (c *Planner) blockedEvents(ctx context.Context, p *queue.Plan, domain string) error {
	return c.blocked(ctx, p, `SELECT 'events ' || d.event_domain, d.event_domain, 1 FROM (SELECT DISTINCT r.event_domain FROM public.event_type_registry r
		WHERE $1 IN ('', r.event_domain)) d`, nil, domain)
}

// blockedExecutor adds to the preview of saving a job subscription what would keep the executor
// from claiming those jobs: the switch for all jobs is off, the executor is silent, or no live host
// has a handler for a kind.
func (c *Planner) blockedExecutor(ctx context.Context, p *queue.Plan, executor, kind, domain string) error {
	var state string
	var missing []string
	err := c.act.QueryRow(ctx, `SELECT COALESCE((SELECT w.state FROM public.v_queue_watch w WHERE w.executor_id = $1), ''),
			ARRAY(SELECT DISTINCT l.job_kind FROM public.job_lane l JOIN public.v_job_handlers h ON h.executor_id = $1 AND l.job_kind <> ALL (h.kinds)
				WHERE $2 IN ('', l.job_kind) AND $3 IN ('', l.event_domain) ORDER BY 1)`, executor, kind, domain).Scan(&state, &missing)
	if err != nil {
		return err
	}
	if state == "silent" || state == "stopped" || state == "deregistered" {
		addBlocked(p, "", executor+" is "+state, false)
	}
	if len(missing) > 0 {
		addBlocked(p, first(missing), "no live host has a handler for it", false)
	}
	return c.blockedLanes(ctx, p, "SELECT l.job_kind, l.event_domain, 1 FROM public.job_lane l WHERE $1 IN ('', l.job_kind) AND $2 IN ('', l.event_domain)",
		[]string{"executor", "silence", "handler"}, kind, domain)
}

// blockedFlag adds what else blocks the work that a flag switches on: the flags of webhooks, of
// jobs, of routes and of single tick workers.
func (c *Planner) blockedFlag(ctx context.Context, p *queue.Plan, key, to string) error {
	if worker, ok := strings.CutSuffix(strings.TrimPrefix(key, "queue.tick."), ".interval_seconds"); ok {
		if to == "0" {
			return nil
		}
		return c.blockedLoop(ctx, p, worker, key)
	}
	if to != "true" {
		return nil
	}
	var err error
	switch key {
	case "webhook.worker.enabled":
		err = c.blockedHooks(ctx, p, "SELECT b.subscription_id, b.waiting FROM public.v_webhook_backlog b WHERE b.waiting > 0", nil)
	case "queue.job_substrate.enabled":
		err = c.blockedLanes(ctx, p, "SELECT b.job_kind, b.event_domain, b.queued + b.retry_waiting FROM public.fn_job_backlog() b WHERE b.queued + b.retry_waiting > 0", nil)
	case "iu_core.route_worker_enabled", "iu_core.routes_master_enabled":
		err = c.blocked(ctx, p, "SELECT 'events ' || b.event_domain, b.event_domain, b.waiting FROM public.fn_iu_route_backlog() b WHERE b.waiting > 0", nil)
	}
	if err != nil {
		return err
	}
	p.Lines = without(p.Lines, line("blocked", "%s is off", key))
	workers, err := pgrow.Column[string](ctx, c.act, "SELECT w.worker_name FROM public.v_queue_scheduler_status w WHERE w.flag_key = $1 ORDER BY 1", key)
	for _, w := range workers {
		if err == nil {
			err = c.blockedLoop(ctx, p, w, key)
		}
	}
	return err
}

// without returns the lines that are not x.
func without(lines []queue.PlanLine, x queue.PlanLine) (out []queue.PlanLine) {
	for _, l := range lines {
		if l != x {
			out = append(out, l)
		}
	}
	return out
}

// StepWorkers returns, for each step that can put rows into quarantine, the tick workers that process
// these rows again. The functions of the tick workers decide that; TestStepsHaveWorkers reads it from
// them and compares.
func StepWorkers() map[string][]string {
	out := map[string][]string{"event_route": {"iu_outbound_default", "staging_outbound"}}
	for worker, steps := range map[string]string{
		"stale_heartbeat_check":  "alert_acks stale_check",
		"bulk_operation_runner":  "bulk bulk_item bulk_watch",
		"config_expiry":          "config_expire",
		"counter_compactor":      "counter_fold counter_prune",
		"job_queue_default":      "job_lanes job_promote",
		"lease_reaper":           "job_reap",
		"iu_notification_worker": "notify",
		"staging_cleanup_sweep":  "sweep_staging",
		"metrics_sampler":        "sample sample_broadcast sample_picture sweep_pictures",
		"lease_reset_cleaner":    "webhook_reap",
		"webhook_router":         "webhook_route",
		"saga_orchestrator":      "webhook_lanes webhook_make webhook_ramp webhook_resume webhook_settle",
		"retention_sweep": "partitions sweep_attempts sweep_ended_keys sweep_event_dead_letters sweep_history sweep_hosts sweep_job_dead_letters sweep_keys sweep_reads sweep_roots " +
			"sweep_webhooks",
	} {
		for _, step := range strings.Fields(steps) {
			out[step] = append(out[step], worker)
		}
	}
	return out
}

// blockedSteps adds what keeps the tick workers of quarantined rows from running.
func (c *Planner) blockedSteps(ctx context.Context, p *queue.Plan, ids []string) error {
	steps, err := pgrow.Column[string](ctx, c.act, "SELECT DISTINCT q.step FROM public.queue_quarantine q WHERE q.quarantine_id = ANY ($1::bigint[]) ORDER BY 1", ids)
	if err != nil {
		return err
	}
	workers := StepWorkers()
	for _, step := range steps {
		if step == "event_route" { // the rows of a domain wait for its route, too
			if err := c.blockedEvents(ctx, p, ""); err != nil {
				return err
			}
			continue
		}
		for _, worker := range workers[step] {
			if err := c.blockedLoop(ctx, p, worker, ""); err != nil {
				return err
			}
		}
	}
	return nil
}
