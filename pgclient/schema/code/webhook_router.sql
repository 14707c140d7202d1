-- Webhooks: the router turns events into sagas, the orchestrator gives sagas their jobs. Source: R02 §2. Lock order
-- everywhere: jobs, sagas, endpoint state, suspensions, slow starts that run; each by id (slow starts by endpoint). New
-- slow starts come last, by endpoint: a transaction that has begun one waits for no other that runs.

-- v_webhook_gate: the single answer to "may a request be sent to this webhook subscription now":
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
  x.until AS suspended_until, x.by AS suspended_by, s.endpoint::text AS endpoint,
  CASE WHEN w.rate IS NOT NULL AND (SELECT c.value = 'true' FROM public.dot_config c
    WHERE c.key = 'webhook.slow_start.enabled') THEN w.rate END AS slow_start_rate,
  x.note AS suspended_note
FROM public.subscriptions s
LEFT JOIN public.webhook_endpoint_suspensions x ON x.subscription_id = s.id
LEFT JOIN public.webhook_slow_start w ON w.endpoint = s.endpoint;
COMMENT ON VIEW public.v_webhook_gate IS
  'Per webhook subscription: whether a request may be sent now, or why not. Router, orchestrator and claim obey it.';
GRANT SELECT ON public.v_webhook_gate TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin",
  :"subscription_admin";
COMMENT ON COLUMN public.v_webhook_gate.slow_start_rate IS
  'requests per second while the endpoint is in slow start (webhook_slow_start); NULL = no slow start, or they are off';
COMMENT ON COLUMN public.v_webhook_gate.suspended_note IS
  'the reason that the operator gave, or what the worker found; NULL = none';
COMMENT ON COLUMN public.v_webhook_gate.gate IS
  'open, half_open (one attempt after a circuit was open), suspended, inactive or unverified';

-- v_webhook_recipient: the webhook subscriptions that get each webhook event: active, verified, for its type, and
-- written before it, by time or by transaction number. By time alone, an event that is written after the server's
-- clock was set back would be older than its subscriptions. The transaction numbers of another cluster (a restored
-- dump) cannot be compared: events up to restored_through_id go by time alone; subscriptions up to
-- restored_subscription_id are older than the events after those.
CREATE OR REPLACE VIEW public.v_webhook_recipient AS
SELECT e.id AS event_id, s.id AS subscription_id
FROM public.events e
JOIN public.subscriptions s ON s.event_type = e.event_type AND s.active AND s.verified
  AND (s.created_at <= e.created_at
    OR e.id > (SELECT COALESCE(o.restored_through_id, 0) FROM public.router_offsets o WHERE o.id = 1)
      AND (s.created_xid < e.created_xid
        OR s.id <= (SELECT o.restored_subscription_id FROM public.router_offsets o WHERE o.id = 1)));
COMMENT ON VIEW public.v_webhook_recipient IS
  'Per webhook event, the webhook subscriptions that get it: active, verified, for its type, and written before it.';
GRANT SELECT ON public.v_webhook_recipient TO :"queue_viewer";

-- fn_webhook_sagas_make(events) → the number of sagas made: makes the sagas of these events that do not exist yet, in
-- the order of the events. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_sagas_make(p_events bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_sagas bigint;
BEGIN
  INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id)
  SELECT r.event_id, r.subscription_id
  FROM unnest(p_events) WITH ORDINALITY AS b (id, ord)
  JOIN public.v_webhook_recipient r ON r.event_id = b.id
  WHERE NOT EXISTS (SELECT 1 FROM public.dead_letters d
    WHERE d.event_id = r.event_id AND d.subscription_id = r.subscription_id)
    AND NOT EXISTS (SELECT FROM public.webhook_erasure x WHERE x.event_id = r.event_id)
  ORDER BY b.ord, r.subscription_id
  ON CONFLICT (event_id, subscription_id) WHERE status <> 'DeadLettered' DO NOTHING;
  GET DIAGNOSTICS v_sagas = ROW_COUNT;
  RETURN v_sagas;
END $$;
COMMENT ON FUNCTION public.fn_webhook_sagas_make IS 'Makes the missing sagas of events. Internal.';

-- fn_webhook_router_run(p_limit, p_quick) → {events, sagas}: reads events in batches (queue_cursor), each ordered by
-- (created_xid, id), and makes their sagas. One run at a time: skipped while another is under way. Safe to repeat: the
-- unique index and the dead letters prevent a second saga.
-- After a restore (fn_routing_moved) transaction numbers start again. Then the events that the last cursor does not
-- cover are routed by id first, and a new epoch of transaction numbers begins, which excludes every id up to
-- restored_through_id. One run reads on past events for which no saga is missing, for up to 5 s.
-- A quick run routes the same events as a full run, but does not write router_offsets: the next full run does
-- (fn_queue_tick_run).
CREATE OR REPLACE FUNCTION public.fn_webhook_router_run(p_limit int DEFAULT 1000, p_quick boolean DEFAULT false)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  o public.router_offsets;
  c public.queue_cursor;
  v_lock_timeout text := current_setting('lock_timeout');
  v_until timestamptz := clock_timestamp() + interval '5 seconds';
  v_moved boolean;
  v_open boolean;
  v_part bigint[];
  v_read bigint[];
  v_ids bigint[] := ARRAY[]::bigint[];
  v_sagas bigint;
  v_quick boolean;
  v_uncounted bigint;
  v_late boolean;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN jsonb_build_object('events', 0, 'sagas', 0, 'skipped', public.fn_queue_clone_of(), 'rule', 'clone');
  END IF;
  IF NOT p_quick THEN
    PERFORM public.fn_routing_loaded();
  END IF;
  SELECT * INTO o FROM public.router_offsets WHERE id = 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    IF NOT EXISTS (SELECT FROM public.router_offsets) THEN
      RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = public.fn_queue_row_missing('router_offsets'::text);
    END IF;
    RETURN jsonb_build_object('events', 0, 'sagas', 0, 'skipped', 'busy');
  END IF;
  c := public.fn_routing_cursor('webhook_router'::text, 'webhook'::text, o.last_xid, o.last_event_id::text);
  v_moved := public.fn_routing_moved(c, o.system_identifier);
  v_quick := p_quick AND NOT v_moved AND o.restored_after_id IS NULL;

  IF v_moved THEN
    BEGIN
      -- this lock waits until no transaction that wrote events is open: then every id up to the highest is visible
      PERFORM set_config('lock_timeout', '1s', true);
      LOCK TABLE public.events IN SHARE MODE;
    EXCEPTION WHEN lock_not_available THEN
      RETURN jsonb_build_object('events', 0, 'sagas', 0,
        'skipped', 'after a restore: waiting for open writers of events');
    END;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    c.origin := public.fn_routing_origin();
    UPDATE public.router_offsets r SET system_identifier = split_part(c.origin, '/', 1)::bigint,
      restored_after_id = COALESCE(r.restored_after_id, r.restored_through_id, 0),
      restored_through_id = (SELECT COALESCE(max(id), 0) FROM public.events),
      restored_subscription_id = (SELECT max(s.id) FROM public.subscriptions s),
      restored_xid = pg_snapshot_xmin(pg_current_snapshot())
    WHERE r.id = 1 RETURNING r.* INTO o;
  END IF;

  IF o.restored_after_id IS NOT NULL THEN
    -- the cursor does not change here: it records the events that were routed in the previous cluster
    LOOP
      SELECT array_agg(b.id ORDER BY b.id), COALESCE(array_agg(b.id ORDER BY b.id) FILTER (WHERE b.waits), '{}')
      INTO v_read, v_ids FROM (
        SELECT e.id, (e.id > o.max_event_id OR (pg_visible_in_snapshot(e.created_xid, c.routed)
            OR pg_visible_in_snapshot(e.created_xid, c.batch)
              AND (e.created_xid, e.id) <= (c.batch_xid, c.batch_id::bigint)) IS NOT TRUE)
          AND EXISTS (SELECT FROM public.v_webhook_recipient r WHERE r.event_id = e.id AND NOT EXISTS (
            SELECT FROM public.webhook_delivery_sagas s
            WHERE s.event_id = e.id AND s.subscription_id = r.subscription_id)) AS waits
        FROM public.events e WHERE e.id > o.restored_after_id AND e.id <= o.restored_through_id
        ORDER BY e.id LIMIT p_limit) b;
      o.restored_after_id := v_read[p_limit];
      EXIT WHEN o.restored_after_id IS NULL OR v_ids <> '{}' OR clock_timestamp() > v_until;
    END LOOP;
    IF o.restored_after_id IS NULL THEN
      o.max_event_id := greatest(o.max_event_id, o.restored_through_id);
      c.routed := format('%1$s:%1$s:', o.restored_xid)::pg_snapshot;
      c.batch := NULL;
    END IF;
  ELSE
    LOOP -- first the rest of the open batch, then a new batch
      v_open := c.batch IS NOT NULL;
      IF NOT v_open THEN
        c.batch := public.fn_routing_snapshot();
        c.batch_xid := '0';
        c.batch_id := '0';
      END IF;
      SELECT array_agg(b.id ORDER BY b.n, b.created_xid, b.id) INTO v_part FROM (
        SELECT r.n, e.created_xid, e.id
        FROM public.fn_routing_ranges(c.routed, c.batch) WITH ORDINALITY r (after, before, n)
        CROSS JOIN LATERAL (
          SELECT x.created_xid, x.id FROM public.events x
          WHERE (x.created_xid, x.id) > (greatest(r.after, c.batch_xid),
              CASE WHEN c.batch_xid > r.after THEN c.batch_id::bigint ELSE 9223372036854775807 END)
            AND x.created_xid < r.before AND x.id > COALESCE(o.restored_through_id, 0)
          ORDER BY x.created_xid, x.id LIMIT p_limit - cardinality(v_ids)) e
        ORDER BY r.n, e.created_xid, e.id LIMIT p_limit - cardinality(v_ids)) b;
      v_ids := v_ids || v_part;
      EXIT WHEN cardinality(v_ids) = p_limit;
      -- events of the other cluster have transaction numbers that this cluster has not reached: they are skipped for
      -- good
      IF v_open OR v_part IS NOT NULL OR o.restored_through_id IS NOT NULL THEN
        c.routed := c.batch;
      END IF;
      c.batch := NULL;
      EXIT WHEN NOT v_open;
    END LOOP;
    SELECT e.created_xid, e.id::text INTO c.batch_xid, c.batch_id
    FROM public.events e WHERE e.id = v_ids[p_limit] AND c.batch IS NOT NULL;
    o.max_event_id := greatest(o.max_event_id, (SELECT max(i) FROM unnest(v_ids) i));
  END IF;
  IF c.batch IS NULL THEN
    c.batch_xid := NULL;
    c.batch_id := NULL;
  END IF;
  v_uncounted := COALESCE((c.uncounted ->> 'events')::bigint, 0) + cardinality(v_ids);
  c.uncounted := CASE WHEN v_quick AND v_uncounted > 0 THEN jsonb_build_object('events', v_uncounted) ELSE '{}' END;
  PERFORM public.fn_routing_cursor_keep(c);

  IF v_quick THEN -- the full run that follows handles failures
    v_sagas := public.fn_webhook_sagas_make(v_ids);
  ELSE
    BEGIN
      v_sagas := public.fn_webhook_sagas_make(v_ids);
    EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN -- then each pair alone: fn_queue_step
      v_late := public.fn_queue_step_late(SQLSTATE::text);
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      v_sagas := 0;
    END;
    IF v_late IS NOT NULL THEN
      PERFORM public.fn_queue_step_part('webhook_route'::text, public.fn_webhook_route_pairs(v_ids));
    END IF;
    IF v_late IS NOT TRUE THEN
      v_sagas := v_sagas
        + COALESCE((public.fn_queue_step_rest('webhook_route'::text) ->> 'sagas')::bigint, 0);
    END IF;
  END IF;
  IF v_sagas > 0 AND EXISTS (SELECT FROM public.events e WHERE e.id = ANY (v_ids)
      AND e.created_at < now() - interval '60 seconds') THEN
    BEGIN
      PERFORM public.fn_webhook_slow_start_begin((SELECT array_agg(DISTINCT s.subscription_id)
        FROM public.webhook_delivery_sagas s WHERE s.event_id = ANY (v_ids)), 'its events could not be routed'::text,
        false); -- false: a running slow start goes on, because batches follow each other
    EXCEPTION WHEN OTHERS THEN
      NULL; -- a slow start that fails does not stop routing
    END;
  END IF;

  UPDATE public.router_offsets r SET max_event_id = o.max_event_id, restored_after_id = o.restored_after_id,
    events_seen = r.events_seen + v_uncounted, updated_at = now()
  WHERE r.id = 1 AND NOT v_quick AND (v_uncounted > 0 OR r.restored_after_id IS DISTINCT FROM o.restored_after_id);
  RETURN jsonb_build_object('events', cardinality(v_ids), 'sagas', v_sagas)
    || public.fn_queue_step_unfinished('webhook_route'::text);
END $$;
COMMENT ON FUNCTION public.fn_webhook_router_run IS
  'Turns committed events into sagas, none twice and none skipped. Tick worker webhook_router.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_router_run TO :"router_worker", :"dot_executor";

-- fn_webhook_unrouted() → how many events the webhook router has not routed, counted up to 10,001, and the time of the
-- oldest.
CREATE OR REPLACE FUNCTION public.fn_webhook_unrouted(OUT waiting bigint, OUT oldest_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  o public.router_offsets;
  c public.queue_cursor;
BEGIN
  SELECT * INTO o FROM public.router_offsets;
  c := public.fn_routing_cursor('webhook_router'::text, 'webhook'::text, o.last_xid, o.last_event_id::text);
  IF public.fn_routing_moved(c, o.system_identifier) THEN -- the next run begins there
    o.restored_after_id := COALESCE(o.restored_after_id, o.restored_through_id, 0);
  END IF;
  SELECT count(*), min(e.created_at) INTO waiting, oldest_at FROM (
    (SELECT w.created_at FROM public.fn_routing_ranges(c.routed, pg_current_snapshot()) r
     CROSS JOIN LATERAL ( -- in the order of the index
       SELECT x.created_at FROM public.events x
       WHERE o.restored_after_id IS NULL AND x.created_xid > r.after AND x.created_xid < r.before
         AND x.id > COALESCE(o.restored_through_id, 0) AND (pg_visible_in_snapshot(x.created_xid, c.batch)
           AND (x.created_xid, x.id) <= (c.batch_xid, c.batch_id::bigint)) IS NOT TRUE
       ORDER BY x.created_xid, x.id LIMIT 10001) w
     LIMIT 10001)
    UNION ALL
    (SELECT x.created_at FROM public.events x
     WHERE x.id > greatest(o.restored_after_id, o.max_event_id) AND o.restored_after_id IS NOT NULL LIMIT 10001)
    UNION ALL
    (SELECT x.created_at FROM public.events x -- by the index of the cursor, in the transaction ids of the cursor
     WHERE x.id > o.restored_after_id AND x.id <= o.max_event_id
       AND (x.created_xid >= pg_snapshot_xmax(c.routed)
         OR x.created_xid = ANY (ARRAY(SELECT pg_snapshot_xip(c.routed))))
       AND (pg_visible_in_snapshot(x.created_xid, c.batch)
         AND (x.created_xid, x.id) <= (c.batch_xid, c.batch_id::bigint)) IS NOT TRUE LIMIT 10001)) e;
END $$;
COMMENT ON FUNCTION public.fn_webhook_unrouted IS
  'Events that wait for the webhook router, counted up to 10,001.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_unrouted TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_webhook_jobs_make(sagas, controlled, operations) → the number of jobs made: one for each saga; the caller has
-- locked the sagas and found them due. The arguments are parallel arrays. controlled: whether the claim of the job must
-- first get a token of a rate (webhook_delivery_jobs.controlled). Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_jobs_make(p_sagas bigint[], p_controlled boolean[], p_operations bigint[])
  RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
DECLARE
  v_made bigint;
BEGIN
  WITH started AS (
    UPDATE public.webhook_delivery_sagas s
    SET status = 'InProgress', next_attempt_at = NULL, updated_at = now()
    FROM unnest(p_sagas, p_controlled, p_operations) AS p (id, controlled, operation_id) WHERE s.id = p.id
    RETURNING s.id, s.subscription_id, p.controlled OR p.operation_id IS NOT NULL AS controlled, p.operation_id
  )
  INSERT INTO public.webhook_delivery_jobs (saga_id, subscription_id, attempt_no, controlled, operation_id)
  SELECT s.id, s.subscription_id, 1 + COALESCE((SELECT max(j.attempt_no) FROM public.webhook_delivery_jobs j
    WHERE j.saga_id = s.id), 0), s.controlled, s.operation_id FROM started s ORDER BY s.id;
  GET DIAGNOSTICS v_made = ROW_COUNT;
  RETURN v_made;
END $$;
COMMENT ON FUNCTION public.fn_webhook_jobs_make IS 'Makes the next job of each of the sagas. Internal.';

-- fn_saga_orchestrator_run(p_limit, p_quick) → {settled, completed, retried, dead_lettered, jobs_created, next_due,
-- at}: settles up to p_limit finished jobs, then makes up to p_limit jobs. Several sessions may run it at once: it
-- skips locked rows. A full run returns when it should run next at the latest (fn_webhook_next_due) and the server's
-- time.
-- Settling: each result once, in id order. A failure counts one attempt, except the first hundred 429 answers of a
-- saga.
--   retry        below the maximum of attempts; the saga waits as webhook.retry_schedule or the schedule of its
--                subscription requires, after a 429 at most webhook.circuit_max_seconds, and always at least as long as
--                Retry-After asks, up to webhook.retry_after_cap_seconds
--   dead letter  at the maximum, or at once after a 410, after the third lost lease and if no host can read the
--                payload; the saga becomes DeadLettered together with its dead letter
-- Making: subscriptions with due sagas share p_limit evenly, so that the backlog of one endpoint delays no other. Jobs
-- are made only if the gate is open; one job if it is half-open.
-- Quick runs (fn_queue_tick_run) look only at jobs from settled_from on and at sagas after made_through, both set by
-- the last full run: older rows are done, and rows that the full run could not see wait for the next full run. A full
-- run that left work undone, because of its limits or a failure, sets no made_through. A full run uses the steps of
-- quarantine.sql; a quick run does the same work without steps, excludes the rows that they set aside, and fails as a
-- whole.

-- fn_saga_orchestrator_part(part, limit, only, except, from): one part of a run. part: settle (finished jobs), make
-- (next jobs) or lanes (marks jobs as controlled). It works on the ids of jobs or sagas in only (NULL = all that are
-- due) without those in except; settle only on jobs from the id `from` on. If only is NULL, settle returns
-- settled_from, and make returns made_through. Internal.
CREATE OR REPLACE FUNCTION public.fn_saga_orchestrator_part(p_part text, p_limit int, p_only bigint[],
  p_except bigint[], p_from bigint) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
DECLARE
  v_max int;
  v_cap interval;
  v_max_wait interval;
  v_settled bigint;
  v_completed bigint;
  v_retried bigint;
  v_dead bigint;
  v_operations bigint[]; -- bulk operations with jobs to claim, and paused ones
  v_rates numeric[];     -- the rate of each; 0 if it is paused
  v_paused bigint[];     -- paused bulk operations: their jobs are not claimed
  v_from bigint;         -- id of the first job that was settled
  v_log jsonb;           -- retries and dead letters
  v_made_through bigint; -- id of the newest saga that this run looked at
  v_now timestamptz;
  v_sagas bigint[];      -- sagas to make jobs for, with the other arguments of fn_webhook_jobs_make
  v_controlled boolean[];
  v_job_operations bigint[];
  v_quota_spent boolean; -- true = a subscription with more due sagas has used its quota
  v_subs bigint[];       -- subscriptions whose share the rates of operations have cut; NULL = all
  v_quotas int[];        -- what is left of each of these shares
  v_made bigint := 0;
BEGIN
  IF p_part = 'settle' THEN
    v_max := greatest(public.fn_cfg_int('webhook.max_attempts', 10), 1);
    v_cap := make_interval(secs => public.fn_cfg_int('webhook.retry_after_cap_seconds', 21600));
    v_max_wait := make_interval(secs => public.fn_cfg_int('webhook.circuit_max_seconds', 900));
    WITH done AS MATERIALIZED (
      SELECT j.id, j.saga_id, j.attempt_no, j.status, j.error_code, j.retry_after_at, j.lease_until, j.worker_id
      FROM public.webhook_delivery_jobs j
      WHERE j.status IN ('Completed', 'Failed') AND j.settled_at IS NULL AND j.id >= p_from
        AND (p_only IS NULL OR j.id = ANY (p_only)) AND j.id <> ALL (p_except)
      ORDER BY j.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), settled AS (
      UPDATE public.webhook_delivery_jobs j SET settled_at = now() FROM done d WHERE j.id = d.id RETURNING j.id
    ), verdict AS MATERIALIZED (
      SELECT d.id AS job_id, d.saga_id, d.attempt_no, d.error_code, d.retry_after_at, d.lease_until, d.worker_id,
        w.free,
        s.attempt_count + (d.status = 'Failed' AND NOT w.free)::int AS attempts,
        (CASE
          WHEN d.status = 'Completed' THEN 'Completed'
          WHEN w.free THEN 'PendingRetry'
          WHEN d.error_code IN ('HTTP_410', 'LEASE_LOST_LIMIT')
            OR s.attempt_count + 1 >= COALESCE(u.max_attempts, v_max) THEN 'DeadLettered'
          -- no host can read this payload, so no further attempt is made
          WHEN d.error_code = 'PROTOCOL_ERROR' AND NOT (SELECT public.fn_payload_fits(e.payload) FROM public.events e
            WHERE e.id = s.event_id) THEN 'DeadLettered'
          ELSE 'PendingRetry' END)::public.webhook_saga_status AS status
      FROM done d
      JOIN public.webhook_delivery_sagas s ON s.id = d.saga_id
      JOIN public.subscriptions u ON u.id = s.subscription_id
      -- earlier jobs of the saga minus the attempts counted = jobs that did not count as attempts
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
            WHEN v.free THEN least(v_max_wait, public.fn_retry_wait('webhook.retry_schedule'::text,
              s.subscription_id::text,
              v.attempt_no))
            ELSE public.fn_retry_wait('webhook.retry_schedule'::text, s.subscription_id::text, v.attempts) END) END,
        updated_at = now()
      FROM verdict v WHERE s.id = v.saga_id AND s.status = 'InProgress'
      RETURNING s.id, s.status, s.event_id, s.subscription_id, s.final_error_code, v.job_id, v.error_code,
        v.lease_until, v.worker_id
    ), dead AS (
      INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot)
      SELECT m.id, m.event_id, m.subscription_id, m.final_error_code, e.payload
      FROM moved m JOIN public.events e ON e.id = m.event_id
      WHERE m.status = 'DeadLettered' ORDER BY m.id
      RETURNING id
    )
    SELECT (SELECT count(*) FROM settled),
      (SELECT count(*) FROM moved WHERE status = 'Completed'),
      (SELECT count(*) FROM moved WHERE status = 'PendingRetry'),
      (SELECT count(*) FROM dead), (SELECT min(id) FROM settled),
      (SELECT jsonb_agg(jsonb_build_object(
        'outcome', CASE m.status WHEN 'DeadLettered' THEN 'dead letter' ELSE 'retry' END, 'saga_id', m.id,
        'job_id', m.job_id, 'error_code', m.error_code, 'lease_expiration', m.lease_until, 'worker_id', m.worker_id)
        ORDER BY m.id) FROM moved m WHERE m.status <> 'Completed')
    INTO v_settled, v_completed, v_retried, v_dead, v_from, v_log;
    RETURN jsonb_build_object('settled', v_settled, 'completed', v_completed, 'retried', v_retried,
        'dead_lettered', v_dead)
      || CASE WHEN v_log IS NULL THEN '{}'::jsonb ELSE jsonb_build_object('log', v_log) END
      || CASE WHEN p_only IS NULL THEN jsonb_build_object('settled_from',
        COALESCE(v_from, (SELECT max(j.id) FROM public.webhook_delivery_jobs j))::text) ELSE '{}'::jsonb END;
  END IF;

  IF p_part = 'make' THEN
    v_made_through := (SELECT max(s.id) FROM public.webhook_delivery_sagas s);
    v_now := clock_timestamp(); -- a visible saga may have been made after this transaction began
    v_quota_spent := false;
    -- Usually once. Where the rate of an operation cut the share of a subscription, again without that operation: its
    -- sagas must not use up the share of others.
    FOR v_pass IN 1..20 LOOP
      -- A bulk operation has as many jobs to claim as its rate allows in 5 s, or, if that is less, the rate limit or
      -- the slow start of the endpoint; this counts for each subscription, because jobs that cannot be sent to one must
      -- not hold back those to the others. A paused operation gets no more.
      WITH RECURSIVE waiting (op) AS (
        (SELECT j.operation_id FROM public.webhook_delivery_jobs j
          WHERE CASE j.status WHEN 'Pending' THEN true ELSE false END -- as idx_job_operation has it: migration 055
            AND j.operation_id IS NOT NULL ORDER BY j.operation_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.operation_id FROM public.webhook_delivery_jobs j
          WHERE CASE j.status WHEN 'Pending' THEN true ELSE false END AND j.operation_id > w.op
          ORDER BY j.operation_id LIMIT 1)
        FROM waiting w WHERE w.op IS NOT NULL
      )
      SELECT array_agg(o.operation_id ORDER BY o.operation_id), array_agg(CASE WHEN o.state = 'paused' THEN 0
          ELSE o.rate_per_second END ORDER BY o.operation_id),
        array_agg(o.operation_id) FILTER (WHERE o.state = 'paused')
      INTO v_operations, v_rates, v_paused FROM public.queue_bulk_operation o
      WHERE o.operation_id IN (SELECT w.op FROM waiting w) OR o.state = ANY ('{planned,running,paused}'::text[])
        AND o.state = 'paused';

      WITH RECURSIVE waiting (sub) AS (
        (SELECT s.subscription_id FROM public.webhook_delivery_sagas s
          WHERE s.status IN ('Pending', 'PendingRetry') ORDER BY s.subscription_id LIMIT 1)
        UNION ALL
        SELECT (SELECT s.subscription_id FROM public.webhook_delivery_sagas s
          WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id > w.sub
          ORDER BY s.subscription_id LIMIT 1)
        FROM waiting w WHERE w.sub IS NOT NULL
      ), queued AS MATERIALIZED (
        SELECT j.sub, array_agg(o.op) AS operations, array_agg(j.n) AS jobs
        FROM unnest(v_operations) AS o (op) CROSS JOIN LATERAL (
          SELECT x.subscription_id AS sub, count(*) AS n FROM public.webhook_delivery_jobs x
          WHERE CASE x.status WHEN 'Pending' THEN true ELSE false END AND x.operation_id = o.op
          GROUP BY x.subscription_id) j
        GROUP BY j.sub
      ), due AS MATERIALIZED (
        SELECT w.sub, g.gate, g.gate = 'half_open' OR g.rate_limit_per_second IS NOT NULL
          OR g.slow_start_rate IS NOT NULL AS controlled,
          least(g.rate_limit_per_second, g.slow_start_rate)::numeric AS pace
        FROM waiting w JOIN public.v_webhook_gate g ON g.subscription_id = w.sub
        WHERE (v_subs IS NULL OR w.sub = ANY (v_subs))
          AND (g.gate = 'open' OR (g.gate = 'half_open' AND NOT EXISTS (
            -- one look-up for each value of controlled: with IN, all waiting jobs might be read
            SELECT FROM unnest('{true,false}'::boolean[]) c CROSS JOIN LATERAL (
              SELECT FROM public.webhook_delivery_jobs j
              WHERE j.status = 'Pending' AND j.controlled = c AND j.subscription_id = w.sub
                AND (j.operation_id = ANY (v_paused)) IS NOT TRUE LIMIT 1) j)))
          AND (SELECT s.next_attempt_at FROM public.webhook_delivery_sagas s
            WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = w.sub
            ORDER BY s.next_attempt_at LIMIT 1) <= v_now
      ), share AS (
        SELECT d.sub, d.controlled, COALESCE(v_quotas[array_position(v_subs, d.sub)], CASE d.gate
          WHEN 'half_open' THEN 1 ELSE ceil(p_limit::numeric / (SELECT count(*) FROM due))::int END) AS quota,
          d.pace, j.operations, j.jobs
        FROM due d LEFT JOIN queued j ON j.sub = d.sub
      ), front AS MATERIALIZED (
        SELECT p.id, h.controlled, p.operation_id, h.sub, h.quota, h.pace,
          COALESCE(h.jobs[array_position(h.operations, p.operation_id)], 0) AS jobs
        FROM share h CROSS JOIN LATERAL (
          SELECT s.id, s.next_attempt_at, b.operation_id FROM public.webhook_delivery_sagas s
          LEFT JOIN public.dead_letter_requeues q ON q.dead_letter_id = s.requeued_from_dead_letter_id
          LEFT JOIN public.webhook_operation_bucket b ON b.operation_id = q.operation_id -- no row = no rate
          WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = h.sub
            AND s.next_attempt_at <= v_now
            AND (p_only IS NULL OR s.id = ANY (p_only)) AND s.id <> ALL (p_except)
            AND (b.operation_id IS NULL
              OR ceil(least(v_rates[array_position(v_operations, b.operation_id)], h.pace) * 5)
                > COALESCE(h.jobs[array_position(h.operations, b.operation_id)], 0)) IS NOT FALSE
          ORDER BY s.next_attempt_at, s.id LIMIT h.quota FOR UPDATE OF s SKIP LOCKED) p
        LIMIT p_limit
      ), pick AS MATERIALIZED (
        SELECT f.*, f.operation_id IS NULL OR f.jobs + f.n <= ceil(least(o.rate_per_second, f.pace) * 5) AS may
        FROM (SELECT f.*, row_number() OVER (PARTITION BY f.operation_id, f.sub ORDER BY f.id) AS n FROM front f) f
        LEFT JOIN public.queue_bulk_operation o ON o.operation_id = f.operation_id
      ), used AS MATERIALIZED (
        SELECT p.sub, p.quota, p.quota - (count(*) FILTER (WHERE p.may))::int AS remaining, bool_and(p.may) AS uncut,
          count(*) >= least(p.quota, p_limit) AS spent
        FROM pick p GROUP BY p.sub, p.quota
      )
      SELECT array_agg(p.id), array_agg(p.controlled), array_agg(p.operation_id),
        v_quota_spent OR EXISTS (SELECT FROM used u WHERE u.uncut AND u.spent),
        (SELECT array_agg(u.sub ORDER BY u.sub) FROM used u WHERE NOT u.uncut),
        (SELECT array_agg(u.remaining ORDER BY u.sub) FROM used u WHERE NOT u.uncut)
      INTO v_sagas, v_controlled, v_job_operations, v_quota_spent, v_subs, v_quotas FROM pick p WHERE p.may;
      v_made := v_made + public.fn_webhook_jobs_make(v_sagas, v_controlled, v_job_operations);
      EXIT WHEN v_subs IS NULL;
    END LOOP;
    RETURN jsonb_build_object('jobs_created', v_made)
      || CASE WHEN p_only IS NULL THEN jsonb_build_object('made_through',
        CASE WHEN NOT v_quota_spent AND v_subs IS NULL THEN v_made_through::text END) ELSE '{}'::jsonb END;
  END IF;

  -- jobs that were made before their subscription got a quota, a suspension or a slow start become controlled
  UPDATE public.webhook_delivery_jobs j SET controlled = true FROM (
    SELECT p.id FROM (
      SELECT x.subscription_id AS sub FROM public.webhook_endpoint_suspensions x
      UNION SELECT u.id FROM public.subscriptions u WHERE u.rate_limit_per_second IS NOT NULL
      UNION SELECT u.id FROM public.webhook_slow_start w JOIN public.subscriptions u ON u.endpoint = w.endpoint) c
    CROSS JOIN LATERAL (
      SELECT f.id FROM public.webhook_delivery_jobs f
      WHERE f.status = 'Pending' AND NOT f.controlled AND f.subscription_id = c.sub
        AND (p_only IS NULL OR f.id = ANY (p_only)) AND f.id <> ALL (p_except)
      ORDER BY f.id LIMIT p_limit FOR UPDATE SKIP LOCKED) p) stray
  WHERE j.id = stray.id;

  RETURN '{}'::jsonb;
END $$;
COMMENT ON FUNCTION public.fn_saga_orchestrator_part IS 'One part of fn_saga_orchestrator_run. Internal.';

-- fn_webhook_next_due(after) → when the first saga becomes due, or the first suspension or circuit ends, after that
-- time; NULL = never. Sagas behind a closed gate do not count. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_next_due(p_after timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
DECLARE
  v_saga timestamptz;
BEGIN
  WITH RECURSIVE waiting (sub) AS (
    (SELECT s.subscription_id FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry') ORDER BY s.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.subscription_id FROM public.webhook_delivery_sagas s
      WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id > w.sub
      ORDER BY s.subscription_id LIMIT 1)
    FROM waiting w WHERE w.sub IS NOT NULL
  )
  SELECT min(n.next_attempt_at) INTO v_saga
  FROM waiting w JOIN public.v_webhook_gate g ON g.subscription_id = w.sub AND g.gate IN ('open', 'half_open')
  CROSS JOIN LATERAL (SELECT s.next_attempt_at FROM public.webhook_delivery_sagas s
    WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = w.sub AND s.next_attempt_at > p_after
    ORDER BY s.next_attempt_at LIMIT 1) n;
  RETURN least(v_saga, (SELECT min(x.until) FROM public.webhook_endpoint_suspensions x WHERE x.until > p_after));
END $$;
COMMENT ON FUNCTION public.fn_webhook_next_due IS
  'When the first delivery becomes due, or the first suspension ends, after a time. Internal.';

-- fn_saga_orchestrator_quick(limit) → the numbers of a quick run. Internal.
CREATE OR REPLACE FUNCTION public.fn_saga_orchestrator_quick(p_limit int) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
DECLARE
  v_from bigint;
  v_through bigint;
  v_except bigint[] := public.fn_queue_step_except('webhook_make'::text)::bigint[];
  v_sagas bigint[];
  v_controlled boolean[];
  v_out jsonb;
BEGIN
  SELECT COALESCE((w.last_result ->> 'settled_from')::bigint, 0), (w.last_result ->> 'made_through')::bigint
  INTO v_from, v_through FROM public.queue_tick_worker w WHERE w.worker_name = 'saga_orchestrator';
  v_out := public.fn_saga_orchestrator_part('settle'::text, p_limit, NULL::bigint[],
    public.fn_queue_step_except('webhook_settle'::text)::bigint[], v_from);
  IF v_through IS NULL THEN
    PERFORM public.fn_step_webhook_resume(p_limit, NULL::text[], public.fn_queue_step_except('webhook_resume'::text));
    PERFORM public.fn_step_webhook_ramp(p_limit, NULL::text[], public.fn_queue_step_except('webhook_ramp'::text));
    v_out := v_out || public.fn_saga_orchestrator_part('make'::text, p_limit, NULL::bigint[], v_except, 0::bigint);
    PERFORM public.fn_saga_orchestrator_part('lanes'::text, p_limit, NULL::bigint[],
      public.fn_queue_step_except('webhook_lanes'::text)::bigint[], 0::bigint);
    RETURN v_out;
  END IF;
  SELECT array_agg(p.id), array_agg(p.controlled) INTO v_sagas, v_controlled FROM (
    SELECT s.id, g.controlled FROM public.webhook_delivery_sagas s
    CROSS JOIN LATERAL (SELECT g.rate_limit_per_second IS NOT NULL OR g.slow_start_rate IS NOT NULL AS controlled
      FROM public.v_webhook_gate g WHERE g.subscription_id = s.subscription_id AND g.gate = 'open' OFFSET 0) g
    WHERE s.id > v_through AND s.next_attempt_at <= clock_timestamp()
      AND s.status::text = 'Pending' -- ::text: idx_saga_due, with all that wait, does not fit
      AND s.id <> ALL (v_except)
      AND s.requeued_from_dead_letter_id IS NULL -- full runs make the jobs of operations, at their rate
    ORDER BY s.id LIMIT p_limit FOR UPDATE OF s SKIP LOCKED) p;
  RETURN v_out || jsonb_build_object('jobs_created',
    public.fn_webhook_jobs_make(v_sagas, v_controlled, '{}'::bigint[]));
END $$;
COMMENT ON FUNCTION public.fn_saga_orchestrator_quick IS 'A quick run of fn_saga_orchestrator_run. Internal.';

CREATE OR REPLACE FUNCTION public.fn_saga_orchestrator_run(p_limit int DEFAULT 1000, p_quick boolean DEFAULT false)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_out jsonb := '{"settled": 0, "completed": 0, "retried": 0, "dead_lettered": 0, "jobs_created": 0}'::jsonb;
  v_step text;
  v_began timestamptz := clock_timestamp();
  v_due timestamptz;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN v_out || jsonb_build_object('skipped', public.fn_queue_clone_of(), 'rule', 'clone');
  END IF;
  IF p_quick THEN
    RETURN public.fn_saga_orchestrator_quick(p_limit);
  END IF;
  FOREACH v_step IN ARRAY '{webhook_settle,webhook_resume,webhook_ramp,webhook_make,webhook_lanes}'::text[] LOOP
    v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step(v_step, p_limit));
    EXIT WHEN v_out ? 'timed_out';
  END LOOP;
  v_due := public.fn_webhook_next_due(v_began);
  RETURN v_out || jsonb_build_object('next_due', CASE WHEN isfinite(v_due)
      THEN to_char(v_due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
    'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
END $$;
COMMENT ON FUNCTION public.fn_saga_orchestrator_run IS
  'Settles finished jobs once each and makes the next ones. Tick worker saga_orchestrator (R02).';
GRANT EXECUTE ON FUNCTION public.fn_saga_orchestrator_run TO :"saga_orchestrator", :"dot_executor";

-- fn_webhook_worker_tick(quick) → {waiting, in_flight, done, total}: the tick of the tick worker webhook_worker, whose
-- loops in the hosts send webhooks. It reads only counters; done = attempts finished since the last full run. A quick
-- run stores no total, so it leaves them to the next full run.
CREATE OR REPLACE FUNCTION public.fn_webhook_worker_tick(p_quick boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_waiting bigint;
  v_leased bigint;
  v_total bigint;
  v_before bigint;
  v_last timestamptz;
  v_absent interval := make_interval(secs => greatest(60, -- the interval may be longer than a minute
    2 * public.fn_cfg_int('queue.tick.webhook_worker.interval_seconds', 1)));
BEGIN
  SELECT COALESCE(sum(c.n) FILTER (WHERE c.k1 = 'Pending'), 0),
    COALESCE(sum(c.n) FILTER (WHERE c.k1 = 'Leased'), 0),
    COALESCE(sum(c.n) FILTER (WHERE c.k1 IN ('Completed', 'Failed')), 0)
  INTO v_waiting, v_leased, v_total
  FROM public.v_queue_counter c WHERE c.scope = 'webhook_job';
  SELECT (w.last_result ->> 'total')::bigint, w.last_run_at INTO v_before, v_last
  FROM public.queue_tick_worker w WHERE w.worker_name = 'webhook_worker';
  -- a host claims only after this tick; results show that hosts sent although the interval was longer until now
  IF v_last < now() - v_absent AND NOT EXISTS (SELECT FROM public.webhook_endpoint_state t
      WHERE greatest(t.last_success_at, t.last_failure_at) > now() - interval '60 seconds') THEN
    PERFORM public.fn_webhook_slow_start_begin(NULL::bigint[], 'no host sent webhooks for a minute'::text, true);
  END IF;
  RETURN jsonb_build_object('waiting', v_waiting, 'in_flight', v_leased,
    'done', CASE WHEN p_quick THEN 0 ELSE greatest(v_total - COALESCE(v_before, v_total), 0) END, 'total', v_total);
END $$;
COMMENT ON FUNCTION public.fn_webhook_worker_tick IS
  'Tick webhook_worker: returns how many deliveries wait and are in flight. The webhook sender of a host calls it.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_worker_tick TO :"webhook_worker", :"dot_executor";
