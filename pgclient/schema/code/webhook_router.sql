-- Webhooks: events to sagas, and sagas to jobs. Source: R02 §2. Lock order everywhere: jobs, sagas,
-- endpoint state, suspensions; each by id.

-- v_webhook_gate: the one answer to "may something be sent to this subscription now".
-- open | half_open (circuit, one probe) | suspended | unverified | inactive
CREATE OR REPLACE VIEW public.v_webhook_gate AS
SELECT s.id AS subscription_id,
  CASE
    WHEN NOT s.active THEN 'inactive'
    WHEN NOT s.verified THEN 'unverified'
    WHEN x.subscription_id IS NULL OR (x.reason <> 'circuit' AND x.until <= now()) THEN 'open'
    WHEN x.reason = 'circuit' AND x.until <= now() THEN 'half_open'
    ELSE 'suspended'
  END AS gate,
  s.rate_limit_per_second, x.reason AS suspended_reason, x.since AS suspended_since,
  x.until AS suspended_until, x.by AS suspended_by
FROM public.subscriptions s
LEFT JOIN public.webhook_endpoint_suspensions x ON x.subscription_id = s.id;
COMMENT ON VIEW public.v_webhook_gate IS
  'Per subscription: may something be sent now, and if not why. Router, orchestrator and claim obey it.';
GRANT SELECT ON public.v_webhook_gate TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin";
COMMENT ON COLUMN public.v_webhook_gate.gate IS
  'open, half_open (one try after a circuit), suspended, inactive or unverified';

-- fn_webhook_router_run(p_limit): events in (created_xid, id) order → sagas; {events, sagas, held}.
-- One at a time (busy → skipped). Takes only events whose transaction is older than every open one of
-- this database, so none that commits late is stepped over; what waits for that is held. Open ones of
-- other databases cannot write events and hold nothing. Safe to repeat: the unique index and the dead
-- letters stop a second saga. In another cluster than last time (a restore) transaction
-- numbers mean nothing: every row there is counts as committed and is gone through by id, once.
CREATE OR REPLACE FUNCTION public.fn_webhook_router_run(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  o public.router_offsets;
  v_snapshot pg_snapshot;
  v_xmin xid8;
  v_system bigint := (SELECT system_identifier FROM pg_control_system());
  v_lock_timeout text := current_setting('lock_timeout');
  v_ids bigint[];
  v_last_xid xid8;
  v_last_id bigint;
  v_sagas bigint;
  v_held bigint;
  v_held_since timestamptz;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN jsonb_build_object('events', 0, 'sagas', 0, 'held', 0, 'skipped', public.fn_queue_clone_of(), 'rule',
      'clone');
  END IF;
  SELECT * INTO o FROM public.router_offsets WHERE id = 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('events', 0, 'sagas', 0, 'held', 0, 'skipped', 'busy');
  END IF;

  IF o.system_identifier <> v_system THEN
    BEGIN
      -- with no writer in flight every id up to the highest is there to be seen
      PERFORM set_config('lock_timeout', '1s', true);
      LOCK TABLE public.events IN SHARE MODE;
    EXCEPTION WHEN lock_not_available THEN
      RETURN jsonb_build_object('events', 0, 'sagas', 0, 'held', 0,
        'skipped', 'restored into another cluster: waiting for open writers of events');
    END;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    UPDATE public.router_offsets r SET system_identifier = v_system,
      restored_after_id = COALESCE(r.restored_after_id, r.restored_through_id, 0),
      restored_through_id = (SELECT COALESCE(max(id), 0) FROM public.events),
      restored_xid = pg_snapshot_xmin(pg_current_snapshot())
    WHERE r.id = 1 RETURNING r.* INTO o;
  END IF;

  -- what is not proven to be another database's counts as ours
  v_snapshot := pg_current_snapshot();
  SELECT x INTO v_xmin FROM pg_snapshot_xip(v_snapshot) x
  WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.backend_xid = x::xid
    AND a.datid <> (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  ORDER BY x LIMIT 1;
  v_xmin := least(v_xmin, pg_snapshot_xmax(v_snapshot), pg_current_xact_id());
  IF o.restored_after_id IS NOT NULL THEN
    SELECT array_agg(b.id ORDER BY b.id) INTO v_ids FROM (
      SELECT e.id FROM public.events e
      WHERE e.id > o.restored_after_id AND e.id <= o.restored_through_id
        AND (e.id > o.max_event_id OR (e.created_xid, e.id) > (o.last_xid, o.last_event_id))
      ORDER BY e.id LIMIT p_limit) b;
  ELSE
    SELECT array_agg(b.id ORDER BY b.created_xid, b.id) INTO v_ids FROM (
      SELECT e.id, e.created_xid FROM public.events e
      WHERE (e.created_xid, e.id) > (o.last_xid, o.last_event_id) AND e.created_xid < v_xmin
        AND e.id > COALESCE(o.restored_through_id, 0)
      ORDER BY e.created_xid, e.id LIMIT p_limit) b;
  END IF;

  INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id)
  SELECT e.id, s.id
  FROM unnest(v_ids) WITH ORDINALITY AS b (id, ord)
  JOIN public.events e ON e.id = b.id
  JOIN public.subscriptions s ON s.event_type = e.event_type AND s.active AND s.verified
    AND s.created_at <= e.created_at
  WHERE NOT EXISTS (SELECT 1 FROM public.dead_letters d
    WHERE d.event_id = e.id AND d.subscription_id = s.id)
  ORDER BY b.ord, s.id
  ON CONFLICT (event_id, subscription_id) WHERE status <> 'DeadLettered' DO NOTHING;
  GET DIAGNOSTICS v_sagas = ROW_COUNT;

  IF o.restored_after_id IS NULL THEN
    SELECT count(*), min(h.created_at) INTO v_held, v_held_since FROM (
      SELECT e.created_at FROM public.events e
      WHERE e.created_xid >= v_xmin AND e.id > COALESCE(o.restored_through_id, 0) LIMIT 10000) h;
    SELECT e.created_xid, e.id INTO v_last_xid, v_last_id
    FROM public.events e WHERE e.id = v_ids[cardinality(v_ids)];
  END IF;
  UPDATE public.router_offsets r SET
    last_xid = CASE
      WHEN o.restored_after_id IS NOT NULL THEN
        CASE WHEN COALESCE(cardinality(v_ids), 0) < p_limit THEN r.restored_xid ELSE r.last_xid END
      -- after a restore old rows lie among the new transaction numbers: leave them behind for good
      WHEN r.restored_through_id IS NOT NULL AND COALESCE(cardinality(v_ids), 0) < p_limit THEN v_xmin
      ELSE COALESCE(v_last_xid, r.last_xid) END,
    last_event_id = CASE
      WHEN o.restored_after_id IS NOT NULL THEN
        CASE WHEN COALESCE(cardinality(v_ids), 0) < p_limit THEN 0 ELSE r.last_event_id END
      WHEN r.restored_through_id IS NOT NULL AND COALESCE(cardinality(v_ids), 0) < p_limit THEN 0
      ELSE COALESCE(v_last_id, r.last_event_id) END,
    -- while a restore is gone through, the old offset must stay as it was: it tells what was done
    max_event_id = CASE
      WHEN o.restored_after_id IS NULL THEN
        greatest(r.max_event_id, (SELECT max(i) FROM unnest(v_ids) i))
      WHEN COALESCE(cardinality(v_ids), 0) < p_limit THEN greatest(r.max_event_id, r.restored_through_id)
      ELSE r.max_event_id END,
    restored_after_id = CASE WHEN COALESCE(cardinality(v_ids), 0) < p_limit THEN NULL
      WHEN o.restored_after_id IS NOT NULL THEN v_ids[cardinality(v_ids)] END,
    events_seen = r.events_seen + COALESCE(cardinality(v_ids), 0),
    held_rows = COALESCE(v_held, 0),
    held_since = v_held_since,
    held_xid = CASE WHEN v_held > 0 THEN v_xmin END,
    updated_at = now()
  WHERE r.id = 1;
  RETURN jsonb_build_object('events', COALESCE(cardinality(v_ids), 0), 'sagas', v_sagas,
    'held', COALESCE(v_held, 0));
END $$;
COMMENT ON FUNCTION public.fn_webhook_router_run IS
  'Turns committed events into sagas, in order, none twice and none skipped. Tick worker webhook_router.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_router_run TO :"router_worker", :"dot_executor";

-- fn_saga_orchestrator_run(p_limit): settles up to p_limit finished jobs, then makes up to p_limit jobs;
-- {settled, completed, retried, dead_lettered, jobs_created}. Many may run at once: all locks skip.
-- Settling: each result once, in id order. A failure adds one attempt, but for the first hundred 429 of a saga; below
-- the maximum the saga waits as webhook.retry_schedule or that of its subscription says, after a 429 no longer than
-- webhook.circuit_max_seconds, and in any case as long as Retry-After asks, up to webhook.retry_after_cap_seconds.
-- At the maximum, or at once for a 410, for the third lost lease
-- and for a payload that no host can read, the saga dies together with its dead letter. Making: due
-- subscriptions share p_limit evenly, so that one endpoint's backlog delays no other; only where the gate
-- is open, or one job where half-open.
CREATE OR REPLACE FUNCTION public.fn_saga_orchestrator_run(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
DECLARE
  v_max int := greatest(public.fn_cfg_int('webhook.max_attempts', 10), 1);
  v_cap interval := make_interval(secs => public.fn_cfg_int('webhook.retry_after_cap_seconds', 21600));
  v_calm interval := make_interval(secs => public.fn_cfg_int('webhook.circuit_max_seconds', 900));
  v_settled bigint;
  v_completed bigint;
  v_retried bigint;
  v_dead bigint;
  v_made bigint;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN jsonb_build_object('settled', 0, 'completed', 0, 'retried', 0, 'dead_lettered', 0, 'jobs_created', 0,
      'skipped', public.fn_queue_clone_of(), 'rule', 'clone');
  END IF;

  WITH done AS MATERIALIZED (
    SELECT j.id, j.saga_id, j.attempt_no, j.status, j.error_code, j.retry_after_at
    FROM public.webhook_delivery_jobs j
    WHERE j.status IN ('Completed', 'Failed') AND j.settled_at IS NULL
    ORDER BY j.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ), settled AS (
    UPDATE public.webhook_delivery_jobs j SET settled_at = now() FROM done d WHERE j.id = d.id RETURNING j.id
  ), verdict AS MATERIALIZED (
    SELECT d.saga_id, d.attempt_no, d.error_code, d.retry_after_at, w.free,
      s.attempt_count + (d.status = 'Failed' AND NOT w.free)::int AS attempts,
      (CASE
        WHEN d.status = 'Completed' THEN 'Completed'
        WHEN w.free THEN 'PendingRetry'
        WHEN d.error_code IN ('HTTP_410', 'LEASE_LOST_LIMIT')
          OR s.attempt_count + 1 >= COALESCE(u.max_attempts, v_max) THEN 'DeadLettered'
        -- no host can read this payload, however often it is tried
        WHEN d.error_code = 'PROTOCOL_ERROR' AND NOT (SELECT public.fn_payload_fits(e.payload) FROM public.events e
          WHERE e.id = s.event_id) THEN 'DeadLettered'
        ELSE 'PendingRetry' END)::public.webhook_saga_status AS status
    FROM done d
    JOIN public.webhook_delivery_sagas s ON s.id = d.saga_id
    JOIN public.subscriptions u ON u.id = s.subscription_id
    -- jobs of the saga before this one, less the attempts that were counted: those that cost none
    CROSS JOIN LATERAL (SELECT d.status = 'Failed' AND d.error_code = 'HTTP_429'
      AND d.attempt_no - 1 - s.attempt_count < 100 AS free) w
  ), moved AS (
    UPDATE public.webhook_delivery_sagas s SET
      status = v.status,
      attempt_count = v.attempts,
      final_error_code = CASE WHEN v.status = 'DeadLettered' THEN v.error_code END,
      next_attempt_at = CASE
        WHEN v.status <> 'PendingRetry' THEN NULL
        ELSE greatest(CASE WHEN v.retry_after_at IS NOT NULL THEN least(v.retry_after_at, now() + v_cap) END,
          now() + CASE
          WHEN v.free AND v.retry_after_at IS NOT NULL
            THEN public.fn_retry_wait('webhook.retry_schedule'::text, s.subscription_id::text, 1)
          WHEN v.free THEN least(v_calm, public.fn_retry_wait('webhook.retry_schedule'::text, s.subscription_id::text,
            v.attempt_no))
          ELSE public.fn_retry_wait('webhook.retry_schedule'::text, s.subscription_id::text, v.attempts) END) END,
      updated_at = now()
    FROM verdict v WHERE s.id = v.saga_id AND s.status = 'InProgress'
    RETURNING s.id, s.status, s.event_id, s.subscription_id, s.final_error_code
  ), letters AS (
    INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot)
    SELECT m.id, m.event_id, m.subscription_id, m.final_error_code, e.payload
    FROM moved m JOIN public.events e ON e.id = m.event_id
    WHERE m.status = 'DeadLettered' ORDER BY m.id
    RETURNING id
  )
  SELECT (SELECT count(*) FROM settled),
    (SELECT count(*) FROM moved WHERE status = 'Completed'),
    (SELECT count(*) FROM moved WHERE status = 'PendingRetry'),
    (SELECT count(*) FROM letters)
  INTO v_settled, v_completed, v_retried, v_dead;

  -- timed suspensions that are over; a circuit stays until a probe has answered
  DELETE FROM public.webhook_endpoint_suspensions x USING (
    SELECT subscription_id FROM public.webhook_endpoint_suspensions
    WHERE reason <> 'circuit' AND until <= now() ORDER BY subscription_id FOR UPDATE SKIP LOCKED) o
  WHERE x.subscription_id = o.subscription_id;

  WITH RECURSIVE waiting (sub) AS (
    (SELECT s.subscription_id FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry') ORDER BY s.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.subscription_id FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id > w.sub
      ORDER BY s.subscription_id LIMIT 1)
    FROM waiting w WHERE w.sub IS NOT NULL
  ), due AS MATERIALIZED (
    SELECT w.sub, g.gate, g.gate = 'half_open' OR g.rate_limit_per_second IS NOT NULL AS controlled
    FROM waiting w JOIN public.v_webhook_gate g ON g.subscription_id = w.sub
    WHERE (g.gate = 'open' OR (g.gate = 'half_open' AND NOT EXISTS (
        SELECT 1 FROM public.webhook_delivery_jobs j WHERE j.status = 'Pending'
          AND j.controlled IN (true, false) AND j.subscription_id = w.sub)))
      AND (SELECT s.next_attempt_at FROM public.webhook_delivery_sagas s
        WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = w.sub
        ORDER BY s.next_attempt_at LIMIT 1) <= now()
  ), share AS (
    SELECT sub, controlled, CASE gate WHEN 'half_open' THEN 1
      ELSE ceil(p_limit::numeric / (SELECT count(*) FROM due))::int END AS quota
    FROM due
  ), pick AS MATERIALIZED (
    SELECT p.id, h.controlled FROM share h CROSS JOIN LATERAL (
      SELECT s.id, s.next_attempt_at FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = h.sub
        AND s.next_attempt_at <= now()
      ORDER BY s.next_attempt_at, s.id LIMIT h.quota FOR UPDATE SKIP LOCKED) p
    LIMIT p_limit
  ), started AS (
    UPDATE public.webhook_delivery_sagas s
    SET status = 'InProgress', next_attempt_at = NULL, updated_at = now()
    FROM pick p WHERE s.id = p.id
    RETURNING s.id, s.subscription_id, p.controlled
  )
  INSERT INTO public.webhook_delivery_jobs (saga_id, subscription_id, attempt_no, controlled)
  SELECT s.id, s.subscription_id, 1 + COALESCE((SELECT max(j.attempt_no) FROM public.webhook_delivery_jobs j
    WHERE j.saga_id = s.id), 0), s.controlled FROM started s ORDER BY s.id;
  GET DIAGNOSTICS v_made = ROW_COUNT;

  -- jobs made before their subscription got a quota or a suspension leave the free lane
  UPDATE public.webhook_delivery_jobs j SET controlled = true FROM (
    SELECT p.id FROM (
      SELECT x.subscription_id AS sub FROM public.webhook_endpoint_suspensions x
      UNION SELECT u.id FROM public.subscriptions u WHERE u.rate_limit_per_second IS NOT NULL) c
    CROSS JOIN LATERAL (
      SELECT f.id FROM public.webhook_delivery_jobs f
      WHERE f.status = 'Pending' AND NOT f.controlled AND f.subscription_id = c.sub
      ORDER BY f.id LIMIT p_limit FOR UPDATE SKIP LOCKED) p) stray
  WHERE j.id = stray.id;

  RETURN jsonb_build_object('settled', v_settled, 'completed', v_completed, 'retried', v_retried,
    'dead_lettered', v_dead, 'jobs_created', v_made);
END $$;
COMMENT ON FUNCTION public.fn_saga_orchestrator_run IS
  'Settles finished jobs once each and makes the next ones. Tick worker saga_orchestrator (R02).';
GRANT EXECUTE ON FUNCTION public.fn_saga_orchestrator_run TO :"saga_orchestrator", :"dot_executor";

-- fn_webhook_worker_tick(): {waiting, in_flight, done, total}: the beat of the hosts' delivery loops, from
-- counters alone; done = attempts finished since the tick before.
CREATE OR REPLACE FUNCTION public.fn_webhook_worker_tick() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_waiting bigint;
  v_leased bigint;
  v_total bigint;
  v_before bigint;
BEGIN
  SELECT COALESCE(sum(c.n) FILTER (WHERE c.k1 = 'Pending'), 0),
    COALESCE(sum(c.n) FILTER (WHERE c.k1 = 'Leased'), 0),
    COALESCE(sum(c.n) FILTER (WHERE c.k1 IN ('Completed', 'Failed')), 0)
  INTO v_waiting, v_leased, v_total
  FROM public.v_queue_counter c WHERE c.scope = 'webhook_job';
  SELECT (w.last_result ->> 'total')::bigint INTO v_before
  FROM public.queue_tick_worker w WHERE w.worker_name = 'webhook_worker';
  RETURN jsonb_build_object('waiting', v_waiting, 'in_flight', v_leased,
    'done', greatest(v_total - COALESCE(v_before, v_total), 0), 'total', v_total);
END $$;
COMMENT ON FUNCTION public.fn_webhook_worker_tick IS
  'Tick webhook_worker: what waits and what is in flight. Called by the delivery loop of a worker host.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_worker_tick TO :"webhook_worker", :"dot_executor";
