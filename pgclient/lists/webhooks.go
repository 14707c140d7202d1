package lists

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

const (
	recentAttempts = 50     // settled attempts from which success rate and latency are computed
	retryBound     = 10_000 // the most retries that are counted per time slot of the retry calendar
)

var endpointColumns = map[string]filtersql.Column{
	"id": {Expr: "v.subscription_id"}, "endpoint": {Expr: "v.endpoint"}, "type": {Expr: "v.event_type"}, "gate": {Expr: "v.gate", Shown: "CASE WHEN v.gate = 'suspended' THEN v.suspended_reason ELSE " + filtersql.Words("v.gate", queue.GateWords()) + " END"},
	"reason": {Expr: "v.suspended_reason"}, "waiting": {Expr: "v.waiting"}, "dead": {Expr: "v.dead_open"}, "code": {Expr: "v.last_failure_code"},
}

// endpoints reads webhook subscriptions, those with problems first, with the leases on their
// jobs; for ListEndpoint, one subscription with all its details.
func endpoints(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	b, _, err := filtersql.Parse(q.Filter, queue.EndpointFields(), endpointColumns)
	if err != nil {
		return err
	}
	var one int64
	if q.Kind == queue.ListEndpoint {
		if one, err = parseid.Subscription(q.ID); err != nil {
			return err
		}
		b.And("v.subscription_id = " + b.Arg(one))
	}
	endpoints, err := endpointPage(ctx, db, b, q.Limit, &p.Total)
	if err != nil {
		return err
	}
	if q.Kind == queue.ListEndpoint && len(endpoints) == 0 {
		return queue.NewError(queue.KindFailed, fmt.Sprintf("there is no webhook subscription %d", one), "", "see qtop webhooks")
	}
	ids := []int64{} // not nil: webhookLeases reads the leases of all subscriptions for nil
	for _, e := range endpoints {
		ids = append(ids, e.ID)
	}
	leases, err := webhookLeases(ctx, db, ids, queue.LeasesShown)
	if err != nil || q.Kind == queue.ListEndpoints {
		p.Rows = queue.EndpointList{Endpoints: endpoints, Leases: leases}
		return err
	}
	d := &queue.EndpointDetail{Endpoint: endpoints[0], Leases: leases}
	p.Rows = d
	if d.Attempts, err = attempts(ctx, db, "j.subscription_id = $1 AND j.settled_at IS NOT NULL ORDER BY j.id DESC LIMIT 20", one); err != nil {
		return err
	}
	if d.Retries, err = retries(ctx, db, one); err != nil {
		return err
	}
	d.Why, err = whyOf(ctx, db, "subscription "+strconv.FormatInt(one, 10))
	return err
}

// endpointPage selects the rows of the page before it reads their recent attempts: those are up to
// recentAttempts rows per subscription.
func endpointPage(ctx context.Context, db *pgpool.Pool, b *filtersql.Builder, limit int, total *int64) ([]queue.Endpoint, error) {
	return pgrow.Each(ctx, db, func(row pgx.CollectableRow) (queue.Endpoint, error) {
		var e queue.Endpoint
		var url string
		err := row.Scan(&e.ID, &e.EventType, &url, &e.Endpoint, &e.Gate, &e.Unsigned, &e.MaxAttempts, &e.RateLimit, &e.Waiting,
			&e.OldestAt, &e.AgeSeconds, &e.DeadOpen, &e.Pending, &e.InProgress, &e.PendingRetry, &e.Completed, &e.DeadLettered,
			&e.Leased, &e.Expired, &e.NextAt, &e.SuspendedBy, &e.Reason, &e.Note, &e.Since, &e.Until, &e.FailuresInRow, &e.LastSuccessAt,
			&e.LastFailureAt, &e.LastFailure, &e.SlowStart, &e.Recent, &e.RecentOK, &e.P50MS, &e.P95MS, total)
		e.URL = queue.SafeURL(url)
		return e, err
	}, `WITH v AS MATERIALIZED (SELECT v.* FROM public.v_webhook_endpoint v`+b.Clause()+`
		), page AS MATERIALIZED (
			SELECT v.* FROM v ORDER BY v.gate = 'open', v.oldest_waiting_at, v.dead_open DESC, v.waiting DESC, v.subscription_id LIMIT `+strconv.Itoa(limit)+`
		), saga AS MATERIALIZED (
			SELECT c.k1, c.k2, sum(c.n)::bigint AS n FROM public.v_queue_counter c WHERE c.scope = 'saga' GROUP BY c.k1, c.k2
		), state AS MATERIALIZED (
			SELECT s.k1::bigint AS id, COALESCE(sum(s.n) FILTER (WHERE s.k2 = 'Pending'), 0)::bigint AS pending,
				COALESCE(sum(s.n) FILTER (WHERE s.k2 = 'InProgress'), 0)::bigint AS progress, COALESCE(sum(s.n) FILTER (WHERE s.k2 = 'PendingRetry'), 0)::bigint AS retry,
				COALESCE(sum(s.n) FILTER (WHERE s.k2 = 'Completed'), 0)::bigint AS completed, COALESCE(sum(s.n) FILTER (WHERE s.k2 = 'DeadLettered'), 0)::bigint AS dead
			FROM saga s GROUP BY 1
		), leased AS MATERIALIZED (
			SELECT j.subscription_id AS id, count(*) AS n, count(*) FILTER (WHERE j.lease_until < now()) AS expired
			FROM public.webhook_delivery_jobs j WHERE j.status = 'Leased' GROUP BY 1
		)
		SELECT v.subscription_id, v.event_type, v.callback_url, v.endpoint, v.gate, v.unsigned, v.max_attempts, v.rate_limit_per_second, v.waiting,
			v.oldest_waiting_at, floor(public.fn_age(v.oldest_waiting_at))::bigint, v.dead_open,
			COALESCE(s.pending, 0), COALESCE(s.progress, 0), COALESCE(s.retry, 0), COALESCE(s.completed, 0), COALESCE(s.dead, 0),
			COALESCE(l.n, 0), COALESCE(l.expired, 0), n.at, v.suspended_by, v.suspended_reason, v.suspended_note, v.suspended_since,
			CASE WHEN isfinite(v.suspended_until) THEN v.suspended_until END, COALESCE(v.consecutive_failures, 0), v.last_success_at,
			v.last_failure_at, v.last_failure_code, v.slow_start_rate, r.n, r.ok, r.p50, r.p95, (SELECT count(*) FROM v)
		FROM page v LEFT JOIN state s ON s.id = v.subscription_id LEFT JOIN leased l ON l.id = v.subscription_id
		LEFT JOIN LATERAL (SELECT g.next_attempt_at AS at FROM public.webhook_delivery_sagas g WHERE g.status IN ('Pending', 'PendingRetry')
			AND g.subscription_id = v.subscription_id ORDER BY g.next_attempt_at LIMIT 1) n ON true
		CROSS JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE a.status = 'Completed') AS ok,
				percentile_cont(0.5) WITHIN GROUP (ORDER BY a.took_ms) FILTER (WHERE a.answered) AS p50,
				percentile_cont(0.95) WITHIN GROUP (ORDER BY a.took_ms) FILTER (WHERE a.answered) AS p95
			FROM (SELECT j.status, j.took_ms, j.response_status IS NOT NULL OR j.error_code = 'TIMEOUT' AS answered FROM public.webhook_delivery_jobs j WHERE j.subscription_id = v.subscription_id AND j.settled_at IS NOT NULL
				ORDER BY j.id DESC LIMIT `+strconv.Itoa(recentAttempts)+`) a) r
		ORDER BY v.gate = 'open', v.oldest_waiting_at, v.dead_open DESC, v.waiting DESC, v.subscription_id`, b.Args...)
}

// leases reads the leases of all webhook jobs.
func leases(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	rows, err := webhookLeases(ctx, db, nil, q.Limit)
	p.Rows, p.Total, p.TotalBound = rows, int64(len(rows)), len(rows) == q.Limit
	return err
}

// webhookLeases reads the leases on webhook jobs of these subscriptions (nil = all), expired ones
// first.
func webhookLeases(ctx context.Context, db *pgpool.Pool, subscriptions []int64, limit int) ([]queue.WebhookLease, error) {
	return pgrow.All[queue.WebhookLease](ctx, db, `SELECT j.id, j.saga_id, j.subscription_id, s.endpoint, j.worker_id, j.attempt_no, j.started_at, j.lease_until,
			j.lease_until < now(), j.lease_resets
		FROM public.webhook_delivery_jobs j JOIN public.subscriptions s ON s.id = j.subscription_id
		WHERE j.status = 'Leased' AND ($1::bigint[] IS NULL OR j.subscription_id = ANY ($1)) ORDER BY j.lease_until, j.id LIMIT `+strconv.Itoa(limit), subscriptions)
}

// retries counts the waiting retries by the time at which they become due, up to retryBound per
// time slot.
func retries(ctx context.Context, db *pgpool.Pool, subscription int64) ([]queue.RetrySlot, error) {
	return pgrow.Each(ctx, db, func(row pgx.CollectableRow) (queue.RetrySlot, error) {
		var s queue.RetrySlot
		err := row.Scan(&s.From, &s.To, &s.N)
		if s.N > retryBound {
			s.N, s.Bound = retryBound, true
		}
		return s, err
	}, `SELECT b.a, b.z, (SELECT count(*) FROM (SELECT 1 FROM public.webhook_delivery_sagas g
			WHERE g.status IN ('Pending', 'PendingRetry') AND g.subscription_id = $1
				AND (b.a < 0 OR g.next_attempt_at > now() + make_interval(secs => b.a))
				AND (b.z = 0 AND b.a >= 0 OR g.next_attempt_at <= now() + make_interval(secs => b.z)) LIMIT $2 + 1) x)
		FROM (VALUES (-1, 0), (0, 60), (60, 300), (300, 900), (900, 1800), (1800, 3600), (3600, 0)) b (a, z)`, subscription, retryBound)
}

// why returns the reasons why a queue is waiting.
func why(ctx context.Context, db *pgpool.Pool, q queue.Query) (*queue.Why, error) {
	return whyOf(ctx, db, q.ID)
}

func whyOf(ctx context.Context, db *pgpool.Pool, name string) (*queue.Why, error) {
	var a struct {
		pgscan.Refusal
		queue.Why
	}
	if err := db.QueryRow(ctx, "SELECT public.fn_queue_why($1::text)", name).Scan(&a); err != nil {
		return nil, err
	}
	if a.Refused {
		if a.Rule != "not_found" { // several queues have the name: the reason lists them
			return nil, queue.NewError(queue.KindFailed, a.Reason, "", "")
		}
		return nil, queue.NewError(queue.KindFailed, a.Reason, "", whyInstead(name)).Because(queue.ErrNoQueue)
	}
	a.Decide()
	return &a.Why, nil
}

// whyInstead says what to do with a name that no queue has.
func whyInstead(name string) string {
	if id, err := parseid.UUID(name, "job", ""); err == nil {
		return "why is about queues; if this is the id of a job: qtop job show " + id
	}
	if parseid.IsJobDeadLetter(name) || parseid.IsEventDeadLetter(name) {
		return "why is about queues; of a dead letter: qtop dlq show " + name
	}
	return "qtop webhooks, qtop route list and qtop queues list them, qtop why the queues that wait, qtop executors the executors"
}
