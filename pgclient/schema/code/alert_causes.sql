-- Alerts other than silence (work that no live host can do, backlogs, open circuits), and the cause of each alert. An
-- alert that follows from a second alert keeps its row and names the second one in its column cause. Consoles and qtop
-- status show the rows without a cause. Sources: DP4 §3.5, DP1 §10.

-- v_queue_unserved: tick workers that are switched on, but that no live host, pg_cron or operator runs.
CREATE OR REPLACE VIEW public.v_queue_unserved AS
SELECT w.worker_name AS loop
FROM public.queue_tick_worker w
JOIN public.v_dot_config_number i ON i.key = 'queue.tick.' || w.worker_name || '.interval_seconds' AND i.n > 0
LEFT JOIN public.dot_config g ON g.key = w.flag_key
WHERE (w.flag_key IS NULL OR g.value = 'true')
  AND NOT EXISTS (SELECT FROM public.v_live_loop l WHERE l.loop = w.worker_name)
  -- a tick by pg_cron or by an operator counts like one by a host
  AND (w.last_run_at BETWEEN now() - make_interval(secs => greatest(3.0 * i.n, 60))
    AND clock_timestamp() + interval '5 seconds') IS NOT TRUE;
COMMENT ON VIEW public.v_queue_unserved IS
  'Tick workers that are switched on, that no live host runs and that nothing has ticked within three intervals.';
GRANT SELECT ON public.v_queue_unserved TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_queue_due_work(queue lanes, webhook backlogs, route backlogs, fn_webhook_unrouted()) → one row for each queue with
-- due work. Internal.
--   queue          the name that fn_queue_why accepts; empty for housekeeping
--   loops          the loops that must run to do the work
--   oldest_at      when the oldest of the work became due
--   waiting        how many items are due
--   subscriptions  the webhook subscriptions of an endpoint
CREATE OR REPLACE FUNCTION public.fn_queue_due_work(p_lanes public.snapshot_lane[],
  p_hooks public.v_webhook_backlog[], p_routes public.v_iu_route_backlog[], p_unrouted bigint,
  p_unrouted_at timestamptz)
  RETURNS TABLE (queue text, loops text[], oldest_at timestamptz, waiting bigint, subscriptions bigint[], why text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH hooks AS MATERIALIZED (
    SELECT b.endpoint, b.subscription_id, b.waiting, b.oldest_at,
      CASE WHEN g.gate IN ('open', 'half_open') THEN b.oldest_at END AS sendable_at
    FROM unnest(p_hooks) b JOIN public.v_webhook_gate g ON g.subscription_id = b.subscription_id
  )
  SELECT 'webhook ' || COALESCE(h.endpoint, '(none)'),
    -- a host cannot end the wait of an endpoint whose oldest delivery is suspended
    CASE WHEN min(h.sendable_at) = min(h.oldest_at) THEN ARRAY['saga_orchestrator', 'webhook_worker']
      ELSE '{}'::text[] END,
    min(h.oldest_at), sum(h.waiting)::bigint, array_agg(h.subscription_id), ''
  FROM hooks h GROUP BY h.endpoint
  UNION ALL
  SELECT '', ARRAY['saga_orchestrator', 'webhook_worker'], min(h.sendable_at), NULL, NULL, '' FROM hooks h
  UNION ALL
  SELECT 'webhook events', ARRAY['webhook_router'], p_unrouted_at, least(p_unrouted, 10000), NULL, ''
  WHERE p_unrouted > 0
  UNION ALL
  SELECT 'events ' || b.event_domain, ARRAY[b.worker_name], b.oldest_at, least(b.waiting, 10000), NULL, ''
  FROM unnest(p_routes) b WHERE b.waiting > 0 AND b.enabled
  UNION ALL
  SELECT format('job %s in %s', l.job_kind, l.event_domain), '{}', l.oldest_at, l.queued + l.retry_waiting, NULL, l.why
  FROM unnest(p_lanes) l WHERE l.queued + l.retry_waiting > 0
  UNION ALL
  SELECT '', ARRAY['job_queue_default'], public.fn_job_unready_first(public.fn_job_unready_from()), NULL, NULL, ''
  UNION ALL
  SELECT '', ARRAY['iu_notification_worker'], (SELECT p.created_at FROM public.iu_notification_pending p
    WHERE p.processed_at IS NULL AND p.failed_at IS NULL ORDER BY p.created_at LIMIT 1), NULL, NULL, ''
  UNION ALL
  SELECT '', ARRAY['lease_reaper'], min(l.lease_until), NULL, NULL, '' FROM public.fn_job_leases() l WHERE l.live > 0
  UNION ALL
  SELECT '', ARRAY['config_expiry'], min(r.revert_at), NULL, NULL, '' FROM public.dot_config_revert r
  UNION ALL
  SELECT '', ARRAY['bulk_operation_runner'],
    min(greatest(o.started_at, CASE WHEN isfinite(o.credited_at) THEN least(o.credited_at, now()) END)),
    NULL, NULL, ''
  FROM public.queue_bulk_operation o
  WHERE o.state = ANY ('{planned,running,paused}'::text[]) AND o.state = 'running';
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_due_work IS
  'The due work of every queue, and the loops that must run to do it. Internal.';

-- fn_queue_alert_rows(queue lanes, webhook and route backlogs, rows of v_queue_watch, fn_webhook_unrouted()) → the rows
-- of v_queue_alert. The caller passes the rows that a console snapshot reads anyway. Kinds: silence, broadcast,
-- failing, quarantine (v_queue_alert_own), and
--   no_host    tick workers and executors of hosts that are gone: silent, or with work that has waited for over a
--              minute. A single silent tick worker raises no such alert: its silence alert is enough.
--   unclaimed  a queue lane with jobs that have been due for over a minute and that no live executor can claim
--   circuit    an endpoint whose circuit has stayed open for queue.backlog.warn_seconds
--   backlog    a queue whose oldest work has been due for queue.backlog.warn_seconds
-- The last four become critical at queue.backlog.critical_seconds; no_host also when one of its parts is critical.
-- cause: the subject of the alert that this one follows from, '' = none; never an alert that is less severe. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_alert_rows(p_lanes public.snapshot_lane[],
  p_hooks public.v_webhook_backlog[], p_routes public.v_iu_route_backlog[], p_watch public.v_queue_watch[],
  p_unrouted bigint, p_unrouted_at timestamptz)
  RETURNS TABLE (alert_key text, kind text, subject text, severity text, since timestamptz, age_seconds bigint,
  ratio numeric, event_ids uuid[], state text, acked_by text, acked_at timestamptz, comment text,
  ack_expires_at timestamptz, last_cleared text, cause text, detail text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET standard_conforming_strings = on AS $fn$
#variable_conflict use_column
DECLARE
  v_warn int := public.fn_cfg_int('queue.backlog.warn_seconds', 600);
  v_critical int := public.fn_cfg_int('queue.backlog.critical_seconds', 3600);
  v_jobs_off boolean := NOT public.fn_cfg_bool('queue.job_substrate.enabled');
BEGIN
  RETURN QUERY
  WITH own AS MATERIALIZED (
    SELECT o.* FROM public.fn_queue_alert_own(p_watch) o
  ), unserved AS MATERIALIZED (
    SELECT array_agg(u.loop) AS loops FROM public.v_queue_unserved u
  ), hosts AS MATERIALIZED (
    SELECT q.host_id, q.loops || q.last_loops AS loops, e.executor_id,
      q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
        AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AS alive,
      COALESCE(q.stopped_at, q.last_seen_at) AS seen_at, q.stopped_at IS NOT NULL AS stopped, q.stop_reason
    FROM public.queue_host q LEFT JOIN public.v_host_executor e ON e.host_id = q.host_id
  ), gone AS MATERIALIZED (
    -- executors that ran only on hosts that are gone
    SELECT array_agg(x.executor_id) AS executors FROM (
      SELECT h.executor_id FROM hosts h WHERE NOT h.alive AND h.executor_id <> ''
      EXCEPT SELECT h.executor_id FROM hosts h WHERE h.alive AND 'job_executor' = ANY (h.loops)) x
  ), due AS MATERIALIZED (
    SELECT w.*, public.fn_age(w.oldest_at) AS age, w.loops && u.loops AS hostless,
      CASE WHEN v_critical > 0 AND public.fn_age(w.oldest_at) >= v_critical THEN 'critical' ELSE 'warning' END
        AS severity
    FROM public.fn_queue_due_work(p_lanes, p_hooks, p_routes, p_unrouted, p_unrouted_at) w CROSS JOIN unserved u
    WHERE w.oldest_at < now() - interval '1 minute'
  ), unclaimed AS MATERIALIZED (
    -- only lanes for which the first reason of fn_snapshot_lanes is that no live executor can claim
    SELECT l.*, public.fn_age(l.oldest_at) AS age,
      CASE WHEN v_critical > 0 AND public.fn_age(l.oldest_at) >= v_critical THEN 'critical' ELSE 'warning' END
        AS severity,
      l.why LIKE 'every subscribed executor is %' AND EXISTS (SELECT FROM public.job_subscription s
        JOIN public.queue_heartbeat e ON e.executor_id = s.executor_id AND e.executor_kind = s.executor_kind
        CROSS JOIN gone g
        WHERE s.enabled AND s.executor_id = ANY (g.executors) AND (s.job_kind IS NULL OR s.job_kind = l.job_kind)
          AND (s.event_domain IS NULL OR s.event_domain = l.event_domain)
          AND (l.executor IS NULL OR s.executor_kind = l.executor)) AS hostless
    FROM unnest(p_lanes) l
    WHERE NOT v_jobs_off AND l.queued + l.retry_waiting > 0 AND l.oldest_at < now() - interval '1 minute'
      AND l.why ~ '^(no (\S+ )?executor subscribes to it|every subscribed executor is |no live host has a handler )'
  ), parts AS MATERIALIZED (
    SELECT o.subject AS name, o.severity, o.since, false AS work FROM own o CROSS JOIN unserved u CROSS JOIN gone g
    WHERE o.kind = 'silence' AND (o.subject = ANY (u.loops) OR o.subject = ANY (g.executors))
    UNION ALL
    SELECT n.name, d.severity, d.oldest_at, true FROM due d CROSS JOIN unserved u CROSS JOIN unnest(d.loops) AS n (name)
    WHERE n.name = ANY (u.loops)
    UNION ALL
    SELECT 'job_executor', c.severity, c.oldest_at, true FROM unclaimed c WHERE c.hostless
  ), no_host AS MATERIALIZED (
    SELECT p.severity, p.names, COALESCE(h.seen_at, p.since) AS since,
      left('no host runs ' || array_to_string(p.names, ', '), 300) || COALESCE('; ' || h.host_id || CASE
        WHEN h.stopped THEN ' stopped at ' ELSE ' was last seen at ' END
        || to_char(h.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') || COALESCE(': ' || h.stop_reason, ''), '')
        AS detail
    FROM (SELECT min(x.severity) AS severity, array_agg(DISTINCT x.name ORDER BY x.name) AS names, min(x.since) AS since
      FROM parts x HAVING count(DISTINCT x.name) > 1 OR bool_and(x.work)) p
    LEFT JOIN LATERAL (SELECT h.* FROM hosts h
      WHERE NOT h.alive AND (h.loops && p.names OR h.executor_id = ANY (p.names))
      ORDER BY h.seen_at DESC LIMIT 1) h ON true
  ), circuits AS MATERIALIZED (
    SELECT x.subscription_id, s.endpoint::text AS endpoint, x.since, public.fn_age(x.since) AS age,
      CASE WHEN v_critical > 0 AND public.fn_age(x.since) >= v_critical THEN 'critical' ELSE 'warning' END AS severity,
      x.failed_probes
    FROM public.webhook_endpoint_suspensions x JOIN public.subscriptions s ON s.id = x.subscription_id
    WHERE x.reason = 'circuit' AND s.active AND (v_warn > 0 AND public.fn_age(x.since) >= v_warn
      OR v_critical > 0 AND public.fn_age(x.since) >= v_critical)
  ), alerts AS (
    SELECT o.alert_key, o.kind, o.subject, o.severity, o.since, o.age, o.ratio, o.event_ids,
      CASE WHEN n.names IS NOT NULL AND o.kind = 'silence' AND o.subject = ANY (n.names) THEN 'no_host' ELSE '' END
        AS cause,
      CASE WHEN o.kind = 'silence' AND o.subject = ANY (u.loops) THEN 'no live host runs it' ELSE '' END AS detail
    FROM own o CROSS JOIN unserved u LEFT JOIN no_host n ON true
    UNION ALL
    SELECT 'no_host:' || to_char(n.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'no_host', 'no_host',
      n.severity, n.since, public.fn_age(n.since), NULL, '{}', '', n.detail
    FROM no_host n
    UNION ALL
    SELECT format('unclaimed:%s/%s:%s', c.event_domain, c.job_kind,
        to_char(c.oldest_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), 'unclaimed',
      format('unclaimed:%s/%s', c.event_domain, c.job_kind), c.severity, c.oldest_at, c.age, NULL, '{}',
      CASE WHEN c.hostless THEN 'no_host' ELSE COALESCE((SELECT min(o.subject) FROM own o
        JOIN public.job_subscription s ON s.executor_id = o.subject AND s.enabled
          AND (s.job_kind IS NULL OR s.job_kind = c.job_kind)
          AND (s.event_domain IS NULL OR s.event_domain = c.event_domain)
          AND (c.executor IS NULL OR s.executor_kind = c.executor)
        JOIN public.queue_heartbeat e ON e.executor_id = s.executor_id AND e.executor_kind = s.executor_kind
        WHERE o.kind = 'silence' AND c.why LIKE 'every subscribed executor is silent: %'
          AND o.severity <= c.severity), '') END,
      c.queued + c.retry_waiting || ' wait; ' || c.why
    FROM unclaimed c
    UNION ALL
    SELECT format('circuit:%s:%s', c.subscription_id,
        to_char(c.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), 'circuit',
      'circuit:' || c.subscription_id, c.severity, c.since, c.age, NULL, '{}', '',
      format('circuit of %s, %s probes failed', c.endpoint, c.failed_probes)
    FROM circuits c
    UNION ALL
    SELECT 'backlog:' || d.queue, 'backlog', 'backlog:' || d.queue, d.severity, d.oldest_at, d.age, NULL, '{}',
      CASE WHEN d.hostless AND EXISTS (SELECT FROM no_host) THEN 'no_host'
        ELSE COALESCE(
          (SELECT 'circuit:' || min(c.subscription_id) FROM circuits c
            WHERE c.subscription_id = ANY (d.subscriptions) AND c.severity <= d.severity),
          (SELECT min(o.subject) FROM own o WHERE o.severity <= d.severity AND (o.kind = 'silence'
              AND o.subject = ANY (d.loops) OR o.kind = 'failing'
              AND o.subject = ANY (SELECT 'failing:' || x FROM unnest(d.subscriptions) x))), '') END,
      d.waiting || ' wait' || COALESCE('; ' || NULLIF(d.why, ''), '')
    FROM due d
    WHERE d.queue <> '' AND (v_warn > 0 AND d.age >= v_warn OR v_critical > 0 AND d.age >= v_critical)
      AND d.queue <> ALL (SELECT format('job %s in %s', c.job_kind, c.event_domain) FROM unclaimed c)
  )
  SELECT s.alert_key, s.kind, s.subject, s.severity, s.since, floor(s.age)::bigint,
    COALESCE(s.ratio, round((s.age / greatest(v_critical, 1))::numeric, 2)), s.event_ids,
    CASE WHEN a.ack_id IS NOT NULL THEN 'acked' ELSE 'open' END, a.acked_by, a.acked_at, a.comment, a.expires_at,
    CASE WHEN a.ack_id IS NULL THEN COALESCE(
      (SELECT COALESCE(p.cleared_reason, CASE WHEN p.expires_at <= now() THEN 'expired' ELSE 'rose_to_critical' END)
       FROM public.queue_alert_ack p WHERE p.subject = s.subject AND p.alert_key = s.alert_key
       ORDER BY p.ack_id DESC LIMIT 1), '') ELSE '' END,
    s.cause, left(s.detail, 500)
  FROM alerts s
  LEFT JOIN public.queue_alert_ack a
    ON a.alert_key = s.alert_key AND a.cleared_at IS NULL AND a.expires_at > now()
    AND NOT (a.severity = 'warning' AND s.severity = 'critical');
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_alert_rows IS
  'The rows of v_queue_alert, computed partly from rows that the caller has read. Internal: read v_queue_alert.';

-- fn_queue_alerts() → the rows of v_queue_alert, computed from the current content of the queues. SECURITY DEFINER: a
-- login that may see alerts needs no right to read the queues.
CREATE OR REPLACE FUNCTION public.fn_queue_alerts()
  RETURNS TABLE (alert_key text, kind text, subject text, severity text, since timestamptz, age_seconds bigint,
  ratio numeric, event_ids uuid[], state text, acked_by text, acked_at timestamptz, comment text,
  ack_expires_at timestamptz, last_cleared text, cause text, detail text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off AS $fn$
DECLARE
  v_watch public.v_queue_watch[] := ARRAY(SELECT w FROM public.v_queue_watch w);
  v_unrouted record := public.fn_webhook_unrouted();
BEGIN
  RETURN QUERY SELECT r.* FROM public.fn_queue_alert_rows(
    public.fn_snapshot_lanes(ARRAY(SELECT b FROM public.v_job_backlog b), v_watch,
      public.fn_queue_counter_unfolded_sums()),
    ARRAY(SELECT b FROM public.v_webhook_backlog b), ARRAY(SELECT b FROM public.v_iu_route_backlog b), v_watch,
    p_unrouted => v_unrouted.waiting, p_unrouted_at => v_unrouted.oldest_at) r;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_alerts TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_alerts IS 'The rows of v_queue_alert. Read v_queue_alert.';

-- fn_queue_alert_acks_end(only, except) → how many acknowledgements it ended because their condition is over.
-- only and except are ids of acknowledgements; only NULL = all of them. Not for two kinds of alerts: the next
-- heartbeat ends the acknowledgement of a silence, and fn_event_broadcast_sample that of a broadcast share
-- once the share is not above its threshold any more. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_alert_acks_end(p_only text[], p_except text[]) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_n int := 0;
BEGIN
  IF EXISTS (SELECT FROM public.queue_alert_ack a WHERE a.cleared_at IS NULL
      AND a.alert_key ~ '^(no_host|unclaimed|failing|circuit|backlog|quarantine):') THEN
    UPDATE public.queue_alert_ack a SET cleared_at = clock_timestamp(), cleared_reason = 'ended'
    WHERE a.cleared_at IS NULL AND a.alert_key ~ '^(no_host|unclaimed|failing|circuit|backlog|quarantine):'
      AND a.alert_key <> ALL (ARRAY(SELECT v.alert_key FROM public.v_queue_alert v))
      AND (p_only IS NULL OR a.ack_id = ANY (p_only::bigint[])) AND a.ack_id <> ALL (p_except::bigint[]);
    GET DIAGNOSTICS v_n = ROW_COUNT;
  END IF;
  RETURN v_n;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_alert_acks_end IS
  'Ends acknowledgements of conditions that are over. Internal.';
