-- The one snapshot that feeds all consoles. Sources: DP4 §8, DP1 §10.

-- Snapshot
-- fn_queue_time_or_null(text) → the time, or NULL where the text is none, or none
-- of this age: what an executor or a host writes must not break the picture of
-- everybody. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_time_or_null(p_text text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_at timestamptz;
BEGIN
  -- a time of this form is one: only what may be none needs the subtransaction of a handler
  IF p_text ~ '^2[01]\d\d-(0[1-9]|1[0-2])-([01][1-9]|[12]0|2[1-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?Z$' THEN
    RETURN p_text::timestamptz;
  END IF;
  IF p_text ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)$' THEN
    BEGIN
      v_at := p_text::timestamptz;
    EXCEPTION WHEN OTHERS THEN
      RETURN NULL;
    END;
  END IF;
  RETURN CASE WHEN v_at BETWEEN '2000-01-01Z' AND '2200-01-01Z' THEN v_at END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_time_or_null IS
  'A time out of a payload, NULL where it is none. Internal.';

 -- replaced every second: not worth compressing
COMMENT ON TABLE public.queue_snapshot IS 'The last picture, shared by all consoles. Read it through fn_queue_picture.';

-- fn_queue_snapshot_parts() → the sections of the picture, computed now. Internal.
-- Its statements are planned once per session: planning them anew costs twice
-- as much as running them. It is json: that is put together by copying its parts,
-- jsonb by taking each apart and building it again.
CREATE OR REPLACE FUNCTION public.fn_queue_snapshot_parts() RETURNS json
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off AS $fn$
DECLARE
  v_minute bigint := extract(epoch FROM date_trunc('minute', now()))::bigint;
  v_five bigint := (extract(epoch FROM now())::bigint / 300) * 300;
  -- buckets are told from older ones as text: epochs of ten digits
  v_hour_ago text := (v_minute - 3600)::text;
  v_hour_ago_5m text := (v_five - 3600)::text;
  v_5m_ago text := (v_minute - 300)::text;
  v_flags json;
  v_health json;
  v_alerts json;
  v_executors json;
  v_dead_groups json;
  v_job_subscriptions json;
  v_job_leases json;
  v_job_table json;
  v_waiting json;
  v_hosts json;
  v_held json;
  v_suspended json;
  v_ticks json;
  v_flow json;
  v_marks json;
  v_queues json;
  v_operations json;
  v_alive int;
  v_senders int;
  v_orchestrators int;
  v_jobs_off boolean := NOT public.fn_cfg_bool('queue.job_substrate.enabled');
  v_lease int := public.fn_cfg_int('queue.lease.duration_seconds', 300);
  v_window numeric := 300 + extract(epoch FROM now())::bigint % 300;
  v_webhooks_off boolean := NOT public.fn_cfg_bool('webhook.worker.enabled');
  v_unscheduled boolean := public.fn_cfg_int('queue.tick.saga_orchestrator.interval_seconds', 5) = 0;
  v_routes_off text := CASE WHEN NOT public.fn_cfg_bool('iu_core.route_worker_enabled')
    THEN 'iu_core.route_worker_enabled is off'
    WHEN NOT public.fn_cfg_bool('iu_core.routes_master_enabled') THEN 'iu_core.routes_master_enabled is off' END;
  v_due_late boolean := public.fn_job_due_late();
  v_xid xid8;
  v_event bigint;
BEGIN
  SELECT o.last_xid, o.last_event_id INTO v_xid, v_event FROM public.router_offsets o;
  SELECT count(*), count(*) FILTER (WHERE 'webhook_worker' = ANY (q.loops)), count(*)
    FILTER (WHERE 'saga_orchestrator' = ANY (q.loops))
  INTO v_alive, v_senders, v_orchestrators
  FROM public.queue_host q WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds';

  SELECT json_agg(f ORDER BY f.key) INTO v_flags FROM (
    SELECT c.key, c.value, c.description, COALESCE(r.kind, 'text') AS kind, c.updated_at, c.updated_by,
      COALESCE(a.reason, '') AS reason,
      COALESCE(r.switch AND c.value IN ('false', '0') AND r.default_value <> c.value, false) AS off,
      -- as fn_cfg_readable, which would be a call per flag
      NOT COALESCE(CASE r.kind WHEN 'boolean' THEN c.value IN ('true', 'false') WHEN 'integer'
        THEN c.value ~ '^[0-9]{1,9}$'
        ELSE c.value = ANY (r.choices) END, true) AS invalid,
      v.revert_at AS reverts_at, COALESCE(v.revert_to, '') AS reverts_to,
        COALESCE(v.revert_at <= now(), false) AS overdue
    FROM public.dot_config c
    LEFT JOIN public.dot_config_rule r USING (key)
    LEFT JOIN public.dot_config_revert v USING (key)
    LEFT JOIN LATERAL (
      SELECT q.reason FROM public.queue_operator_action q
      WHERE c.updated_by <> 'migration' AND q.target = c.key AND q.action IN ('flag_set', 'flag_revert')
        AND q.outcome = 'done'
      ORDER BY q.id DESC LIMIT 1) a ON true) f;

  WITH pace AS (
    -- the bucket that runs and the one before: five to ten minutes
    SELECT c.k1, c.k2,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_in_5m' AND c.k3::bigint >= v_five - 300), 0) AS came,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_out_5m' AND c.k3::bigint >= v_five - 300), 0) AS went,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_succeeded_10m'), 0) AS succeeded,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_failed_10m'), 0) AS failed,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_dead_letter_10m'), 0) AS dead,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_cancelled_10m'), 0) AS cancelled
    FROM public.v_queue_counter_part c
    WHERE c.scope IN ('job_in_5m', 'job_out_5m', 'job_succeeded_10m', 'job_failed_10m', 'job_dead_letter_10m',
      'job_cancelled_10m')
      AND c.k3 COLLATE "C" > v_hour_ago_5m
    GROUP BY 1, 2
  ), leased AS (
    SELECT l.subscription_id, sum(l.live) AS live FROM public.job_lease l GROUP BY 1
  ), sorts AS (
    -- Executors that may the same, can the same and are alike silent count as one: a fleet is of few sorts, and there
    -- are as many pairs of a lane and an executor as there are of both multiplied.
    SELECT row_number() OVER () AS sort, e.silent, e.kinds, array_agg(e.executor_id ORDER BY e.executor_id) AS ids,
      -- more do not fit into 200 characters
      to_json((array_agg(e.executor_id ORDER BY e.executor_id))[1:100])::text AS who
    FROM (SELECT s.executor_id, h.last_beat_at < now() - make_interval(secs => h.stale_threshold_seconds) AS silent,
      k.kinds,
        array_agg(ARRAY[s.executor_kind, s.job_kind, s.event_domain] ORDER BY s.job_kind, s.event_domain) AS may
      FROM public.job_subscription s
      JOIN public.queue_heartbeat h ON h.executor_id = s.executor_id AND h.deregistered_at IS NULL
      LEFT JOIN public.v_job_handlers k ON k.executor_id = s.executor_id
      WHERE s.enabled GROUP BY s.executor_id, 2, k.kinds) e
    GROUP BY e.silent, e.kinds, e.may
  ), rules AS (
    -- wide: what the rule leaves open, the most specific first
    SELECT x.sort, x.silent, x.kinds, x.who, s.executor_kind,
      (s.job_kind IS NULL)::int * 2 + (s.event_domain IS NULL)::int AS wide,
      COALESCE(s.job_kind, '') AS job_kind, COALESCE(s.event_domain, '') AS event_domain,
      min(s.priority_floor) AS floor, bool_and(s.max_parallel <= COALESCE(l.live, 0)) AS no_room
    FROM sorts x CROSS JOIN unnest(x.ids) AS i (executor_id)
    JOIN public.job_subscription s ON s.executor_id = i.executor_id AND s.enabled
    LEFT JOIN leased l ON l.subscription_id = s.subscription_id
    GROUP BY x.sort, s.job_kind, s.event_domain, s.executor_kind, x.silent, x.kinds, x.who
  ), lanes AS (
    SELECT row_number() OVER () AS lane, COALESCE(b.job_kind, p.k1) AS job_kind,
      COALESCE(b.event_domain, p.k2) AS event_domain, COALESCE(b.queued, 0) AS queued,
      COALESCE(b.scheduled, 0) AS scheduled, COALESCE(b.leased, 0) AS leased, COALESCE(b.in_progress, 0) AS in_progress,
      COALESCE(b.retry_waiting, 0) AS retry_waiting, b.oldest_at, b.newest_at, b.executor, b.reaches,
      COALESCE(floor(extract(epoch FROM now() - b.oldest_at))::bigint, 0) AS age_seconds,
      round(COALESCE(p.came, 0) / v_window, 3)::float8 AS in_per_s,
        round(COALESCE(p.went, 0) / v_window, 3)::float8 AS out_per_s,
      COALESCE(p.succeeded, 0)::bigint AS succeeded_1h, COALESCE(p.failed, 0)::bigint AS failed_1h,
        COALESCE(p.dead, 0)::bigint AS dead_1h,
      COALESCE(p.cancelled, 0)::bigint AS cancelled_1h
    FROM public.fn_job_backlog() b FULL JOIN pace p ON p.k1 = b.job_kind AND p.k2 = b.event_domain
  ), admitted AS (
    SELECT x.lane, bool_and(x.silent) AS all_silent, bool_and(x.no_room) AS no_room,
      bool_and(x.kinds IS NOT NULL AND x.waits <> ALL (x.kinds)) AS unhandled, min(x.floor) AS floor,
        array_agg(x.who) AS who
    FROM (SELECT DISTINCT ON (l.lane, r.sort) l.lane, l.job_kind AS waits, r.silent, r.kinds, r.floor, r.no_room, r.who
          FROM lanes l
          CROSS JOIN LATERAL (VALUES (0, l.job_kind, l.event_domain), (1, l.job_kind, ''), (2, '', l.event_domain),
            (3, '', '')) AS v (wide, job_kind, event_domain)
          JOIN rules r ON r.wide = v.wide AND r.job_kind = v.job_kind AND r.event_domain = v.event_domain
            AND (l.executor IS NULL OR r.executor_kind = l.executor)
          WHERE l.queued + l.retry_waiting > 0
          ORDER BY l.lane, r.sort, r.wide) x GROUP BY x.lane
  ), told AS (
    SELECT l.*, CASE WHEN l.queued + l.retry_waiting = 0 THEN ''
        WHEN v_jobs_off THEN 'queue.job_substrate.enabled is off'
        WHEN r.lane IS NULL THEN 'no ' || COALESCE(l.executor || ' ', '') || 'executor subscribes to it'
        WHEN r.all_silent THEN 'every subscribed executor is silent: ' || w.who
        WHEN r.unhandled THEN 'no live host has a handler for it'
        WHEN l.oldest_at IS NULL AND v_due_late THEN 'job_queue_default does not run: what is due is not taken in'
        WHEN l.oldest_at IS NULL THEN 'all due later'
        WHEN r.no_room THEN 'parallel limit reached: ' || w.who
        WHEN l.reaches < r.floor THEN 'priority floor ' || r.floor || ' of ' || w.who
        ELSE '' END AS why
    FROM lanes l LEFT JOIN admitted r USING (lane)
    CROSS JOIN LATERAL (
      SELECT left(string_agg(e.executor_id, ', ' ORDER BY e.executor_id), 200) AS who
      FROM unnest(r.who) AS x (ids) CROSS JOIN json_array_elements_text(x.ids::json) AS e (executor_id)
      WHERE r.all_silent OR r.no_room OR l.reaches < r.floor) w
  ), route AS MATERIALIZED (
    SELECT * FROM public.fn_iu_route_backlog() b WHERE b.waiting > 0
  ), hook_pace AS (
    SELECT c.k1::bigint AS sub,
      sum(c.n) FILTER (WHERE c.scope = 'arrived_1m') / 300.0 AS in_s, sum(c.n)
        FILTER (WHERE c.scope = 'drained_1m') / 300.0 AS out_s
    FROM public.v_queue_counter_part c
    WHERE c.scope IN ('arrived_1m', 'drained_1m') AND c.k3 COLLATE "C" > v_5m_ago GROUP BY c.k1
  ), hooks AS (
    SELECT 'webhook ' || COALESCE(b.endpoint, '(none)') AS queue, 'webhook' AS source,
      COALESCE(b.endpoint, '(none)') AS subject,
      'webhook' AS domain, min(b.oldest_at) AS oldest_at, sum(b.waiting)::bigint AS waiting, false AS waiting_bound,
      COALESCE(sum(p.in_s), 0)::float8 AS in_per_s, COALESCE(sum(p.out_s), 0)::float8 AS out_per_s,
      CASE WHEN v_webhooks_off THEN 'webhook.worker.enabled is off'
        WHEN v_unscheduled THEN 'queue.tick.saga_orchestrator.interval_seconds is 0'
        WHEN bool_and(g.gate IN ('inactive', 'unverified')) THEN 'subscription ' || max(g.gate)
        WHEN bool_and(g.gate = 'suspended' AND g.suspended_reason <> 'circuit') THEN 'endpoint suspended: '
          || max(g.suspended_reason)
        WHEN bool_and(g.gate = 'suspended' AND g.suspended_reason = 'circuit') THEN 'circuit open'
        WHEN bool_and(g.gate = 'half_open') THEN 'circuit half open: one probe at a time'
        WHEN bool_and(g.gate <> 'open') THEN 'none of its subscriptions is open'
        WHEN v_senders = 0 THEN 'no live host runs webhook_worker'
        WHEN v_orchestrators = 0 THEN 'no live host runs saga_orchestrator'
        WHEN min(b.oldest_at) IS NULL THEN 'all due later: backing off'
        WHEN bool_and(g.rate_limit_per_second IS NOT NULL) AND sum(b.waiting) > sum(2 * g.rate_limit_per_second)
          THEN 'rate limit ' || sum(g.rate_limit_per_second) || '/s'
        ELSE '' END AS why
    FROM public.v_webhook_backlog b
    JOIN public.v_webhook_gate g USING (subscription_id)
    LEFT JOIN hook_pace p ON p.sub = b.subscription_id
    GROUP BY b.endpoint
  ), unrouted AS (
    SELECT 'webhook events' AS queue, 'webhook' AS source, 'webhook_router' AS subject, 'webhook' AS domain,
      min(e.created_at) AS oldest_at, least(count(*), 10000) AS waiting, count(*) > 10000 AS waiting_bound,
        0::float8, 0::float8,
      CASE WHEN v_webhooks_off THEN 'webhook.worker.enabled is off'
        WHEN (SELECT o.held_rows > 0 FROM public.router_offsets o) THEN 'held by an open transaction'
        WHEN NOT EXISTS (SELECT 1 FROM public.queue_host q WHERE q.stopped_at IS NULL
          AND q.last_seen_at > now() - interval '15 seconds' AND 'webhook_router' = ANY (q.loops))
          THEN 'no live host runs webhook_router' ELSE '' END
    FROM (SELECT e.created_at FROM public.events e
          WHERE (e.created_xid, e.id) > (v_xid, v_event) ORDER BY e.created_xid, e.id LIMIT 10001) e
    HAVING count(*) > 0
  ), routes AS (
    SELECT 'events ' || b.event_domain, 'event', b.worker_name, b.event_domain, b.oldest_at, least(b.waiting, 10000),
      b.waiting > 10000,
      COALESCE((SELECT sum(c.n) / 300.0 FROM public.v_queue_counter_part c WHERE c.scope = 'event_1m'
        AND c.k1 = b.event_domain
        AND c.k3 COLLATE "C" > v_5m_ago), 0)::float8, 0::float8,
      CASE WHEN v_routes_off <> '' THEN v_routes_off
        WHEN NOT b.enabled THEN 'the route of ' || b.event_domain || ' is disabled'
        WHEN public.fn_cfg_int('queue.tick.' || b.worker_name || '.interval_seconds', 60) = 0
          THEN 'queue.tick.' || b.worker_name || '.interval_seconds is 0'
        WHEN b.held_since < now() - interval '10 seconds' AND b.held_rows = b.waiting THEN 'held by an open transaction'
        WHEN NOT EXISTS (SELECT 1 FROM public.queue_host q WHERE q.stopped_at IS NULL
          AND q.last_seen_at > now() - interval '15 seconds' AND b.worker_name = ANY (q.loops))
          THEN 'no live host runs ' || b.worker_name
        WHEN EXISTS (SELECT 1 FROM public.queue_heartbeat h WHERE h.executor_id = b.worker_name
          AND h.last_beat_payload ->> 'state' IS DISTINCT FROM 'stopped'
          AND h.last_beat_at < now() - make_interval(secs => h.stale_threshold_seconds)) THEN b.worker_name
            || ' is silent' ELSE '' END
    FROM route b
  ), w AS (
    SELECT * FROM hooks UNION ALL SELECT * FROM unrouted UNION ALL SELECT * FROM routes
    UNION ALL
    SELECT 'job ' || j.job_kind, 'job', j.job_kind, j.event_domain, j.oldest_at, j.queued + j.retry_waiting, false,
      j.in_per_s, j.out_per_s, j.why
    FROM told j WHERE j.queued + j.retry_waiting > 0
  ), held AS (
    SELECT b.worker_name AS worker, b.event_domain AS domain, b.held_rows AS rows, b.held_since AS since,
      public.fn_queue_settled_xid() AS xid
    FROM route b WHERE b.held_since < now() - interval '10 seconds'
    UNION ALL
    SELECT 'webhook_router', 'webhook', o.held_rows, o.held_since, o.held_xid
    FROM public.router_offsets o WHERE o.held_rows > 0 AND o.held_since < now() - interval '10 seconds'
  ), bars AS (
    -- found by key: how many there are the planner learns late, and would join them one by one
    SELECT jsonb_object_agg(json_build_array(x.scope, x.k1, x.k2)::text, x.trend) AS by FROM (
      SELECT b.scope, b.k1, b.k2, json_build_array(
        COALESCE(sum(b.n) FILTER (WHERE b.back = 11), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 10), 0),
          COALESCE(sum(b.n) FILTER (WHERE b.back = 9), 0),
        COALESCE(sum(b.n) FILTER (WHERE b.back = 8), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 7), 0),
          COALESCE(sum(b.n) FILTER (WHERE b.back = 6), 0),
        COALESCE(sum(b.n) FILTER (WHERE b.back = 5), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 4), 0),
          COALESCE(sum(b.n) FILTER (WHERE b.back = 3), 0),
        COALESCE(sum(b.n) FILTER (WHERE b.back = 2), 0), COALESCE(sum(b.n) FILTER (WHERE b.back = 1), 0),
          COALESCE(sum(b.n) FILTER (WHERE b.back = 0), 0)) AS trend
      FROM (SELECT c.scope, c.k1, c.k2, (v_five - c.k3::bigint) / 300 AS back, c.n FROM public.v_queue_counter_part c
            WHERE c.scope IN ('dead_webhook_5m', 'dead_job_5m', 'dead_event_5m')
              AND c.k3 COLLATE "C" > v_hour_ago_5m OFFSET 0) b
      GROUP BY b.scope, b.k1, b.k2) x
  ), groups AS (
    SELECT 'webhook' AS source, c.k1 AS code, COALESCE(s.endpoint, '(none)') AS endpoint, 'webhook' AS domain,
      s.id AS subscription_id, c.n AS open,
      (SELECT o.failed_at FROM public.dead_letter_open o WHERE o.final_error_code = c.k1 AND o.subscription_id = s.id
       ORDER BY o.failed_at LIMIT 1) AS first_at,
      (SELECT o.failed_at FROM public.dead_letter_open o WHERE o.final_error_code = c.k1 AND o.subscription_id = s.id
       ORDER BY o.failed_at DESC LIMIT 1) AS last_at,
      (SELECT b.by FROM bars b) -> json_build_array('dead_webhook_5m', c.k1, c.k2)::text AS trend
    FROM public.v_queue_counter c JOIN public.subscriptions s ON s.id = c.k2::bigint
    WHERE c.scope = 'dead_webhook' AND c.n > 0
    UNION ALL
    SELECT 'job', l.failure_code, l.job_kind, l.event_domain, NULL, l.open, l.first_at, l.last_at,
      (SELECT b.by FROM bars b) -> json_build_array('dead_job_5m', l.failure_code, l.event_domain || '/'
        || l.job_kind)::text
    FROM public.fn_job_letters_open() l
    UNION ALL
    SELECT 'event', c.k1, c.k2, c.k3, NULL, c.n,
      (SELECT d.last_failed_at FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.event_domain = c.k3
        AND d.failure_code = c.k1 AND d.event_type = c.k2 ORDER BY d.last_failed_at LIMIT 1),
      (SELECT d.last_failed_at FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.event_domain = c.k3
        AND d.failure_code = c.k1 AND d.event_type = c.k2 ORDER BY d.last_failed_at DESC LIMIT 1),
      (SELECT b.by FROM bars b) -> json_build_array('dead_event_5m', c.k1, c.k3 || '/' || c.k2)::text
    FROM public.v_queue_counter c
    WHERE c.scope = 'dead_event' AND c.n > 0
  ), health AS (
    SELECT * FROM public.v_queue_health_rest
    UNION ALL
    SELECT 'backlog_job_queue', j.job_kind, j.event_domain, j.newest_at, CASE WHEN j.oldest_at IS NOT NULL
      THEN j.age_seconds END,
      j.queued, NULL, NULL, NULL
    FROM told j WHERE j.queued + j.leased + j.in_progress + j.retry_waiting > 0
    UNION ALL
    SELECT 'backlog_webhook', h.subject, h.domain, NULL, floor(extract(epoch FROM now() - h.oldest_at))::bigint,
      h.waiting, NULL, NULL, NULL
    FROM hooks h
    UNION ALL
    SELECT 'dead_letter_' || g.source, s.subject, g.domain, max(g.last_at), NULL, NULL, NULL, sum(g.open)::bigint,
      'open'
    FROM groups g CROSS JOIN LATERAL (SELECT CASE g.source WHEN 'job' THEN g.endpoint ELSE g.code END AS subject) s
    GROUP BY g.source, s.subject, g.domain
    UNION ALL
    SELECT 'cursor_held', b.worker_name, b.event_domain, b.held_since,
      floor(extract(epoch FROM now() - b.held_since))::bigint,
      b.held_rows, NULL, NULL, 'held'
    FROM route b WHERE b.held_since < now() - interval '10 seconds'
  )
  SELECT
    (SELECT json_agg(x ORDER BY x.oldest_at NULLS LAST, x.queued DESC, x.job_kind, x.event_domain) FROM (
      -- In each section what is of one width comes first: the way to a column behind a text or a NULL is walked anew
      -- for each.
      SELECT t.queued, t.scheduled, t.leased, t.in_progress, t.retry_waiting, t.age_seconds, t.in_per_s, t.out_per_s,
        t.succeeded_1h, t.failed_1h,
        t.dead_1h, t.cancelled_1h, t.oldest_at, t.newest_at,
        CASE WHEN t.why = '' AND t.queued + t.retry_waiting > 0 AND t.out_per_s > t.in_per_s
          THEN ceil((t.queued + t.retry_waiting) / (t.out_per_s - t.in_per_s))::bigint END AS clears_in_seconds,
        t.job_kind, t.event_domain, t.executor, t.why FROM told t) x),
    (SELECT json_agg(x ORDER BY x.oldest_at NULLS LAST, x.waiting DESC, x.source, x.subject, x.domain) FROM (
      SELECT w.waiting, w.waiting_bound, w.in_per_s, w.out_per_s,
        COALESCE(floor(extract(epoch FROM now() - w.oldest_at))::bigint, 0) AS age_seconds,
        w.oldest_at, CASE WHEN w.out_per_s > w.in_per_s AND (w.source <> 'job' OR w.why = '')
          THEN ceil(w.waiting / (w.out_per_s - w.in_per_s))::bigint END
          AS clears_in_seconds, w.queue, w.source, w.subject, w.domain, w.why FROM w) x),
    (SELECT json_agg(h ORDER BY h.status_hint IS DISTINCT FROM 'stale', h.age_seconds DESC NULLS LAST, h.source,
      h.subject, h.domain) FROM (
      SELECT h.last_seen_at, h.age_seconds, h.events_seen, h.attempts_written, h.dead_lettered, h.source, h.subject,
        h.domain, h.status_hint FROM health h) h),
    (SELECT json_agg(json_build_object('worker', h.worker, 'domain', h.domain, 'rows', h.rows,
        'age_seconds', floor(extract(epoch FROM now() - h.since))::bigint, 'pid', w.pid,
        'program', COALESCE(w.program, ''), 'user', COALESCE(w.usename, ''),
        'transaction_seconds', floor(extract(epoch FROM now() - w.xact_start))::bigint)
          ORDER BY h.since, h.worker, h.domain)
      FROM held h LEFT JOIN LATERAL public.fn_queue_holder(h.xid) w ON true),
    (SELECT json_agg(g ORDER BY g.open DESC, g.code, g.source, g.endpoint, g.domain, g.subscription_id) FROM (
      SELECT g.source, g.code, g.endpoint, g.domain, g.subscription_id, g.open, g.first_at, g.last_at,
        COALESCE(g.trend, '[0,0,0,0,0,0,0,0,0,0,0,0]') AS trend FROM groups g WHERE g.first_at IS NOT NULL) g)
  INTO v_queues, v_waiting, v_health, v_held, v_dead_groups;

  WITH alert AS MATERIALIZED (
    SELECT * FROM public.v_queue_alert
  ), executors AS (
    SELECT h.executor_id, h.executor_kind, h.domain_scope,
      CASE
        WHEN h.deregistered_at IS NOT NULL THEN 'deregistered'
        WHEN h.last_beat_payload ->> 'state' = 'stopped' THEN 'stopped'
        WHEN v.severity = 'critical' THEN 'dead'
        WHEN v.severity IS NOT NULL THEN 'stale'
        WHEN p.in_flight > 0 AND p.last_work_at < now() - make_interval(secs => h.stale_threshold_seconds) THEN 'stuck'
        WHEN h.last_beat_payload ->> 'state' = 'working' THEN 'working'
        ELSE 'idle' END AS state,
      h.last_beat_at, floor(extract(epoch FROM now() - h.last_beat_at))::bigint AS age_seconds,
      h.expected_cadence_seconds, h.stale_threshold_seconds,
      round((extract(epoch FROM now() - h.last_beat_at) / h.expected_cadence_seconds)::numeric, 2) AS ratio,
      COALESCE(v.severity, '') AS severity, p.in_flight, p.done_total, p.last_work_at,
      COALESCE(h.owner_role, '') AS owner_role, COALESCE(v.acked_by, '') AS acked_by, v.ack_expires_at,
      h.registered_at, h.registered_by, h.deregistered_at, COALESCE(h.deregistered_by, '') AS deregistered_by,
        h.tick_worker
    FROM public.queue_heartbeat h
    LEFT JOIN alert v ON v.kind = 'silence' AND v.subject = h.executor_id
    CROSS JOIN LATERAL (SELECT
      CASE WHEN h.last_beat_payload ->> 'in_flight' ~ '^[0-9]{1,15}$'
        THEN (h.last_beat_payload ->> 'in_flight')::bigint END AS in_flight,
      CASE WHEN h.last_beat_payload ->> 'done_total' ~ '^[0-9]{1,15}$'
        THEN (h.last_beat_payload ->> 'done_total')::bigint END AS done_total,
      public.fn_queue_time_or_null(h.last_beat_payload ->> 'last_work_at') AS last_work_at) p
  )
  SELECT (SELECT json_agg(a ORDER BY a.ratio DESC, a.subject) FROM alert a),
    (SELECT json_agg(e ORDER BY e.deregistered_at IS NOT NULL, CASE WHEN e.severity <> '' THEN e.ratio
      END DESC NULLS LAST, e.executor_id) FROM executors e)
  INTO v_alerts, v_executors;

  SELECT json_agg(x ORDER BY x.executor_id, NULLIF(x.job_kind, '') NULLS FIRST,
    NULLIF(x.event_domain, '') NULLS FIRST) INTO v_job_subscriptions FROM (
    SELECT s.subscription_id, s.executor_id, s.executor_kind, COALESCE(s.job_kind, '') AS job_kind,
      COALESCE(s.event_domain, '') AS event_domain,
      s.priority_floor, s.max_parallel, s.enabled, COALESCE(s.notes, '') AS notes,
      COALESCE(l.live, 0) AS in_flight, s.registered_by, s.registered_at
    FROM public.job_subscription s
    LEFT JOIN (SELECT l.subscription_id, sum(l.live) AS live FROM public.job_lease l GROUP BY 1) l
      USING (subscription_id)) x;

  SELECT json_agg(x ORDER BY x.lease_until) INTO v_job_leases FROM (
    SELECT l.lease_token, l.lease_owner, COALESCE(q.job_kind, '') AS job_kind,
      COALESCE(q.event_domain, '') AS event_domain, l.live,
      l.claimed_at, l.lease_until, l.lease_until < now() AS expired
    FROM public.job_lease l LEFT JOIN public.job_queue q ON q.job_id = l.job_ids[1]
    WHERE l.lease_until < now() + make_interval(secs => v_lease / 3.0) ORDER BY l.lease_until LIMIT 50) x;

  SELECT json_build_object('live_rows', pg_stat_get_live_tuples('public.job_queue'::regclass),
    'dead_rows', pg_stat_get_dead_tuples('public.job_queue'::regclass),
    'last_vacuum', greatest(pg_stat_get_last_vacuum_time('public.job_queue'::regclass),
      pg_stat_get_last_autovacuum_time('public.job_queue'::regclass)),
    'leases', k.n, 'leases_expired', k.expired,
    'oldest_snapshot_seconds', floor(extract(epoch FROM now() - o.xact_start))::bigint, 'oldest_snapshot_pid', o.pid,
    'oldest_snapshot_program', COALESCE(o.application_name, '')) INTO v_job_table
  FROM (SELECT count(*) AS n, count(*) FILTER (WHERE lease_until < now()) AS expired FROM public.job_lease) k
  LEFT JOIN LATERAL (SELECT a.pid, a.xact_start, a.application_name FROM pg_stat_activity a
    WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.datname = current_database()
      AND a.xact_start IS NOT NULL
    ORDER BY age(a.backend_xmin) DESC LIMIT 1) o ON true;

  SELECT json_agg(h ORDER BY h.stopped_at IS NOT NULL, h.host_id) INTO v_hosts FROM (
    SELECT q.host_id, q.instance, q.started_at, q.last_seen_at, q.stopped_at,
      floor(extract(epoch FROM now() - q.last_seen_at))::bigint AS age_seconds,
      q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds' AS alive, q.version, q.loops,
        q.in_flight, (
      SELECT COALESCE(json_object_agg(e.key, json_build_object(
        'state', COALESCE(e.value ->> 'state', ''), 'last_tick', public.fn_queue_time_or_null(e.value ->> 'last_tick'),
        'done', COALESCE(substring(e.value ->> 'done' FROM '^[0-9]{1,15}$')::bigint, 0),
        'errors', COALESCE(substring(e.value ->> 'errors' FROM '^[0-9]{1,15}$')::bigint, 0))), '{}')
      FROM jsonb_each(CASE jsonb_typeof(q.progress) WHEN 'object' THEN q.progress ELSE '{}' END) e
      WHERE jsonb_typeof(e.value) = 'object') AS progress
    FROM public.queue_host q WHERE q.last_seen_at > now() - interval '7 days') h;

  SELECT json_agg(x ORDER BY x.since) INTO v_suspended FROM (
    SELECT x.subscription_id, COALESCE(s.endpoint, '(none)') AS endpoint, x.reason, x.since, CASE
      WHEN isfinite(x.until) THEN x.until END AS until,
      COALESCE(x.by, '') AS by
    FROM public.webhook_endpoint_suspensions x JOIN public.subscriptions s ON s.id = x.subscription_id
    WHERE x.until IS NULL OR x.until > now() OR x.reason = 'circuit') x;

  SELECT json_agg(t ORDER BY t.worker_name) INTO v_ticks FROM public.v_queue_scheduler_status t;

  WITH b AS (
    SELECT (v_minute - c.k3::bigint) / 60 AS back, sum(c.n) FILTER (WHERE c.scope = 'delivered_1m') AS delivered,
      sum(c.n) FILTER (WHERE c.scope = 'dead_1m') AS dead, sum(c.n) FILTER (WHERE c.scope = 'job_done_1m') AS jobs
    FROM public.v_queue_counter_part c
    WHERE c.scope IN ('delivered_1m', 'dead_1m', 'job_done_1m') AND c.k3 COLLATE "C" > v_hour_ago GROUP BY 1
  )
  SELECT json_build_object(
    'delivered', json_agg(COALESCE(x.delivered, 0)), 'dead', json_agg(COALESCE(x.dead, 0)), 'jobs',
      json_agg(COALESCE(x.jobs, 0)),
    'hosts_alive', v_alive,
    'dead_open', (SELECT COALESCE(sum(c.n), 0) FROM public.v_queue_counter_part c
      WHERE c.scope IN ('dead_webhook', 'dead_job', 'dead_event'))) INTO v_flow
  FROM (SELECT b.* FROM generate_series(0, 59) g LEFT JOIN b ON b.back = g ORDER BY g DESC) x;

  SELECT json_agg(o ORDER BY o.state = 'running' DESC, o.operation_id DESC) INTO v_operations FROM (
    SELECT b.operation_id, b.kind, b.filter, b.created_by, b.created_at, b.reason, b.state,
      COALESCE(b.state_why, '') AS state_why,
      b.state_by, b.state_at, b.started_at, b.rate_per_second::float8 AS rate_per_second, b.brake_percent, b.canary,
        b.canary_passed,
      b.frozen_count, b.done, b.skipped, b.failed, b.undone, b.first_ok, b.first_failed
    FROM public.queue_bulk_operation b WHERE b.state = ANY ('{planned,running,paused}'::text[])
    ORDER BY b.state = 'running' DESC, b.operation_id DESC LIMIT 50) o;

  SELECT json_agg(m ORDER BY m.at DESC) INTO v_marks
  FROM (SELECT k.at, k.label, k.created_by AS by FROM public.queue_mark k WHERE k.at > now() - interval '1 hour'
    ORDER BY k.at DESC LIMIT 20) m;

  RETURN json_build_object(
    'flags', COALESCE(v_flags, '[]'), 'queues', COALESCE(v_queues, '[]'), 'health', COALESCE(v_health, '[]'),
      'alerts', COALESCE(v_alerts, '[]'),
    'executors', COALESCE(v_executors, '[]'), 'dead_groups', COALESCE(v_dead_groups, '[]'),
    'job_subscriptions', COALESCE(v_job_subscriptions, '[]'), 'job_leases', COALESCE(v_job_leases, '[]'),
      'job_table', v_job_table,
    'waiting', COALESCE(v_waiting, '[]'), 'operations', COALESCE(v_operations, '[]'), 'hosts', COALESCE(v_hosts, '[]'),
    'held', COALESCE(v_held, '[]'), 'suspended', COALESCE(v_suspended, '[]'), 'ticks', COALESCE(v_ticks, '[]'),
      'flow', v_flow,
    'marks', COALESCE(v_marks, '[]'),
    'monitoring_off', public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300) >= 1000000,
    'server', json_build_object('version', current_setting('server_version'), 'database', current_database(),
      'in_recovery', pg_is_in_recovery(), 'replay_lag_seconds', CASE WHEN pg_is_in_recovery()
        THEN extract(epoch FROM now() - pg_last_xact_replay_timestamp()) END));
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_snapshot_parts IS
  'Computes the sections of the picture. Internal.';

-- fn_queue_picture(max age) → the picture, when it was taken, in how many ms, and
-- whether it is the stored one: that while it is younger than max age, else one
-- computed by one session for everybody (transaction-scoped try-lock). The others
-- take a stored one that is a little older, or wait for the new one for a moment:
-- a transaction that keeps the lock open must not hold up the screens, so then
-- each computes its own. A standby, a read-only session and one with an old
-- snapshot compute their own and store nothing.
CREATE OR REPLACE FUNCTION public.fn_queue_picture(p_max_age interval DEFAULT interval '1 second',
  OUT taken_at timestamptz, OUT took_ms numeric, OUT shared boolean, OUT body text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_stored public.queue_snapshot;
  v_start timestamptz := clock_timestamp();
  v_store boolean := NOT pg_is_in_recovery(); -- whose unlogged tables cannot even be read
  v_fits interval := p_max_age;
  v_locked boolean := false;
BEGIN
  IF p_max_age IS NULL OR p_max_age < interval '0' THEN
    RAISE EXCEPTION 'p_max_age must not be negative' USING ERRCODE = '22023';
  END IF;
  IF v_store THEN
    FOR v_try IN 1..40 LOOP
      SELECT * INTO v_stored FROM public.queue_snapshot;
      IF clock_timestamp() - v_stored.taken_at < v_fits OR v_stored.taken_at > v_start THEN
        taken_at := v_stored.taken_at;
        took_ms := v_stored.took_ms;
        shared := true;
        body := v_stored.body;
        RETURN;
      END IF;
      v_store := current_setting('transaction_read_only') = 'off'
        AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
      EXIT WHEN NOT v_store OR v_locked;
      -- The lock may have come free because the picture has just been stored: look once more.
      v_locked := pg_try_advisory_xact_lock(hashtext('qtop.queue_snapshot'));
      IF NOT v_locked THEN
        v_store := false;
        v_fits := greatest(p_max_age, interval '1 second') * 5;
        PERFORM pg_sleep(CASE WHEN v_try = 1 THEN 0 ELSE 0.025 END);
      END IF;
    END LOOP;
    v_start := clock_timestamp();
  END IF;
  taken_at := v_start;
  shared := false;
  body := public.fn_queue_snapshot_parts();
  took_ms := round(extract(epoch FROM clock_timestamp() - v_start)::numeric * 1000, 2);
  IF v_store THEN
    INSERT INTO public.queue_snapshot (taken_at, took_ms, body) VALUES (v_start, took_ms, body)
    ON CONFLICT (one) DO UPDATE SET taken_at = excluded.taken_at, took_ms = excluded.took_ms, body = excluded.body;
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_picture TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_picture IS
  'What fn_queue_snapshot answers, as the consoles read it: the sections as a text of JSON, the rest as columns.';

-- fn_queue_snapshot(max age) → fn_queue_picture as one jsonb.
CREATE OR REPLACE FUNCTION public.fn_queue_snapshot(p_max_age interval DEFAULT interval '1 second') RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN (SELECT p.body::jsonb || jsonb_build_object('taken_at', p.taken_at, 'took_ms', p.took_ms, 'shared', p.shared)
    FROM public.fn_queue_picture(p_max_age) p);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_snapshot TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_snapshot IS
  'Everything the live panes show, computed at most once per p_max_age for all consoles together.';
