package actions

import (
	"cmp"
	"context"
	"fmt"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// breakdown adds lines that say where requeued webhook dead letters would be sent: one
// per endpoint and error code, with the endpoint's gate, last success and recent rate.
// from and where are the FROM and WHERE clauses that select the dead letters d with their sagas g.
func (c *Planner) breakdown(ctx context.Context, p *queue.Plan, from, where string, args ...any) error {
	type part struct {
		Endpoint, Code string
		N, Again       int64
		Gate, Reason   string
		Success        *string
		Pace           *float64 // completed deliveries per second, while the endpoint accepted them
		Parts, All     int64    // how many parts there are, and of how many dead letters
	}
	parts, err := pgrow.All[part](ctx, c.act, `WITH parts AS MATERIALIZED (
			SELECT d.subscription_id AS sub, d.final_error_code AS code, count(*) AS n, count(*) FILTER (WHERE g.requeue_generation > 0) AS again,
				count(*) OVER () AS parts, (sum(count(*)) OVER ())::bigint AS total
			FROM `+from+where+` GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 9)
		SELECT v.endpoint, x.code, x.n, x.again, v.gate, COALESCE(v.suspended_reason, ''),
			to_char(v.last_success_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI"Z"'), r.pace, x.parts, x.total
		FROM parts x JOIN public.v_webhook_endpoint v ON v.subscription_id = x.sub
		CROSS JOIN LATERAL (SELECT CASE WHEN count(*) >= 20 THEN (count(*) - 1) / NULLIF(public.fn_age(min(j.finished_at)) - public.fn_age(max(j.finished_at)), 0) END::float8 AS pace
			FROM (SELECT j.finished_at, j.status FROM public.webhook_delivery_jobs j WHERE j.subscription_id = x.sub AND j.settled_at IS NOT NULL
				ORDER BY j.id DESC LIMIT 1000) j WHERE j.status = 'Completed') r
		ORDER BY x.n DESC, x.sub, x.code`, args...)
	if err != nil {
		return err
	}
	var named int64
	for i, x := range parts {
		if i == partsNamed {
			addLine(p, "to", "%s", others(x.Parts, x.All-named, "endpoint and code", "endpoints and codes", "dead letter", "dead letters"))
			break
		}
		named += x.N
		last := "never succeeded"
		if x.Success != nil {
			last = "last success " + *x.Success
		}
		if x.Pace != nil {
			last += fmt.Sprintf(", it accepted %.3g/s", *x.Pace)
		}
		again := ""
		if x.Again > 0 {
			again = fmt.Sprintf(", %d of them requeued before", x.Again)
		}
		addLine(p, "to", "%d × %s %s (%s, %s%s)", x.N, x.Endpoint, x.Code, gateText(x.Gate, x.Reason), last, again)
	}
	return nil
}

// partsNamed is how many parts of a selection a preview describes, each in a line.
const partsNamed = 8

// others returns the text about the parts of a selection that have no line: their number, out of all
// parts, and the rows in them.
func others(parts, rows int64, part, ofParts, row, ofRows string) string {
	return "… and " + queue.Plural(parts-partsNamed, "more "+part, "more "+ofParts) + ", with " + queue.Plural(rows, row, ofRows)
}

// released adds lines that say how many deliveries may be sent in the first minute after
// the endpoints of these subscriptions are unblocked; nil means all subscriptions.
func (c *Planner) released(ctx context.Context, p *queue.Plan, subscriptions []int64) error {
	type part struct {
		Endpoint       string
		Waiting, First int64
		Rate           float64
		Slow, Off      bool
		Parts, All     int64
	}
	parts, err := pgrow.All[part](ctx, c.act, `SELECT endpoint, waiting, first_minute, usual_rate, slow_start,
			NOT EXISTS (SELECT FROM public.dot_config f WHERE f.key = 'webhook.slow_start.enabled' AND f.value = 'true'), count(*) OVER (), (sum(waiting) OVER ())::bigint
		FROM public.fn_webhook_usual_rates($1::bigint[]) ORDER BY first_minute DESC, endpoint LIMIT 9`, subscriptions)
	if err != nil {
		return err
	}
	var named int64
	for i, x := range parts {
		switch {
		case i == partsNamed:
			addLine(p, "first minute", "%s", others(x.Parts, x.All-named, "endpoint", "endpoints", "waiting delivery", "waiting deliveries"))
		case x.Slow:
			addLine(p, "first minute", "up to %d of %d to %s: %.3g/s at first, doubled every 10 s while it delivers", x.First, x.Waiting, x.Endpoint, x.Rate)
		default:
			addLine(p, "first minute", "up to %d of %d to %s: no slow start, %s", x.First, x.Waiting, x.Endpoint,
				queue.Choose(x.Off, "webhook.slow_start.enabled is off", "too few wait for one"))
		}
		named += x.Waiting
	}
	return nil
}

// counted adds the line that says how many of the given rows the action changes, and which they are; none is what it
// says if no row was found.
func counted(p *queue.Plan, label string, given int, names, none string) {
	addLine(p, label, "%d of %d: %s", p.Count, given, cmp.Or(names, none))
}

// gateText says in the words of the pane Webhooks whether deliveries to an endpoint are sent.
func gateText(gate, reason string) string {
	switch {
	case gate == "open":
		return "sending"
	case gate == "half_open":
		return "circuit half open"
	case gate == "suspended" && reason == "circuit":
		return "circuit open"
	case gate == "suspended":
		return "suspended: " + reason
	}
	return gate
}

// jobBreakdown adds lines that say where requeued job dead letters would go: one per kind,
// domain and failure code, with the number already waiting and the number of executors
// that may claim them. from and where are as those of breakdown.
func (c *Planner) jobBreakdown(ctx context.Context, p *queue.Plan, from, where string, args ...any) error {
	type part struct {
		Kind, Domain, Code, Executor string
		N, Again, Waiting, Admitted  int64
		Parts, All                   int64
	}
	parts, err := pgrow.All[part](ctx, c.act, `WITH parts AS (
			SELECT d.job_kind, d.event_domain, d.failure_code, d.executor, count(*) AS n, count(e.job_id) AS again,
				count(*) OVER () AS parts, (sum(count(*)) OVER ())::bigint AS total
			FROM `+from+` LEFT JOIN public.job_dead_letter e ON e.replayed_job_id = d.job_id`+where+` GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT 9)
		SELECT d.job_kind, d.event_domain, d.failure_code, d.executor, d.n, d.again, COALESCE(b.queued + b.retry_waiting, 0), (
			SELECT count(DISTINCT s.executor_id) FROM public.job_subscription s
			JOIN public.queue_heartbeat h ON h.executor_id = s.executor_id AND h.deregistered_at IS NULL
			WHERE s.enabled AND s.executor_kind = d.executor AND (s.job_kind IS NULL OR s.job_kind = d.job_kind)
				AND (s.event_domain IS NULL OR s.event_domain = d.event_domain)), d.parts, d.total
		FROM parts d LEFT JOIN public.fn_job_backlog() b ON b.job_kind = d.job_kind AND b.event_domain = d.event_domain
		ORDER BY d.n DESC, 1, 2, 3, 4`, args...)
	if err != nil {
		return err
	}
	var named int64
	for i, x := range parts {
		if i == partsNamed {
			addLine(p, "to", "%s", others(x.Parts, x.All-named, "job kind and code", "job kinds and codes", "dead letter", "dead letters"))
			break
		}
		named += x.N
		admitted := "no " + x.Executor + " executor subscribes to it"
		if x.Admitted > 0 {
			admitted = queue.Plural(x.Admitted, x.Executor+" executor subscribes", x.Executor+" executors subscribe") + " to it"
		}
		again := ""
		if x.Again > 0 {
			again = fmt.Sprintf(", %d of them requeued before", x.Again)
		}
		addLine(p, "to", "%d × job %s (%s) %s (%d already waiting, %s%s)", x.N, x.Kind, x.Domain, x.Code, x.Waiting, admitted, again)
	}
	return nil
}

// eventBreakdown adds lines that say which events would be routed again: one per domain,
// type and failure code, with the number of consumers that get a job of each event. where
// is the WHERE clause over filtersql.DeadEventFrom.
func (c *Planner) eventBreakdown(ctx context.Context, p *queue.Plan, from, where string, args ...any) error {
	type part struct {
		Domain, Kind, Code string
		N, Consumers       int64
		Parts, All         int64
	}
	parts, err := pgrow.All[part](ctx, c.act, `WITH parts AS (
			SELECT d.event_domain, d.event_type, d.failure_code, count(*) AS n,
				count(*) OVER () AS parts, (sum(count(*)) OVER ())::bigint AS total FROM `+from+where+` GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 9)
		SELECT x.event_domain, x.event_type, x.failure_code, x.n, (SELECT count(*) FROM public.consumer_registry c
			WHERE c.enabled AND c.event_domain = x.event_domain AND c.event_type = x.event_type), x.parts, x.total
		FROM parts x ORDER BY x.n DESC, 1, 2, 3`, args...)
	if err != nil {
		return err
	}
	var named int64
	for i, x := range parts {
		if i == partsNamed {
			addLine(p, "to", "%s", others(x.Parts, x.All-named, "event type and code", "event types and codes", "dead letter", "dead letters"))
			break
		}
		named += x.N
		addLine(p, "to", "%d × event %s/%s %s (to its current recipients; consumers that get a job: %d)", x.N, x.Domain, x.Kind, x.Code, x.Consumers)
	}
	return nil
}
