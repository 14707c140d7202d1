-- The job queue, the operators: cancel, release an expired lease, replay, resolve and reopen dead letters,
-- subscriptions of executors. Sources: DP6 §3.3, §6, DP4. Each writes its audit row in its own transaction;
-- a dry run goes the same way and writes nothing.
SET LOCAL ROLE queue_owner;

-- fn_job_ids(ids) → distinct, sorted, checked. Internal.
CREATE FUNCTION public.fn_job_ids(p_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p_ids IS NULL OR cardinality(p_ids) NOT BETWEEN 1 AND 100000 OR array_position(p_ids, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'the ids must be 1 to 100000 uuids' USING ERRCODE = '22023';
  END IF;
  RETURN (SELECT array_agg(DISTINCT i ORDER BY i) FROM unnest(p_ids) i);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_ids(uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_ids(uuid[]) IS 'Checks and sorts ids of jobs, letters or leases. Internal.';

-- fn_job_answer(action, target, word, ids, why, new ids, actor, reason, dry run) → {action, dry_run, <word>: n,
-- skipped: n, results: [{id, outcome, why, new_id}], audit_id}, the answer of every operator function here. why
-- is NULL where it was done. Internal.
CREATE FUNCTION public.fn_job_answer(p_action text, p_target text, p_done text, p_ids uuid[], p_why text[], p_new uuid[],
  p_actor text, p_reason text, p_dry_run boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_done bigint := (SELECT count(*) FROM unnest(p_ids, p_why) AS w (id, why) WHERE w.why IS NULL);
  v_skipped bigint := cardinality(p_ids) - v_done;
  v_results jsonb;
  v_audit bigint;
BEGIN
  SELECT jsonb_agg(jsonb_build_object('id', r.id, 'why', r.why, 'new_id', r.new, 'outcome', CASE
      WHEN r.why IS NOT NULL THEN 'skipped' WHEN p_dry_run THEN 'would_' || p_action ELSE p_done END) ORDER BY r.n)
  INTO v_results FROM unnest(p_ids, p_why, p_new) WITH ORDINALITY AS r (id, why, new, n);
  IF NOT p_dry_run THEN
    v_audit := public.fn_operator_audit(p_target || '_' || p_action,
      p_target || ' ' || array_to_string(p_ids[1:20], ',')
        || CASE WHEN cardinality(p_ids) > 20 THEN format(' and %s more', cardinality(p_ids) - 20) ELSE '' END,
      p_actor, p_reason, NULL, cardinality(p_ids), NULL,
      jsonb_build_object(p_done, v_done, 'skipped', v_skipped, 'ids', (
        SELECT COALESCE(jsonb_agg(jsonb_build_array(r.id, r.new) ORDER BY r.id), '[]')
        FROM unnest(p_ids, p_why, p_new) AS r (id, why, new) WHERE r.why IS NULL)),
      CASE WHEN v_done = 0 THEN 'refused' ELSE 'done' END);
  END IF;
  RETURN jsonb_build_object('action', p_action, 'dry_run', p_dry_run, p_done, v_done, 'skipped', v_skipped,
    'results', v_results, 'audit_id', v_audit);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_answer(text, text, text, uuid[], text[], uuid[], text, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_answer(text, text, text, uuid[], text[], uuid[], text, text, boolean) IS
  'Answer and audit row of the operator functions of jobs. Internal.';

-- fn_job_cancel(ids, actor, reason, dry_run): live jobs → cancelled, in job_history. A worker that has one learns it
-- at its next renewal or report (lease_lost).
CREATE FUNCTION public.fn_job_cancel(p_job_ids uuid[], p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_job_ids);
  v_tokens uuid[];
  v_why text[];
  v_freed uuid[];
BEGIN
  IF NOT v_dry THEN
    SELECT array_agg(DISTINCT q.lease_token) INTO v_tokens FROM public.job_queue q WHERE q.job_id = ANY (v_ids);
    PERFORM 1 FROM public.job_lease l WHERE l.lease_token = ANY (v_tokens) ORDER BY l.lease_token FOR UPDATE;
    PERFORM 1 FROM public.job_queue q WHERE q.job_id = ANY (v_ids) ORDER BY q.job_id FOR UPDATE;
  END IF;
  SELECT array_agg(CASE
      WHEN q.job_id IS NULL AND h.job_id IS NULL THEN 'no such job'
      WHEN q.job_id IS NULL THEN format('finished already: %s at %s', h.status,
        to_char(h.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
      -- claimed between the two locks: waiting for its lease now could close a circle
      WHEN NOT v_dry AND NOT COALESCE(q.lease_token = ANY (v_tokens), q.lease_token IS NULL) THEN 'it was claimed this moment: try again'
      END ORDER BY i.n)
  INTO v_why
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, n)
  LEFT JOIN public.job_queue q ON q.job_id = i.id
  LEFT JOIN LATERAL (SELECT x.job_id, x.status, x.finished_at FROM public.job_history x
    WHERE q.job_id IS NULL AND x.job_id = i.id LIMIT 1) h ON true;
  IF NOT v_dry THEN
    WITH gone AS (
      DELETE FROM public.job_queue q USING unnest(v_ids, v_why) AS g (id, why)
      WHERE q.job_id = g.id AND g.why IS NULL RETURNING q.*
    ), kept AS (
      INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, ready, priority, process_after,
        enqueued_at, picked_at, finished_at, lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
        idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
        correlation_id, causation_event_id, updated_at, prior_token, prior_result, from_status)
      SELECT job_id, job_kind, event_domain, executor, 'cancelled', ready, priority, process_after,
        enqueued_at, picked_at, now(), lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
        idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
        correlation_id, causation_event_id, now(), prior_token, prior_result, status
      FROM gone
    )
    SELECT array_agg(x.lease_token) FILTER (WHERE x.lease_token IS NOT NULL) INTO v_freed FROM gone x;
    PERFORM public.fn_job_lease_less(v_freed);
  END IF;
  RETURN public.fn_job_answer('cancel', 'job', 'cancelled', v_ids, v_why, NULL, v_actor, v_reason, v_dry);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_cancel(uuid[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_cancel(uuid[], text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_job_cancel(uuid[], text, text, boolean) IS
  'Cancels live jobs, and says per id what happened.';

-- fn_job_lease_release(tokens, actor, reason, dry_run): takes expired leases back now, as the reaper would. One
-- that still runs is left alone.
CREATE FUNCTION public.fn_job_lease_release(p_lease_tokens uuid[], p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_lease_tokens);
  v_why text[];
  v_expired uuid[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_lease l WHERE l.lease_token = ANY (v_ids) ORDER BY l.lease_token FOR UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN l.lease_token IS NULL THEN 'no such lease: its jobs were finished or taken back'
      WHEN l.lease_until >= clock_timestamp() THEN format('it runs until %s: %s may be at work',
        to_char(l.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), l.lease_owner) END ORDER BY i.n),
    array_agg(l.lease_token) FILTER (WHERE l.lease_until < clock_timestamp())
  INTO v_why, v_expired
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, n) LEFT JOIN public.job_lease l ON l.lease_token = i.id;
  IF NOT v_dry AND v_expired IS NOT NULL THEN
    PERFORM public.fn_job_reap(v_expired);
  END IF;
  RETURN public.fn_job_answer('release', 'job_lease', 'released', v_ids, v_why, NULL, v_actor, v_reason, v_dry);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_lease_release(uuid[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_lease_release(uuid[], text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_job_lease_release(uuid[], text, text, boolean) IS 'Takes expired job leases back at once.';

-- fn_job_letter_why(ids) → why each letter cannot be closed, NULL where it is open. Internal.
CREATE FUNCTION public.fn_job_letter_why(p_ids uuid[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT array_agg(CASE
    WHEN d.dead_letter_id IS NULL THEN 'no such dead letter'
    WHEN d.triage_status = 'replayed' THEN format('already replayed by %s at %s as job %s', d.resolved_by,
      to_char(d.resolved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), d.replayed_job_id)
    WHEN d.resolved_at IS NOT NULL THEN format('resolved as %s by %s at %s', d.resolution, d.resolved_by,
      to_char(d.resolved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END ORDER BY i.n)
  FROM unnest(p_ids) WITH ORDINALITY AS i (id, n) LEFT JOIN public.job_dead_letter d ON d.dead_letter_id = i.id
$$;
REVOKE ALL ON FUNCTION public.fn_job_letter_why(uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_letter_why(uuid[]) IS 'Who closed each job dead letter and when. Internal.';

-- fn_job_dead_letter_replay(ids, actor, reason, dry_run): each open letter → one new job with the same kind,
-- domain, executor, payload, priority and references, no attempts, due now, under the key replay:<new job>, which
-- nobody can have taken. The letters are locked in id order, so of two operators one replays and the other is told who did.
CREATE FUNCTION public.fn_job_dead_letter_replay(p_dead_letter_ids uuid[], p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
  v_new uuid[];
  v_audit bigint;
BEGIN
  IF NOT public.fn_cfg_bool('queue.dlq.replay_enabled') THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('job_dead_letter_replay', format('%s dead letters', cardinality(v_ids)), v_actor, v_reason,
        NULL, cardinality(v_ids), NULL, NULL, 'refused: disabled');
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', 'disabled', 'dry_run', v_dry, 'audit_id', v_audit,
      'reason', 'replaying is switched off: queue.dlq.replay_enabled is not true');
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  v_why := public.fn_job_letter_why(v_ids);
  IF NOT v_dry THEN
    SELECT array_agg(CASE WHEN w IS NULL THEN gen_random_uuid() END ORDER BY n) INTO v_new FROM unnest(v_why) WITH ORDINALITY AS x (w, n);
    INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, max_attempts, idempotency_key,
      source_ref, target_ref, payload_ref, actor, correlation_id, causation_event_id)
    SELECT r.new, d.job_kind, d.event_domain, d.executor, d.payload, d.priority, d.max_attempts, 'replay:' || r.new,
      d.source_ref, d.target_ref, d.payload_ref, v_actor, d.correlation_id, d.causation_event_id
    FROM unnest(v_ids, v_new) AS r (id, new)
    JOIN public.job_dead_letter d ON d.dead_letter_id = r.id
    WHERE r.new IS NOT NULL ORDER BY r.id;
    UPDATE public.job_dead_letter d SET triage_status = 'replayed', resolution = 'replayed', resolved_at = now(),
      resolved_by = v_actor, triage_note = v_reason, replayed_job_id = r.new
    FROM unnest(v_ids, v_new) AS r (id, new) WHERE d.dead_letter_id = r.id AND r.new IS NOT NULL;
  END IF;
  RETURN public.fn_job_answer('replay', 'job_dead_letter', 'replayed', v_ids, v_why, v_new, v_actor, v_reason, v_dry);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_dead_letter_replay(uuid[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_replay(uuid[], text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_job_dead_letter_replay(uuid[], text, text, boolean) IS
  'Makes one new job per open job dead letter, at most once each, and says per id what happened.';

-- fn_job_dead_letter_resolve(ids, resolution, note, actor, dry_run): closes open letters without a replay.
CREATE FUNCTION public.fn_job_dead_letter_resolve(p_dead_letter_ids uuid[], p_resolution text, p_note text, p_actor text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
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
  v_why := public.fn_job_letter_why(v_ids);
  IF NOT v_dry THEN
    UPDATE public.job_dead_letter d SET triage_status = p_resolution, resolution = p_resolution, resolved_at = now(),
      resolved_by = v_actor, triage_note = v_note
    FROM unnest(v_ids, v_why) AS r (id, why) WHERE d.dead_letter_id = r.id AND r.why IS NULL;
  END IF;
  RETURN public.fn_job_answer('resolve', 'job_dead_letter', 'resolved', v_ids, v_why, NULL, v_actor, v_note, v_dry);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_dead_letter_resolve(uuid[], text, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_resolve(uuid[], text, text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_job_dead_letter_resolve(uuid[], text, text, text, boolean) IS
  'Closes job dead letters without a replay: abandoned, done_otherwise or duplicate.';

-- fn_job_dead_letter_reopen(ids, actor, reason, dry_run): takes a resolution back; a replay is not taken back.
CREATE FUNCTION public.fn_job_dead_letter_reopen(p_dead_letter_ids uuid[], p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.job_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL THEN 'no such dead letter' WHEN d.triage_status = 'open' THEN 'it is open'
      WHEN d.triage_status = 'replayed' THEN format('it was replayed by %s as job %s', d.resolved_by, d.replayed_job_id) END ORDER BY i.n)
  INTO v_why FROM unnest(v_ids) WITH ORDINALITY AS i (id, n) LEFT JOIN public.job_dead_letter d ON d.dead_letter_id = i.id;
  IF NOT v_dry THEN
    UPDATE public.job_dead_letter d SET triage_status = 'open', resolution = NULL, resolved_at = NULL, resolved_by = NULL
    FROM unnest(v_ids, v_why) AS r (id, why) WHERE d.dead_letter_id = r.id AND r.why IS NULL;
  END IF;
  RETURN public.fn_job_answer('reopen', 'job_dead_letter', 'reopened', v_ids, v_why, NULL, v_actor, v_reason, v_dry);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_dead_letter_reopen(uuid[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_dead_letter_reopen(uuid[], text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_job_dead_letter_reopen(uuid[], text, text, boolean) IS 'Opens resolved job dead letters again.';

CREATE FUNCTION public.fn_job_subscription_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM public.fn_operator_audit('job_subscription_write', COALESCE(NEW.executor_id, OLD.executor_id), session_user,
    'written to the table by hand', NULL, NULL,
    CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_subscription_audit() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_subscription_audit() IS 'Trigger: audits what executors may claim where it is written by hand.';
CREATE TRIGGER trg_job_subscription_audit AFTER INSERT OR UPDATE OR DELETE ON public.job_subscription
  FOR EACH ROW WHEN (current_user <> 'queue_owner') EXECUTE FUNCTION public.fn_job_subscription_audit(); -- the functions audit themselves

-- fn_job_subscription_set(executor, kind, domain, floor, parallel, enabled, notes, actor, reason, dry_run) →
-- {subscription_id, created, before, after, audit_id}: makes or changes the executor's rule for that kind and
-- domain (NULL = all). refused: not_found, gone, tick_worker. Executors cannot grant it themselves (DP6 §6).
CREATE FUNCTION public.fn_job_subscription_set(p_executor_id text, p_job_kind text, p_event_domain text, p_priority_floor int,
  p_max_parallel int, p_enabled boolean, p_notes text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_executor public.queue_heartbeat;
  v_old public.job_subscription;
  v_new public.job_subscription;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_priority_floor IS NULL OR p_priority_floor NOT BETWEEN -32768 AND 32767 THEN
    RAISE EXCEPTION 'p_priority_floor must be -32768 to 32767' USING ERRCODE = '22023';
  ELSIF p_max_parallel IS NULL OR p_max_parallel < 1 THEN
    RAISE EXCEPTION 'p_max_parallel must be at least 1' USING ERRCODE = '22023';
  ELSIF p_enabled IS NULL THEN
    RAISE EXCEPTION 'p_enabled must be true or false' USING ERRCODE = '22023';
  ELSIF p_job_kind !~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$ or be null' USING ERRCODE = '22023';
  ELSIF p_event_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
    RAISE EXCEPTION 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$ or be null' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_executor FROM public.queue_heartbeat WHERE executor_id = p_executor_id FOR SHARE;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('no executor %s is registered', left(COALESCE(p_executor_id, ''), 200));
  ELSIF v_executor.deregistered_at IS NOT NULL THEN
    v_rule := 'gone';
    v_why := format('%s was deregistered by %s', p_executor_id, v_executor.deregistered_by);
  ELSIF v_executor.tick_worker THEN
    v_rule := 'tick_worker';
    v_why := format('%s is a worker of the queue itself and claims no jobs', p_executor_id);
  END IF;
  IF v_rule IS NOT NULL THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('job_subscription_set', left(COALESCE(p_executor_id, ''), 200), v_actor, v_reason,
        NULL, NULL, NULL, NULL, 'refused: ' || v_rule);
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', v_dry, 'audit_id', v_audit);
  END IF;
  SELECT * INTO v_old FROM public.job_subscription s WHERE s.executor_id = p_executor_id
    AND s.job_kind IS NOT DISTINCT FROM p_job_kind AND s.event_domain IS NOT DISTINCT FROM p_event_domain;
  IF v_dry THEN
    v_new := v_old;
    v_new.executor_id := p_executor_id;
    v_new.executor_kind := v_executor.executor_kind;
    v_new.job_kind := p_job_kind;
    v_new.event_domain := p_event_domain;
    v_new.priority_floor := p_priority_floor;
    v_new.max_parallel := p_max_parallel;
    v_new.enabled := p_enabled;
    v_new.notes := p_notes;
  ELSE
    INSERT INTO public.job_subscription AS s (executor_id, executor_kind, job_kind, event_domain, priority_floor, max_parallel,
      enabled, notes, registered_by, updated_by)
    VALUES (p_executor_id, v_executor.executor_kind, p_job_kind, p_event_domain, p_priority_floor, p_max_parallel,
      p_enabled, p_notes, v_actor, v_actor)
    ON CONFLICT (executor_id, job_kind, event_domain) DO UPDATE SET executor_kind = excluded.executor_kind,
      priority_floor = excluded.priority_floor, max_parallel = excluded.max_parallel, enabled = excluded.enabled,
      notes = excluded.notes, updated_by = excluded.updated_by, updated_at = now()
    RETURNING * INTO v_new;
    v_audit := public.fn_operator_audit('job_subscription_set', p_executor_id, v_actor, v_reason, NULL, NULL,
      CASE WHEN v_old.subscription_id IS NOT NULL THEN to_jsonb(v_old) END, to_jsonb(v_new));
    PERFORM public.fn_queue_wake('queue_wake_' || COALESCE(p_event_domain, 'system'), jsonb_build_object('layer', 'subscription',
      'event_domain', COALESCE(p_event_domain, 'system'), 'worker_hint', 'job_executor', 'count', 1, 'occurred_at', clock_timestamp()));
  END IF;
  RETURN jsonb_build_object('subscription_id', v_new.subscription_id, 'created', v_old.subscription_id IS NULL, 'dry_run', v_dry,
    'before', CASE WHEN v_old.subscription_id IS NOT NULL THEN to_jsonb(v_old) END, 'after', to_jsonb(v_new), 'audit_id', v_audit);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_subscription_set(text, text, text, int, int, boolean, text, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_subscription_set(text, text, text, int, int, boolean, text, text, text, boolean) TO workflow_admin;
COMMENT ON FUNCTION public.fn_job_subscription_set(text, text, text, int, int, boolean, text, text, text, boolean) IS
  'Makes or changes what an executor may claim (DP6 §3.3).';

-- From here on an executor that holds jobs, or whose rules admit jobs that wait, is not deregistered.
CREATE OR REPLACE FUNCTION public.fn_queue_executor_waits(p_executor_id text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_n bigint;
BEGIN
  SELECT sum(l.live) INTO v_n FROM public.job_lease l WHERE l.lease_owner = p_executor_id;
  IF v_n > 0 THEN
    RETURN format('%s holds %s jobs: let it drain, or cancel them', p_executor_id, v_n);
  END IF;
  SELECT sum(c.n) INTO v_n FROM public.v_queue_counter c
  WHERE c.scope = 'job' AND c.k3 IN ('queued', 'scheduled', 'retry_waiting') AND c.n > 0
    AND EXISTS (SELECT 1 FROM public.fn_job_lane_rule(p_executor_id, c.k2, c.k1));
  IF v_n > 0 THEN
    RETURN format('%s jobs wait that its subscriptions admit: disable those first', v_n);
  END IF;
  RETURN NULL;
END $$;

CREATE VIEW public.v_executor_subscription_health AS
SELECT js.executor_id, count(*) AS rules, max(js.enabled::int) AS any_enabled
FROM public.job_subscription js GROUP BY js.executor_id;
COMMENT ON VIEW public.v_executor_subscription_health IS
  'Per executor: how many rules it has and whether any is enabled (DP6 §8).';
GRANT SELECT ON public.v_executor_subscription_health TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP VIEW public.v_executor_subscription_health;
CREATE OR REPLACE FUNCTION public.fn_queue_executor_waits(p_executor_id text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$ SELECT NULL::text $fn$;
DROP TRIGGER trg_job_subscription_audit ON public.job_subscription;
DROP FUNCTION public.fn_job_subscription_audit();
DROP FUNCTION public.fn_job_subscription_set(text, text, text, int, int, boolean, text, text, text, boolean);
DROP FUNCTION public.fn_job_dead_letter_reopen(uuid[], text, text, boolean);
DROP FUNCTION public.fn_job_dead_letter_resolve(uuid[], text, text, text, boolean);
DROP FUNCTION public.fn_job_dead_letter_replay(uuid[], text, text, boolean);
DROP FUNCTION public.fn_job_letter_why(uuid[]);
DROP FUNCTION public.fn_job_lease_release(uuid[], text, text, boolean);
DROP FUNCTION public.fn_job_cancel(uuid[], text, text, boolean);
DROP FUNCTION public.fn_job_answer(text, text, text, uuid[], text[], uuid[], text, text, boolean);
DROP FUNCTION public.fn_job_ids(uuid[]);
RESET ROLE;
