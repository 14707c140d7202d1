-- The steps of the job tick workers; quarantine.sql explains what a step is. All functions are internal.

-- job_promote: makes jobs claimable once they are due.
CREATE OR REPLACE FUNCTION public.fn_step_job_promote(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $fn$
DECLARE
  v_only uuid[] := p_only::uuid[];
  v_except uuid[] := p_except::uuid[];
  v_domains text[];
  v_counts bigint[];
BEGIN
  WITH due AS MATERIALIZED (
    SELECT q.job_id FROM public.job_queue q WHERE NOT q.ready AND q.process_after <= now()
      -- jobs that failed before and run again may be due before the watermark
      AND q.process_after >= CASE WHEN v_only IS NULL THEN (SELECT public.fn_job_unready_from()) ELSE '-infinity' END
      AND (v_only IS NULL OR q.job_id = ANY (v_only)) AND q.job_id <> ALL (v_except)
    ORDER BY q.process_after, q.job_id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ), promoted AS (
    UPDATE public.job_queue q SET ready = true, updated_at = now()
    WHERE q.job_id = ANY (ARRAY(SELECT d.job_id FROM due d))
    RETURNING q.event_domain
  )
  SELECT array_agg(x.event_domain), array_agg(x.n) INTO v_domains, v_counts
  FROM (SELECT event_domain, count(*) AS n FROM promoted GROUP BY 1 ORDER BY 1) x;
  PERFORM public.fn_queue_wake('queue_wake_' || w.domain, jsonb_build_object('layer', 'job', 'event_domain', w.domain,
    'worker_hint', 'job_executor', 'count', w.n, 'occurred_at', clock_timestamp()))
  FROM unnest(v_domains, v_counts) AS w (domain, n);
  RETURN jsonb_build_object('promoted', COALESCE((SELECT sum(n) FROM unnest(v_counts) n), 0));
END
$fn$;
COMMENT ON FUNCTION public.fn_step_job_promote IS
  'Step job_promote (see fn_queue_step): makes due jobs claimable. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_job_promote_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  RETURN ARRAY(SELECT q.job_id::text FROM public.job_queue q
    WHERE NOT q.ready AND q.process_after <= now() AND q.process_after >= (SELECT public.fn_job_unready_from())
      AND q.job_id <> ALL (p_except::uuid[])
    ORDER BY q.process_after, q.job_id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_job_promote_targets IS
  'Targets of the step job_promote: jobs that are due and not yet claimable. Internal.';

-- job_lanes: removes duplicate queue lanes. Its only target is the step itself.
CREATE OR REPLACE FUNCTION public.fn_step_job_lanes(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF 'lanes' <> ALL (p_except) THEN
    DELETE FROM public.job_lane l WHERE EXISTS (SELECT 1 FROM public.job_lane o
      WHERE o.event_domain = l.event_domain AND o.job_kind = l.job_kind AND o.ctid < l.ctid);
  END IF;
  RETURN '{}'::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_step_job_lanes IS
  'Step job_lanes (see fn_queue_step): removes duplicate queue lanes. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_job_lanes_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT 'lanes'::text EXCEPT SELECT unnest(p_except));
END
$fn$;
COMMENT ON FUNCTION public.fn_step_job_lanes_targets IS 'The only target of the step job_lanes. Internal.';

-- job_reap: returns jobs whose lease expired. A batch consists of whole leases, oldest first, about limit jobs. A job
-- in except stays in its lease; the other jobs of that lease are returned.
CREATE OR REPLACE FUNCTION public.fn_step_job_reap(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_only uuid[] := p_only::uuid[];
  v_except uuid[] := p_except::uuid[];
  v_tokens uuid[];
BEGIN
  IF v_only IS NOT NULL THEN
    SELECT array_agg(x.lease_token) INTO v_tokens FROM (
      SELECT l.lease_token FROM public.job_lease l
      WHERE l.lease_until < clock_timestamp() AND l.lease_token = ANY (ARRAY(
        SELECT q.lease_token FROM public.job_queue q WHERE q.job_id = ANY (v_only)))
      ORDER BY l.lease_until, l.lease_token FOR UPDATE SKIP LOCKED) x;
  ELSE
    SELECT array_agg(x.lease_token) INTO v_tokens FROM (
      SELECT l.lease_token FROM public.job_lease l
      WHERE l.lease_until < clock_timestamp() AND l.lease_token = ANY (ARRAY( -- by key: there may be many dead rows
        SELECT w.lease_token FROM (
          SELECT e.lease_token, sum(e.live) OVER (ORDER BY e.lease_until, e.lease_token) - e.live AS before
          FROM (SELECT y.lease_token, y.live, y.lease_until FROM public.fn_job_leases() y
            WHERE y.lease_until < clock_timestamp() AND NOT y.job_ids && v_except
            -- more rows than needed: another session may be reaping the first ones
            ORDER BY y.lease_until, y.lease_token LIMIT 4 * p_limit) e) w
        WHERE w.before < 4 * p_limit))
      ORDER BY l.lease_until, l.lease_token LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
  END IF;
  IF v_tokens IS NULL THEN
    RETURN jsonb_build_object('reaped', 0, 'returned', 0, 'dead_lettered', 0);
  END IF;
  RETURN public.fn_job_reap(v_tokens, v_only);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_job_reap IS
  'Step job_reap (see fn_queue_step): reaps the jobs of expired leases. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_job_reap_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT q.job_id::text FROM (
      SELECT l.lease_token, l.lease_until, l.job_ids, sum(l.live) OVER (ORDER BY l.lease_until, l.lease_token)
        - l.live AS before
      FROM (SELECT y.* FROM public.fn_job_leases() y WHERE y.lease_until < clock_timestamp()
        AND NOT y.job_ids && p_except::uuid[] ORDER BY y.lease_until, y.lease_token LIMIT 4 * p_limit) l) w
    CROSS JOIN LATERAL unnest(w.job_ids) i (id)
    CROSS JOIN LATERAL (SELECT x.job_id FROM public.job_queue x
      WHERE x.job_id = i.id AND x.lease_token = w.lease_token OFFSET 0) q
    WHERE w.before < 4 * p_limit ORDER BY w.lease_until, w.lease_token, q.job_id);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_job_reap_targets IS
  'Targets of the step job_reap: jobs whose lease expired. Internal.';
