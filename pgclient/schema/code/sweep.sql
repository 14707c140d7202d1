-- The deletions of the retention sweep, as steps of fn_queue_step. A batch, the smaller batches into which a
-- failed one is split, and the list of its targets all select rows with fn_queue_sweep_rows.

-- fn_queue_sweep_before(step) → the time before which the step may delete rows; NULL = the step does not depend on
-- time. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_sweep_before(p_step text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_events timestamptz := public.fn_queue_retention_before('retention.events_days');
  -- Attempts and dead letters prove that an event is routed, so they are kept as long as the event, and one day longer:
  -- a run that began before the event gives its attempt an earlier time.
  v_oldest timestamptz;
BEGIN
  IF p_step IN ('sweep_event_dead_letters', 'sweep_attempts', 'sweep_reads') THEN
    v_oldest := (SELECT min(e.created_at) - interval '1 day' FROM public.event_outbox e);
  END IF;
  RETURN CASE p_step
    WHEN 'sweep_job_dead_letters' THEN public.fn_queue_retention_before('retention.dead_letters_days')
    WHEN 'sweep_event_dead_letters' THEN
      least(public.fn_queue_retention_before('retention.dead_letters_days'), v_oldest)
    WHEN 'sweep_attempts' THEN least(v_events, v_oldest)
    WHEN 'sweep_keys' THEN public.fn_queue_retention_before('retention.job_keys_days')
    WHEN 'sweep_reads' THEN least(v_events, v_oldest)
    WHEN 'sweep_pictures' THEN now() - interval '24 hours'
    WHEN 'sweep_hosts' THEN now() - interval '30 days'
    WHEN 'sweep_staging' THEN public.fn_queue_retention_before('retention.staging_days')
    WHEN 'sweep_history' THEN public.fn_queue_retention_before('retention.jobs_days')
  END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_sweep_before IS 'The time before which a retention step may delete. Internal.';

-- fn_queue_sweep_rows(step, limit, only, except, before) → the rows that may be deleted or emptied, each with its
-- target. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_sweep_rows(p_step text, p_limit int, p_only text[], p_except text[],
  p_before timestamptz) RETURNS TABLE (tid tid, target text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
SET timezone = 'UTC' SET datestyle = 'ISO, MDY' AS $fn$ -- a target may be a time
BEGIN
  CASE p_step
    WHEN 'sweep_job_dead_letters' THEN
      RETURN QUERY SELECT x.ctid, k.key FROM public.job_dead_letter x
      CROSS JOIN LATERAL (SELECT x.dead_letter_id::text AS key) k
      WHERE x.resolved_at < p_before
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      ORDER BY x.resolved_at LIMIT p_limit FOR UPDATE OF x SKIP LOCKED;
    WHEN 'sweep_event_dead_letters' THEN
      RETURN QUERY SELECT x.ctid, k.key FROM public.iu_route_dead_letter x
      CROSS JOIN LATERAL (SELECT x.dead_letter_id::text AS key) k
      WHERE x.resolved_at < p_before
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      ORDER BY x.resolved_at LIMIT p_limit FOR UPDATE OF x SKIP LOCKED;
    WHEN 'sweep_attempts' THEN
      RETURN QUERY SELECT x.ctid, k.key FROM public.iu_route_attempt x
      CROSS JOIN LATERAL (SELECT x.event_id || '/' || x.recipient_ref AS key) k
      WHERE x.attempted_at < p_before
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      LIMIT p_limit;
    WHEN 'sweep_ended_keys' THEN
      -- jobs that ended while an upgrade ran may have no final status in producer_key
      RETURN QUERY SELECT x.ctid, k.key FROM public.producer_key x
      CROSS JOIN LATERAL (SELECT jsonb_build_array(x.scope, x.kind, x.key)::text AS key) k
      WHERE x.scope = '' AND x.final_at IS NULL
      AND NOT EXISTS (SELECT FROM public.job_queue q WHERE q.job_id = x.target_id)
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      LIMIT p_limit;
    WHEN 'sweep_keys' THEN
      -- a key is deleted when retention is over since its job became final and since its dead letter was closed
      RETURN QUERY SELECT x.ctid, k.key FROM public.producer_key x
      CROSS JOIN LATERAL (SELECT jsonb_build_array(x.scope, x.kind, x.key)::text AS key) k
      WHERE x.final_at < p_before AND NOT EXISTS (SELECT FROM public.job_dead_letter d
      WHERE d.job_id = x.target_id AND (d.resolved_at IS NULL OR d.resolved_at >= p_before))
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      ORDER BY x.final_at LIMIT p_limit;
    WHEN 'sweep_roots' THEN
      RETURN QUERY SELECT x.ctid, k.key FROM public.job_root x
      CROSS JOIN LATERAL (SELECT x.job_id::text AS key) k
      WHERE NOT EXISTS (SELECT FROM public.job_queue q WHERE q.job_id = x.job_id)
      AND NOT EXISTS (SELECT FROM public.job_dead_letter d WHERE d.job_id = x.job_id)
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      LIMIT p_limit;
    WHEN 'sweep_reads' THEN
      -- the record that a recipient has read an event is kept as long as the attempt that let the recipient read the
      -- event
      RETURN QUERY SELECT x.ctid, k.key FROM public.event_read x
      CROSS JOIN LATERAL (SELECT x.event_id || '/' || x.recipient_ref AS key) k
      WHERE x.read_at < p_before
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      ORDER BY x.read_at LIMIT p_limit;
    WHEN 'sweep_pictures' THEN
      RETURN QUERY SELECT x.ctid, k.key FROM public.queue_past_picture x
      CROSS JOIN LATERAL (SELECT x.taken_at::text AS key) k
      WHERE x.taken_at < p_before
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      LIMIT p_limit;
    WHEN 'sweep_hosts' THEN
      -- the last host stays: without any row, no host has run yet
      RETURN QUERY SELECT x.ctid, k.key FROM public.queue_host x
      CROSS JOIN LATERAL (SELECT x.host_id::text AS key) k
      WHERE x.last_seen_at < p_before AND x.last_seen_at < (SELECT max(y.last_seen_at) FROM public.queue_host y)
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      ORDER BY x.last_seen_at LIMIT p_limit FOR UPDATE OF x SKIP LOCKED;
    WHEN 'sweep_staging' THEN
      RETURN QUERY SELECT x.ctid, k.key FROM public.iu_notification_pending x
      CROSS JOIN LATERAL (SELECT x.id::text AS key) k
      WHERE x.processed_at < p_before
      AND (p_only IS NULL OR k.key = ANY (p_only)) AND (p_except = '{}' OR k.key <> ALL (p_except))
      ORDER BY x.processed_at LIMIT p_limit FOR UPDATE OF x SKIP LOCKED;
    WHEN 'sweep_history' THEN
      -- only the day in which `before` lies: earlier days are dropped as whole partitions
      RETURN QUERY SELECT x.ctid, x.job_id::text FROM public.job_history x
      WHERE x.finished_at >= date_trunc('day', p_before AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
      AND x.finished_at < p_before AND x.status <> 'cleaned'
      AND (p_only IS NULL OR x.job_id::text = ANY (p_only)) AND (p_except = '{}' OR x.job_id::text <> ALL (p_except))
      LIMIT p_limit;
    ELSE
      RAISE EXCEPTION 'the retention sweep has no step %', p_step USING ERRCODE = '22023';
  END CASE;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_sweep_rows IS 'The rows that a retention step deletes or empties. Internal.';

-- fn_queue_sweep(step, limit, only, except) → the number of rows that it deleted or emptied. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_sweep(p_step text, p_limit int, p_only text[], p_except text[])
  RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_before timestamptz;
  v_rows tid[];
  v_jobs uuid[];
  v_name text;
  v_n bigint;
BEGIN
  IF p_step = 'sweep_webhooks' THEN
    SELECT p.deleted INTO v_n FROM public.fn_webhook_purge(0::bigint,
      public.fn_queue_retention_before('retention.webhooks_days'), public.fn_webhook_pending_dead_letters(),
      p_only::bigint[]) p;
    RETURN jsonb_build_object('webhooks', v_n);
  END IF;
  v_before := public.fn_queue_sweep_before(p_step);
  IF p_step = 'sweep_history' THEN -- partitioned: id and time identify a row
    v_jobs := ARRAY(SELECT r.target::uuid
      FROM public.fn_queue_sweep_rows(p_step, p_limit, p_only, p_except, v_before) r);
    UPDATE public.job_history h SET status = 'cleaned', from_status = h.status, payload = '{}', source_ref = NULL,
      target_ref = NULL, payload_ref = NULL, last_error = NULL, updated_at = now()
    WHERE h.job_id = ANY (v_jobs) AND h.finished_at < v_before AND h.status <> 'cleaned'
      AND h.finished_at >= date_trunc('day', v_before AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    GET DIAGNOSTICS v_n = ROW_COUNT;
    RETURN jsonb_build_object('cleaned', v_n);
  END IF;
  v_rows := ARRAY(SELECT r.tid FROM public.fn_queue_sweep_rows(p_step, p_limit, p_only, p_except, v_before) r);
  CASE p_step
    WHEN 'sweep_job_dead_letters' THEN
      DELETE FROM public.job_dead_letter x WHERE x.ctid = ANY (v_rows);
      v_name := 'letters';
    WHEN 'sweep_event_dead_letters' THEN
      DELETE FROM public.iu_route_dead_letter x WHERE x.ctid = ANY (v_rows);
      v_name := 'letters';
    WHEN 'sweep_attempts' THEN
      DELETE FROM public.iu_route_attempt x WHERE x.ctid = ANY (v_rows);
      v_name := 'attempts';
    WHEN 'sweep_ended_keys' THEN
      UPDATE public.producer_key x SET status = 'ended', final_at = now() WHERE x.ctid = ANY (v_rows);
    WHEN 'sweep_keys' THEN
      DELETE FROM public.producer_key x WHERE x.ctid = ANY (v_rows);
      v_name := 'keys';
    WHEN 'sweep_roots' THEN
      DELETE FROM public.job_root x WHERE x.ctid = ANY (v_rows);
      v_name := 'roots';
    WHEN 'sweep_reads' THEN
      DELETE FROM public.event_read x WHERE x.ctid = ANY (v_rows);
      v_name := 'reads';
    WHEN 'sweep_pictures' THEN
      DELETE FROM public.queue_past_picture x WHERE x.ctid = ANY (v_rows);
    WHEN 'sweep_hosts' THEN
      DELETE FROM public.queue_host x WHERE x.ctid = ANY (v_rows);
      v_name := 'hosts';
    WHEN 'sweep_staging' THEN
      DELETE FROM public.iu_notification_pending x WHERE x.ctid = ANY (v_rows);
      v_name := 'deleted';
  END CASE;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN CASE WHEN v_name IS NULL THEN '{}'::jsonb ELSE jsonb_build_object(v_name, v_n) END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_sweep IS 'Runs a retention step, or a part of it. Internal.';

-- fn_queue_sweep_targets(step, limit, except) → the targets of the rows that a batch of the step would contain.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_sweep_targets(p_step text, p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT r.target FROM public.fn_queue_sweep_rows(p_step, p_limit, NULL::text[], p_except,
    public.fn_queue_sweep_before(p_step)) r);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_sweep_targets IS 'The names of the rows of a batch of a retention step. Internal.';
