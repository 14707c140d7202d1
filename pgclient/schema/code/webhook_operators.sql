-- Webhooks, operator functions: requeue and undo, resolve and reopen dead letters. Source: R02 §3.3, §4.3.
-- Each function writes its audit row in its own transaction. A dry run takes the same path and writes nothing.

-- fn_webhook_dead_letter_ids(ids) → the ids without duplicates, sorted; raises 22023 for an empty or too long list, a
-- list of lists and a NULL id. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_dead_letter_ids(p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (cardinality(p_ids) BETWEEN 1 AND 100000) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_dead_letter_ids must hold 1 to 100000 ids, not %', COALESCE(cardinality(p_ids), 0)
      USING ERRCODE = '22023';
  ELSIF array_ndims(p_ids) > 1 THEN
    RAISE EXCEPTION 'p_dead_letter_ids must hold ids, not lists of ids' USING ERRCODE = '22023';
  ELSIF array_position(p_ids, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'p_dead_letter_ids[%] is null, not an id', array_position(p_ids, NULL) USING ERRCODE = '22023';
  END IF;
  RETURN (SELECT array_agg(DISTINCT i ORDER BY i) FROM unnest(p_ids) i);
END $$;
COMMENT ON FUNCTION public.fn_webhook_dead_letter_ids IS 'Checks and sorts dead letter ids. Internal.';

-- fn_webhook_dead_letter_answer(...): builds the result of the dead letter functions and writes their audit row. The
-- audit row has each changed dead letter with its new or deleted saga. p_why: per id the reason why it was skipped,
-- NULL = the action was done. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_dead_letter_answer(p_action text, p_done text, p_ids bigint[],
  p_why text[], p_sagas bigint[], p_actor text, p_reason text, p_dry_run boolean, p_operation_id bigint) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
    v_audit := public.fn_operator_audit(
      p_action => 'dead_letter_' || p_action,
      p_target => 'dead_letter ' || array_to_string(p_ids[1:20], ',') || CASE WHEN cardinality(p_ids) > 20
        THEN format(' and %s more', cardinality(p_ids) - 20) ELSE '' END,
      p_actor => p_actor, p_reason => p_reason, p_frozen_count => cardinality(p_ids)::bigint,
      p_after => jsonb_build_object(p_done, v_done, 'skipped', v_skipped, 'letters',
        ( SELECT COALESCE(jsonb_agg(jsonb_build_array(r.id, r.saga) ORDER BY r.id), '[]')
        FROM unnest(p_ids, p_why, p_sagas) AS r (id, why, saga) WHERE r.why IS NULL)),
      p_outcome => CASE WHEN v_done = 0 THEN 'refused' ELSE 'done' END,
      p_filter => NULL::text, p_before => NULL::jsonb, p_operation_id => p_operation_id);
  END IF;
  RETURN jsonb_build_object('action', p_action, 'dry_run', p_dry_run, p_done, v_done, 'skipped', v_skipped,
    'results', v_results, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_webhook_dead_letter_answer IS
  'Builds the result of the dead letter functions and writes their audit row. Internal.';

-- fn_webhook_dead_letter_closed_by(ids) → the person who closed each dead letter, and the time; why NULL = it is open.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_dead_letter_closed_by(p_ids bigint[])
RETURNS TABLE (id bigint, why text, new_saga_id bigint, resolved boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT i, CASE
      WHEN d.id IS NULL THEN 'no such dead letter: never written, or removed by retention'
      WHEN q.dead_letter_id IS NOT NULL THEN format('already requeued by %s at %s as saga %s', q.requeued_by,
        to_char(q.requeued_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), q.new_saga_id)
      WHEN x.dead_letter_id IS NOT NULL THEN format('resolved as %s by %s at %s', x.resolution, x.by,
        to_char(x.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END,
    q.new_saga_id, x.dead_letter_id IS NOT NULL
  FROM unnest(p_ids) i
  -- one look-up for each: a session keeps the plan, which may be older than the rows of these tables
  LEFT JOIN LATERAL (SELECT y.id FROM public.dead_letters y WHERE y.id = i OFFSET 0) d ON true
  LEFT JOIN LATERAL (SELECT y.* FROM public.dead_letter_requeues y WHERE y.dead_letter_id = i OFFSET 0) q ON true
  LEFT JOIN LATERAL (SELECT y.* FROM public.dead_letter_resolutions y WHERE y.dead_letter_id = i OFFSET 0) x ON true
$$;
COMMENT ON FUNCTION public.fn_webhook_dead_letter_closed_by IS
  'Who requeued or resolved a dead letter and when. Internal.';

-- fn_dead_letter_requeue(ids, actor, reason, dry_run): makes one new saga per open dead letter: same event and webhook
-- subscription, Pending, no attempts, due now, no job. Skipped, with the reason: a dead letter that is closed; an
-- erased payload; a live or completed saga of the same event and subscription; a subscription that is inactive or
-- unverified; a suspended endpoint (an open circuit is no reason to skip: the saga waits for it). Dead letters are
-- locked in id order: if two operators requeue the same one, the first requeues it and the second is shown the name of
-- the first.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_requeue(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_dead_letter_requeue_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END $$;
COMMENT ON FUNCTION public.fn_dead_letter_requeue IS
  'Makes one new saga per open dead letter, at most once each, and returns an outcome per id (R02 §3.3).';
GRANT EXECUTE ON FUNCTION public.fn_dead_letter_requeue TO :"dead_letter_operator";

-- fn_dead_letter_requeue_as(ids, actor, reason, dry_run, operation): fn_dead_letter_requeue on behalf of a bulk
-- operation, NULL = on behalf of a person. No login may call this function, and only it has the argument operation, so
-- that nobody can attribute a requeue to an operation that did not make it. Internal.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_requeue_as(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean, p_operation_id bigint) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := public.fn_webhook_dead_letter_ids(p_dead_letter_ids);
  v_why text[];
  v_sagas bigint[];
  v_refused jsonb := public.fn_queue_requeue_refusal(
    p_kind => 'requeue_webhook'::text, p_action => 'dead_letter_requeue'::text,
    p_target => format('%s dead letters', cardinality(v_ids)), p_actor => v_actor, p_reason => v_reason,
    p_dry_run => v_dry);
BEGIN
  IF v_refused IS NOT NULL THEN
    RETURN v_refused;
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;

  SELECT array_agg(COALESCE(c.why || CASE WHEN c.resolved THEN '; reopen it first' ELSE '' END, CASE
      WHEN r.event_id IS NOT NULL THEN format('the event was erased by %s at %s: there is no payload to send',
        r.erased_by, to_char(r.erased_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
      WHEN s.status = 'Completed' THEN format('the event was delivered already, by saga %s', s.id)
      WHEN s.id IS NOT NULL THEN format('saga %s delivers the event already (%s)', s.id, s.status)
      WHEN g.gate IN ('inactive', 'unverified')
        THEN format('webhook subscription %s is %s: %s it first', g.subscription_id, g.gate,
        CASE g.gate WHEN 'inactive' THEN 'enable' ELSE 'verify' END)
      WHEN g.gate = 'suspended' AND g.suspended_reason <> 'circuit'
        THEN format('endpoint suspended (%s) by %s since %s: resume webhook subscription %s first', g.suspended_reason,
        g.suspended_by, to_char(g.suspended_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
        g.subscription_id) END) ORDER BY c.id)
  INTO v_why
  FROM public.fn_webhook_dead_letter_closed_by(v_ids) c
  LEFT JOIN public.dead_letters d ON d.id = c.id
  LEFT JOIN public.webhook_erasure r ON r.event_id = d.event_id
  LEFT JOIN public.webhook_delivery_sagas s
    ON s.event_id = d.event_id AND s.subscription_id = d.subscription_id AND s.status <> 'DeadLettered'
  LEFT JOIN public.v_webhook_gate g ON g.subscription_id = d.subscription_id;

  IF NOT v_dry THEN
    WITH born AS (
      INSERT INTO public.webhook_delivery_sagas
        (event_id, subscription_id, requeued_from_dead_letter_id, requeue_generation, webhook_id)
      SELECT d.event_id, d.subscription_id, d.id, old.requeue_generation + 1, old.webhook_id
      FROM unnest(v_ids, v_why) AS r (id, why)
      JOIN public.dead_letters d ON d.id = r.id
      JOIN public.webhook_delivery_sagas old ON old.id = d.saga_id
      WHERE r.why IS NULL ORDER BY d.id
      ON CONFLICT (event_id, subscription_id) WHERE status <> 'DeadLettered' DO NOTHING
      RETURNING id, requeued_from_dead_letter_id
    ), kept AS (
      INSERT INTO public.dead_letter_requeues (dead_letter_id, new_saga_id, requeued_by, reason, operation_id)
      SELECT b.requeued_from_dead_letter_id, b.id, v_actor, v_reason, p_operation_id FROM born b ORDER BY 1
    ), made AS MATERIALIZED ( -- by id: see job_claim.sql
      SELECT jsonb_object_agg(b.requeued_from_dead_letter_id, b.id) AS of FROM born b
    )
    SELECT array_agg(x.saga ORDER BY x.n), array_agg(COALESCE(x.why, CASE WHEN x.saga IS NULL
      THEN 'another saga was made for the same event and subscription' END) ORDER BY x.n)
    INTO v_sagas, v_why
    FROM ( -- a join would copy the object for each id
      SELECT r.n, r.why, ((SELECT m.of FROM made m) ->> r.id::text)::bigint AS saga
      FROM unnest(v_ids, v_why) WITH ORDINALITY AS r (id, why, n) OFFSET 0) x;
  END IF;
  RETURN public.fn_webhook_dead_letter_answer(
    p_action => 'requeue', p_done => 'requeued', p_ids => v_ids, p_why => v_why, p_sagas => v_sagas,
    p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END $$;
COMMENT ON FUNCTION public.fn_dead_letter_requeue_as IS
  'Requeues dead letters for an operator or for the bulk operation given. Internal.';

-- fn_dead_letter_requeue_undo(ids, actor, reason, dry_run): undoes requeues whose saga has no job yet. Deletes the saga
-- and the requeue record, and the dead letter is open again; the audit row keeps both ids. new_id = the deleted saga.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_requeue_undo(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_dead_letter_requeue_undo_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$$;
COMMENT ON FUNCTION public.fn_dead_letter_requeue_undo IS
  'Undoes requeues whose saga has no job yet; the only function that deletes a saga.';
GRANT EXECUTE ON FUNCTION public.fn_dead_letter_requeue_undo TO :"dead_letter_operator";

-- fn_dead_letter_requeue_undo_as(…, operation): fn_dead_letter_requeue_undo on behalf of a bulk operation, NULL = on
-- behalf of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_requeue_undo_as(p_dead_letter_ids bigint[], p_actor text,
  p_reason text,
  p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := public.fn_webhook_dead_letter_ids(p_dead_letter_ids);
  v_why text[];
  v_sagas bigint[];
  v_locked bigint[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
    -- The orchestrator skips the sagas that are locked here. Sagas that have started are not locked: the orchestrator
    -- changes them in another order. One that starts between the two statements is, but nothing is waited for then.
    -- one look-up for each: with = ANY, each pending saga would be compared with the whole list
    v_sagas := ARRAY(SELECT s.id FROM unnest(v_ids) AS r (id) CROSS JOIN LATERAL (SELECT x.id, x.status
      FROM public.webhook_delivery_sagas x WHERE x.requeued_from_dead_letter_id = r.id OFFSET 0) s
      WHERE s.status = 'Pending');
    v_locked := ARRAY(SELECT s.id FROM unnest(v_sagas) AS r (id) CROSS JOIN LATERAL (SELECT x.id, x.status
      FROM public.webhook_delivery_sagas x WHERE x.id = r.id OFFSET 0 FOR UPDATE SKIP LOCKED) s
      WHERE s.status = 'Pending'); -- found by id alone, for OFFSET 0: see job_claim.sql
  END IF;
  SELECT array_agg(CASE
      WHEN c.new_saga_id IS NULL THEN COALESCE(c.why, 'not requeued: there is nothing to undo')
      WHEN s.status <> 'Pending' OR s.attempt_count > 0
        OR EXISTS (SELECT 1 FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id)
      THEN format('saga %s has started (%s): it cannot be recalled', s.id, s.status)
      WHEN NOT v_dry AND (s.id IN (SELECT unnest(v_locked))) IS NOT TRUE
      THEN format('another transaction, such as a run of the orchestrator, changes saga %s at this moment: try again',
        c.new_saga_id) END ORDER BY c.id),
    array_agg(s.id ORDER BY c.id)
  INTO v_why, v_sagas
  FROM public.fn_webhook_dead_letter_closed_by(v_ids) c
  LEFT JOIN public.webhook_delivery_sagas s ON s.id = c.new_saga_id;

  IF NOT v_dry THEN
    DELETE FROM public.dead_letter_requeues q USING unnest(v_ids, v_why) AS r (id, why)
    WHERE q.dead_letter_id = r.id AND r.why IS NULL;
    DELETE FROM public.webhook_delivery_sagas s USING unnest(v_sagas, v_why) AS r (saga, why)
    WHERE s.id = r.saga AND r.why IS NULL;
  END IF;
  RETURN public.fn_webhook_dead_letter_answer(
    p_action => 'requeue_undo', p_done => 'recalled', p_ids => v_ids, p_why => v_why, p_sagas => v_sagas,
    p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_dead_letter_requeue_undo_as IS
  'fn_dead_letter_requeue_undo on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_dead_letter_resolve(ids, resolution, note, actor, dry_run): closes open dead letters without a requeue.
-- fn_dead_letter_reopen(ids, actor, reason, dry_run): opens them again.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_resolve(p_dead_letter_ids bigint[], p_resolution text, p_note text,
  p_actor text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_dead_letter_resolve_as(p_dead_letter_ids => p_dead_letter_ids, p_resolution => p_resolution,
    p_note => p_note, p_actor => p_actor, p_dry_run => p_dry_run, p_operation_id => NULL::bigint);
END
$$;
COMMENT ON FUNCTION public.fn_dead_letter_resolve IS
  'Closes open dead letters as abandoned, delivered_otherwise or duplicate.';
GRANT EXECUTE ON FUNCTION public.fn_dead_letter_resolve TO :"dead_letter_operator";

-- fn_dead_letter_resolve_as(…, operation): fn_dead_letter_resolve on behalf of a bulk operation, NULL = on behalf of a
-- person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_resolve_as(p_dead_letter_ids bigint[], p_resolution text, p_note text,
  p_actor text, p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_ids bigint[] := public.fn_webhook_dead_letter_ids(p_dead_letter_ids);
  v_note text := public.fn_trimmed(p_note);
  v_why text[];
BEGIN
  IF p_resolution IS NULL OR p_resolution NOT IN ('abandoned', 'delivered_otherwise', 'duplicate') THEN
    RAISE EXCEPTION 'p_resolution must be abandoned, delivered_otherwise or duplicate, not %',
      COALESCE(quote_literal(left(p_resolution, 60)), 'null') USING ERRCODE = '22023';
  END IF;
  IF length(v_note) > 2000 THEN
    RAISE EXCEPTION 'p_note must have at most 2000 characters' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(c.why ORDER BY c.id) INTO v_why FROM public.fn_webhook_dead_letter_closed_by(v_ids) c;
  IF NOT v_dry THEN
    INSERT INTO public.dead_letter_resolutions (dead_letter_id, resolution, note, by)
    SELECT r.id, p_resolution, v_note, v_actor FROM unnest(v_ids, v_why) AS r (id, why)
    WHERE r.why IS NULL ORDER BY r.id;
  END IF;
  RETURN public.fn_webhook_dead_letter_answer(
    p_action => 'resolve', p_done => 'resolved', p_ids => v_ids, p_why => v_why, p_sagas => NULL,
    p_actor => v_actor, p_reason => p_resolution || COALESCE(': ' || v_note, ''), p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_dead_letter_resolve_as IS
  'fn_dead_letter_resolve on behalf of a bulk operation (NULL = of a person). Internal.';

CREATE OR REPLACE FUNCTION public.fn_dead_letter_reopen(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_dead_letter_reopen_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$$;
COMMENT ON FUNCTION public.fn_dead_letter_reopen IS
  'Opens resolved dead letters again; the audit row keeps the resolution.';
GRANT EXECUTE ON FUNCTION public.fn_dead_letter_reopen TO :"dead_letter_operator";

-- fn_dead_letter_reopen_as(…, operation): fn_dead_letter_reopen on behalf of a bulk operation, NULL = on behalf of a
-- person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_dead_letter_reopen_as(p_dead_letter_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := public.fn_webhook_dead_letter_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.dead_letters WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN NOT c.resolved
      THEN COALESCE(c.why, 'open already: there is nothing to reopen') END ORDER BY c.id) INTO v_why
  FROM public.fn_webhook_dead_letter_closed_by(v_ids) c;
  IF NOT v_dry THEN
    DELETE FROM public.dead_letter_resolutions x USING unnest(v_ids, v_why) AS r (id, why)
    WHERE x.dead_letter_id = r.id AND r.why IS NULL;
  END IF;
  RETURN public.fn_webhook_dead_letter_answer(
    p_action => 'reopen', p_done => 'reopened', p_ids => v_ids, p_why => v_why, p_sagas => NULL, p_actor => v_actor,
    p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_dead_letter_reopen_as IS
  'fn_dead_letter_reopen on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_webhook_lease_release(job ids, actor, reason, dry_run): resets expired leases at once, as the cleaner would: to
-- Pending, or to Failed at the third loss. A lease that has not expired is skipped.
CREATE OR REPLACE FUNCTION public.fn_webhook_lease_release(p_job_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_all bigint[];
  v_ids bigint[]; -- those whose lease has expired
  v_done bigint;
  v_results jsonb;
  v_audit bigint;
BEGIN
  IF p_job_ids IS NULL OR cardinality(p_job_ids) NOT BETWEEN 1 AND 100000 OR array_ndims(p_job_ids) > 1
    OR array_position(p_job_ids, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'p_job_ids must hold 1 to 100000 ids' USING ERRCODE = '22023';
  END IF;
  v_all := (SELECT array_agg(DISTINCT i ORDER BY i) FROM unnest(p_job_ids) i);
  IF NOT v_dry THEN
    PERFORM 1 FROM public.webhook_delivery_jobs j WHERE j.id = ANY (v_all) ORDER BY j.id FOR UPDATE;
  END IF;
  WITH verdict AS MATERIALIZED (
    SELECT i AS id, CASE
        WHEN j.id IS NULL THEN 'no such webhook job'
        WHEN j.status <> 'Leased' THEN format('the job is %s, not leased: there is nothing to release', j.status)
        WHEN j.lease_until >= now() THEN format('the lease runs until %s: host %s may be sending',
          to_char(j.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), j.worker_id) END AS why
    FROM unnest(v_all) i LEFT JOIN public.webhook_delivery_jobs j ON j.id = i)
  SELECT count(*) FILTER (WHERE v.why IS NULL), array_agg(v.id) FILTER (WHERE v.why IS NULL),
    jsonb_agg(jsonb_build_object('id', v.id, 'why', v.why, 'outcome',
      CASE WHEN v.why IS NOT NULL THEN 'skipped' WHEN v_dry THEN 'would_release' ELSE 'released' END) ORDER BY v.id)
  INTO v_done, v_ids, v_results FROM verdict v;
  IF NOT v_dry THEN
    PERFORM public.fn_webhook_lease_lose(v_ids);
    v_audit := public.fn_operator_audit(
      p_action => 'webhook_lease_release', p_target => 'webhook_lease ' || array_to_string(v_all[1:20], ',')
        || CASE WHEN cardinality(v_all) > 20 THEN format(' and %s more', cardinality(v_all) - 20) ELSE '' END,
      p_actor => v_actor, p_reason => v_reason, p_frozen_count => cardinality(v_all)::bigint,
      p_after => jsonb_build_object('released', v_done, 'skipped', cardinality(v_all) - v_done, 'jobs',
        to_jsonb(COALESCE(v_ids, '{}'))),
      p_outcome => CASE WHEN v_done = 0 THEN 'refused' ELSE 'done' END,
      p_filter => NULL::text, p_before => NULL::jsonb);
  END IF;
  RETURN jsonb_build_object('action', 'release', 'dry_run', v_dry, 'released', v_done, 'skipped',
    cardinality(v_all) - v_done,
    'results', v_results, 'audit_id', v_audit);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_webhook_lease_release TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_webhook_lease_release IS
  'Resets expired leases of webhook jobs at once.';
