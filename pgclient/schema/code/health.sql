-- v_queue_health and the functions and views from which it is computed: backlogs, open dead letters, handlers.
-- Source: DP4 §3.3, §8.

-- fn_job_backlog() → one row per domain and job kind with live jobs:
--   queued … retry_waiting   exact counts
--   oldest_at, executor      when the oldest due job became due, and the kind of executor that it is for
--   newest_at                when the newest due job was enqueued
--   reaches                  the highest priority among due jobs, to compare with the priority floors of job
--                            subscriptions; if no floor is above the priority of the oldest due job, that priority
-- The oldest and newest jobs are read from the ends of an index on the time from which a job is due, so a job enqueued
-- with a process_after in the past may hide one that has waited longer. An enqueued_at set by hand is clamped to the
-- time between 1970 and now, so that no snapshot contains an infinite age. SECURITY DEFINER: roles that may read the
-- health of the queue need no right to read the queue.
CREATE OR REPLACE FUNCTION public.fn_job_backlog()
  RETURNS TABLE (job_kind text, event_domain text, queued bigint, scheduled bigint,
  leased bigint, in_progress bigint, retry_waiting bigint, oldest_at timestamptz, newest_at timestamptz,
    executor text, reaches int)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
  SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_floor int := (SELECT max(s.priority_floor) FROM public.job_subscription s WHERE s.enabled);
  v_watermarks boolean := public.fn_job_watermark_valid(); -- true: a lane has no claimable job before its watermark
BEGIN
  RETURN QUERY
  SELECT l.kind, l.domain, l.queued, l.scheduled, l.leased, l.in_progress, l.retry_waiting, o.at, n.at,
    o.executor::text, COALESCE(h.priority, o.priority)
  FROM (
    SELECT c.k1 AS kind, c.k2 AS domain, COALESCE(sum(c.n) FILTER (WHERE c.k3 IN ('queued', 'scheduled')),
      0)::bigint AS queued,
      COALESCE(sum(c.n) FILTER (WHERE c.k3 = 'scheduled'), 0)::bigint AS scheduled,
      COALESCE(sum(c.n) FILTER (WHERE c.k3 = 'leased'), 0)::bigint AS leased,
      COALESCE(sum(c.n) FILTER (WHERE c.k3 = 'in_progress'), 0)::bigint AS in_progress,
      COALESCE(sum(c.n) FILTER (WHERE c.k3 = 'retry_waiting'), 0)::bigint AS retry_waiting
    FROM public.v_queue_counter c
    WHERE c.scope = 'job' AND c.k3 IN ('queued', 'scheduled', 'leased', 'in_progress', 'retry_waiting') AND c.n <> 0
    GROUP BY c.k1, c.k2
  ) l
  LEFT JOIN LATERAL (
    SELECT least(w.due, (SELECT min(b.due) FROM public.job_watermark_below b
      WHERE b.event_domain = l.domain AND b.job_kind = l.kind)) AS due
    FROM public.job_watermark w WHERE v_watermarks AND w.event_domain = l.domain AND w.job_kind = l.kind
    ORDER BY w.version DESC LIMIT 1) f ON true
  LEFT JOIN LATERAL (
    SELECT least(greatest(q.enqueued_at, q.process_after, 'epoch'), now()) AS at, q.executor, q.priority
      FROM public.job_queue q
    WHERE l.queued + l.retry_waiting > l.scheduled AND q.event_domain = l.domain AND q.job_kind = l.kind AND q.ready
      AND q.process_after >= COALESCE(f.due, '-infinity')
      AND q.status IN ('queued', 'retry_waiting') ORDER BY q.process_after LIMIT 1) o ON true
  LEFT JOIN LATERAL (
    SELECT least(greatest(q.enqueued_at, 'epoch'), now()) AS at FROM public.job_queue q
    WHERE o.at IS NOT NULL AND q.event_domain = l.domain AND q.job_kind = l.kind AND q.ready
      AND q.status IN ('queued', 'retry_waiting') ORDER BY q.process_after DESC LIMIT 1) n ON true
  LEFT JOIN LATERAL (
    SELECT q.priority FROM public.job_queue q
    WHERE o.priority < v_floor AND q.event_domain = l.domain AND q.job_kind = l.kind AND q.ready
      AND q.process_after >= COALESCE(f.due, '-infinity')
      AND q.status IN ('queued', 'retry_waiting') ORDER BY q.priority DESC LIMIT 1) h ON true;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_backlog TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_backlog IS
  'Live jobs per domain and kind: exact counts, since when the oldest due job waits, when the newest was enqueued.';

-- fn_job_due_late() → whether a job that is not in quarantine became due more than a minute ago but is not ready: then
-- fn_job_tick, which makes due jobs ready, does not run. SECURITY DEFINER for the same reason as fn_job_backlog.
CREATE OR REPLACE FUNCTION public.fn_job_due_late() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
BEGIN
  RETURN COALESCE(public.fn_job_unready_first(public.fn_job_unready_from()) < now() - interval '1 minute', false);
END
$fn$;
COMMENT ON FUNCTION public.fn_job_due_late IS
  'Whether a job has been due for over a minute and is not ready. Internal.';

-- v_host_executor: the hosts that work as an executor and may: a host's login must be a member of the role that owns
-- the executor, if there is one; otherwise it claims nothing.
CREATE OR REPLACE VIEW public.v_host_executor AS
SELECT h.host_id, b.executor_id FROM public.queue_host h
JOIN public.queue_heartbeat b ON b.executor_id = h.progress #>> '{job_executor,executor}'
WHERE b.owner_role IS NULL
  OR pg_has_role(to_regrole(quote_ident(h.db_role))::oid, to_regrole(quote_ident(b.owner_role))::oid, 'MEMBER');
COMMENT ON VIEW public.v_host_executor IS
  'Worker hosts with the executor as which they work, if their login may work as it.';
GRANT SELECT ON public.v_host_executor TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- v_job_handlers: per executor, the job kinds for which live worker hosts have handlers. An executor without a row runs
-- outside of qtop's hosts, so its handlers are unknown.
CREATE OR REPLACE VIEW public.v_job_handlers AS
SELECT m.mark ->> 'executor' AS executor_id, array_agg(DISTINCT k.kind) AS kinds
FROM (SELECT h.progress -> 'job_executor' AS mark FROM public.queue_host h
  JOIN public.v_host_executor e ON e.host_id = h.host_id
  WHERE h.stopped_at IS NULL AND h.last_seen_at > now() - interval '15 seconds'
    AND h.last_seen_at <= clock_timestamp() + interval '5 seconds' AND 'job_executor' = ANY (h.loops)) m
CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(m.mark -> 'kinds') WHEN 'array' THEN m.mark -> 'kinds'
  ELSE '[]' END) k (kind)
WHERE m.mark ->> 'executor' <> '' GROUP BY 1;
COMMENT ON VIEW public.v_job_handlers IS
  'Job kinds for which live worker hosts have handlers, per executor as which they work.';
GRANT SELECT ON public.v_job_handlers TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_job_dead_letters_open() → open job dead letters per domain, code and kind. SECURITY DEFINER, as fn_job_backlog.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letters_open()
  RETURNS TABLE (event_domain text, failure_code text, job_kind text, open bigint,
  first_at timestamptz, last_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
BEGIN
  RETURN QUERY
  SELECT c.k3, c.k1, c.k2, c.n,
    (SELECT d.last_failed_at FROM public.job_dead_letter d WHERE d.resolved_at IS NULL AND d.failure_code = c.k1
      AND d.job_kind = c.k2
      AND d.event_domain = c.k3 ORDER BY d.last_failed_at LIMIT 1),
    (SELECT d.last_failed_at FROM public.job_dead_letter d WHERE d.resolved_at IS NULL AND d.failure_code = c.k1
      AND d.job_kind = c.k2
      AND d.event_domain = c.k3 ORDER BY d.last_failed_at DESC LIMIT 1)
  FROM public.v_queue_counter c WHERE c.scope = 'dead_job' AND c.n > 0;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letters_open TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_dead_letters_open IS
  'Open job dead letters per code, kind and domain, with the times of the first and last failure.';

-- fn_iu_notification_backlog() → staged notifications: how many wait, how many failed, when the oldest waiting and the
-- newest were staged. SECURITY DEFINER, as fn_job_backlog.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_backlog()
  RETURNS TABLE (waiting bigint, failed bigint, oldest_at timestamptz, newest_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
BEGIN
  RETURN QUERY
  SELECT COALESCE(sum(c.n) FILTER (WHERE c.k1 = 'waiting'), 0)::bigint,
    COALESCE(sum(c.n) FILTER (WHERE c.k1 = 'failed'), 0)::bigint,
    (SELECT p.created_at FROM public.iu_notification_pending p WHERE p.processed_at IS NULL AND p.failed_at IS NULL
      ORDER BY p.created_at LIMIT 1),
    (SELECT p.created_at FROM public.iu_notification_pending p WHERE p.processed_at IS NULL
      ORDER BY p.created_at DESC LIMIT 1)
  FROM public.v_queue_counter_part c WHERE c.scope = 'notification_pending';
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_backlog TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_notification_backlog IS
  'Staged notifications: exact counts, times of the oldest and the newest.';

-- The inputs of fn_queue_health_rows are views, so that their rows have a type: the snapshot reads each view once and
-- passes the rows to its sections as an array.
CREATE OR REPLACE VIEW public.v_job_backlog AS SELECT * FROM public.fn_job_backlog();
COMMENT ON VIEW public.v_job_backlog IS 'The rows of fn_job_backlog, as a view so that they have a row type.';
GRANT SELECT ON public.v_job_backlog, public.v_iu_route_backlog TO :"queue_viewer", :"dot_executor",
  :"workflow_admin", :"dead_letter_operator";

CREATE OR REPLACE VIEW public.v_iu_route_backlog AS SELECT * FROM public.fn_iu_route_backlog();
COMMENT ON VIEW public.v_iu_route_backlog IS 'The rows of fn_iu_route_backlog, as a view so that they have a row type.';

CREATE OR REPLACE VIEW public.v_dead_letter_group AS
SELECT 'webhook' AS source, c.k1 AS code, COALESCE(s.endpoint, '(none)') AS endpoint, 'webhook' AS domain,
  s.id AS subscription_id, c.n AS open,
  (SELECT o.failed_at FROM public.dead_letter_open o WHERE o.final_error_code = c.k1 AND o.subscription_id = s.id
   ORDER BY o.failed_at LIMIT 1) AS first_at,
  (SELECT o.failed_at FROM public.dead_letter_open o WHERE o.final_error_code = c.k1 AND o.subscription_id = s.id
   ORDER BY o.failed_at DESC LIMIT 1) AS last_at
FROM public.v_queue_counter c JOIN public.subscriptions s ON s.id = c.k2::bigint
WHERE c.scope = 'dead_webhook' AND c.n > 0
UNION ALL
SELECT 'job', l.failure_code, l.job_kind, l.event_domain, NULL, l.open, l.first_at, l.last_at
FROM public.fn_job_dead_letters_open() l
UNION ALL
SELECT 'event', c.k1, c.k2, c.k3, NULL, c.n,
  (SELECT d.last_failed_at FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.event_domain = c.k3
    AND d.failure_code = c.k1 AND d.event_type = c.k2 ORDER BY d.last_failed_at LIMIT 1),
  (SELECT d.last_failed_at FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.event_domain = c.k3
    AND d.failure_code = c.k1 AND d.event_type = c.k2 ORDER BY d.last_failed_at DESC LIMIT 1)
FROM public.v_queue_counter c
WHERE c.scope = 'dead_event' AND c.n > 0;
COMMENT ON VIEW public.v_dead_letter_group IS
  'Groups of open dead letters: one row per failure code and webhook subscription, job kind and domain, or event '
  'type and domain: how many are open, and when the first and the last failed.';
COMMENT ON COLUMN public.v_dead_letter_group.source IS 'webhook, job or event';
COMMENT ON COLUMN public.v_dead_letter_group.endpoint IS 'endpoint, job kind or event type, by source';
COMMENT ON COLUMN public.v_dead_letter_group.domain IS 'webhook, or the domain of the job or event';
COMMENT ON COLUMN public.v_dead_letter_group.subscription_id IS 'the webhook subscription; NULL for jobs and events';
GRANT SELECT ON public.v_dead_letter_group TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

-- fn_dead_letter_top(largest, newest, unfolded counters) → rows of v_dead_letter_group: for each source (webhook,
-- job, event), the largest groups, and the groups of the newest dead letters. The cost does not depend on the number of
-- groups: it finds the largest by the folded counters and the unfolded deltas. Counts are exact. SECURITY DEFINER, as
-- fn_job_backlog.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_top(p_largest int, p_newest int,
  p_unfolded public.v_queue_counter_part[])
  RETURNS SETOF public.v_dead_letter_group
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH delta AS MATERIALIZED (
    SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM unnest(p_unfolded) d
    WHERE d.scope = ANY ('{dead_webhook,dead_job,dead_event}'::text[])
  ), newest AS (
    (SELECT 'dead_webhook' AS scope, o.final_error_code::text AS k1, o.subscription_id::text AS k2, '' AS k3
    FROM public.dead_letter_open o ORDER BY o.dead_letter_id DESC LIMIT p_newest)
    UNION ALL
    (SELECT 'dead_job', j.failure_code, j.job_kind, j.event_domain FROM public.job_dead_letter j
    WHERE j.resolved_at IS NULL ORDER BY j.last_failed_at DESC, j.dead_letter_id DESC LIMIT p_newest)
    UNION ALL
    SELECT 'dead_event', e.failure_code, e.event_type, e.event_domain FROM (
      SELECT i.failure_code, i.event_type, i.event_domain, i.resolved_at FROM public.iu_route_dead_letter i
      ORDER BY i.last_failed_at DESC, i.dead_letter_id DESC LIMIT p_newest) e WHERE e.resolved_at IS NULL
  ), keys AS MATERIALIZED (
    -- n: the folded count from queue_counter_rank plus unfolded deltas (more). The first branch below has the
    -- folded count already; keys that only the other branches have need the look-up.
    SELECT x.scope, x.k1, x.k2, x.k3, COALESCE(max(x.n), (SELECT r.n FROM public.queue_counter_rank r
      WHERE r.scope = x.scope AND r.k1 = x.k1 AND r.k2 = x.k2 AND r.k3 = x.k3), 0)
        + COALESCE(sum(x.more), 0)::bigint AS n, bool_or(x.newest) AS newest
    FROM (
      SELECT t.scope, t.k1, t.k2, t.k3, t.n, NULL::bigint AS more, false AS newest
      FROM (VALUES ('dead_webhook'), ('dead_job'), ('dead_event')) s (scope)
      CROSS JOIN LATERAL (SELECT r.scope, r.k1, r.k2, r.k3, r.n FROM public.queue_counter_rank r
        WHERE r.scope = s.scope AND r.n > 0 ORDER BY r.n DESC, r.k1, r.k2, r.k3
        -- read more: groups that have shrunk since the last fold may no longer be among the largest
        LIMIT p_largest + (SELECT least(count(*), 1000) FROM delta d WHERE d.n < 0)) t
      UNION ALL SELECT d.scope, d.k1, d.k2, d.k3, NULL, d.n, false FROM delta d
      UNION ALL SELECT w.scope, w.k1, w.k2, w.k3, NULL, NULL, true FROM newest w) x
    GROUP BY x.scope, x.k1, x.k2, x.k3
  ), top AS MATERIALIZED (
    SELECT c.scope, c.k1, c.k2, c.k3, c.n FROM (SELECT a.scope, a.k1, a.k2, a.k3, a.n, a.newest,
        row_number() OVER (PARTITION BY a.scope ORDER BY a.n DESC, a.k1, a.k2, a.k3) AS place
      FROM keys a WHERE a.n > 0) c
    WHERE c.place <= p_largest OR c.newest
  )
  SELECT 'webhook', t.k1, COALESCE(s.endpoint, '(none)'), 'webhook', s.id, t.n,
    (SELECT o.failed_at FROM public.dead_letter_open o WHERE o.final_error_code = t.k1 AND o.subscription_id = s.id
     ORDER BY o.failed_at LIMIT 1),
    (SELECT o.failed_at FROM public.dead_letter_open o WHERE o.final_error_code = t.k1 AND o.subscription_id = s.id
     ORDER BY o.failed_at DESC LIMIT 1)
  FROM top t JOIN public.subscriptions s ON s.id = t.k2::bigint WHERE t.scope = 'dead_webhook'
  UNION ALL
  SELECT 'job', t.k1, t.k2, t.k3, NULL, t.n,
    (SELECT d.last_failed_at FROM public.job_dead_letter d WHERE d.resolved_at IS NULL AND d.failure_code = t.k1
      AND d.job_kind = t.k2 AND d.event_domain = t.k3 ORDER BY d.last_failed_at LIMIT 1),
    (SELECT d.last_failed_at FROM public.job_dead_letter d WHERE d.resolved_at IS NULL AND d.failure_code = t.k1
      AND d.job_kind = t.k2 AND d.event_domain = t.k3 ORDER BY d.last_failed_at DESC LIMIT 1)
  FROM top t WHERE t.scope = 'dead_job'
  UNION ALL
  SELECT 'event', t.k1, t.k2, t.k3, NULL, t.n,
    (SELECT d.last_failed_at FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.event_domain = t.k3
      AND d.failure_code = t.k1 AND d.event_type = t.k2 ORDER BY d.last_failed_at LIMIT 1),
    (SELECT d.last_failed_at FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.event_domain = t.k3
      AND d.failure_code = t.k1 AND d.event_type = t.k2 ORDER BY d.last_failed_at DESC LIMIT 1)
  FROM top t WHERE t.scope = 'dead_event';
END
$fn$;
COMMENT ON FUNCTION public.fn_dead_letter_top IS
  'The largest groups of open dead letters per source, and those of the newest dead letters. Internal.';

-- fn_dead_letter_total(bound, unfolded counters) → groups: the number of groups of open dead letters, at most
-- bound; bounded: true if there are more groups than bound; open: the exact number of open dead letters. Internal.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_total(p_bound int, p_unfolded public.v_queue_counter_part[],
  OUT groups bigint, OUT bounded boolean, OUT open bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_folded bigint;
BEGIN
  -- a delta changes the number of groups if it opens a new group or empties one
  SELECT COALESCE(sum(x.n), 0), COALESCE(sum((x.r + x.n > 0)::int - (x.r > 0)::int), 0) INTO open, groups FROM (
    SELECT d.n, COALESCE((SELECT r.n FROM public.queue_counter_rank r
      WHERE r.scope = d.scope AND r.k1 = d.k1 AND r.k2 = d.k2 AND r.k3 = d.k3), 0) AS r
    FROM unnest(p_unfolded) d WHERE d.scope = ANY ('{dead_webhook,dead_job,dead_event}'::text[]) OFFSET 0) x;
  SELECT count(*) INTO v_folded FROM (SELECT FROM public.queue_counter_rank r
    WHERE r.scope = ANY ('{dead_webhook,dead_job,dead_event}'::text[]) AND r.n > 0 LIMIT p_bound + 1) x;
  groups := groups + v_folded;
  bounded := v_folded > p_bound OR groups > p_bound;
  groups := CASE WHEN bounded THEN p_bound ELSE groups END;
  open := open + COALESCE((SELECT sum(r.n) FROM public.queue_counter_rank r
    WHERE r.scope IN ('open_dead_webhook', 'open_dead_job', 'open_dead_event') AND r.k1 = '' AND r.k2 = ''
      AND r.k3 = ''), 0);
END
$fn$;
COMMENT ON FUNCTION public.fn_dead_letter_total IS
  'How many groups of open dead letters there are, up to a bound, and how many dead letters. Internal.';

-- fn_dead_letter_subjects(groups, n, unfolded counters) → the dead letters for fn_queue_health_rows when groups
-- has only some of the groups: a row per subject and domain, for the n subjects of each source that have the most.
-- open is exact; last_at is the last failure in groups, NULL if groups has no group of this subject. Internal.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_subjects(p_dead public.v_dead_letter_group[], p_most int,
  p_unfolded public.v_queue_counter_part[])
  RETURNS SETOF public.v_dead_letter_group
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH delta AS MATERIALIZED (
    SELECT replace(d.scope, 'dead_', '') AS source, CASE d.scope WHEN 'dead_job' THEN d.k2 ELSE d.k1 END AS subject,
      CASE d.scope WHEN 'dead_webhook' THEN 'webhook' ELSE d.k3 END AS domain, d.n
    FROM unnest(p_unfolded) d WHERE d.scope = ANY ('{dead_webhook,dead_job,dead_event}'::text[])
  ), keys AS MATERIALIZED (
    -- n: the folded count from queue_counter_rank plus unfolded deltas. The first branch below has the folded
    -- count already; keys that only the deltas have need the look-up.
    SELECT x.source, x.subject, x.domain, COALESCE(max(x.n), (SELECT r.n FROM public.queue_counter_rank r
      WHERE r.scope = 'subject_dead_' || x.source AND r.k1 = x.subject AND r.k2 = x.domain AND r.k3 = ''), 0)
        + COALESCE(sum(x.more), 0)::bigint AS n
    FROM (
      SELECT s.source, t.k1 AS subject, t.k2 AS domain, t.n, NULL::bigint AS more
      FROM (VALUES ('webhook'), ('job'), ('event')) s (source)
      CROSS JOIN LATERAL (SELECT r.k1, r.k2, r.n FROM public.queue_counter_rank r
        WHERE r.scope = 'subject_dead_' || s.source AND r.n > 0 ORDER BY r.n DESC, r.k1, r.k2, r.k3
        -- read more: subjects that have shrunk since the last fold may no longer be among the largest
        LIMIT p_most + (SELECT least(count(*), 1000) FROM delta d WHERE d.n < 0)) t
      UNION ALL SELECT d.source, d.subject, d.domain, NULL, d.n FROM delta d) x
    GROUP BY x.source, x.subject, x.domain
  )
  SELECT c.source, CASE WHEN c.source <> 'job' THEN c.subject END, CASE WHEN c.source = 'job' THEN c.subject END,
    c.domain, NULL::bigint, c.n, NULL::timestamptz, g.last_at
  FROM (SELECT a.source, a.subject, a.domain, a.n,
      row_number() OVER (PARTITION BY a.source ORDER BY a.n DESC, a.subject, a.domain) AS place
    FROM keys a WHERE a.n > 0) c
  LEFT JOIN (SELECT d.source, CASE d.source WHEN 'job' THEN d.endpoint ELSE d.code END AS subject, d.domain,
      max(d.last_at) AS last_at
    FROM unnest(p_dead) d GROUP BY 1, 2, 3) g USING (source, subject, domain)
  WHERE c.place <= p_most;
END
$fn$;
COMMENT ON FUNCTION public.fn_dead_letter_subjects IS
  'The dead letters for v_queue_health when there are too many groups to read. Internal.';

-- fn_queue_health_rows(backlogs of jobs and webhooks, groups of dead letters, tick workers, rows of v_queue_watch) →
-- the rows of v_queue_health, defined once for the view and the snapshot. The caller reads the arguments, because the
-- snapshot needs them for other sections too. Counts come from counters and index ends, never from a scan; staleness
-- follows from a row's own time and the server's time. SECURITY DEFINER: roles that may read the health of the queue
-- need no right to read its tables.
CREATE OR REPLACE FUNCTION public.fn_queue_health_rows(p_jobs public.v_job_backlog[],
  p_hooks public.v_webhook_backlog[], p_dead public.v_dead_letter_group[], p_ticks public.v_queue_scheduler_status[],
  p_watch public.v_queue_watch[])
  RETURNS TABLE (source text, subject text, domain text, last_seen_at timestamptz, age_seconds bigint,
  events_seen bigint, attempts_written bigint, dead_lettered bigint, status_hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT 'cursor', c.worker_name, c.event_domain, c.last_run_at,
    floor(public.fn_age(c.last_run_at))::bigint, c.events_seen, c.attempts_written, c.dead_lettered,
    -- stale by the age of the cursor: a worker that ticks but routes nothing, because a switch is off, is not fresh
    CASE WHEN NOT r.enabled OR s.configured_interval_seconds = 0 THEN 'stopped'
      WHEN NOT (COALESCE(c.last_run_at, '-infinity') < now() - make_interval(secs => public.fn_queue_tick_threshold(
          s.configured_interval_seconds::int, least(f.flag, 999999)))
        OR c.last_run_at > clock_timestamp() + interval '5 seconds') THEN 'fresh'
      WHEN f.flag >= 1000000 THEN 'unwatched' ELSE 'stale' END
  FROM public.iu_route_worker_cursor c
  JOIN public.iu_outbound_route r USING (event_domain)
  JOIN unnest(p_ticks) s ON s.worker_name = c.worker_name
  CROSS JOIN (SELECT public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300) AS flag) f
  UNION ALL
  SELECT 'cursor', 'webhook_router', 'webhook', s.last_run_at, s.age_seconds, o.events_seen, NULL, NULL,
    CASE WHEN s.state = 'off' THEN 'stopped' WHEN s.stale THEN 'stale' WHEN s.state = 'unwatched' THEN 'unwatched'
      ELSE 'fresh' END
  FROM public.router_offsets o JOIN unnest(p_ticks) s ON s.worker_name = 'webhook_router'
  UNION ALL
  SELECT 'heartbeat', h.executor_id, NULL, h.last_beat_at,
    floor(public.fn_age(h.last_beat_at))::bigint, NULL, NULL, NULL,
    CASE h.state WHEN 'silent' THEN 'stale' ELSE h.state END
  FROM unnest(p_watch) h
  UNION ALL
  SELECT 'executor_subscription', s.executor_id, NULL, NULL, NULL, s.rules, NULL, NULL,
    CASE WHEN s.any_enabled = 1 THEN 'enabled' ELSE 'disabled' END
  FROM public.v_executor_subscription_health s
  UNION ALL
  SELECT 'notification_pending', 'iu_notification_worker', 'iu', b.newest_at,
    floor(public.fn_age(b.oldest_at))::bigint, b.waiting, NULL, b.failed,
    -- also stale when the oldest notification has waited too long, even if the worker's heartbeat is fresh
    CASE WHEN b.waiting > 0 AND (s.stale OR public.fn_age(b.oldest_at) > s.stale_threshold_seconds
        + public.fn_iu_notification_debounce()) THEN 'stale'
      WHEN b.failed > 0 THEN 'open' ELSE 'fresh' END
  FROM public.fn_iu_notification_backlog() b JOIN unnest(p_ticks) s ON s.worker_name = 'iu_notification_worker'
  WHERE b.waiting > 0 OR b.failed > 0
  UNION ALL
  SELECT 'subscription_broadcast', concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')), NULLIF(b.event_domain, ''),
    b.sampled_at, floor(public.fn_age(b.sampled_at))::bigint, b.broadcast_24h, NULL, NULL,
    CASE WHEN s.stale THEN 'stale' WHEN b.over_since IS NOT NULL THEN 'over' ELSE 'fresh' END
  FROM public.queue_broadcast_share b JOIN unnest(p_ticks) s ON s.worker_name = 'metrics_sampler'
  WHERE b.event_domain = '' OR b.over_since IS NOT NULL
  UNION ALL
  SELECT 'default_partition', 'event_outbox_default', NULL, NULL, NULL, NULL, NULL, NULL, 'stale'
  WHERE EXISTS (SELECT 1 FROM public.event_outbox_default)
  UNION ALL
  SELECT 'default_partition', 'job_history_default', NULL, NULL, NULL, NULL, NULL, NULL, 'stale'
  WHERE EXISTS (SELECT 1 FROM public.job_history_default)
  UNION ALL
  SELECT 'default_partition', 'queue_metric_sample_default', NULL, NULL, NULL, NULL, NULL, NULL, 'stale'
  WHERE EXISTS (SELECT 1 FROM public.queue_metric_sample_default)
  UNION ALL
  SELECT 'dead_letter_' || g.source, s.subject, g.domain, max(g.last_at), NULL, NULL, NULL, sum(g.open)::bigint, 'open'
  FROM unnest(p_dead) g
  CROSS JOIN LATERAL (SELECT CASE g.source WHEN 'job' THEN g.endpoint ELSE g.code END AS subject) s
  GROUP BY g.source, s.subject, g.domain
  UNION ALL
  SELECT 'backlog_webhook', COALESCE(b.endpoint, '(none)'), 'webhook', NULL,
    floor(public.fn_age(min(b.oldest_at)))::bigint, sum(b.waiting)::bigint, NULL, NULL, NULL
  FROM unnest(p_hooks) b GROUP BY b.endpoint
  UNION ALL
  SELECT 'backlog_job_queue', b.job_kind, b.event_domain, b.newest_at,
    floor(public.fn_age(b.oldest_at))::bigint, b.queued, NULL, NULL, NULL
  FROM unnest(p_jobs) b
  UNION ALL
  SELECT 'cursor_held', h.worker_name, h.event_domain, min(h.xact_start),
    floor(public.fn_age(min(h.xact_start)))::bigint, NULL, NULL, NULL, 'held'
  FROM public.fn_routing_held() h GROUP BY h.worker_name, h.event_domain;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_health_rows TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_health_rows IS
  'The rows of v_queue_health, computed from rows that the caller has read. Read v_queue_health instead.';

-- v_queue_health: the nine columns that DP4 defines.
CREATE OR REPLACE VIEW public.v_queue_health AS
SELECT h.* FROM (SELECT ARRAY(SELECT v FROM public.v_queue_watch v) AS rows OFFSET 0) w
CROSS JOIN LATERAL public.fn_queue_health_rows(
  ARRAY(SELECT b FROM public.v_job_backlog b), ARRAY(SELECT b FROM public.v_webhook_backlog b),
  ARRAY(SELECT g FROM public.v_dead_letter_group g),
  ARRAY(SELECT ROW(s.*)::public.v_queue_scheduler_status FROM public.fn_queue_scheduler_rows(w.rows) s), w.rows) h;
COMMENT ON VIEW public.v_queue_health IS
  'The health of the whole queue in one view (DP4 §3.3). What last_seen_at, age_seconds and the counts mean depends on '
  'source. status_hint: stale, fresh, unwatched, open, held, over, stopped, deregistered, enabled or disabled.';
COMMENT ON COLUMN public.v_queue_health.source IS
  'cursor, heartbeat, dead_letter_event, dead_letter_job, dead_letter_webhook, backlog_job_queue, backlog_webhook, '
  'cursor_held, executor_subscription and others: what the row is about';
COMMENT ON COLUMN public.v_queue_health.subject IS
  'depends on source: worker, executor, failure code, job kind or endpoint';
COMMENT ON COLUMN public.v_queue_health.last_seen_at IS
  'depends on source: last run, last heartbeat, last failure or newest arrival';
COMMENT ON COLUMN public.v_queue_health.age_seconds IS
  'seconds since last_seen_at by the clock of the server; of a backlog: how long the oldest has been due';
COMMENT ON COLUMN public.v_queue_health.events_seen IS
  'of a backlog: how many items wait; of a cursor: how many events were read so far';
COMMENT ON COLUMN public.v_queue_health.dead_lettered IS
  'open dead letters; of a cursor: how many events became dead letters so far';
COMMENT ON COLUMN public.v_queue_health.status_hint IS
  'stale, fresh, unwatched (late while monitoring is off), open, held, over, stopped, deregistered, enabled or '
  'disabled';
GRANT SELECT ON public.v_queue_health TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
