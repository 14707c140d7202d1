-- Silence of tick workers and executors: the single definition, which every display of silence uses. Sources: DP1 §9,
-- §10, DP4 §3.3, §3.5.

-- fn_queue_tick_threshold(cadence, flag) → after how many seconds without a heartbeat a tick worker is silent: the flag
-- queue.heartbeat.stale_threshold_seconds, but at least three of its cadences, at most five cadences and 5 s, and never
-- less than 10 s. From 1,000,000 on the flag switches watching off, and the result is the flag.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_threshold(p_cadence_seconds int, p_flag int) RETURNS int
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN -- not LANGUAGE sql: that would be planned again by every query that calls it
  RETURN CASE WHEN p_flag >= 1000000 THEN p_flag ELSE least(greatest(10, least(greatest(p_flag,
    3::bigint * p_cadence_seconds), 5::bigint * p_cadence_seconds + 5)), 2147483647)::int END;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_tick_threshold TO :"queue_viewer", :"workflow_admin",
  :"dead_letter_operator", :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_tick_threshold IS
  'After how many seconds a tick worker with this cadence is silent, by the flag of the stale threshold.';

-- fn_queue_threshold_default() → the stale threshold of an executor that is registered without a threshold: the flag.
-- While the flag switches watching off, the default of the flag, so that this executor is watched once the flag is
-- lowered. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_threshold_default() RETURNS int
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_flag int := public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300);
BEGIN
  RETURN CASE WHEN v_flag < 1000000 THEN v_flag ELSE (SELECT r.default_value::int FROM public.dot_config_rule r
    WHERE r.key = 'queue.heartbeat.stale_threshold_seconds') END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_threshold_default IS
  'The stale threshold of an executor that is registered without one. Internal.';

-- v_queue_watch: for a tick worker the current flags decide, for a registered executor its row in queue_heartbeat.
-- Silence counts from the last
-- heartbeat, or from counted_from if that is later. A heartbeat more than 5 s ahead of the clock does not count.
CREATE OR REPLACE VIEW public.v_queue_watch AS
SELECT h.executor_id, f.tick AS tick_worker, h.last_beat_at, f.cadence AS cadence_seconds,
  f.threshold AS threshold_seconds, f.off,
  CASE WHEN h.deregistered_at IS NOT NULL THEN 'deregistered'
    WHEN f.off OR h.last_beat_payload ->> 'state' = 'stopped' THEN 'stopped'
    WHEN NOT (h.last_beat_at > clock_timestamp() + interval '5 seconds'
      OR greatest(h.last_beat_at, h.counted_from) < now() - make_interval(secs => f.silent_after)) THEN 'fresh'
    WHEN m.flag >= 1000000 OR f.threshold >= 1000000 THEN 'unwatched'
    ELSE 'silent' END AS state,
  h.silent_since, h.silent_event_at, h.silent_event_ids
FROM public.queue_heartbeat h
LEFT JOIN public.queue_tick_worker w ON h.tick_worker AND w.worker_name = h.executor_id
LEFT JOIN public.v_dot_config_number i ON i.key = 'queue.tick.' || w.worker_name || '.interval_seconds'
LEFT JOIN public.dot_config g ON g.key = w.flag_key
CROSS JOIN (SELECT COALESCE((SELECT d.n FROM public.v_dot_config_number d
  WHERE d.key = 'queue.heartbeat.stale_threshold_seconds'), 300) AS flag OFFSET 0) m
CROSS JOIN LATERAL (SELECT w.worker_name IS NOT NULL AS tick,
  CASE WHEN i.n > 0 THEN i.n ELSE h.expected_cadence_seconds END AS cadence) c
CROSS JOIN LATERAL (SELECT CASE WHEN c.tick THEN public.fn_queue_tick_threshold(c.cadence, least(m.flag, 999999))
  ELSE h.stale_threshold_seconds END AS silent_after OFFSET 0) l
CROSS JOIN LATERAL (SELECT c.tick, c.cadence,
  CASE WHEN c.tick THEN COALESCE(i.n, 0) = 0 OR (w.flag_key IS NOT NULL AND g.value IS DISTINCT FROM 'true')
    ELSE COALESCE(h.last_beat_payload ->> 'state', '') = 'stopped' END AS off,
  -- from 1,000,000 on, the flag is the threshold of every tick worker (fn_queue_tick_threshold)
  CASE WHEN c.tick AND m.flag >= 1000000 THEN m.flag ELSE l.silent_after END AS threshold, l.silent_after) f;
COMMENT ON VIEW public.v_queue_watch IS
  'Each executor and tick worker with the cadence and the threshold in force, and whether it is silent. Read by '
  'v_queue_alert, v_queue_health, v_queue_scheduler_status and the stale check.';
COMMENT ON COLUMN public.v_queue_watch.tick_worker IS
  'true = cadence and threshold come from flags; false = from its row of queue_heartbeat';
COMMENT ON COLUMN public.v_queue_watch.cadence_seconds IS
  'a heartbeat is expected this often; while a worker is off: its last cadence';
COMMENT ON COLUMN public.v_queue_watch.threshold_seconds IS 'silent beyond this; from 1,000,000 on it is not watched';
COMMENT ON COLUMN public.v_queue_watch.off IS
  'switched off by its interval or its flag; of a registered executor: it reported that it stopped';
COMMENT ON COLUMN public.v_queue_watch.state IS
  'fresh, silent, stopped (off, or its last host ended cleanly), deregistered, or unwatched: late while monitoring is '
  'off';
COMMENT ON COLUMN public.v_queue_watch.silent_since IS 'the last heartbeat before the last reported silence';
COMMENT ON COLUMN public.v_queue_watch.silent_event_at IS 'when the last event about that silence was emitted';
COMMENT ON COLUMN public.v_queue_watch.silent_event_ids IS 'the events of that silence, the newest first';
GRANT SELECT ON public.v_queue_watch TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_queue_lock_holder(transaction) → the session or prepared transaction that has this transaction id, such as the
-- xmax of a locked row; '' = no such session. SECURITY DEFINER, because roles that may see queue health may not see
-- other sessions. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_lock_holder(p_xid xid) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  -- p_xid with its epoch, if p_xid began before the current snapshot
  v_full bigint := v_next - ((v_next - p_xid::text::bigint) & 4294967295);
BEGIN
  -- Reading all locks is expensive, and a row keeps the id of the last transaction that locked it.
  IF p_xid = '0'::xid
    OR v_full BETWEEN 3 AND v_next - 1 AND pg_xact_status(v_full::text::xid8) IN ('committed', 'aborted') THEN
    RETURN '';
  END IF;
  RETURN COALESCE(
    (SELECT format('pid %s, login %s', a.pid, a.usename) || COALESCE(' (' || NULLIF(a.application_name, '') || ')', '')
      || COALESCE(', since ' || to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), '')
     FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = p_xid
       AND l.pid <> pg_backend_pid()),
    (SELECT format('prepared transaction %s of %s, since %s', p.gid, p.owner,
      to_char(p.prepared AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
     FROM pg_prepared_xacts p WHERE p.transaction = p_xid), '');
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_lock_holder IS 'Who runs or has prepared a transaction. Internal.';

-- fn_queue_tick_whys(workers) → per tick worker one line with the reason why it does not run: the database is a copy,
-- another session holds its lease, its last run failed, another session holds its heartbeat row, or nobody ticks it.
-- '' = no such reason. SECURITY DEFINER, as fn_queue_lock_holder. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_whys(p_workers text[]) RETURNS TABLE (worker_name text, why text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT p.name, COALESCE(
    CASE WHEN c.clone THEN public.fn_queue_tick_clone(p.name) END,
    CASE WHEN w.worker_name IS NOT NULL AND l.lease_name IS NULL
      THEN public.fn_queue_row_missing('dot_iu_runtime_lease ' || p.name) END,
    CASE WHEN l.xmax <> '0'::xid THEN 'its lease is held by ' || NULLIF(public.fn_queue_lock_holder(l.xmax), '') END,
    'its last run failed: ' || left(w.last_result ->> 'error', 200),
    CASE WHEN h.xmax <> '0'::xid
      THEN 'its heartbeat row is held by ' || NULLIF(public.fn_queue_lock_holder(h.xmax), '') END,
    CASE WHEN w.cron_job AND m.value = 'pg_cron' THEN 'queue.scheduler.mode is pg_cron, and ' || CASE
      WHEN NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron') THEN 'pg_cron is not in this database'
      WHEN j.run_as IS NULL THEN format('its cron job %s is not installed', j.job_name)
      ELSE format('its cron job %s, of %s, does not tick it', j.job_name, j.run_as) END END,
    CASE WHEN EXISTS (SELECT FROM public.queue_host q WHERE q.stopped_at IS NULL
        AND q.last_seen_at > now() - interval '15 seconds'
        AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND p.name = ANY (q.loops))
      THEN '' ELSE 'no live host runs it' END)
  FROM unnest(p_workers) p (name)
  -- computed once, not per worker
  CROSS JOIN (SELECT public.fn_queue_clone_of() IS NOT NULL AS clone OFFSET 0) c
  LEFT JOIN public.queue_tick_worker w ON w.worker_name = p.name
  LEFT JOIN public.dot_iu_runtime_lease l ON l.lease_name = p.name
  LEFT JOIN public.queue_heartbeat h ON h.executor_id = p.name
  LEFT JOIN public.queue_cron_job j ON j.worker_name = p.name
  LEFT JOIN public.dot_config m ON m.key = 'queue.scheduler.mode';
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_tick_whys TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_tick_whys IS
  'Why each of these tick workers does not run. Internal.';

-- fn_queue_tick_why(worker) → the line of fn_queue_tick_whys for one worker.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_why(p_worker_name text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN (SELECT y.why FROM public.fn_queue_tick_whys(ARRAY[p_worker_name]) y);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_tick_why TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_tick_why IS
  'Why a tick worker does not run: who holds its lease, what failed, or that nobody ticks it.';
