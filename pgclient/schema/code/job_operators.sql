-- Jobs, operator functions: cancel, release an expired lease, replay, resolve and reopen dead letters.
-- Sources: DP4, DP6 §6.
-- Each function writes its audit row in its own transaction. A dry run takes the same path and writes nothing.

-- fn_job_ids(ids) → the ids without duplicates, sorted. Raises 22023 for an empty or too long list, a list of lists
-- and a null id. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_ids(p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (cardinality(p_ids) BETWEEN 1 AND 100000) IS NOT TRUE THEN
    RAISE EXCEPTION 'the list must hold 1 to 100000 ids (UUIDs), not %', COALESCE(cardinality(p_ids), 0)
      USING ERRCODE = '22023';
  ELSIF array_ndims(p_ids) > 1 THEN
    RAISE EXCEPTION 'the list must hold ids (UUIDs), not lists of ids' USING ERRCODE = '22023';
  ELSIF array_position(p_ids, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'id % of the list is null, not a uuid', array_position(p_ids, NULL) USING ERRCODE = '22023';
  END IF;
  RETURN (SELECT array_agg(DISTINCT i ORDER BY i) FROM unnest(p_ids) i);
END $$;
COMMENT ON FUNCTION public.fn_job_ids IS
  'Checks, deduplicates and sorts ids of jobs, dead letters or leases. Internal.';

-- fn_job_answer(action, target, done word, ids, why, new ids, actor, reason, dry run, operation, codes) → {action,
-- dry_run, <done word>: n, skipped: n, results: [{id, outcome, why, new_id, code}], audit_id}: the result of every
-- operator function of job_operators.sql. why: per id the reason why it was skipped, NULL = the action was done. codes:
-- the error code of each id on which the action was tried and failed. skipped counts these as well; the audit row
-- counts them apart, and its outcome is failed if the action was tried on some and succeeded on none. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_answer(p_action text, p_target text, p_done text, p_ids uuid[],
  p_why text[], p_new uuid[], p_actor text, p_reason text, p_dry_run boolean, p_operation_id bigint DEFAULT NULL,
  p_codes jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_done bigint := (SELECT count(*) FROM unnest(p_ids, p_why) AS w (id, why) WHERE w.why IS NULL);
  v_skipped bigint := cardinality(p_ids) - v_done;
  v_failed bigint := (SELECT count(*) FROM jsonb_object_keys(p_codes));
  v_results jsonb;
  v_audit bigint;
BEGIN
  SELECT jsonb_agg(jsonb_build_object('id', r.id, 'why', r.why, 'new_id', r.new, 'outcome', CASE
      WHEN p_codes ? r.id::text THEN 'failed' WHEN r.why IS NOT NULL THEN 'skipped'
      WHEN p_dry_run THEN 'would_' || p_action ELSE p_done END)
      || CASE WHEN p_codes ? r.id::text THEN jsonb_build_object('code', p_codes -> r.id::text) ELSE '{}' END
      ORDER BY r.n)
  INTO v_results FROM unnest(p_ids, p_why, p_new) WITH ORDINALITY AS r (id, why, new, n);
  IF NOT p_dry_run THEN
    v_audit := public.fn_operator_audit(
      p_action => p_target || '_' || p_action,
      p_target => p_target || ' ' || array_to_string(p_ids[1:20], ',') || CASE WHEN cardinality(p_ids) > 20
        THEN format(' and %s more', cardinality(p_ids) - 20) ELSE '' END,
      p_actor => p_actor, p_reason => p_reason, p_frozen_count => cardinality(p_ids)::bigint,
      p_after => jsonb_build_object(p_done, v_done, 'skipped', v_skipped - v_failed, 'ids',
        ( SELECT COALESCE(jsonb_agg(jsonb_build_array(r.id, r.new) ORDER BY r.id), '[]')
        FROM unnest(p_ids, p_why, p_new) AS r (id, why, new) WHERE r.why IS NULL))
        || CASE WHEN v_failed = 0 THEN '{}' ELSE jsonb_build_object('failed', v_failed, 'failures',
          (SELECT jsonb_agg(jsonb_build_array(c.key, c.value) ORDER BY c.key) FROM jsonb_each(p_codes) c)) END,
      p_outcome => CASE WHEN v_done > 0 THEN 'done' WHEN v_failed > 0 THEN 'failed' ELSE 'refused' END,
      p_filter => NULL::text, p_before => NULL::jsonb, p_operation_id => p_operation_id);
  END IF;
  RETURN jsonb_build_object('action', p_action, 'dry_run', p_dry_run, p_done, v_done, 'skipped', v_skipped,
    'results', v_results, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_job_answer IS
  'Builds the result of an operator function of jobs and writes its audit row. Internal.';

-- fn_job_finish(ids, tokens, status) → the ids of the moved jobs: moves live jobs to job_history, as succeeded or
-- cancelled, and removes them from their leases. tokens: per job, the token of the lease that must still hold it; NULL
-- = move each job whatever its lease. A cancelled job whose payload is damaged keeps no payload. That of a job that
-- succeeded is not looked at, because results are frequent: damage since the worker read it makes the call fail. The
-- caller has locked the leases. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_finish(p_job_ids uuid[], p_lease_tokens uuid[], p_status text) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_ids uuid[];
  v_token uuid; -- of all jobs, NULL = they have different tokens, or none is given
  v_done uuid[];
  v_freed uuid[];
  v_keyed uuid[];
BEGIN
  v_ids := p_job_ids;
  -- usually all are of one claim; then the DELETE compares the token
  v_token := CASE WHEN p_lease_tokens[1] = ALL (p_lease_tokens) THEN p_lease_tokens[1] END;
  IF p_lease_tokens IS NOT NULL AND v_token IS NULL THEN
    -- one look-up per job, then only = ANY: see job_claim.sql
    v_ids := ARRAY(SELECT g.id FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
      CROSS JOIN LATERAL (SELECT FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token OFFSET 0) x);
  END IF;
  WITH deleted AS (
    DELETE FROM public.job_queue q WHERE q.job_id = ANY (v_ids) AND (v_token IS NULL OR q.lease_token = v_token)
    RETURNING q.*
  ), archived AS (
    INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, ready, priority, process_after,
      enqueued_at, picked_at, finished_at, lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
      idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
      correlation_id, causation_event_id, updated_at, prior_token, prior_result, from_status)
    SELECT job_id, job_kind, event_domain, executor, p_status, ready, priority, process_after,
      enqueued_at, picked_at, now(), lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
      idempotency_key, source_ref, target_ref, payload_ref,
      CASE WHEN p_status <> 'succeeded' AND public.fn_job_payload_damage(payload) IS NOT NULL THEN '{}'
        ELSE payload END,
      last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id, now(), prior_token,
      prior_result, status
    FROM deleted
  )
  SELECT array_agg(x.job_id), array_agg(x.lease_token) FILTER (WHERE x.lease_token IS NOT NULL),
    array_agg(x.job_id) FILTER (WHERE x.idempotency_key IS NOT NULL)
  INTO v_done, v_freed, v_keyed FROM deleted x;
  IF v_keyed IS NOT NULL THEN
    UPDATE public.producer_key k SET status = p_status, final_at = now() WHERE k.target_id = ANY (v_keyed);
  END IF;
  PERFORM public.fn_job_lease_less(v_freed);
  RETURN v_done;
END $$;
COMMENT ON FUNCTION public.fn_job_finish IS
  'Moves live jobs to history, as succeeded or cancelled, and removes them from their leases. Internal.';

-- fn_job_cancel(ids, actor, reason, dry_run): moves live jobs to job_history as cancelled. A worker that holds such a
-- job gets the outcome lease_lost when it renews the lease or records a result.
CREATE OR REPLACE FUNCTION public.fn_job_cancel(p_job_ids uuid[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_job_cancel_seen(p_job_ids, NULL::timestamptz[], p_actor, p_reason, p_dry_run);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_cancel TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_cancel IS 'Cancels live jobs, and returns an outcome per id.';

-- fn_job_cancel_seen(ids, seen, actor, reason, dry_run): fn_job_cancel for jobs that were selected by their state.
-- seen: per id, the updated_at with which the job was selected; a job that has changed since, such as one that was
-- claimed, is skipped. NULL = cancel them in any state.
CREATE OR REPLACE FUNCTION public.fn_job_cancel_seen(p_job_ids uuid[], p_seen timestamptz[], p_actor text,
  p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_job_ids);
  v_tokens uuid[];
  v_locked uuid[];
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    SELECT array_agg(DISTINCT q.lease_token) INTO v_tokens FROM public.job_queue q WHERE q.job_id = ANY (v_ids);
    PERFORM 1 FROM public.job_lease l WHERE l.lease_token = ANY (v_tokens) ORDER BY l.lease_token FOR UPDATE;
    v_locked := ARRAY(SELECT q.job_id FROM public.job_queue q
      WHERE q.job_id = ANY (v_ids) AND (q.lease_token IS NULL OR q.lease_token IN (SELECT unnest(v_tokens)))
      ORDER BY q.job_id FOR UPDATE);
  END IF;
  SELECT array_agg(CASE
      WHEN q.job_id IS NULL AND h.job_id IS NULL THEN 'no such job: never enqueued, or removed by retention'
      WHEN q.job_id IS NULL THEN format('the job is finished already: %s at %s', h.status,
        to_char(h.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
      -- it was claimed after the leases were locked; waiting for its lease now could deadlock
      WHEN NOT v_dry AND k.id IS NULL THEN 'a host has just claimed the job: try again'
      WHEN p_seen IS NOT NULL AND q.updated_at IS DISTINCT FROM s.seen THEN 'it has changed since it was selected'
      END ORDER BY i.n)
  INTO v_why
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, n)
  LEFT JOIN unnest(v_locked) AS k (id) ON k.id = i.id
  LEFT JOIN (SELECT g.id, max(g.seen) AS seen FROM unnest(p_job_ids, p_seen) AS g (id, seen) GROUP BY g.id) s
    ON s.id = i.id
  LEFT JOIN LATERAL (SELECT x.* FROM public.job_queue x WHERE x.job_id = i.id OFFSET 0) q ON true
  LEFT JOIN LATERAL (SELECT x.job_id, x.status, x.finished_at FROM public.job_history x
    WHERE q.job_id IS NULL AND x.job_id = i.id LIMIT 1) h ON true;
  IF NOT v_dry THEN
    PERFORM public.fn_job_finish(ARRAY(SELECT g.id FROM unnest(v_ids, v_why) AS g (id, why) WHERE g.why IS NULL),
      NULL::uuid[], 'cancelled'::text);
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'cancel', p_target => 'job', p_done => 'cancelled', p_ids => v_ids, p_why => v_why, p_new => NULL,
    p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_cancel_seen TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_cancel_seen IS
  'Cancels live jobs that have not changed since they were selected, and returns an outcome per id.';

-- fn_job_lease_release(lease ids, actor, reason, dry_run): returns the jobs of expired leases to the queue at once, as
-- the reaper would. A lease that has not expired is skipped. For one release of qtop callers may pass lease tokens
-- instead of lease ids; the audit row has the lease id in any case.
CREATE OR REPLACE FUNCTION public.fn_job_lease_release(p_lease_tokens uuid[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_lease_tokens);
  v_public uuid[];
  v_tokens uuid[];
  v_why text[];
  v_expired uuid[];
  v_answer jsonb;
BEGIN
  SELECT array_agg(l.token ORDER BY g.n), array_agg(COALESCE(l.id, g.id) ORDER BY g.n) INTO v_tokens, v_public
  FROM unnest(v_ids) WITH ORDINALITY AS g (id, n)
  LEFT JOIN (SELECT x.token, x.id, a.accepted FROM (
      SELECT y.lease_token AS token, left(encode(sha256(uuid_send(y.lease_token)), 'hex'), 32)::uuid AS id
      FROM public.fn_job_leases() y) x
    CROSS JOIN LATERAL (VALUES (x.id), (x.token)) AS a (accepted)) l ON l.accepted = g.id;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_lease l WHERE l.lease_token = ANY (v_tokens) ORDER BY l.lease_token FOR UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN l.lease_token IS NULL THEN 'no such lease: its jobs were finished or returned to the queue'
      WHEN l.lease_until >= clock_timestamp() THEN format('the lease runs until %s: executor %s may be at work',
        to_char(l.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), l.lease_owner) END ORDER BY i.n),
    array_agg(l.lease_token) FILTER (WHERE l.lease_until < clock_timestamp())
  INTO v_why, v_expired
  FROM unnest(v_tokens) WITH ORDINALITY AS i (token, n)
  LEFT JOIN LATERAL (SELECT x.* FROM public.job_lease x WHERE x.lease_token = i.token OFFSET 0) l ON true;
  IF NOT v_dry AND v_expired IS NOT NULL THEN
    PERFORM public.fn_job_reap(v_expired, NULL::uuid[]);
  END IF;
  v_answer := public.fn_job_answer(
    p_action => 'release', p_target => 'job_lease', p_done => 'released', p_ids => v_public, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry);
  RETURN v_answer || jsonb_build_object('results', (
    SELECT jsonb_agg(r.value || jsonb_build_object('id', v_ids[r.n]) ORDER BY r.n)
    FROM jsonb_array_elements(v_answer -> 'results') WITH ORDINALITY AS r (value, n)));
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_lease_release TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_lease_release IS 'Returns the jobs of expired leases to the queue at once.';

-- fn_job_dead_letter_why(ids) → per dead letter, why it cannot be closed; NULL = it is open. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_why(p_ids uuid[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT array_agg(CASE
    WHEN d.dead_letter_id IS NULL THEN 'no such dead letter: never written, or removed by retention'
    WHEN d.triage_status = 'replayed' THEN format('already replayed by %s at %s as job %s', d.resolved_by,
      to_char(d.resolved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), d.replayed_job_id)
    WHEN d.resolved_at IS NOT NULL THEN format('resolved as %s by %s at %s', d.resolution, d.resolved_by,
      to_char(d.resolved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END ORDER BY i.n)
  FROM unnest(p_ids) WITH ORDINALITY AS i (id, n)
  -- one look-up for each: a session keeps the plan, which may be older than the rows of the table
  LEFT JOIN LATERAL (SELECT x.* FROM public.job_dead_letter x WHERE x.dead_letter_id = i.id OFFSET 0) d ON true
$$;
COMMENT ON FUNCTION public.fn_job_dead_letter_why IS
  'Per job dead letter, who closed it and when; NULL where it is open. Internal.';

-- fn_job_dead_letter_replay(ids, actor, reason, dry_run): makes one new job per open dead letter, with the same kind,
-- domain, executor, payload, priority and references, no attempts, and due now. The idempotency key of the new job is
-- replay:<id of the new job>, which no other job can have. From then on the key of the old job leads to the new job
-- (producer_key), and job_root has the first job of the chain. Dead letters are locked in id order: if two operators
-- replay the same one, the first replays it and the second is shown the name of the first.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_replay(p_dead_letter_ids uuid[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_job_dead_letter_replay_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$$;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_replay TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_dead_letter_replay IS
  'Makes one new job per open job dead letter, at most once each, and returns an outcome per id.';

-- fn_job_dead_letter_replay_as(…, operation): fn_job_dead_letter_replay on behalf of a bulk operation, NULL = on behalf
-- of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_replay_as(p_dead_letter_ids uuid[], p_actor text, p_reason text,
  p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
  v_new uuid[];
  v_jobs uuid[]; -- per dead letter: its job
  v_refused jsonb := public.fn_queue_requeue_refusal(
    p_kind => 'replay_job'::text, p_action => 'job_dead_letter_replay'::text,
    p_target => format('%s dead letters', cardinality(v_ids)), p_actor => v_actor, p_reason => v_reason,
    p_dry_run => v_dry);
BEGIN
  IF v_refused IS NOT NULL THEN
    RETURN v_refused;
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  v_why := public.fn_job_dead_letter_why(v_ids);
  IF NOT v_dry THEN
    SELECT array_agg(CASE WHEN w IS NULL THEN gen_random_uuid() END ORDER BY n) INTO v_new FROM unnest(v_why)
      WITH ORDINALITY AS x (w, n);
    INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, max_attempts,
      idempotency_key,
      source_ref, target_ref, payload_ref, actor, correlation_id, causation_event_id)
    SELECT r.new, d.job_kind, d.event_domain, d.executor, d.payload, d.priority, d.max_attempts, 'replay:' || r.new,
      d.source_ref, d.target_ref, d.payload_ref, v_actor, d.correlation_id, d.causation_event_id
    FROM unnest(v_ids, v_new) AS r (id, new)
    CROSS JOIN LATERAL (SELECT x.* FROM public.job_dead_letter x WHERE x.dead_letter_id = r.id OFFSET 0) d
    WHERE r.new IS NOT NULL ORDER BY r.id;
    v_jobs := ARRAY(SELECT d.job_id FROM unnest(v_ids) WITH ORDINALITY AS r (id, n)
      LEFT JOIN LATERAL (SELECT x.job_id FROM public.job_dead_letter x WHERE x.dead_letter_id = r.id OFFSET 0) d
        ON true ORDER BY r.n);
    INSERT INTO public.job_root (job_id, root_job_id)
    SELECT r.new, COALESCE(o.root_job_id, r.job) FROM unnest(v_jobs, v_new) AS r (job, new)
    LEFT JOIN LATERAL (SELECT x.root_job_id FROM public.job_root x WHERE x.job_id = r.job OFFSET 0) o ON true
    WHERE r.new IS NOT NULL;
    WITH given AS MATERIALIZED ( -- by id: see job_claim.sql
      SELECT jsonb_object_agg(r.job, r.new) AS of FROM unnest(v_jobs, v_new) AS r (job, new) WHERE r.new IS NOT NULL
    )
    UPDATE public.producer_key k SET status = NULL, final_at = NULL,
      target_id = ((SELECT i.of FROM given i) ->> k.target_id::text)::uuid
    WHERE k.target_id = ANY (ARRAY(SELECT r.job FROM unnest(v_jobs, v_new) AS r (job, new) WHERE r.new IS NOT NULL));
    WITH given AS MATERIALIZED (
      SELECT jsonb_object_agg(r.id, r.new) AS of FROM unnest(v_ids, v_new) AS r (id, new) WHERE r.new IS NOT NULL
    )
    UPDATE public.job_dead_letter d SET triage_status = 'replayed', resolution = 'replayed', resolved_at = now(),
      resolved_by = v_actor, triage_note = v_reason,
      replayed_job_id = ((SELECT i.of FROM given i) ->> d.dead_letter_id::text)::uuid
    WHERE d.dead_letter_id = ANY (ARRAY(
      SELECT r.id FROM unnest(v_ids, v_new) AS r (id, new) WHERE r.new IS NOT NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'replay', p_target => 'job_dead_letter', p_done => 'replayed', p_ids => v_ids, p_why => v_why,
    p_new => v_new, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_job_dead_letter_replay_as IS
  'fn_job_dead_letter_replay on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_job_dead_letter_resolve(ids, resolution, note, actor, dry_run): closes open dead letters without a replay.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_resolve(p_dead_letter_ids uuid[], p_resolution text,
  p_note text, p_actor text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_job_dead_letter_resolve_as(p_dead_letter_ids => p_dead_letter_ids, p_resolution => p_resolution,
    p_note => p_note, p_actor => p_actor, p_dry_run => p_dry_run, p_operation_id => NULL::bigint);
END
$$;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_resolve TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_dead_letter_resolve IS
  'Closes job dead letters without a replay: abandoned, done_otherwise or duplicate.';

-- fn_job_dead_letter_resolve_as(…, operation): fn_job_dead_letter_resolve on behalf of a bulk operation, NULL = on
-- behalf of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_resolve_as(p_dead_letter_ids uuid[], p_resolution text,
  p_note text, p_actor text,
  p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_note text := CASE WHEN v_dry THEN p_note ELSE public.fn_operator_reason(p_note) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF p_resolution IS NULL OR p_resolution NOT IN ('abandoned', 'done_otherwise', 'duplicate') THEN
    RAISE EXCEPTION 'p_resolution must be abandoned, done_otherwise or duplicate' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  v_why := public.fn_job_dead_letter_why(v_ids);
  IF NOT v_dry THEN
    UPDATE public.job_dead_letter d SET triage_status = p_resolution, resolution = p_resolution, resolved_at = now(),
      resolved_by = v_actor, triage_note = v_note
    WHERE d.dead_letter_id = ANY (ARRAY(SELECT r.id FROM unnest(v_ids, v_why) AS r (id, why) WHERE r.why IS NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'resolve', p_target => 'job_dead_letter', p_done => 'resolved', p_ids => v_ids, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_note, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_job_dead_letter_resolve_as IS
  'fn_job_dead_letter_resolve on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_job_dead_letter_reopen(ids, actor, reason, dry_run): opens resolved dead letters again; a replayed one is skipped.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_reopen(p_dead_letter_ids uuid[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_job_dead_letter_reopen_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$$;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_reopen TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_dead_letter_reopen IS 'Opens resolved job dead letters again.';

-- fn_job_dead_letter_reopen_as(…, operation): fn_job_dead_letter_reopen on behalf of a bulk operation, NULL = on behalf
-- of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_reopen_as(p_dead_letter_ids uuid[], p_actor text, p_reason text,
  p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL
      THEN 'no such dead letter: never written, or removed by retention'
      WHEN d.triage_status = 'open' THEN 'open already: there is nothing to reopen'
      WHEN d.triage_status = 'replayed' THEN format('replayed by %s as job %s, not resolved: undo the replay instead',
        d.resolved_by, d.replayed_job_id) END ORDER BY i.n)
  INTO v_why FROM unnest(v_ids) WITH ORDINALITY AS i (id, n)
  LEFT JOIN LATERAL (SELECT x.* FROM public.job_dead_letter x WHERE x.dead_letter_id = i.id OFFSET 0) d ON true;
  IF NOT v_dry THEN
    UPDATE public.job_dead_letter d SET triage_status = 'open', resolution = NULL, resolved_at = NULL,
      resolved_by = NULL
    WHERE d.dead_letter_id = ANY (ARRAY(SELECT r.id FROM unnest(v_ids, v_why) AS r (id, why) WHERE r.why IS NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'reopen', p_target => 'job_dead_letter', p_done => 'reopened', p_ids => v_ids, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_job_dead_letter_reopen_as IS
  'fn_job_dead_letter_reopen on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_job_dead_letter_replay_undo(ids, actor, reason, dry_run): undoes replays whose new job was never claimed. Deletes
-- the new job and opens the dead letter again; the audit row keeps both ids. new_id = the job that was deleted.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_replay_undo(p_dead_letter_ids uuid[], p_actor text,
  p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_job_dead_letter_replay_undo_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$$;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_replay_undo TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_dead_letter_replay_undo IS
  'Undoes replays whose new job was never claimed: deletes the job and opens the dead letter again.';

-- fn_job_dead_letter_replay_undo_as(…, operation): fn_job_dead_letter_replay_undo on behalf of a bulk operation, NULL =
-- on behalf of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_dead_letter_replay_undo_as(p_dead_letter_ids uuid[], p_actor text,
  p_reason text, p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
  v_jobs uuid[];
  v_locked uuid[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
    -- A claim skips the jobs that are locked here. Leased jobs are not locked, because their leases are not, and the
    -- wait for a job that is just being claimed would be for nothing.
    v_locked := ARRAY(SELECT q.job_id FROM public.job_queue q WHERE q.job_id = ANY (ARRAY(
      SELECT d.replayed_job_id FROM public.job_dead_letter d WHERE d.dead_letter_id = ANY (v_ids)))
      AND q.status = 'queued' AND q.attempts = 0 AND q.picked_at IS NULL AND q.lease_token IS NULL
      ORDER BY q.job_id FOR UPDATE SKIP LOCKED);
  END IF;
  SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL THEN 'no such dead letter: never written, or removed by retention'
      WHEN d.triage_status <> 'replayed' THEN 'not replayed: there is nothing to undo'
      WHEN q.job_id IS NULL THEN format('job %s is finished: it cannot be recalled', d.replayed_job_id)
      WHEN q.status <> 'queued' OR q.attempts > 0 OR q.picked_at IS NOT NULL
        THEN format('job %s has started (%s): it cannot be recalled', q.job_id, q.status)
      WHEN NOT v_dry AND (q.job_id IN (SELECT unnest(v_locked))) IS NOT TRUE
        THEN format('another transaction, perhaps a claim, changes job %s at this moment: try again', q.job_id)
      END ORDER BY i.n), array_agg(q.job_id ORDER BY i.n)
  INTO v_why, v_jobs
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, n)
  LEFT JOIN LATERAL (SELECT x.* FROM public.job_dead_letter x WHERE x.dead_letter_id = i.id OFFSET 0) d ON true
  LEFT JOIN LATERAL (SELECT x.* FROM public.job_queue x WHERE x.job_id = d.replayed_job_id OFFSET 0) q ON true;
  IF NOT v_dry THEN
    DELETE FROM public.job_queue q WHERE q.job_id = ANY (ARRAY(
      SELECT r.job FROM unnest(v_jobs, v_why) AS r (job, why) WHERE r.why IS NULL));
    WITH given AS MATERIALIZED ( -- by id: see job_claim.sql
      SELECT jsonb_object_agg(r.job, r.id) AS of FROM unnest(v_ids, v_jobs, v_why) AS r (id, job, why)
      WHERE r.why IS NULL
    )
    UPDATE public.producer_key k SET (target_id, status, final_at) = (
      SELECT d.job_id, 'dead_letter', d.last_failed_at FROM public.job_dead_letter d
      WHERE d.dead_letter_id = ((SELECT i.of FROM given i) ->> k.target_id::text)::uuid)
    WHERE k.target_id = ANY (ARRAY(SELECT r.job FROM unnest(v_jobs, v_why) AS r (job, why) WHERE r.why IS NULL));
    UPDATE public.job_dead_letter d SET triage_status = 'open', resolution = NULL, resolved_at = NULL,
      resolved_by = NULL, replayed_job_id = NULL
    WHERE d.dead_letter_id = ANY (ARRAY(SELECT r.id FROM unnest(v_ids, v_why) AS r (id, why) WHERE r.why IS NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'replay_undo', p_target => 'job_dead_letter', p_done => 'recalled', p_ids => v_ids, p_why => v_why,
    p_new => v_jobs, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$$;
COMMENT ON FUNCTION public.fn_job_dead_letter_replay_undo_as IS
  'fn_job_dead_letter_replay_undo on behalf of a bulk operation (NULL = of a person). Internal.';
