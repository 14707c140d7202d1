-- Looks: whether a quick run of a tick worker (fn_queue_tick_run) would find anything, without a lock. A run locks the
-- row of its lease, and routers lock the row of their progress: that takes a transaction id and a commit that waits for
-- its flush, also if the run finds nothing. Useless wake signals would make each loop of each host do that four times a
-- second.

-- fn_queue_tick_quick(row of the worker, source, now) → whether this run is a quick run: by a wake signal within a
-- second of the last full run, which neither failed nor left work undone. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_quick(
  p_worker public.queue_tick_worker, p_source text, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE(p_source = 'wake' AND p_worker.last_run_at BETWEEN p_now - interval '1 second' AND p_now
    AND NOT COALESCE(p_worker.last_result ?| '{error,more}'::text[], true), false);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_quick IS 'Whether a run of a tick worker is a quick run. Internal.';

-- fn_queue_tick_look(worker) → the result of a quick run that finds nothing; NULL = it may find something, or this
-- worker has no look. It reads what a quick run reads, in one snapshot that is newer than the wake signal. Rows that
-- another run is working on count as found, because that run may fail. What a quick run does not read is left to the
-- next full run, as after every quick run. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_look(p_worker_name text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $fn$
DECLARE
  o public.router_offsets;
  c public.queue_cursor;
  v_route record;
  v_from bigint;
  v_through bigint;
  v_except bigint[];
  v_due timestamptz;
  v_next text;
BEGIN
  CASE p_worker_name
  WHEN 'webhook_router' THEN
    SELECT * INTO o FROM public.router_offsets WHERE id = 1;
    c := public.fn_routing_cursor('webhook_router'::text, 'webhook'::text, o.last_xid, o.last_event_id::text);
    IF NOT public.fn_routing_moved(c, o.system_identifier) AND o.restored_after_id IS NULL
      AND c.version > 0 AND c.batch IS NULL AND NOT EXISTS (
        SELECT FROM public.fn_routing_ranges(c.routed, pg_current_snapshot()) r CROSS JOIN LATERAL (
          SELECT FROM public.events x WHERE x.created_xid > r.after AND x.created_xid < r.before
            AND x.id > COALESCE(o.restored_through_id, 0)
          ORDER BY x.created_xid, x.id LIMIT 1) e) THEN
      RETURN '{"events": 0, "sagas": 0}'::jsonb;
    END IF;

  WHEN 'iu_outbound_default', 'staging_outbound' THEN
    FOR v_route IN
      SELECT r.event_domain, w.cursor_xid, w.cursor_id, w.restored_after, w.system_identifier
      FROM public.iu_outbound_route r
      LEFT JOIN public.iu_route_worker_cursor w
        ON w.worker_name = r.worker_name AND w.event_domain = r.event_domain
      WHERE r.worker_name = p_worker_name AND r.enabled AND public.fn_cfg_bool('iu_core.routes_master_enabled')
    LOOP
      c := public.fn_routing_cursor(p_worker_name, v_route.event_domain, v_route.cursor_xid, v_route.cursor_id::text);
      IF (v_route.restored_after IS NULL AND NOT public.fn_routing_moved(c, v_route.system_identifier)) IS NOT TRUE
        OR c.version = 0 OR c.batch IS NOT NULL OR EXISTS (
        SELECT FROM public.fn_routing_ranges(c.routed, pg_current_snapshot()) r CROSS JOIN LATERAL (
          SELECT FROM public.event_outbox x WHERE x.event_domain = v_route.event_domain AND x.created_xid > r.after
            AND x.created_xid < r.before
          ORDER BY x.created_xid, x.id LIMIT 1) e) THEN
        RETURN NULL;
      END IF;
    END LOOP;
    RETURN '{"events": 0, "attempts": 0, "jobs": 0, "dead_lettered": 0}'::jsonb;

  WHEN 'saga_orchestrator' THEN
    SELECT COALESCE((w.last_result ->> 'settled_from')::bigint, 0), (w.last_result ->> 'made_through')::bigint
    INTO v_from, v_through FROM public.queue_tick_worker w WHERE w.worker_name = p_worker_name;
    v_except := public.fn_queue_step_except('webhook_settle'::text)::bigint[];
    IF v_through IS NULL OR EXISTS (
      SELECT FROM public.webhook_delivery_jobs j WHERE j.status IN ('Completed', 'Failed') AND j.settled_at IS NULL
        AND j.id >= v_from AND j.id <> ALL (v_except)) THEN
      RETURN NULL;
    END IF;
    v_except := public.fn_queue_step_except('webhook_make'::text)::bigint[];
    IF NOT EXISTS (
      SELECT FROM public.webhook_delivery_sagas s
      CROSS JOIN LATERAL (SELECT FROM public.v_webhook_gate g
        WHERE g.subscription_id = s.subscription_id AND g.gate = 'open' OFFSET 0) g
      WHERE s.id > v_through AND s.next_attempt_at <= clock_timestamp()
        AND s.status::text = 'Pending' -- ::text: idx_saga_due, with all that wait, does not fit
        AND s.id <> ALL (v_except) AND s.requeued_from_dead_letter_id IS NULL) THEN
      RETURN '{"settled": 0, "completed": 0, "retried": 0, "dead_lettered": 0, "jobs_created": 0}'::jsonb;
    END IF;

  WHEN 'job_queue_default' THEN
    v_due := public.fn_job_unready_first(public.fn_job_unready_from());
    IF (v_due <= now()) IS NOT TRUE THEN
      v_next := CASE WHEN isfinite(v_due) THEN to_char(v_due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END;
      RETURN jsonb_build_object('promoted', 0, 'next_due', v_next, 'next_after', v_next,
        'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    END IF;

  ELSE
    NULL;
  END CASE;
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_look IS
  'The result of a quick run of a tick worker that would find nothing; null if it may find something. Internal.';
