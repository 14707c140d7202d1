-- Snapshot sections about health, alerts, executors, worker hosts and tick workers.
-- Sources: DP4 §8, DP1 §10.

-- fn_queue_time_or_null(text) → the text as a time, or NULL if it is not a time between the years 2000 and 2200.
-- Executors and hosts write these texts; an invalid text must not break the snapshot for all consoles. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_time_or_null(p_text text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_at timestamptz;
BEGIN
  -- A text of this form is always a valid time. Any other text needs an exception handler, which costs a
  -- subtransaction.
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
  'The text as a time, NULL if it is not a time between 2000 and 2200. Internal.';

-- fn_snapshot_health(the arguments of fn_queue_health_rows) → the section health: the rows of v_queue_health, stale
-- rows first, then by age. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_health(p_jobs public.v_job_backlog[],
  p_hooks public.v_webhook_backlog[], p_dead public.v_dead_letter_group[], p_ticks public.v_queue_scheduler_status[],
  p_watch public.v_queue_watch[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(h ORDER BY h.status_hint IS DISTINCT FROM 'stale', h.age_seconds DESC NULLS LAST,
      h.source, h.subject, h.domain) FROM (
    SELECT h.last_seen_at, h.age_seconds, h.events_seen, h.attempts_written, h.dead_lettered, h.source, h.subject,
      h.domain, h.status_hint FROM public.fn_queue_health_rows(p_jobs, p_hooks, p_dead, p_ticks,
      p_watch) h) h), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_health IS
  'Section of the snapshot: the rows of v_queue_health, stale ones first. Internal.';

-- fn_snapshot_alerts(alerts) → the section alerts: the rows of v_queue_alert, the highest ratio (age over cadence)
-- first. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_alerts(p_alerts public.v_queue_alert[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(a ORDER BY a.ratio DESC, a.subject) FROM unnest(p_alerts) a), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_alerts IS
  'Section of the snapshot: alerts, the worst first. Internal.';

-- fn_snapshot_executors(alerts, rows of v_queue_watch) → the section executors: every executor, those with an alert
-- first, deregistered ones last. state is deregistered, stopped, dead (silent for ten cadences), stale, unwatched (late
-- while monitoring is off), stuck (it has work in flight and has ended none for its stale threshold), working or idle.
-- ratio is the age of the last heartbeat divided by the cadence. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_executors(p_alerts public.v_queue_alert[],
  p_watch public.v_queue_watch[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(e ORDER BY e.deregistered_at IS NOT NULL, CASE WHEN e.severity <> '' THEN e.ratio
    END DESC NULLS LAST, e.executor_id) FROM (
    SELECT h.executor_id, h.executor_kind, h.domain_scope,
      CASE
        WHEN w.state IN ('deregistered', 'stopped') THEN w.state
        WHEN v.severity = 'critical' THEN 'dead'
        WHEN v.severity IS NOT NULL THEN 'stale'
        WHEN w.state = 'unwatched' THEN 'unwatched'
        WHEN p.in_flight > 0 AND p.last_work_at < now() - make_interval(secs => w.threshold_seconds) THEN 'stuck'
        WHEN h.last_beat_payload ->> 'state' = 'working' THEN 'working'
        ELSE 'idle' END AS state,
      h.last_beat_at, floor(p.age)::bigint AS age_seconds,
      w.cadence_seconds AS expected_cadence_seconds, w.threshold_seconds AS stale_threshold_seconds,
      round(greatest(p.age, 0) / w.cadence_seconds, 2) AS ratio,
      COALESCE(v.severity, '') AS severity, p.in_flight, p.done_total, p.last_work_at,
      COALESCE(h.owner_role, '') AS owner_role, COALESCE(v.acked_by, '') AS acked_by, v.ack_expires_at,
      h.registered_at, h.registered_by, h.deregistered_at, COALESCE(h.deregistered_by, '') AS deregistered_by,
      h.tick_worker, COALESCE(h.instance_id, '') AS instance_id
    FROM public.queue_heartbeat h
    JOIN unnest(p_watch) w ON w.executor_id = h.executor_id
    LEFT JOIN unnest(p_alerts) v ON v.kind = 'silence' AND v.subject = h.executor_id
    CROSS JOIN LATERAL (SELECT
      CASE WHEN h.last_beat_payload ->> 'in_flight' ~ '^[0-9]{1,15}$'
        THEN (h.last_beat_payload ->> 'in_flight')::bigint END AS in_flight,
      CASE WHEN h.last_beat_payload ->> 'done_total' ~ '^[0-9]{1,15}$'
        THEN (h.last_beat_payload ->> 'done_total')::bigint END AS done_total,
      public.fn_queue_time_or_null(h.last_beat_payload ->> 'last_work_at') AS last_work_at,
      public.fn_age(h.last_beat_at) AS age OFFSET 0) p) e), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_executors IS
  'Section of the snapshot: executors with their state, those with an alert first. Internal.';

-- fn_snapshot_hosts() → the section hosts: worker hosts seen within seven days; stopped hosts are last. alive: the last
-- heartbeat of the host is younger than 15 seconds. progress: per loop its state, its last tick, and the numbers of
-- items done and of errors. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_hosts() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(h ORDER BY h.stopped_at IS NOT NULL, h.host_id) FROM (
    SELECT q.host_id, q.instance, q.started_at, q.last_seen_at, q.stopped_at,
      floor(public.fn_age(q.last_seen_at))::bigint AS age_seconds,
      q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
        AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AS alive, q.version, q.loops,
      q.last_loops, COALESCE(q.stop_reason, '') AS stop_reason, q.in_flight, (
      SELECT COALESCE(json_object_agg(e.key, json_build_object(
        'state', COALESCE(e.value ->> 'state', ''), 'last_tick', public.fn_queue_time_or_null(e.value ->> 'last_tick'),
        'done', COALESCE(substring(e.value ->> 'done' FROM '^[0-9]{1,15}$')::bigint, 0),
        'errors', COALESCE(substring(e.value ->> 'errors' FROM '^[0-9]{1,15}$')::bigint, 0))), '{}')
      FROM jsonb_each(CASE jsonb_typeof(q.progress) WHEN 'object' THEN q.progress ELSE '{}' END) e
      WHERE jsonb_typeof(e.value) = 'object') AS progress
    FROM public.queue_host q WHERE q.last_seen_at > now() - interval '7 days') h), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_hosts IS
  'Section of the snapshot: worker hosts and the progress of their loops. Internal.';

-- fn_snapshot_ticks(tick workers) → the section ticks: v_queue_scheduler_status. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_ticks(p_ticks public.v_queue_scheduler_status[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(t ORDER BY t.worker_name) FROM unnest(p_ticks) t), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_ticks IS
  'Section of the snapshot: the tick workers, v_queue_scheduler_status. Internal.';
