-- The steps of the webhook tick workers; quarantine.sql explains what a step is. All functions are internal.

-- webhook_route: makes the missing sagas, for pairs of event and subscription (target EVENT/SUBSCRIPTION) for which the
-- router failed.
CREATE OR REPLACE FUNCTION public.fn_webhook_route_pairs(p_events bigint[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT r.event_id || '/' || r.subscription_id FROM public.v_webhook_recipient r
    WHERE r.event_id = ANY (p_events) ORDER BY r.event_id, r.subscription_id);
END
$fn$;
COMMENT ON FUNCTION public.fn_webhook_route_pairs IS
  'The pairs of event and subscription that get a saga from the router. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_route(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_sagas bigint;
BEGIN
  INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id)
  SELECT e.id, s.id
  FROM unnest(p_only) AS p (pair)
  JOIN public.events e ON e.id = split_part(p.pair, '/', 1)::bigint
  JOIN public.subscriptions s ON s.id = split_part(p.pair, '/', 2)::bigint
  WHERE NOT EXISTS (SELECT FROM public.dead_letters d WHERE d.event_id = e.id AND d.subscription_id = s.id)
    AND NOT EXISTS (SELECT FROM public.webhook_erasure x WHERE x.event_id = e.id)
  ORDER BY e.id, s.id
  ON CONFLICT (event_id, subscription_id) WHERE status <> 'DeadLettered' DO NOTHING;
  GET DIAGNOSTICS v_sagas = ROW_COUNT;
  RETURN jsonb_build_object('sagas', v_sagas);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_route IS
  'Step webhook_route (see fn_queue_step): makes the sagas of pairs that the router failed on. Internal.';

-- webhook_settle: settles finished jobs.
CREATE OR REPLACE FUNCTION public.fn_step_webhook_settle(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_saga_orchestrator_part('settle'::text, p_limit, p_only::bigint[], p_except::bigint[],
    0::bigint);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_settle IS
  'Step webhook_settle (see fn_queue_step): settles finished webhook jobs. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_settle_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  RETURN ARRAY(SELECT j.id::text FROM public.webhook_delivery_jobs j
    WHERE j.status IN ('Completed', 'Failed') AND j.settled_at IS NULL AND j.id <> ALL (p_except::bigint[])
    ORDER BY j.id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_settle_targets IS
  'Targets of the step webhook_settle: finished webhook jobs, by id. Internal.';

-- webhook_resume: deletes expired suspensions and, as fn_endpoint_resume, forgets the failures before them. A circuit
-- stays until a probe has its result. After the end of a suspension its gate is open, even before the row is deleted.
-- A subscription that was loaded without triggers has no endpoint state before qtop recount.
CREATE OR REPLACE FUNCTION public.fn_step_webhook_resume(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF EXISTS (SELECT FROM public.webhook_endpoint_suspensions WHERE reason <> 'circuit' AND until <= now()) THEN
    WITH ended AS MATERIALIZED (
      SELECT s.subscription_id FROM public.webhook_endpoint_suspensions s
      WHERE s.reason <> 'circuit' AND s.until <= now()
        AND (p_only IS NULL OR s.subscription_id = ANY (p_only::bigint[]))
        AND s.subscription_id <> ALL (p_except::bigint[])
    ), state AS MATERIALIZED ( -- locked first: see the lock order in webhook_router.sql
      SELECT t.subscription_id FROM public.webhook_endpoint_state t
      WHERE t.subscription_id IN (SELECT e.subscription_id FROM ended e)
      ORDER BY t.subscription_id FOR UPDATE SKIP LOCKED
    ), over AS MATERIALIZED (
      SELECT x.subscription_id FROM public.webhook_endpoint_suspensions x
      WHERE x.subscription_id IN (SELECT t.subscription_id FROM state t UNION ALL
          SELECT e.subscription_id FROM ended e WHERE NOT EXISTS (SELECT FROM public.webhook_endpoint_state t
            WHERE t.subscription_id = e.subscription_id))
        AND x.reason <> 'circuit' AND x.until <= now()
      ORDER BY x.subscription_id FOR UPDATE SKIP LOCKED
    ), forgotten AS (
      UPDATE public.webhook_endpoint_state t SET consecutive_failures = 0, failing_since = NULL
      FROM over o WHERE t.subscription_id = o.subscription_id
    )
    DELETE FROM public.webhook_endpoint_suspensions x USING over o WHERE x.subscription_id = o.subscription_id;
  END IF;
  RETURN '{}'::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_resume IS
  'Step webhook_resume (see fn_queue_step): deletes expired suspensions. Internal.';

-- fn_webhook_suspensions_end(): the same for a claim, which must not fail because of a row that cannot be deleted.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_suspensions_end() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF EXISTS (SELECT FROM public.webhook_endpoint_suspensions WHERE reason <> 'circuit' AND until <= now()) THEN
    BEGIN
      PERFORM public.fn_step_webhook_resume(10000, NULL::text[], public.fn_queue_step_except('webhook_resume'::text));
    EXCEPTION WHEN OTHERS THEN
      NULL; -- the orchestrator will isolate the failing row; an expired suspension closes no gate, deleted or not
    END;
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_webhook_suspensions_end IS
  'Deletes expired suspensions as far as possible. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_resume_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT x.subscription_id::text FROM public.webhook_endpoint_suspensions x
    WHERE x.reason <> 'circuit' AND x.until <= now() AND x.subscription_id <> ALL (p_except::bigint[])
    ORDER BY x.subscription_id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_resume_targets IS
  'Targets of the step webhook_resume: expired suspensions. Internal.';

-- webhook_ramp: advances slow starts; targets are endpoints.
CREATE OR REPLACE FUNCTION public.fn_step_webhook_ramp(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM public.fn_webhook_slow_start_step(p_only, p_except);
  RETURN '{}'::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_ramp IS
  'Step webhook_ramp (see fn_queue_step): runs the next step of slow starts. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_ramp_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT w.endpoint FROM public.webhook_slow_start w WHERE w.endpoint <> ALL (p_except)
    ORDER BY w.endpoint LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_ramp_targets IS
  'Targets of the step webhook_ramp: endpoints in slow start. Internal.';

-- webhook_make: makes the next jobs of due sagas.
CREATE OR REPLACE FUNCTION public.fn_step_webhook_make(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_saga_orchestrator_part('make'::text, p_limit, p_only::bigint[], p_except::bigint[],
    0::bigint);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_make IS
  'Step webhook_make (see fn_queue_step): makes the next jobs of sagas. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_make_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  RETURN ARRAY(SELECT p.id::text FROM (
      SELECT DISTINCT s.subscription_id AS sub FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry')) w
    JOIN public.v_webhook_gate g ON g.subscription_id = w.sub AND g.gate IN ('open', 'half_open')
    CROSS JOIN LATERAL (
      SELECT s.id, s.next_attempt_at, row_number() OVER (ORDER BY s.next_attempt_at, s.id) AS n
      FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = w.sub AND s.next_attempt_at <= now()
        AND s.id <> ALL (p_except::bigint[])
      ORDER BY s.next_attempt_at, s.id LIMIT p_limit) p
    ORDER BY p.n, p.id LIMIT 2 * p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_make_targets IS
  'Targets of the step webhook_make: due sagas whose gate is open, alternating between subscriptions. Internal.';

-- webhook_lanes: marks waiting jobs as controlled (webhook_delivery_jobs.controlled) if their subscription has got a
-- rate limit, a suspension or a slow start.
CREATE OR REPLACE FUNCTION public.fn_step_webhook_lanes(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_saga_orchestrator_part('lanes'::text, p_limit, p_only::bigint[], p_except::bigint[],
    0::bigint);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_lanes IS
  'Step webhook_lanes (see fn_queue_step): marks the waiting jobs of controlled subscriptions as controlled. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_lanes_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT j.id::text FROM public.webhook_delivery_jobs j
    JOIN public.subscriptions u ON u.id = j.subscription_id
    WHERE j.status = 'Pending' AND NOT j.controlled AND j.id <> ALL (p_except::bigint[])
      AND (u.rate_limit_per_second IS NOT NULL
        OR EXISTS (SELECT FROM public.webhook_endpoint_suspensions x WHERE x.subscription_id = u.id)
        OR EXISTS (SELECT FROM public.webhook_slow_start w WHERE w.endpoint = u.endpoint))
    ORDER BY j.id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_lanes_targets IS
  'Targets of the step webhook_lanes: jobs that become controlled. Internal.';

-- webhook_reap: returns jobs whose lease expired.
CREATE OR REPLACE FUNCTION public.fn_step_webhook_reap(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $fn$
DECLARE
  v_only bigint[] := p_only::bigint[];
  v_except bigint[] := p_except::bigint[];
BEGIN
  RETURN public.fn_webhook_lease_lose((SELECT array_agg(l.id) FROM (
    SELECT j.id FROM public.webhook_delivery_jobs j WHERE j.status = 'Leased' AND j.lease_until < now()
      AND (v_only IS NULL OR j.id = ANY (v_only)) AND j.id <> ALL (v_except)
    ORDER BY j.lease_until, j.id LIMIT p_limit FOR UPDATE SKIP LOCKED) l));
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_reap IS
  'Step webhook_reap (see fn_queue_step): resets expired leases of webhook jobs. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_webhook_reap_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  RETURN ARRAY(SELECT j.id::text FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Leased' AND j.lease_until < now() AND j.id <> ALL (p_except::bigint[])
    ORDER BY j.lease_until, j.id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_webhook_reap_targets IS
  'Targets of the step webhook_reap: webhook jobs whose lease expired. Internal.';
