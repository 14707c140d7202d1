-- Webhook delivery, the operators: requeue and undo, resolve and reopen, suspend and resume, and what
-- the panes read about endpoints. Source: R02 §3.3, §4.3, webhooks.md.
-- Each function writes its audit row in its own transaction; a dry run goes the same way and writes nothing.
SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_letter_ids(ids): distinct, sorted, checked. Internal.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_letter_ids(p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p_ids IS NULL OR cardinality(p_ids) NOT BETWEEN 1 AND 100000
    OR array_position(p_ids, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'p_dead_letter_ids must hold 1 to 100000 ids' USING ERRCODE = '22023';
  END IF;
  RETURN (SELECT array_agg(DISTINCT i ORDER BY i) FROM unnest(p_ids) i);
END $$;
COMMENT ON FUNCTION public.fn_webhook_letter_ids(bigint[]) IS 'Checks and sorts dead letter ids. Internal.';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_letter_answer(...): the jsonb every dead letter function returns, and its audit row. The
-- audit keeps each changed letter with the saga it became or was; p_why holds NULL where it was done.
-- Internal.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_letter_answer(p_action text, p_done text, p_ids bigint[], p_why text[],
  p_sagas bigint[], p_actor text, p_reason text, p_dry_run boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_done bigint := (SELECT count(*) FROM unnest(p_why) w WHERE w IS NULL);
  v_skipped bigint := cardinality(p_ids) - v_done;
  v_results jsonb;
  v_audit bigint;
BEGIN
  SELECT jsonb_agg(jsonb_build_object('id', r.id, 'why', r.why, 'new_id', r.saga, 'outcome', CASE
      WHEN r.why IS NOT NULL THEN 'skipped' WHEN p_dry_run THEN 'would_' || p_action
      ELSE p_done END) ORDER BY r.n)
  INTO v_results FROM unnest(p_ids, p_why, p_sagas) WITH ORDINALITY AS r (id, why, saga, n);
  IF NOT p_dry_run THEN
    v_audit := public.fn_operator_audit('dead_letter_' || p_action,
      'dead_letter ' || array_to_string(p_ids[1:20], ',')
        || CASE WHEN cardinality(p_ids) > 20 THEN format(' and %s more', cardinality(p_ids) - 20) ELSE '' END,
      p_actor, p_reason, NULL, cardinality(p_ids), NULL,
      jsonb_build_object(p_done, v_done, 'skipped', v_skipped, 'letters', (
        SELECT COALESCE(jsonb_agg(jsonb_build_array(r.id, r.saga) ORDER BY r.id), '[]')
        FROM unnest(p_ids, p_why, p_sagas) AS r (id, why, saga) WHERE r.why IS NULL)),
      CASE WHEN v_done = 0 THEN 'refused' ELSE 'done' END);
  END IF;
  RETURN jsonb_build_object('action', p_action, 'dry_run', p_dry_run, p_done, v_done, 'skipped', v_skipped,
    'results', v_results, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION
  public.fn_webhook_letter_answer(text, text, bigint[], text[], bigint[], text, text, boolean) IS
  'Answer and audit row of the dead letter functions. Internal.';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_letter_closed_by(ids): who closed each letter and when, NULL where it is open. Internal.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_letter_closed_by(p_ids bigint[])
RETURNS TABLE (id bigint, why text, new_saga_id bigint, resolved boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i, CASE
      WHEN d.id IS NULL THEN 'no such dead letter'
      WHEN q.dead_letter_id IS NOT NULL THEN format('already requeued by %s at %s as saga %s', q.requeued_by,
        to_char(q.requeued_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), q.new_saga_id)
      WHEN x.dead_letter_id IS NOT NULL THEN format('resolved as %s by %s at %s', x.resolution, x.by,
        to_char(x.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END,
    q.new_saga_id, x.dead_letter_id IS NOT NULL
  FROM unnest(p_ids) i
  LEFT JOIN public.dead_letters d ON d.id = i
  LEFT JOIN public.dead_letter_requeues q ON q.dead_letter_id = i
  LEFT JOIN public.dead_letter_resolutions x ON x.dead_letter_id = i
$$;
COMMENT ON FUNCTION public.fn_webhook_letter_closed_by(bigint[]) IS
  'Who requeued or resolved a dead letter and when. Internal.';

-- ---------------------------------------------------------------------------------------------------
-- fn_dead_letter_requeue(ids, actor, reason, dry_run): each open letter → one new saga (same event and
-- subscription, Pending, no attempt, due now, no job). Skipped, with why: closed before, a live or
-- completed saga stands for the pair, subscription inactive or unverified, endpoint suspended (an open
-- circuit is no reason: the saga waits for it). The letters are locked in id order, so of two operators
-- one requeues and the other is told who did. A bulk operation names itself in qtop.operation_id.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_dead_letter_requeue(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := public.fn_webhook_letter_ids(p_dead_letter_ids);
  v_operation bigint := substring(current_setting('qtop.operation_id', true) FROM '^[0-9]{1,18}$')::bigint;
  v_why text[];
  v_sagas bigint[];
  v_audit bigint;
BEGIN
  IF NOT public.fn_cfg_bool('queue.dlq.replay_enabled') THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('dead_letter_requeue',
        format('%s dead letters', cardinality(v_ids)), v_actor, v_reason, NULL, cardinality(v_ids),
        NULL, NULL, 'refused: disabled');
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', 'disabled', 'dry_run', v_dry, 'audit_id', v_audit,
      'reason', 'requeueing is switched off: queue.dlq.replay_enabled is not true');
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;

  SELECT array_agg(COALESCE(c.why || CASE WHEN c.resolved THEN '; reopen it first' ELSE '' END, CASE
      WHEN s.status = 'Completed' THEN format('delivered already by saga %s', s.id)
      WHEN s.id IS NOT NULL THEN format('saga %s stands for it already (%s)', s.id, s.status)
      WHEN g.gate IN ('inactive', 'unverified')
        THEN format('subscription %s is %s', g.subscription_id, g.gate)
      WHEN g.gate = 'suspended' AND g.suspended_reason <> 'circuit'
        THEN format('endpoint suspended (%s) by %s since %s', g.suspended_reason, g.suspended_by,
        to_char(g.suspended_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END) ORDER BY c.id)
  INTO v_why
  FROM public.fn_webhook_letter_closed_by(v_ids) c
  LEFT JOIN public.dead_letters d ON d.id = c.id
  LEFT JOIN public.webhook_delivery_sagas s
    ON s.event_id = d.event_id AND s.subscription_id = d.subscription_id AND s.status <> 'DeadLettered'
  LEFT JOIN public.v_webhook_gate g ON g.subscription_id = d.subscription_id;

  IF NOT v_dry THEN
    WITH born AS (
      INSERT INTO public.webhook_delivery_sagas
        (event_id, subscription_id, requeued_from_dead_letter_id, requeue_generation)
      SELECT d.event_id, d.subscription_id, d.id, old.requeue_generation + 1
      FROM unnest(v_ids, v_why) AS r (id, why)
      JOIN public.dead_letters d ON d.id = r.id
      JOIN public.webhook_delivery_sagas old ON old.id = d.saga_id
      WHERE r.why IS NULL ORDER BY d.id
      ON CONFLICT (event_id, subscription_id) WHERE status <> 'DeadLettered' DO NOTHING
      RETURNING id, requeued_from_dead_letter_id
    ), kept AS (
      INSERT INTO public.dead_letter_requeues (dead_letter_id, new_saga_id, requeued_by, reason, operation_id)
      SELECT b.requeued_from_dead_letter_id, b.id, v_actor, v_reason, v_operation FROM born b ORDER BY 1
    )
    SELECT array_agg(b.id ORDER BY r.n), array_agg(COALESCE(r.why, CASE WHEN b.id IS NULL
      THEN 'another saga for the same event and subscription came first' END) ORDER BY r.n)
    INTO v_sagas, v_why
    FROM unnest(v_ids, v_why) WITH ORDINALITY AS r (id, why, n)
    LEFT JOIN born b ON b.requeued_from_dead_letter_id = r.id;
  END IF;
  RETURN public.fn_webhook_letter_answer('requeue', 'requeued', v_ids, v_why, v_sagas, v_actor, v_reason,
    v_dry);
END $$;
COMMENT ON FUNCTION public.fn_dead_letter_requeue(bigint[], text, text, boolean) IS
  'Makes one new saga per open dead letter, at most once each, and says per id what happened (R02 §3.3).';

-- ---------------------------------------------------------------------------------------------------
-- fn_dead_letter_requeue_undo(ids, actor, reason, dry_run): recalls requeued sagas that have no job yet;
-- saga and requeue record go, the audit keeps both ids, the letter is open again. new_id = the saga
-- that was removed.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_dead_letter_requeue_undo(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := public.fn_webhook_letter_ids(p_dead_letter_ids);
  v_why text[];
  v_sagas bigint[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
    -- the orchestrator skips what is locked here; what it has taken first is seen below
    PERFORM 1 FROM public.webhook_delivery_sagas s
    WHERE s.requeued_from_dead_letter_id = ANY (v_ids) ORDER BY s.id FOR UPDATE;
  END IF;
  SELECT array_agg(CASE
      WHEN c.new_saga_id IS NULL THEN COALESCE(c.why, 'not requeued')
      WHEN s.status <> 'Pending' OR s.attempt_count > 0
        OR EXISTS (SELECT 1 FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id)
      THEN format('saga %s has started (%s)', s.id, s.status) END ORDER BY c.id),
    array_agg(s.id ORDER BY c.id)
  INTO v_why, v_sagas
  FROM public.fn_webhook_letter_closed_by(v_ids) c
  LEFT JOIN public.webhook_delivery_sagas s ON s.id = c.new_saga_id;

  IF NOT v_dry THEN
    DELETE FROM public.dead_letter_requeues q USING unnest(v_ids, v_why) AS r (id, why)
    WHERE q.dead_letter_id = r.id AND r.why IS NULL;
    DELETE FROM public.webhook_delivery_sagas s USING unnest(v_sagas, v_why) AS r (saga, why)
    WHERE s.id = r.saga AND r.why IS NULL;
  END IF;
  RETURN public.fn_webhook_letter_answer('requeue_undo', 'recalled', v_ids, v_why, v_sagas, v_actor,
    v_reason, v_dry);
END $$;
COMMENT ON FUNCTION public.fn_dead_letter_requeue_undo(bigint[], text, text, boolean) IS
  'Recalls requeued sagas that have no job yet; the only way a saga is ever removed.';

-- ---------------------------------------------------------------------------------------------------
-- fn_dead_letter_resolve(ids, resolution, note, actor, dry_run): closes open letters without a requeue.
-- fn_dead_letter_reopen(ids, actor, reason, dry_run): takes that back.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_dead_letter_resolve(p_dead_letter_ids bigint[], p_resolution text, p_note text,
  p_actor text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_ids bigint[] := public.fn_webhook_letter_ids(p_dead_letter_ids);
  v_note text := NULLIF(btrim(p_note), '');
  v_why text[];
BEGIN
  IF p_resolution IS NULL OR p_resolution NOT IN ('abandoned', 'delivered_otherwise', 'duplicate') THEN
    RAISE EXCEPTION 'p_resolution must be abandoned, delivered_otherwise or duplicate, not %',
      COALESCE(quote_literal(p_resolution), 'null') USING ERRCODE = '22023';
  END IF;
  IF length(v_note) > 2000 THEN
    RAISE EXCEPTION 'p_note must have at most 2000 characters' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(c.why ORDER BY c.id) INTO v_why FROM public.fn_webhook_letter_closed_by(v_ids) c;
  IF NOT v_dry THEN
    INSERT INTO public.dead_letter_resolutions (dead_letter_id, resolution, note, by)
    SELECT r.id, p_resolution, v_note, v_actor FROM unnest(v_ids, v_why) AS r (id, why)
    WHERE r.why IS NULL ORDER BY r.id;
  END IF;
  RETURN public.fn_webhook_letter_answer('resolve', 'resolved', v_ids, v_why, NULL, v_actor,
    p_resolution || COALESCE(': ' || v_note, ''), v_dry);
END $$;
COMMENT ON FUNCTION public.fn_dead_letter_resolve(bigint[], text, text, text, boolean) IS
  'Closes open dead letters as abandoned, delivered_otherwise or duplicate.';

CREATE FUNCTION public.fn_dead_letter_reopen(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := public.fn_webhook_letter_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN NOT c.resolved THEN COALESCE(c.why, 'open already') END ORDER BY c.id) INTO v_why
  FROM public.fn_webhook_letter_closed_by(v_ids) c;
  IF NOT v_dry THEN
    DELETE FROM public.dead_letter_resolutions x USING unnest(v_ids, v_why) AS r (id, why)
    WHERE x.dead_letter_id = r.id AND r.why IS NULL;
  END IF;
  RETURN public.fn_webhook_letter_answer('reopen', 'reopened', v_ids, v_why, NULL, v_actor, v_reason, v_dry);
END $$;
COMMENT ON FUNCTION public.fn_dead_letter_reopen(bigint[], text, text, boolean) IS
  'Opens resolved dead letters again; the audit keeps the resolution.';

-- ---------------------------------------------------------------------------------------------------
-- fn_endpoint_suspend(subscription, actor, reason, for): nothing is sent until resumed, or for that long.
-- Refused (rule suspended) where an operator or a 410 has suspended it already; a circuit gives way.
-- fn_endpoint_resume(subscription, actor, reason, expected): lifts any suspension and forgets the failures counted;
-- refused (rule changed) where it is not the one that began at expected.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_endpoint_suspend(p_subscription_id bigint, p_actor text, p_reason text,
  p_for interval DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_target text := 'subscription ' || p_subscription_id;
  v_before public.webhook_endpoint_suspensions;
  v_after public.webhook_endpoint_suspensions;
  v_audit bigint;
BEGIN
  IF p_for <= interval '0' OR p_for > interval '10 years' THEN
    RAISE EXCEPTION 'p_for must be a time ahead of at most 10 years, or null for no end'
      USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.webhook_endpoint_state WHERE subscription_id = p_subscription_id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no subscription %', COALESCE(p_subscription_id::text, 'null')
      USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_before FROM public.webhook_endpoint_suspensions WHERE subscription_id = p_subscription_id;
  IF v_before.reason IN ('410', 'operator') AND COALESCE(v_before.until > clock_timestamp(), true) THEN
    v_audit := public.fn_operator_audit('endpoint_suspend', v_target, v_actor, v_reason, NULL, NULL,
      to_jsonb(v_before), NULL, 'refused: suspended');
    RETURN jsonb_build_object('refused', true, 'rule', 'suspended', 'audit_id', v_audit,
      'reason', format('suspended already (%s) by %s since %s', v_before.reason, v_before."by",
        to_char(v_before.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')));
  END IF;
  INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, since, until, by, note)
  VALUES (p_subscription_id, 'operator', clock_timestamp(), clock_timestamp() + p_for, v_actor, v_reason)
  ON CONFLICT (subscription_id) DO UPDATE SET reason = EXCLUDED.reason, since = EXCLUDED.since,
    until = EXCLUDED.until, by = EXCLUDED.by, note = EXCLUDED.note, probe_job_id = NULL, probe_until = NULL
  RETURNING x.* INTO v_after;
  v_audit := public.fn_operator_audit('endpoint_suspend', v_target, v_actor, v_reason, NULL, NULL,
    to_jsonb(v_before), to_jsonb(v_after));
  RETURN jsonb_build_object('action', 'endpoint_suspend', 'subscription_id', p_subscription_id,
    'since', v_after.since, 'until', v_after.until, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_endpoint_suspend(bigint, text, text, interval) IS
  'Stops sending to one subscription; its sagas wait and spend no attempt.';

CREATE FUNCTION public.fn_endpoint_resume(p_subscription_id bigint, p_actor text, p_reason text,
  p_expected_since timestamptz DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_target text := 'subscription ' || p_subscription_id;
  v_before public.webhook_endpoint_suspensions;
  v_audit bigint;
BEGIN
  PERFORM 1 FROM public.webhook_endpoint_state WHERE subscription_id = p_subscription_id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no subscription %', COALESCE(p_subscription_id::text, 'null')
      USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_before FROM public.webhook_endpoint_suspensions x WHERE x.subscription_id = p_subscription_id;
  IF v_before.since <> p_expected_since THEN
    v_audit := public.fn_operator_audit('endpoint_resume', v_target, v_actor, v_reason, NULL, NULL,
      to_jsonb(v_before), NULL, 'refused: changed');
    RETURN jsonb_build_object('refused', true, 'rule', 'changed', 'audit_id', v_audit,
      'reason', format('meanwhile it was suspended anew (%s) by %s at %s', v_before.reason, v_before."by",
        to_char(v_before.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')));
  END IF;
  DELETE FROM public.webhook_endpoint_suspensions x WHERE x.subscription_id = p_subscription_id
  RETURNING x.* INTO v_before;
  IF NOT FOUND THEN
    v_audit := public.fn_operator_audit('endpoint_resume', v_target, v_actor, v_reason, NULL, NULL,
      NULL, NULL, 'refused: not_suspended');
    RETURN jsonb_build_object('refused', true, 'rule', 'not_suspended', 'audit_id', v_audit,
      'reason', 'it is not suspended');
  END IF;
  UPDATE public.webhook_endpoint_state SET consecutive_failures = 0 WHERE subscription_id = p_subscription_id;
  v_audit := public.fn_operator_audit('endpoint_resume', v_target, v_actor, v_reason, NULL, NULL,
    to_jsonb(v_before), NULL);
  RETURN jsonb_build_object('action', 'endpoint_resume', 'subscription_id', p_subscription_id,
    'was', v_before.reason, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_endpoint_resume(bigint, text, text, timestamptz) IS
  'Lifts the suspension or circuit of one subscription; what waited is due at once.';

-- ---------------------------------------------------------------------------------------------------
-- v_webhook_backlog: what waits per subscription, from counters and the ends of two indexes.
-- oldest_at is when the oldest work that is due became due; NULL while all of it is due later.
-- ---------------------------------------------------------------------------------------------------
CREATE VIEW public.v_webhook_backlog AS
WITH waiting AS MATERIALIZED (
  SELECT c.k1::bigint AS subscription_id, sum(c.n)::bigint AS n FROM public.v_queue_counter c
  WHERE c.scope = 'saga' AND c.k2 IN ('Pending', 'PendingRetry', 'InProgress')
  GROUP BY c.k1 HAVING sum(c.n) > 0
)
SELECT w.subscription_id, s.endpoint, w.n AS waiting, least(
  (SELECT g.next_attempt_at FROM (SELECT g.next_attempt_at FROM public.webhook_delivery_sagas g
      WHERE g.status IN ('Pending', 'PendingRetry') AND g.subscription_id = w.subscription_id
      ORDER BY g.next_attempt_at LIMIT 1) g WHERE g.next_attempt_at <= now()),
  (SELECT j.attempt_at FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id = w.subscription_id
    ORDER BY j.id LIMIT 1),
  (SELECT j.attempt_at FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Pending' AND j.controlled AND j.subscription_id = w.subscription_id
    ORDER BY j.id LIMIT 1)) AS oldest_at
FROM waiting w JOIN public.subscriptions s ON s.id = w.subscription_id;
COMMENT ON VIEW public.v_webhook_backlog IS
  'Deliveries waiting per subscription and since when the oldest is due; counters and indexes only.';

CREATE FUNCTION public.fn_webhook_backlog()
RETURNS TABLE (subscription_id bigint, endpoint text, waiting bigint, oldest_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT b.subscription_id, b.endpoint, b.waiting, b.oldest_at FROM public.v_webhook_backlog b
$$;
COMMENT ON FUNCTION public.fn_webhook_backlog() IS 'v_webhook_backlog for the health snapshot. Internal.';

-- ---------------------------------------------------------------------------------------------------
-- v_webhook_endpoint: one row per subscription for the panes; nothing in it scans history.
-- ---------------------------------------------------------------------------------------------------
CREATE VIEW public.v_webhook_endpoint AS
WITH dead AS MATERIALIZED (
  SELECT c.k2::bigint AS subscription_id, sum(c.n)::bigint AS n FROM public.v_queue_counter c
  WHERE c.scope = 'dead_webhook' GROUP BY c.k2 HAVING sum(c.n) > 0
)
SELECT s.id AS subscription_id, s.event_type, s.callback_url, s.endpoint, s.active, s.verified,
  s.secret_ref IS NULL AS unsigned, s.max_attempts, s.rate_limit_per_second, g.gate,
  COALESCE(b.waiting, 0) AS waiting, b.oldest_at AS oldest_waiting_at, COALESCE(d.n, 0) AS dead_open,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_reason END AS suspended_reason,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_since END AS suspended_since,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_until END AS suspended_until,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_by END AS suspended_by,
  t.consecutive_failures, t.last_success_at, t.last_failure_at, t.last_failure_code,
  s.created_at, s.updated_at
FROM public.subscriptions s
JOIN public.v_webhook_gate g ON g.subscription_id = s.id
LEFT JOIN public.webhook_endpoint_state t ON t.subscription_id = s.id
LEFT JOIN public.v_webhook_backlog b ON b.subscription_id = s.id
LEFT JOIN dead d ON d.subscription_id = s.id;
COMMENT ON VIEW public.v_webhook_endpoint IS
  'Each subscription with its gate, what waits, what is dead and how it has answered lately.';

REVOKE ALL ON FUNCTION public.fn_webhook_letter_ids(bigint[]),
  public.fn_webhook_letter_answer(text, text, bigint[], text[], bigint[], text, text, boolean),
  public.fn_webhook_letter_closed_by(bigint[]), public.fn_dead_letter_requeue(bigint[], text, text, boolean),
  public.fn_dead_letter_requeue_undo(bigint[], text, text, boolean),
  public.fn_dead_letter_resolve(bigint[], text, text, text, boolean),
  public.fn_dead_letter_reopen(bigint[], text, text, boolean),
  public.fn_endpoint_suspend(bigint, text, text, interval), public.fn_endpoint_resume(bigint, text, text, timestamptz),
  public.fn_webhook_backlog() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_dead_letter_requeue(bigint[], text, text, boolean),
  public.fn_dead_letter_requeue_undo(bigint[], text, text, boolean),
  public.fn_dead_letter_resolve(bigint[], text, text, text, boolean),
  public.fn_dead_letter_reopen(bigint[], text, text, boolean),
  public.fn_endpoint_suspend(bigint, text, text, interval), public.fn_endpoint_resume(bigint, text, text, timestamptz)
  TO dead_letter_operator;
GRANT SELECT ON public.v_webhook_backlog, public.v_webhook_endpoint
  TO queue_viewer, dead_letter_operator, workflow_admin, subscription_admin;

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP VIEW public.v_webhook_endpoint;
DROP FUNCTION public.fn_webhook_backlog();
DROP VIEW public.v_webhook_backlog;
DROP FUNCTION public.fn_endpoint_resume(bigint, text, text, timestamptz);
DROP FUNCTION public.fn_endpoint_suspend(bigint, text, text, interval);
DROP FUNCTION public.fn_dead_letter_reopen(bigint[], text, text, boolean);
DROP FUNCTION public.fn_dead_letter_resolve(bigint[], text, text, text, boolean);
DROP FUNCTION public.fn_dead_letter_requeue_undo(bigint[], text, text, boolean);
DROP FUNCTION public.fn_dead_letter_requeue(bigint[], text, text, boolean);
DROP FUNCTION public.fn_webhook_letter_closed_by(bigint[]);
DROP FUNCTION public.fn_webhook_letter_answer(text, text, bigint[], text[], bigint[], text, text, boolean);
DROP FUNCTION public.fn_webhook_letter_ids(bigint[]);
RESET ROLE;
