-- Clean stops of worker hosts: a tick worker that only the stopped host ran is marked stopped, so that it does not
-- count as silent, and so is the executor as which it worked. Source: DP4 §3.5.

-- v_live_loop: the loops that at least one live host runs, one row per loop.
CREATE OR REPLACE VIEW public.v_live_loop AS
SELECT DISTINCT l.loop FROM public.queue_host q CROSS JOIN LATERAL unnest(q.loops) AS l (loop)
WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
  AND q.last_seen_at <= clock_timestamp() + interval '5 seconds';
COMMENT ON VIEW public.v_live_loop IS 'Loops that at least one live worker host runs.';
GRANT SELECT ON public.v_live_loop TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- v_cron_loop: the tick workers that pg_cron ticks, or has ticked within the last hour.
CREATE OR REPLACE VIEW public.v_cron_loop AS
SELECT w.worker_name AS loop
FROM public.queue_tick_worker w
JOIN public.dot_config m ON m.key = 'queue.scheduler.mode' AND m.value IN ('pg_cron', 'hybrid')
LEFT JOIN public.queue_cron_job j ON j.worker_name = w.worker_name
WHERE w.cron_job AND (w.last_result ->> 'source' = 'pg_cron'
    AND w.last_run_at BETWEEN now() - interval '1 hour' AND clock_timestamp() + interval '5 seconds'
  OR j.run_as IS NOT NULL AND EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron'));
COMMENT ON VIEW public.v_cron_loop IS 'Tick workers that pg_cron ticks.';
GRANT SELECT ON public.v_cron_loop TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_queue_executor_live(executor, worker) → whether a live host other than the worker works as the executor. A worker
-- is named as in leases and heartbeats: host id, a slash, and the first 8 characters of the instance. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_executor_live(p_executor_id text, p_worker text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN EXISTS (SELECT FROM public.queue_host q
    WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
      AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND 'job_executor' = ANY (q.loops)
      AND EXISTS (SELECT FROM public.v_host_executor e WHERE e.host_id = q.host_id AND e.executor_id = p_executor_id)
      AND q.host_id || '/' || left(q.instance::text, 8) IS DISTINCT FROM p_worker);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_executor_live IS
  'Whether another live host works as an executor. Internal.';

-- fn_queue_executor_ended(executor): called after a host that worked as the executor has stopped or ended this loop
-- cleanly. Marks the executor stopped if this login may beat as it, no live host works as it any more, and it was not
-- silent: hosts that stop at the same time each still see the other one when their loops end. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_executor_ended(p_executor_id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  UPDATE public.queue_heartbeat h SET last_beat_payload = h.last_beat_payload || '{"state": "stopped"}'
  WHERE h.executor_id IN (
    SELECT b.executor_id FROM public.queue_heartbeat b
    WHERE b.executor_id = p_executor_id AND NOT b.tick_worker AND b.deregistered_at IS NULL
      AND b.last_beat_payload ->> 'state' <> 'stopped'
      AND b.last_beat_at >= clock_timestamp() - make_interval(secs => b.stale_threshold_seconds)
      AND public.fn_executor_member(b.owner_role) AND NOT public.fn_queue_executor_live(b.executor_id, NULL::text)
    FOR UPDATE SKIP LOCKED);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_executor_ended IS
  'Marks an executor stopped as which no live host works any more. Internal.';

-- fn_queue_loops_lock(loops): locks the heartbeat rows of these tick workers and executors, before the caller changes
-- the row of its host; waits up to half a second for the locks. So if two hosts stop at the same time, the second one
-- sees that the first one has stopped. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_loops_lock(p_loops text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $fn$
BEGIN
  PERFORM 1 FROM public.queue_heartbeat h WHERE h.executor_id = ANY (p_loops)
  ORDER BY h.executor_id FOR UPDATE;
EXCEPTION WHEN lock_not_available THEN
  NULL; -- the host stops nevertheless; a worker left unmarked becomes silent after its threshold
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_loops_lock IS
  'Locks the heartbeats of tick workers and executors whose loops a host is about to end. Internal.';

-- fn_queue_loops_ended(loops): called after a host has ended these loops cleanly. It marks each tick worker that no
-- live host runs any more as stopped, unless the worker was already silent: a stop must not hide a silence. The next
-- tick of the worker ends the state stopped. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_loops_ended(p_loops text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  UPDATE public.queue_heartbeat h SET last_beat_payload = h.last_beat_payload || '{"state": "stopped"}'
  WHERE h.executor_id IN (
    SELECT b.executor_id FROM public.queue_heartbeat b
    WHERE b.tick_worker AND b.executor_id = ANY (p_loops) AND b.deregistered_at IS NULL
      AND b.last_beat_at >= clock_timestamp() - make_interval(secs => b.stale_threshold_seconds)
      AND NOT EXISTS (SELECT FROM public.v_live_loop l WHERE l.loop = b.executor_id)
    ORDER BY b.executor_id FOR UPDATE SKIP LOCKED);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_loops_ended IS
  'Marks those tick workers stopped that no live host runs any more. Internal.';

-- fn_queue_loops_begun(loops): called when a host begins to run these loops. A tick worker that was stopped is watched
-- again, unless its switch is off or its interval is 0. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_loops_begun(p_loops text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  UPDATE public.queue_heartbeat h SET last_beat_payload = h.last_beat_payload || '{"state": "idle"}',
    last_beat_at = clock_timestamp()
  WHERE h.executor_id IN (
    SELECT b.executor_id FROM public.queue_heartbeat b JOIN public.queue_tick_worker w ON w.worker_name = b.executor_id
    WHERE b.tick_worker AND b.executor_id = ANY (p_loops) AND b.last_beat_payload ->> 'state' = 'stopped'
      AND (w.flag_key IS NULL OR public.fn_cfg_bool(w.flag_key))
      AND public.fn_cfg_int('queue.tick.' || w.worker_name || '.interval_seconds', 0) > 0
    ORDER BY b.executor_id FOR UPDATE OF b SKIP LOCKED);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_loops_begun IS
  'Watches stopped tick workers again when a host begins to run them. Internal.';
