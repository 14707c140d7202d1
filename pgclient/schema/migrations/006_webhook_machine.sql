-- Webhook delivery, the machine: route events to sagas, settle jobs, make jobs, lease, report, reset.
-- Over 500 lines because each step's contract leans on the lock order and the gate written here once.
-- Source: R02 §2, webhooks.md. Lock order everywhere: jobs, sagas, endpoint state, suspensions; each by id.
SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------------------------------
-- v_webhook_gate: the one answer to "may something be sent to this subscription now".
-- open | half_open (circuit, one probe) | suspended | unverified | inactive
-- ---------------------------------------------------------------------------------------------------
CREATE VIEW public.v_webhook_gate AS
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
GRANT SELECT ON public.v_webhook_gate TO queue_viewer, dead_letter_operator, workflow_admin;

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_router_run(p_limit): events in (created_xid, id) order → sagas; {events, sagas, held}.
-- One at a time (busy → skipped). Takes only events whose transaction is older than every open one of
-- this database, so none that commits late is stepped over; what waits for that is held. Open ones of
-- other databases cannot write events and hold nothing. Safe to repeat: the unique index and the dead
-- letters stop a second saga. In another cluster than last time (a restore) transaction
-- numbers mean nothing: every row there is counts as committed and is gone through by id, once.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_router_run(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
COMMENT ON FUNCTION public.fn_webhook_router_run(int) IS
  'Turns committed events into sagas, in order, none twice and none skipped. Tick worker webhook_router.';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_endpoint_gone(subscriptions, by): the suspensions that a 410 brings. A suspension without end
-- by an operator stands; anything with an end gives way.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_endpoint_gone(p_subscriptions bigint[], p_by text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM 1 FROM public.webhook_endpoint_state WHERE subscription_id = ANY (p_subscriptions)
    ORDER BY subscription_id FOR UPDATE;
  INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, by, note)
  SELECT g, '410', p_by, 'the endpoint answered 410 Gone' FROM unnest(p_subscriptions) g ORDER BY g
  ON CONFLICT (subscription_id) DO UPDATE SET reason = '410', since = now(), until = NULL,
    by = EXCLUDED.by, note = EXCLUDED.note, probe_job_id = NULL, probe_until = NULL
    WHERE x.until IS NOT NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_endpoint_gone(bigint[], text) IS
  'Suspends endpoints that answered 410. Internal.';

-- ---------------------------------------------------------------------------------------------------
-- fn_saga_orchestrator_run(p_limit): settles up to p_limit finished jobs, then makes up to p_limit jobs;
-- {settled, completed, retried, dead_lettered, jobs_created}. Many may run at once: all locks skip.
-- Settling: each result once, in id order. A failure adds one attempt; below the maximum the saga waits
-- base .. base × 2^(attempts-1), at least up to 2 × base, never over the cap, full jitter in that range;
-- Retry-After of 429 and 503 counts instead, within base and cap. At the maximum, or at once for 410,
-- the saga dies together with its dead letter. Making: due subscriptions share p_limit evenly, so that
-- one endpoint's backlog delays no other; only where the gate is open, or one job where half-open.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_saga_orchestrator_run(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_max int := greatest(public.fn_cfg_int('webhook.max_attempts', 5), 1);
  v_cap double precision := public.fn_cfg_int('webhook.backoff_cap_seconds', 3600);
  v_base double precision := least(public.fn_cfg_int('webhook.backoff_base_seconds', 30), v_cap);
  v_settled bigint;
  v_completed bigint;
  v_retried bigint;
  v_dead bigint;
  v_made bigint;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;

  WITH done AS MATERIALIZED (
    SELECT j.id, j.saga_id, j.status, j.error_code, j.retry_after_at
    FROM public.webhook_delivery_jobs j
    WHERE j.status IN ('Completed', 'Failed') AND j.settled_at IS NULL
    ORDER BY j.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ), settled AS (
    UPDATE public.webhook_delivery_jobs j SET settled_at = now() FROM done d WHERE j.id = d.id RETURNING j.id
  ), verdict AS MATERIALIZED (
    SELECT d.saga_id, d.error_code, d.retry_after_at,
      s.attempt_count + (d.status = 'Failed')::int AS attempts,
      (CASE
        WHEN d.status = 'Completed' THEN 'Completed'
        WHEN d.error_code = 'HTTP_410' OR s.attempt_count + 1 >= COALESCE(u.max_attempts, v_max)
          THEN 'DeadLettered'
        ELSE 'PendingRetry' END)::public.webhook_saga_status AS status
    FROM done d
    JOIN public.webhook_delivery_sagas s ON s.id = d.saga_id
    JOIN public.subscriptions u ON u.id = s.subscription_id
  ), moved AS (
    UPDATE public.webhook_delivery_sagas s SET
      status = v.status,
      attempt_count = v.attempts,
      final_error_code = CASE WHEN v.status = 'DeadLettered' THEN v.error_code END,
      next_attempt_at = CASE
        WHEN v.status <> 'PendingRetry' THEN NULL
        WHEN v.error_code IN ('HTTP_429', 'HTTP_503') AND v.retry_after_at IS NOT NULL THEN
          least(greatest(v.retry_after_at, now() + make_interval(secs => v_base)),
            now() + make_interval(secs => v_cap))
        ELSE now() + make_interval(secs => v_base + random()
          * (least(v_cap, v_base * greatest(2, power(2, least(v.attempts - 1, 30)))) - v_base)) END,
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
    RETURNING s.id, s.subscription_id, s.attempt_count, p.controlled
  )
  INSERT INTO public.webhook_delivery_jobs (saga_id, subscription_id, attempt_no, controlled)
  SELECT id, subscription_id, attempt_count + 1, controlled FROM started ORDER BY id;
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
COMMENT ON FUNCTION public.fn_saga_orchestrator_run(int) IS
  'Settles finished jobs once each and makes the next ones. Tick worker saga_orchestrator (R02).';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_job_claim(p_worker_id, p_limit, p_skip_subscriptions, p_per_subscription): leases up to
-- p_limit Pending jobs, oldest first, none of the skipped subscriptions (those of which a host has its
-- share in flight) and at most p_per_subscription of each other one, and hands out what the delivery
-- needs. Nothing while webhook.worker.enabled is off. The gate and the rate are judged here, so a
-- suspended or exhausted subscription costs no attempt and no lease. webhook_id is the same over retries
-- and requeues. Commit before sending: a lease is held only once it is committed.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_job_claim(p_worker_id text, p_limit int DEFAULT 1,
  p_skip_subscriptions bigint[] DEFAULT NULL, p_per_subscription int DEFAULT NULL)
RETURNS TABLE (job_id bigint, saga_id bigint, attempt_no int, lease_token uuid, lease_until timestamptz,
  lease_seconds int, timeout_seconds int, event_id bigint, event_type text, subscription_id bigint,
  callback_url text, secret_ref text, webhook_id text, payload text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_lease int := public.fn_cfg_int('webhook.lease_seconds', 60);
  v_timeout int := public.fn_cfg_int('webhook.timeout_seconds', 30);
  v_now timestamptz := clock_timestamp();
  v_subs bigint[];
  v_quotas int[];
BEGIN
  IF p_worker_id IS NULL OR btrim(p_worker_id) = '' OR length(p_worker_id) > 200 THEN
    RAISE EXCEPTION 'p_worker_id must have 1 to 200 characters' USING ERRCODE = '22023';
  END IF;
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 10000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  IF p_per_subscription < 1 THEN
    RAISE EXCEPTION 'p_per_subscription must be at least 1 or null' USING ERRCODE = '22023';
  END IF;
  IF NOT public.fn_cfg_bool('webhook.worker.enabled') THEN
    RETURN;
  END IF;

  -- quotas of the subscriptions that have one and jobs waiting: tokens of the bucket, one probe
  WITH RECURSIVE waiting (sub) AS (
    (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND j.controlled ORDER BY j.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND j.controlled AND j.subscription_id > w.sub
      ORDER BY j.subscription_id LIMIT 1)
    FROM waiting w WHERE w.sub IS NOT NULL
  ), ready AS MATERIALIZED (
    SELECT w.sub, g.gate, g.rate_limit_per_second AS rate
    FROM waiting w JOIN public.v_webhook_gate g ON g.subscription_id = w.sub
    WHERE g.gate IN ('open', 'half_open')
      AND (p_skip_subscriptions IS NULL OR NOT w.sub = ANY (p_skip_subscriptions))
  ), bucket AS MATERIALIZED (
    SELECT b.subscription_id AS sub, floor(least(greatest(r.rate, 1), b.tokens + CASE
        WHEN b.refilled_at = '-infinity' THEN greatest(r.rate, 1)
        ELSE greatest(extract(epoch FROM v_now - b.refilled_at), 0) * r.rate END)) AS tokens
    FROM ready r JOIN public.webhook_rate_bucket b ON b.subscription_id = r.sub
    WHERE r.rate IS NOT NULL ORDER BY b.subscription_id FOR UPDATE OF b SKIP LOCKED
  ), probe AS MATERIALIZED (
    SELECT x.subscription_id AS sub
    FROM ready r JOIN public.webhook_endpoint_suspensions x ON x.subscription_id = r.sub
    WHERE r.gate = 'half_open' AND x.reason = 'circuit' AND (x.probe_until IS NULL OR x.probe_until <= v_now)
    ORDER BY x.subscription_id FOR UPDATE OF x SKIP LOCKED
  )
  SELECT array_agg(q.sub ORDER BY q.sub), array_agg(q.quota ORDER BY q.sub) INTO v_subs, v_quotas
  FROM (
    SELECT r.sub, least(p_limit, p_per_subscription,
      CASE WHEN r.gate = 'half_open' THEN (SELECT count(*) FROM probe p WHERE p.sub = r.sub) END,
      CASE WHEN r.rate IS NOT NULL THEN COALESCE((SELECT b.tokens FROM bucket b WHERE b.sub = r.sub), 0) END
    )::int AS quota
    FROM ready r) q
  WHERE q.quota > 0;

  RETURN QUERY
  WITH RECURSIVE front AS MATERIALIZED (
    -- how many of the oldest each subscription has: no more than it may get are locked
    SELECT f.subscription_id AS sub, count(*) AS n FROM (
      SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      CROSS JOIN LATERAL (SELECT g.gate = 'open' AND g.rate_limit_per_second IS NULL AS ok
        FROM public.v_webhook_gate g WHERE g.subscription_id = j.subscription_id OFFSET 0) g -- a row that is kept per subscription
      WHERE j.status = 'Pending' AND NOT j.controlled AND g.ok AND COALESCE(cardinality(p_skip_subscriptions), 0) = 0
      ORDER BY j.id LIMIT p_limit) f
    GROUP BY f.subscription_id
  ), free AS MATERIALIZED (
    SELECT p.id, p.subscription_id FROM front f CROSS JOIN LATERAL (
      SELECT j.id, j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id = f.sub
      ORDER BY j.id LIMIT least(f.n, p_per_subscription) FOR UPDATE OF j SKIP LOCKED) p
  ), lane (sub) AS (
    -- with somebody to skip: subscription by subscription, so that what is skipped is not read
    (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND cardinality(p_skip_subscriptions) > 0
      ORDER BY j.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id > l.sub
      ORDER BY j.subscription_id LIMIT 1)
    FROM lane l WHERE l.sub IS NOT NULL
  ), near AS MATERIALIZED (
    SELECT n.id FROM lane l
    JOIN public.v_webhook_gate g ON g.subscription_id = l.sub AND g.gate = 'open'
      AND g.rate_limit_per_second IS NULL
    CROSS JOIN LATERAL (
      SELECT j.id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id = l.sub
      ORDER BY j.id LIMIT 4 * least(p_limit, p_per_subscription)) n
    WHERE NOT l.sub = ANY (p_skip_subscriptions)
    ORDER BY n.id LIMIT 4 * p_limit -- more than wanted: a neighbour may be taking the first ones
  ), around AS MATERIALIZED (
    SELECT j.id, j.subscription_id FROM near n JOIN public.webhook_delivery_jobs j ON j.id = n.id
    WHERE j.status = 'Pending' AND NOT j.controlled
    ORDER BY j.id LIMIT p_limit FOR UPDATE OF j SKIP LOCKED
  ), limited AS MATERIALIZED (
    SELECT p.id, p.subscription_id FROM unnest(v_subs, v_quotas) AS q (sub, quota) CROSS JOIN LATERAL (
      SELECT j.id, j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND j.controlled AND j.subscription_id = q.sub
      ORDER BY j.id LIMIT q.quota FOR UPDATE OF j SKIP LOCKED) p
  ), pick AS (
    SELECT b.id FROM (
      SELECT a.id, row_number() OVER (PARTITION BY a.subscription_id ORDER BY a.id) AS n
      FROM (SELECT id, subscription_id FROM free UNION ALL SELECT id, subscription_id FROM around
        UNION ALL SELECT id, subscription_id FROM limited) a) b
    WHERE p_per_subscription IS NULL OR b.n <= p_per_subscription
    ORDER BY b.id LIMIT p_limit
  ), claimed AS (
    UPDATE public.webhook_delivery_jobs j SET status = 'Leased',
      lease_until = now() + make_interval(secs => v_lease), lease_token = gen_random_uuid(),
      worker_id = p_worker_id, started_at = now()
    FROM pick p WHERE j.id = p.id
    RETURNING j.id, j.saga_id, j.attempt_no, j.lease_token, j.lease_until, j.subscription_id, j.controlled
  ), spent AS (
    UPDATE public.webhook_rate_bucket b SET refilled_at = greatest(b.refilled_at, v_now),
      tokens = greatest(0, least(greatest(u.rate_limit_per_second, 1), b.tokens + CASE
        WHEN b.refilled_at = '-infinity' THEN greatest(u.rate_limit_per_second, 1)
        ELSE greatest(extract(epoch FROM v_now - b.refilled_at), 0) * u.rate_limit_per_second END) - c.n)
    FROM (SELECT subscription_id, count(*) AS n FROM claimed WHERE controlled GROUP BY subscription_id) c
    JOIN public.subscriptions u ON u.id = c.subscription_id
    WHERE b.subscription_id = c.subscription_id AND u.rate_limit_per_second IS NOT NULL
  ), probing AS (
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = c.id, probe_until = c.lease_until
    FROM claimed c WHERE c.controlled AND x.subscription_id = c.subscription_id AND x.reason = 'circuit'
  )
  SELECT c.id, c.saga_id, c.attempt_no, c.lease_token, c.lease_until, v_lease, v_timeout, e.id,
    e.event_type::text, u.id, u.callback_url::text, u.secret_ref,
    'qtop_' || e.id || '_' || u.id, e.payload::text
  FROM claimed c
  JOIN public.webhook_delivery_sagas s ON s.id = c.saga_id
  JOIN public.events e ON e.id = s.event_id
  JOIN public.subscriptions u ON u.id = s.subscription_id
  ORDER BY c.id;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_claim(text, int, bigint[], int) IS
  'Leases due webhook jobs to a worker, oldest first, within suspensions, circuits and rates (R02 §2.3).';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_job_report(p_results): array of {job_id, lease_token, delivered, status, code, excerpt,
-- retry_after, took_ms} → per result done | repeated (the same was recorded before) | lease_lost
-- (nothing changed). Then the endpoints: failures in a row open a circuit, a success closes it, a 410
-- suspends, so that nothing is claimed between this and its settling.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_job_report(p_results jsonb) RETURNS TABLE (job_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  c_codes CONSTANT text := 'HTTP_[0-9]{3}|TIMEOUT|DNS_FAILURE|CONNECTION_REFUSED|CONNECTION_RESET|'
    'TLS_FAILURE|PROTOCOL_ERROR|UNREACHABLE|ADDRESS_REFUSED|BAD_URL|SIGNING_FAILED|WORKER_PANIC|'
    'LEASE_LOST_LIMIT';
  v_threshold int := public.fn_cfg_int('webhook.circuit_failures', 10);
  v_open interval := make_interval(secs => public.fn_cfg_int('webhook.circuit_open_seconds', 30));
  v_ids bigint[];
  v_tokens text[];
  v_delivered boolean[];
  v_status int[];
  v_codes text[];
  v_excerpts text[];
  v_retry timestamptz[];
  v_took double precision[];
  v_bad text;
  v_done int[];
  v_same int[];
  v_subs bigint[];
  v_need bigint[];
  v_gone bigint[];
BEGIN
  IF p_results IS NULL OR jsonb_typeof(p_results) <> 'array' OR jsonb_array_length(p_results) > 10000 THEN
    RAISE EXCEPTION 'p_results must be an array of at most 10000 results' USING ERRCODE = '22023';
  END IF;
  BEGIN
    SELECT array_agg(r.job_id ORDER BY r.n), array_agg(lower(r.lease_token) ORDER BY r.n),
      array_agg(r.delivered ORDER BY r.n), array_agg(r.status ORDER BY r.n),
      array_agg(NULLIF(r.code, '') ORDER BY r.n), array_agg(r.excerpt ORDER BY r.n),
      array_agg(r.retry_after ORDER BY r.n), array_agg(greatest(r.took_ms, 0) ORDER BY r.n)
    INTO v_ids, v_tokens, v_delivered, v_status, v_codes, v_excerpts, v_retry, v_took
    FROM ROWS FROM (jsonb_to_recordset(p_results) AS (job_id bigint, lease_token text, delivered boolean,
      status int, code text, excerpt text, retry_after timestamptz, took_ms double precision))
      WITH ORDINALITY AS r (job_id, lease_token, delivered, status, code, excerpt, retry_after, took_ms, n);
  EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION 'p_results cannot be read: %', SQLERRM USING ERRCODE = '22023';
  END;

  SELECT string_agg(DISTINCT quote_literal(r.code), ', ') INTO v_bad
  FROM unnest(v_codes, v_delivered) AS r (code, delivered)
  WHERE NOT r.delivered AND r.code !~ ('^(' || c_codes || ')$');
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION 'unknown error code %', v_bad
      USING ERRCODE = '22023', HINT = 'Known: ' || replace(c_codes, '|', ', ');
  END IF;
  SELECT format('job %s: %s', COALESCE(r.id::text, '(none)'), CASE
      WHEN r.id IS NULL OR r.token IS NULL OR r.delivered IS NULL
        THEN 'job_id, lease_token and delivered are needed'
      WHEN r.again THEN 'reported twice in one call'
      WHEN r.delivered THEN 'delivered needs a status of 200 to 299 and no code'
      WHEN r.code IS NULL THEN 'a failure needs a code'
      ELSE 'status must be 100 to 999 or null' END)
  INTO v_bad
  FROM (SELECT i.*, count(*) OVER (PARTITION BY i.id) > 1 AS again
    FROM unnest(v_ids, v_tokens, v_delivered, v_status, v_codes) AS i (id, token, delivered, status, code)) r
  WHERE r.id IS NULL OR r.token IS NULL OR r.delivered IS NULL OR r.again
    OR (r.delivered AND (r.code IS NOT NULL OR r.status IS NULL OR r.status NOT BETWEEN 200 AND 299))
    OR (NOT r.delivered AND (r.code IS NULL OR r.status NOT BETWEEN 100 AND 999))
  LIMIT 1;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '%', v_bad USING ERRCODE = '22023';
  END IF;

  -- the excerpt is foreign text: secrets are masked, control and bidirectional characters become visible question
  -- marks; it is worked on here, once, for an expression of the UPDATE would run for each of its uses
  IF EXISTS (SELECT 1 FROM unnest(v_excerpts) e WHERE e <> '') THEN
    SELECT array_agg(CASE WHEN octet_length(c.excerpt) <= 4096 THEN c.excerpt ELSE left(c.excerpt, 1024) END ORDER BY c.n) INTO v_excerpts
    FROM (
      SELECT x.n, CASE WHEN x.e <> '' THEN
        regexp_replace(public.fn_mask_said(left(x.e, 4096)), E'[\\u0001-\\u0008\\u000b-\\u001f\\u007f-\\u009f'
          '\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]', '?', 'g') ELSE x.e END AS excerpt
      FROM unnest(v_excerpts) WITH ORDINALITY AS x (e, n) OFFSET 0) c;
  END IF;
  WITH finished AS (
    UPDATE public.webhook_delivery_jobs j SET
      status = CASE WHEN i.delivered THEN 'Completed' ELSE 'Failed' END::public.webhook_job_status,
      response_status = COALESCE(i.status, substring(i.code FROM '^HTTP_([1-9][0-9]{2})$')::int),
      error_code = i.code,
      response_excerpt = i.excerpt,
      retry_after_at = i.retry_after,
      took_ms = i.took,
      finished_at = now()
    FROM (
      SELECT r.id, r.token, r.delivered, r.status, r.code, r.retry_after, r.took, r.n, r.excerpt
      FROM unnest(v_ids, v_tokens, v_delivered, v_status, v_codes, v_excerpts, v_retry, v_took)
        WITH ORDINALITY AS r (id, token, delivered, status, code, excerpt, retry_after, took, n)
      ORDER BY r.id) i -- the order of the locks
    -- leased is what has a token and no end; asked by its status, the plan would go through all that are leased
    WHERE j.id = i.id AND j.finished_at IS NULL AND j.lease_token::text = i.token
    RETURNING i.n, j.subscription_id)
  SELECT array_agg(f.n), array_agg(f.subscription_id) INTO v_done, v_subs FROM finished f;
  IF COALESCE(cardinality(v_done), 0) < cardinality(v_ids) THEN -- in a statement of its own, which sees what that one waited for
    SELECT array_agg(i.n) FILTER (WHERE j.status IN ('Completed', 'Failed') AND j.lease_token::text = i.token
      AND (j.status = 'Completed') = i.delivered AND j.error_code IS NOT DISTINCT FROM i.code)
    INTO v_same
    FROM unnest(v_ids, v_tokens, v_delivered, v_codes) WITH ORDINALITY AS i (id, token, delivered, code, n)
    JOIN public.webhook_delivery_jobs j ON j.id = i.id;
  END IF;

  IF v_done IS NOT NULL THEN
    -- a healthy endpoint's row is written once a second, not once a delivery
    SELECT array_agg(t.subscription_id) INTO v_need
    FROM public.webhook_endpoint_state t
    JOIN (SELECT d.sub, bool_and(v_delivered[d.n]) AS fine
      FROM unnest(v_done, v_subs) AS d (n, sub) GROUP BY d.sub) a
      ON a.sub = t.subscription_id
    WHERE NOT a.fine OR t.consecutive_failures > 0 OR t.last_success_at IS NULL
      OR t.last_success_at < now() - interval '1 second';
    IF v_need IS NOT NULL THEN
      PERFORM 1 FROM public.webhook_endpoint_state t WHERE t.subscription_id = ANY (v_need)
        ORDER BY t.subscription_id FOR UPDATE;
      WITH result AS MATERIALIZED (
        SELECT d.sub, d.n, v_delivered[d.n] AS delivered, v_codes[d.n] AS code,
          max(d.n) FILTER (WHERE v_delivered[d.n]) OVER (PARTITION BY d.sub) AS last_success
        FROM unnest(v_done, v_subs) AS d (n, sub) WHERE d.sub = ANY (v_need)
      ), summary AS (
        SELECT sub, bool_or(delivered) AS any_success, bool_or(NOT delivered) AS any_failure,
          count(*) FILTER (WHERE NOT delivered AND n > COALESCE(last_success, 0)) AS failures_since,
          (array_agg(code ORDER BY n DESC) FILTER (WHERE NOT delivered))[1] AS last_code
        FROM result GROUP BY sub
      ), state AS (
        UPDATE public.webhook_endpoint_state t SET
          consecutive_failures = a.failures_since
            + CASE WHEN a.any_success THEN 0 ELSE t.consecutive_failures END,
          last_success_at = CASE WHEN a.any_success THEN now() ELSE t.last_success_at END,
          last_failure_at = CASE WHEN a.any_failure THEN now() ELSE t.last_failure_at END,
          last_failure_code = COALESCE(a.last_code, t.last_failure_code)
        FROM summary a WHERE t.subscription_id = a.sub
        RETURNING t.subscription_id, a.any_success,
          v_threshold > 0 AND t.consecutive_failures >= v_threshold AS broken
      ), closed AS (
        DELETE FROM public.webhook_endpoint_suspensions x USING state t
        WHERE x.subscription_id = t.subscription_id AND x.reason = 'circuit'
          AND t.any_success AND NOT t.broken
      )
      INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, until, by, note)
      SELECT t.subscription_id, 'circuit', now() + v_open, 'webhook_worker',
        v_threshold || ' failures in a row'
      FROM state t WHERE t.broken ORDER BY t.subscription_id
      ON CONFLICT (subscription_id) DO UPDATE SET until = EXCLUDED.until
        WHERE x.reason = 'circuit' AND x.until <= now();
      SELECT array_agg(DISTINCT d.sub ORDER BY d.sub) INTO v_gone
      FROM unnest(v_done, v_subs) AS d (n, sub) WHERE v_codes[d.n] = 'HTTP_410';
      IF v_gone IS NOT NULL THEN
        PERFORM public.fn_webhook_endpoint_gone(v_gone, 'webhook_worker');
      END IF;
    END IF;
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = NULL, probe_until = NULL
    WHERE x.probe_job_id = ANY (SELECT v_ids[d] FROM unnest(v_done) d);
  END IF;

  RETURN QUERY
  SELECT i.id, CASE WHEN i.n = ANY (v_done) THEN 'done' WHEN i.n = ANY (v_same) THEN 'repeated'
    ELSE 'lease_lost' END
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, n) ORDER BY i.n;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_report(jsonb) IS
  'A worker''s results, fenced by lease token, safe to repeat; also opens and closes circuits (R02 §2.3).';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_job_renew, fn_webhook_job_release (p_job_ids, p_lease_tokens): parallel arrays → per id
-- done | lease_lost. Renew extends the lease by its whole length; release hands the job back untried.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_job_renew(p_job_ids bigint[], p_lease_tokens uuid[])
RETURNS TABLE (job_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_until timestamptz := now() + make_interval(secs => public.fn_cfg_int('webhook.lease_seconds', 60));
  v_done bigint[];
BEGIN
  IF p_job_ids IS NULL OR p_lease_tokens IS NULL OR cardinality(p_job_ids) <> cardinality(p_lease_tokens) THEN
    RAISE EXCEPTION 'p_job_ids and p_lease_tokens must have the same length' USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.webhook_delivery_jobs j WHERE j.id = ANY (p_job_ids) ORDER BY j.id FOR UPDATE;
  WITH held AS (
    UPDATE public.webhook_delivery_jobs j SET lease_until = v_until
    FROM unnest(p_job_ids, p_lease_tokens) AS i (id, token)
    WHERE j.id = i.id AND j.status = 'Leased' AND j.lease_token = i.token RETURNING j.id
  ), probes AS (
    UPDATE public.webhook_endpoint_suspensions x SET probe_until = v_until
    FROM held h WHERE x.probe_job_id = h.id
  )
  SELECT array_agg(h.id) INTO v_done FROM held h;
  RETURN QUERY
  SELECT i.id, CASE WHEN i.id = ANY (v_done) THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids) WITH ORDINALITY AS i (id, n) ORDER BY i.n;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_renew(bigint[], uuid[]) IS
  'Extends the leases a worker still holds; a lost lease stays lost.';

CREATE FUNCTION public.fn_webhook_job_release(p_job_ids bigint[], p_lease_tokens uuid[])
RETURNS TABLE (job_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_done bigint[];
BEGIN
  IF p_job_ids IS NULL OR p_lease_tokens IS NULL OR cardinality(p_job_ids) <> cardinality(p_lease_tokens) THEN
    RAISE EXCEPTION 'p_job_ids and p_lease_tokens must have the same length' USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.webhook_delivery_jobs j WHERE j.id = ANY (p_job_ids) ORDER BY j.id FOR UPDATE;
  WITH freed AS (
    UPDATE public.webhook_delivery_jobs j SET status = 'Pending', lease_until = NULL, lease_token = NULL,
      worker_id = NULL, started_at = NULL
    FROM unnest(p_job_ids, p_lease_tokens) AS i (id, token)
    WHERE j.id = i.id AND j.status = 'Leased' AND j.lease_token = i.token RETURNING j.id
  ), probes AS (
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = NULL, probe_until = NULL
    FROM freed f WHERE x.probe_job_id = f.id
  )
  SELECT array_agg(f.id) INTO v_done FROM freed f;
  RETURN QUERY
  SELECT i.id, CASE WHEN i.id = ANY (v_done) THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids) WITH ORDINALITY AS i (id, n) ORDER BY i.n;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_release(bigint[], uuid[]) IS
  'Hands leased jobs back to Pending, no attempt spent: what a draining worker does.';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_lease_lose(ids) → {reset, failed}: leases that ran out → Pending, lease_resets + 1; at the third loss
-- → Failed LEASE_LOST_LIMIT. One that was renewed or reported meanwhile is left alone. The token goes, so the
-- worker that lost it changes nothing. The caller has locked the rows. Internal.
-- fn_lease_reset_cleaner_run(p_limit): that for all that ran out, once per row however many run.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_lease_lose(p_ids bigint[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_reset bigint;
  v_failed bigint;
BEGIN
  WITH taken AS (
    UPDATE public.webhook_delivery_jobs j SET
      status = CASE WHEN j.lease_resets >= 2 THEN 'Failed' ELSE 'Pending' END::public.webhook_job_status,
      lease_resets = j.lease_resets + 1,
      lease_token = NULL,
      error_code = CASE WHEN j.lease_resets >= 2 THEN 'LEASE_LOST_LIMIT' END,
      finished_at = CASE WHEN j.lease_resets >= 2 THEN now() END,
      lease_until = CASE WHEN j.lease_resets >= 2 THEN j.lease_until END,
      worker_id = CASE WHEN j.lease_resets >= 2 THEN j.worker_id END,
      started_at = CASE WHEN j.lease_resets >= 2 THEN j.started_at END
    WHERE j.id = ANY (p_ids) AND j.status = 'Leased' AND j.lease_until < now()
    RETURNING j.id, j.status = 'Failed' AS over
  ), probes AS (
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = NULL, probe_until = NULL
    FROM taken t WHERE x.probe_job_id = t.id
  )
  SELECT count(*) FILTER (WHERE NOT t.over), count(*) FILTER (WHERE t.over) INTO v_reset, v_failed
  FROM taken t;
  RETURN jsonb_build_object('reset', v_reset, 'failed', v_failed);
END $$;
REVOKE ALL ON FUNCTION public.fn_webhook_lease_lose(bigint[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_webhook_lease_lose(bigint[]) IS 'Takes expired leases of webhook jobs back. Internal.';

CREATE FUNCTION public.fn_lease_reset_cleaner_run(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  RETURN public.fn_webhook_lease_lose((SELECT array_agg(l.id) FROM (
    SELECT j.id FROM public.webhook_delivery_jobs j WHERE j.status = 'Leased' AND j.lease_until < now()
    ORDER BY j.lease_until, j.id LIMIT p_limit FOR UPDATE SKIP LOCKED) l));
END $$;
COMMENT ON FUNCTION public.fn_lease_reset_cleaner_run(int) IS
  'Resets leases that ran out, fails the third loss. Tick worker lease_reset_cleaner (R02 §2.4).';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_worker_tick(): {waiting, in_flight, done, total}: the beat of the hosts' delivery loops, from
-- counters alone; done = attempts finished since the tick before.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_worker_tick() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
COMMENT ON FUNCTION public.fn_webhook_worker_tick() IS
  'Tick webhook_worker: what waits and what is in flight. Called by the delivery loop of a worker host.';

REVOKE ALL ON FUNCTION public.fn_webhook_worker_tick() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_webhook_worker_tick() TO webhook_worker, dot_executor;
REVOKE ALL ON FUNCTION public.fn_webhook_endpoint_gone(bigint[], text),
  public.fn_webhook_router_run(int), public.fn_saga_orchestrator_run(int),
  public.fn_webhook_job_claim(text, int, bigint[], int), public.fn_webhook_job_report(jsonb),
  public.fn_webhook_job_renew(bigint[], uuid[]), public.fn_webhook_job_release(bigint[], uuid[]),
  public.fn_lease_reset_cleaner_run(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_webhook_router_run(int) TO router_worker, dot_executor;
GRANT EXECUTE ON FUNCTION public.fn_saga_orchestrator_run(int) TO saga_orchestrator, dot_executor;
GRANT EXECUTE ON FUNCTION public.fn_lease_reset_cleaner_run(int) TO lease_reset_cleaner, dot_executor;
GRANT EXECUTE ON FUNCTION public.fn_webhook_job_claim(text, int, bigint[], int),
  public.fn_webhook_job_report(jsonb),
  public.fn_webhook_job_renew(bigint[], uuid[]), public.fn_webhook_job_release(bigint[], uuid[])
  TO webhook_worker;

-- Settling and the cleaner go on while delivery is switched off: what came back by then is still to be
-- settled, a lease that ran out is still to be seen to.
SELECT public.fn_queue_tick_worker_add('webhook_router', 'fn_webhook_router_run', 'webhook.worker.enabled',
  false, '{}');
SELECT public.fn_queue_tick_worker_add('saga_orchestrator', 'fn_saga_orchestrator_run', NULL, false, '{}');
SELECT public.fn_queue_tick_worker_add('webhook_worker', 'fn_webhook_worker_tick', 'webhook.worker.enabled',
  false, '{}');
SELECT public.fn_queue_tick_worker_add('lease_reset_cleaner', 'fn_lease_reset_cleaner_run', NULL,
  false, '{}');

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
SELECT public.fn_queue_tick_worker_drop('lease_reset_cleaner');
SELECT public.fn_queue_tick_worker_drop('webhook_worker');
SELECT public.fn_queue_tick_worker_drop('saga_orchestrator');
SELECT public.fn_queue_tick_worker_drop('webhook_router');
DROP FUNCTION public.fn_webhook_worker_tick();
DROP FUNCTION public.fn_lease_reset_cleaner_run(int);
DROP FUNCTION public.fn_webhook_lease_lose(bigint[]);
DROP FUNCTION public.fn_webhook_job_release(bigint[], uuid[]);
DROP FUNCTION public.fn_webhook_job_renew(bigint[], uuid[]);
DROP FUNCTION public.fn_webhook_job_report(jsonb);
DROP FUNCTION public.fn_webhook_job_claim(text, int, bigint[], int);
DROP FUNCTION public.fn_saga_orchestrator_run(int);
DROP FUNCTION public.fn_webhook_endpoint_gone(bigint[], text);
DROP FUNCTION public.fn_webhook_router_run(int);
DROP VIEW public.v_webhook_gate;
RESET ROLE;
