-- Snapshot sections about waiting, held and dead webhooks, events and jobs, and about suspended endpoints.
-- Sources: DP4 §8, DP1 §10.

-- fn_snapshot_waiting(lanes, backlogs of webhooks and routes, rows of v_queue_watch, fn_webhook_unrouted(),
-- unfolded counters) → the section waiting: one object per endpoint, one for the events that the webhook router
-- has not processed yet, one per route, and one per queue lane with waiting jobs; the object with the oldest due item
-- first.
--   waiting_bound      true: more items wait than were counted
--   in_per_s, out_per_s   items per second over four to five minutes, of jobs over five to ten. NULL = not counted: how
--                      many events were routed, and how many came that the webhook router has not processed
--   age_seconds        how long the oldest item has been due
--   clears_in_seconds  after how many seconds no item waits, at these rates; NULL = the backlog does not shrink, a rate
--                      is not known, or the backlog is blocked: the rates are those of the past minutes
--   why                the first condition that keeps the items waiting, in the order of the CASE below; '' = none
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_waiting(p_lanes public.snapshot_lane[],
  p_hooks public.v_webhook_backlog[], p_routes public.v_iu_route_backlog[], p_watch public.v_queue_watch[],
  p_unrouted bigint, p_unrouted_at timestamptz, p_unfolded public.v_queue_counter_part[])
  RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  -- bucket starts are epochs of ten digits, so they can be compared as text
  v_5m_ago text := (extract(epoch FROM date_trunc('minute', now()))::bigint - 300)::text;
  -- the period over which the rates are measured, in seconds: four minutes and what has passed of the current one
  v_window numeric := 240 + extract(second FROM now());
  v_senders int;
  v_orchestrators int;
  v_webhooks_off boolean;
  v_paused text; -- of the two tick workers that a delivery needs, one that is paused
  v_routes_off text;
BEGIN
  IF cardinality(p_hooks) = 0 AND p_unrouted = 0 AND NOT EXISTS (SELECT FROM unnest(p_routes) b WHERE b.waiting > 0)
    AND NOT EXISTS (SELECT FROM unnest(p_lanes) j WHERE j.queued + j.retry_waiting > 0) THEN
    RETURN '[]'::json; -- starting the statement below costs more than most sections
  END IF;
  v_webhooks_off := NOT public.fn_cfg_bool('webhook.worker.enabled');
  v_paused := CASE WHEN public.fn_cfg_int('queue.tick.saga_orchestrator.interval_seconds', 5) = 0
    THEN 'saga_orchestrator' WHEN public.fn_cfg_int('queue.tick.webhook_worker.interval_seconds', 1) = 0
    THEN 'webhook_worker' END;
  v_routes_off := CASE WHEN NOT public.fn_cfg_bool('iu_core.route_worker_enabled')
    THEN 'iu_core.route_worker_enabled is off'
    WHEN NOT public.fn_cfg_bool('iu_core.routes_master_enabled') THEN 'iu_core.routes_master_enabled is off' END;
  SELECT count(*) FILTER (WHERE 'webhook_worker' = ANY (q.loops)),
    count(*) FILTER (WHERE 'saga_orchestrator' = ANY (q.loops))
  INTO v_senders, v_orchestrators
  FROM public.queue_host q WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
    AND q.last_seen_at <= clock_timestamp() + interval '5 seconds';

  RETURN COALESCE((WITH hook_pace AS (
    SELECT c.k1::bigint AS sub,
      sum(c.n) FILTER (WHERE c.scope = 'arrived_1m') / v_window AS in_s,
      sum(c.n) FILTER (WHERE c.scope = 'drained_1m') / v_window AS out_s
    FROM (SELECT q.scope, q.k1, q.k3, q.n FROM public.queue_counter q
      UNION ALL SELECT d.scope, d.k1, d.k3, d.n FROM unnest(p_unfolded) d) c
    WHERE c.scope IN ('arrived_1m', 'drained_1m') AND c.k3 COLLATE "C" > v_5m_ago GROUP BY c.k1
  ), unsigned AS (
    SELECT s.subscription_id, count(DISTINCT s.host_id) AS hosts, min(s.what) AS what
    FROM public.v_signing_fault s GROUP BY s.subscription_id
  ), hooks AS (
    SELECT 'webhook ' || COALESCE(b.endpoint, '(none)') AS queue, 'webhook' AS source,
      COALESCE(b.endpoint, '(none)') AS subject,
      'webhook' AS domain, min(b.oldest_at) AS oldest_at, sum(b.waiting)::bigint AS waiting, false AS waiting_bound,
      COALESCE(sum(p.in_s), 0)::float8 AS in_per_s, COALESCE(sum(p.out_s), 0)::float8 AS out_per_s,
      CASE WHEN v_webhooks_off THEN 'webhook.worker.enabled is off'
        WHEN v_paused <> '' THEN 'queue.tick.' || v_paused || '.interval_seconds is 0'
        WHEN bool_and(g.gate IN ('inactive', 'unverified')) THEN 'subscription ' || max(g.gate)
        WHEN bool_and(g.gate = 'suspended' AND g.suspended_reason <> 'circuit') THEN 'endpoint suspended: '
          || max(g.suspended_reason)
        WHEN bool_and(g.gate = 'suspended' AND g.suspended_reason = 'circuit') THEN 'circuit open'
        WHEN bool_and(g.gate = 'half_open') THEN 'circuit half open: one probe at a time'
        WHEN bool_and(g.gate <> 'open') THEN 'no subscription of the endpoint may send now'
        WHEN v_senders = 0 THEN 'no live host runs webhook_worker'
        WHEN v_orchestrators = 0 THEN 'no live host runs saga_orchestrator'
        WHEN bool_and(COALESCE(f.hosts, 0) >= v_senders) THEN 'no live host can sign: ' || min(f.what)
        -- without such a saga, all are being sent
        WHEN min(b.oldest_at) IS NULL AND EXISTS (SELECT FROM unnest(array_agg(b.subscription_id)) u (sub)
          CROSS JOIN LATERAL (SELECT FROM public.webhook_delivery_sagas s
            WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = u.sub
            ORDER BY s.next_attempt_at LIMIT 1) n) THEN 'all due later: backing off'
        WHEN bool_and(g.rate_limit_per_second IS NOT NULL) AND sum(b.waiting) > sum(2 * g.rate_limit_per_second)
          THEN 'rate limit ' || sum(g.rate_limit_per_second) || '/s'
        WHEN max(g.slow_start_rate) IS NOT NULL THEN 'slow start: ' || round(max(g.slow_start_rate)::numeric, 1) || '/s'
        ELSE '' END AS why
    FROM unnest(p_hooks) b
    JOIN public.v_webhook_gate g USING (subscription_id)
    LEFT JOIN hook_pace p ON p.sub = b.subscription_id
    LEFT JOIN unsigned f ON f.subscription_id = b.subscription_id
    GROUP BY b.endpoint
  ), unrouted AS (
    SELECT 'webhook events' AS queue, 'webhook' AS source, 'webhook_router' AS subject, 'webhook' AS domain,
      p_unrouted_at, least(p_unrouted, 10000) AS waiting, p_unrouted > 10000 AS waiting_bound,
      NULL::float8, NULL::float8,
      CASE WHEN v_webhooks_off THEN 'webhook.worker.enabled is off'
        WHEN public.fn_cfg_int('queue.tick.webhook_router.interval_seconds', 60) = 0
          THEN 'queue.tick.webhook_router.interval_seconds is 0'
        WHEN NOT EXISTS (SELECT 1 FROM public.queue_host q WHERE q.stopped_at IS NULL
          AND q.last_seen_at > now() - interval '15 seconds'
            AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND 'webhook_router' = ANY (q.loops))
          THEN 'no live host runs webhook_router'
        WHEN EXISTS (SELECT 1 FROM unnest(p_watch) h WHERE h.executor_id = 'webhook_router' AND h.state = 'silent')
          THEN 'webhook_router is silent' ELSE '' END
    WHERE p_unrouted > 0
  ), routes AS (
    SELECT 'events ' || b.event_domain, 'event', b.worker_name, b.event_domain, b.oldest_at, least(b.waiting, 10000),
      b.waiting > 10000,
      COALESCE((SELECT sum(c.n) / v_window FROM (SELECT q.scope, q.k1, q.k3, q.n FROM public.queue_counter q
        UNION ALL SELECT d.scope, d.k1, d.k3, d.n FROM unnest(p_unfolded) d) c WHERE c.scope = 'event_1m'
        AND c.k1 = b.event_domain
        AND c.k3 COLLATE "C" > v_5m_ago), 0)::float8, NULL::float8,
      CASE WHEN v_routes_off <> '' THEN v_routes_off
        WHEN NOT b.enabled THEN 'the route of ' || b.event_domain || ' is disabled'
        WHEN public.fn_cfg_int('queue.tick.' || b.worker_name || '.interval_seconds', 60) = 0
          THEN 'queue.tick.' || b.worker_name || '.interval_seconds is 0'
        WHEN NOT EXISTS (SELECT 1 FROM public.queue_host q WHERE q.stopped_at IS NULL
          AND q.last_seen_at > now() - interval '15 seconds'
            AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND b.worker_name = ANY (q.loops))
          AND NOT EXISTS (SELECT FROM public.v_cron_loop c WHERE c.loop = b.worker_name)
          THEN 'no live host runs ' || b.worker_name
        WHEN EXISTS (SELECT 1 FROM unnest(p_watch) h WHERE h.executor_id = b.worker_name
          AND h.state = 'silent') THEN b.worker_name || ' is silent' ELSE '' END
    FROM unnest(p_routes) b WHERE b.waiting > 0
  ), w AS (
    SELECT * FROM hooks UNION ALL SELECT * FROM unrouted UNION ALL SELECT * FROM routes
    UNION ALL
    SELECT 'job ' || j.job_kind, 'job', j.job_kind, j.event_domain, j.oldest_at, j.queued + j.retry_waiting, false,
      j.in_per_s, j.out_per_s, j.why
    FROM unnest(p_lanes) j WHERE j.queued + j.retry_waiting > 0
  )
  SELECT json_agg(x ORDER BY x.oldest_at NULLS LAST, x.waiting DESC, x.source, x.subject, x.domain) FROM (
    SELECT w.waiting, w.waiting_bound, w.in_per_s, w.out_per_s,
      COALESCE(floor(public.fn_age(w.oldest_at))::bigint, 0) AS age_seconds,
      w.oldest_at, CASE WHEN w.out_per_s > w.in_per_s AND w.why ~ '^(rate limit |slow start: |$)'
        THEN ceil(w.waiting / (w.out_per_s - w.in_per_s))::bigint END
        AS clears_in_seconds, w.queue, w.source, w.subject, w.domain, w.why FROM w) x), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_waiting IS
  'Section of the snapshot: waiting webhooks, events and jobs, at which rate they go, and why they wait. Internal.';

-- fn_snapshot_held() → the section held: one object per transaction that has been open for over a minute, and per
-- worker that will route its events after it ends. domain is empty for events of the outbox. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_held() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(json_build_object('worker', h.worker_name, 'domain', COALESCE(h.event_domain, ''),
      'age_seconds', floor(public.fn_age(h.xact_start))::bigint, 'pid', h.pid, 'program', h.program, 'user', h.usename)
      ORDER BY h.xact_start, h.worker_name, h.pid)
    FROM public.fn_routing_held() h), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_held IS
  'Section of the snapshot: open transactions whose events cannot be routed before they end. Internal.';

-- fn_snapshot_dead_groups(groups of dead letters, unfolded counters) → the section dead_groups: each group, and
-- how many dead letters were added to it in each five minutes of the last hour (trend, oldest first); the largest group
-- first. No nested loop: the planner cannot estimate the number of groups. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_dead_groups(p_dead public.v_dead_letter_group[],
  p_unfolded public.v_queue_counter_part[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off SET jit = off AS $fn$
DECLARE
  v_five bigint := (extract(epoch FROM now())::bigint / 300) * 300;
  -- bucket starts are epochs of ten digits, so they can be compared as text
  v_hour_ago text := (v_five - 3600)::text;
BEGIN
  RETURN COALESCE((WITH groups AS MATERIALIZED (
    SELECT g.source, g.code, g.endpoint, g.domain, g.subscription_id, g.open, g.first_at, g.last_at,
      'dead_' || g.source || '_5m' AS scope,
      CASE g.source WHEN 'webhook' THEN g.subscription_id::text ELSE g.domain || '/' || g.endpoint END AS k2
    FROM unnest(p_dead) g WHERE g.first_at IS NOT NULL
  ), bars AS (
    SELECT b.scope, b.k1, b.k2, json_build_array(
      COALESCE(sum(b.n) FILTER (WHERE b.back = 11), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 10), 0),
      COALESCE(sum(b.n) FILTER (WHERE b.back = 9), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 8), 0),
      COALESCE(sum(b.n) FILTER (WHERE b.back = 7), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 6), 0),
      COALESCE(sum(b.n) FILTER (WHERE b.back = 5), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 4), 0),
      COALESCE(sum(b.n) FILTER (WHERE b.back = 3), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 2), 0),
      COALESCE(sum(b.n) FILTER (WHERE b.back = 1), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 0), 0)) AS trend
    FROM (
      -- only these groups: many other groups may have new dead letters
      SELECT c.scope, c.k1, c.k2, (v_five - c.k3::bigint) / 300 AS back, c.n
      FROM groups g CROSS JOIN LATERAL (SELECT q.scope, q.k1, q.k2, q.k3, q.n FROM public.queue_counter q
        WHERE q.scope = g.scope AND q.k1 = g.code AND q.k2 = g.k2 AND q.k3 COLLATE "C" > v_hour_ago OFFSET 0) c
      UNION ALL
      SELECT d.scope, d.k1, d.k2, (v_five - d.k3::bigint) / 300, d.n FROM (SELECT u.* FROM unnest(p_unfolded) u
        WHERE u.scope = ANY ('{dead_webhook_5m,dead_job_5m,dead_event_5m}'::text[]) OFFSET 0) d
      WHERE d.k3 COLLATE "C" > v_hour_ago) b
    GROUP BY b.scope, b.k1, b.k2
  )
  SELECT json_agg(x ORDER BY x.open DESC, x.code, x.source, x.endpoint, x.domain, x.subscription_id) FROM (
    SELECT g.source, g.code, g.endpoint, g.domain, g.subscription_id, g.open, g.first_at, g.last_at,
      COALESCE(b.trend, '[0,0,0,0,0,0,0,0,0,0,0,0]') AS trend
    FROM groups g LEFT JOIN bars b ON b.scope = g.scope AND b.k1 = g.code AND b.k2 = g.k2) x), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_dead_groups IS
  'Section of the snapshot: groups of open dead letters, each with a trend of the last hour in steps of 5 min. '
  'Internal.';

-- fn_snapshot_suspended() → the section suspended: endpoints to which nothing is delivered, or whose circuit is open or
-- half open, in the order in which they were suspended. until: NULL = without an end. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_suspended() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(x ORDER BY x.since) FROM (
    SELECT x.subscription_id, COALESCE(s.endpoint, '(none)') AS endpoint, x.reason, x.since,
      CASE WHEN isfinite(x.until) THEN x.until END AS until, COALESCE(x.by, '') AS by,
      COALESCE(x.note, '') AS note
    FROM public.webhook_endpoint_suspensions x JOIN public.subscriptions s ON s.id = x.subscription_id
    WHERE x.until IS NULL OR x.until > now() OR x.reason = 'circuit') x), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_suspended IS
  'Section of the snapshot: suspended endpoints and open circuits. Internal.';
