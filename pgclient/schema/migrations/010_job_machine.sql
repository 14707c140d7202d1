-- The job queue, the machine: enqueue, claim, start, renew, ack, fail, release, promote, reap.
-- Over 500 lines because each step leans on the lock order written here once: subscriptions, leases, jobs,
-- each by id. A leased job is changed only under the row of its lease; jobs without one are locked in
-- job_id order or skipped. Sources: DP1 §5, DP4, DP6 §3.3.
SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------------------------------
-- Enqueueing
-- ---------------------------------------------------------------------------------------------------
-- fn_job_producer_refusal(executor kinds) → why this session may not enqueue for one of them, or NULL.
-- Internal.
CREATE FUNCTION public.fn_job_producer_refusal(p_executors text[]) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_kind text;
BEGIN
  IF NOT public.fn_cfg_bool('queue.job_substrate.enabled') THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'disabled',
      'reason', 'jobs are switched off: queue.job_substrate.enabled is not true');
  END IF;
  SELECT p.executor_kind INTO v_kind FROM public.executor_producer p
  WHERE p.executor_kind = ANY (p_executors)
  GROUP BY p.executor_kind
  HAVING NOT bool_or(EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = p.producer_role
    AND pg_has_role(session_user, r.oid, 'MEMBER')))
  ORDER BY 1 LIMIT 1;
  IF v_kind IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'producer',
      'reason', format('%s may not enqueue for executor kind %s: executor_producer names others', session_user, v_kind));
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_producer_refusal(text[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_producer_refusal(text[]) IS 'Why this session may not enqueue, or null (DP6 §1.4). Internal.';

-- fn_job_enqueue(…) → {job_id, created: true}, or {job_id, created: false} of the active job of the same
-- kind that has the key; refused: disabled, producer. Rings no bell: the caller does after its commit.
CREATE FUNCTION public.fn_job_enqueue(p_job_kind text, p_event_domain text, p_executor text, p_payload jsonb DEFAULT '{}',
  p_priority int DEFAULT 100, p_process_after timestamptz DEFAULT now(), p_idempotency_key text DEFAULT NULL,
  p_max_attempts int DEFAULT NULL, p_actor text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_free boolean;
  v_max int;
  v_refusal jsonb;
  v_bad text;
  v_id uuid := gen_random_uuid();
BEGIN
  SELECT c.value = 'true' AND NOT EXISTS (SELECT FROM public.executor_producer), -- which kind is asked only where somebody is named for one
    COALESCE(p_max_attempts, (SELECT m.value::int FROM public.dot_config m
      WHERE m.key = 'queue.retry.max_attempts_default' AND m.value ~ '^[0-9]{1,9}$'), 5)
  INTO v_free, v_max FROM public.dot_config c WHERE c.key = 'queue.job_substrate.enabled';
  IF v_free IS NOT TRUE THEN
    v_refusal := public.fn_job_producer_refusal(ARRAY[p_executor]);
    IF v_refusal IS NOT NULL THEN
      RETURN v_refusal;
    END IF;
  END IF;
  -- what job_queue and job_lane refuse, in the words of the arguments; {0,99} in a pattern costs ten times what * does
  v_bad := CASE
    WHEN (p_job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]*$' AND length(p_job_kind) <= 100) IS NOT TRUE
      THEN 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'
    WHEN (p_event_domain ~ '^[a-z][a-z0-9_]*$' AND length(p_event_domain) <= 51) IS NOT TRUE
      THEN 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$'
    WHEN (p_executor IN ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')) IS NOT TRUE
      THEN 'p_executor must be DOT, Agent, Hermes, Codex, PG_worker, external_worker or future_Kestra_adapter'
    WHEN jsonb_typeof(p_payload) <> 'object' THEN 'p_payload must be an object'
    WHEN p_payload ?| ARRAY['body', 'content', 'raw', 'vector', 'embedding', 'secret', 'token', 'password', 'ssn', 'personal_data']
      THEN 'p_payload carries references, not content: body, content, raw, vector, embedding, secret, token, password, ssn and '
        'personal_data are refused' END;
  IF v_bad IS NULL AND num_nonnulls(p_max_attempts, p_idempotency_key) > 0 THEN
    v_bad := CASE
      WHEN p_max_attempts NOT BETWEEN 1 AND 1000 THEN 'p_max_attempts must be 1 to 1000'
      WHEN length(p_idempotency_key) NOT BETWEEN 1 AND 500 THEN 'p_idempotency_key must have 1 to 500 characters' END;
  END IF;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '%', v_bad USING ERRCODE = '22023';
  END IF;
  IF p_idempotency_key IS NULL THEN
    INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready, max_attempts, actor)
    VALUES (v_id, p_job_kind, p_event_domain, p_executor, COALESCE(p_payload, '{}'), COALESCE(p_priority, 100),
      COALESCE(p_process_after, now()), COALESCE(p_process_after <= now(), true), v_max, p_actor);
    RETURN jsonb_build_object('job_id', v_id, 'created', true);
  END IF;
  FOR v_try IN 1..10 LOOP
    INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready,
      idempotency_key, max_attempts, actor)
    VALUES (v_id, p_job_kind, p_event_domain, p_executor, COALESCE(p_payload, '{}'), COALESCE(p_priority, 100),
      COALESCE(p_process_after, now()), COALESCE(p_process_after <= now(), true), p_idempotency_key, v_max, p_actor)
    ON CONFLICT (job_kind, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    IF FOUND THEN
      RETURN jsonb_build_object('job_id', v_id, 'created', true);
    END IF;
    SELECT q.job_id INTO v_id FROM public.job_queue q
    WHERE q.job_kind = p_job_kind AND q.idempotency_key = p_idempotency_key;
    IF FOUND THEN
      RETURN jsonb_build_object('job_id', v_id, 'created', false);
    END IF;
    v_id := gen_random_uuid();
  END LOOP; -- the one in the way has just finished
  RAISE EXCEPTION 'the job with this idempotency key changed ten times meanwhile' USING ERRCODE = '40001';
END $$;
REVOKE ALL ON FUNCTION public.fn_job_enqueue(text, text, text, jsonb, int, timestamptz, text, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_enqueue(text, text, text, jsonb, int, timestamptz, text, int, text) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_job_enqueue(text, text, text, jsonb, int, timestamptz, text, int, text) IS
  'Puts one job into the queue; the same key twice while active is one job.';

-- fn_job_enqueue_many(jobs) → {enqueued, existing, job_ids}: an array of objects with the names of
-- fn_job_enqueue without p_; job_ids in the order given. All or nothing. The ids ascend, so that the indexes
-- grow at their end: milliseconds, 48 random bits, the number of the job. Plans are generic: others copy the argument.
CREATE FUNCTION public.fn_job_enqueue_many(p_jobs jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off
SET plan_cache_mode = force_generic_plan SET work_mem = '64MB' AS $$
DECLARE
  c_keys CONSTANT text[] := '{job_kind, event_domain, executor, payload, priority, process_after, idempotency_key, max_attempts, actor}'::text[];
  c_first CONSTANT int := 1 << 20; -- six hexadecimal digits, whatever is added
  v_time text := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0');
  v_random text := gen_random_uuid();
  v_prefix text := left(v_time, 8) || '-' || right(v_time, 4) || '-7' || substr(v_random, 16, 4) || '8' || substr(v_random, 21, 10);
  v_free boolean;
  v_max int;
  v_refusal jsonb;
  v_stray text;
  v_given int := CASE WHEN jsonb_typeof(p_jobs) = 'array' THEN jsonb_array_length(p_jobs) END;
  v_made int;
  v_ids jsonb;
BEGIN
  IF (v_given BETWEEN 1 AND 1000000) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_jobs must be an array of 1 to 1000000 objects' USING ERRCODE = '22023';
  END IF;
  SELECT c.value = 'true' AND NOT EXISTS (SELECT FROM public.executor_producer), -- which kinds is asked only where somebody is named for one
    COALESCE((SELECT m.value::int FROM public.dot_config m
      WHERE m.key = 'queue.retry.max_attempts_default' AND m.value ~ '^[0-9]{1,9}$'), 5)
  INTO v_free, v_max FROM public.dot_config c WHERE c.key = 'queue.job_substrate.enabled';
  IF v_free IS NOT TRUE THEN
    v_refusal := public.fn_job_producer_refusal(ARRAY(SELECT DISTINCT x.executor FROM jsonb_to_recordset(p_jobs) AS x (executor text)));
    IF v_refusal IS NOT NULL THEN
      RETURN v_refusal;
    END IF;
  END IF;

  -- A key that was active and is free a moment later must not leave its job behind: then all is taken back, with
  -- the locks on the other keys, and tried again.
  FOR v_try IN 1..10 LOOP
    BEGIN
      SELECT k INTO v_stray FROM jsonb_array_elements(p_jobs) e, jsonb_object_keys(e - c_keys) k LIMIT 1;
      IF FOUND THEN
        RAISE EXCEPTION '% is none of %', quote_literal(v_stray), array_to_string(c_keys, ', ') USING ERRCODE = '22023';
      END IF;
      IF NOT jsonb_path_exists(p_jobs, '$[*].idempotency_key ? (@ != null)') THEN
        INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready, max_attempts, actor)
        SELECT (v_prefix || to_hex(c_first + g.n))::uuid, g.job_kind, g.event_domain, g.executor, COALESCE(g.payload, '{}'),
          COALESCE(g.priority, 100), COALESCE(g.process_after, now()), COALESCE(g.process_after <= now(), true),
          COALESCE(g.max_attempts, v_max), g.actor
        FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (job_kind text, event_domain text, executor text, payload jsonb,
          priority int, process_after timestamptz, max_attempts int, actor text)) WITH ORDINALITY
          AS g (job_kind, event_domain, executor, payload, priority, process_after, max_attempts, actor, n);
        RETURN jsonb_build_object('enqueued', v_given, 'existing', 0,
          'job_ids', ARRAY(SELECT v_prefix || to_hex(c_first + n) FROM generate_series(1, v_given) n));
      END IF;

      WITH given AS MATERIALIZED (
        SELECT g.*, (v_prefix || to_hex(c_first + g.n))::uuid AS id
        FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (job_kind text, event_domain text, executor text, payload jsonb,
          priority int, process_after timestamptz, idempotency_key text, max_attempts int, actor text)) WITH ORDINALITY
          AS g (job_kind, event_domain, executor, payload, priority, process_after, idempotency_key, max_attempts, actor, n)
      ), plain AS (
        INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready, max_attempts, actor)
        SELECT id, job_kind, event_domain, executor, COALESCE(payload, '{}'), COALESCE(priority, 100), COALESCE(process_after, now()),
          COALESCE(process_after <= now(), true), COALESCE(max_attempts, v_max), actor
        FROM given WHERE idempotency_key IS NULL
      ), keyed AS (
        -- in the order of the keys, so that two calls with the same keys wait for each other, never in a circle
        INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready,
          idempotency_key, max_attempts, actor)
        SELECT id, job_kind, event_domain, executor, COALESCE(payload, '{}'), COALESCE(priority, 100), COALESCE(process_after, now()),
          COALESCE(process_after <= now(), true), idempotency_key, COALESCE(max_attempts, v_max), actor
        FROM given WHERE idempotency_key IS NOT NULL ORDER BY job_kind, idempotency_key, n
        ON CONFLICT (job_kind, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING job_id, job_kind, idempotency_key
      )
      SELECT count(*) FILTER (WHERE g.idempotency_key IS NULL OR k.job_id = g.id),
        jsonb_agg(CASE WHEN g.idempotency_key IS NULL THEN g.id ELSE k.job_id END ORDER BY g.n)
      INTO v_made, v_ids
      FROM given g LEFT JOIN keyed k ON k.job_kind = g.job_kind AND k.idempotency_key = g.idempotency_key;
      -- those that were active before: in a statement of its own, which sees what was committed meanwhile
      IF v_made < v_given THEN
        SELECT jsonb_agg(COALESCE(i.id, to_jsonb(q.job_id)) ORDER BY i.n) INTO v_ids
        FROM (SELECT NULLIF(x.id, 'null') AS id, x.n, p_jobs -> (x.n - 1)::int AS job
              FROM jsonb_array_elements(v_ids) WITH ORDINALITY x (id, n)) i
        LEFT JOIN public.job_queue q ON i.id IS NULL AND q.job_kind = i.job ->> 'job_kind'
          AND q.idempotency_key = i.job ->> 'idempotency_key';
      END IF;
      IF v_made = v_given OR NOT jsonb_path_exists(v_ids, '$[*] ? (@ == null)') THEN
        RETURN jsonb_build_object('enqueued', v_made, 'existing', v_given - v_made, 'job_ids', v_ids);
      END IF;
      RAISE EXCEPTION 'a key was given free meanwhile' USING ERRCODE = 'QTJOB';
    EXCEPTION
      WHEN SQLSTATE 'QTJOB' THEN
        NULL;
      WHEN data_exception OR check_violation OR not_null_violation THEN
        RAISE EXCEPTION 'p_jobs holds a job that cannot be: %', SQLERRM USING ERRCODE = '22023';
    END;
  END LOOP;
  RAISE EXCEPTION 'jobs with these idempotency keys changed ten times meanwhile' USING ERRCODE = '40001';
END $$;
REVOKE ALL ON FUNCTION public.fn_job_enqueue_many(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_enqueue_many(jsonb) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_job_enqueue_many(jsonb) IS
  'Puts many jobs into the queue in one statement; keys that are active already are counted as existing.';

-- ---------------------------------------------------------------------------------------------------
-- Claiming
-- ---------------------------------------------------------------------------------------------------
-- fn_job_refusal(executor) → why this session gets no job as that executor, or NULL.
CREATE FUNCTION public.fn_job_refusal(p_executor_id text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_executor public.queue_heartbeat;
BEGIN
  IF NOT public.fn_cfg_bool('queue.job_substrate.enabled') THEN
    RETURN 'jobs are switched off: queue.job_substrate.enabled is not true';
  END IF;
  SELECT * INTO v_executor FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
  IF NOT FOUND THEN
    RETURN format('no executor %s is registered', left(COALESCE(p_executor_id, '(null)'), 200));
  ELSIF v_executor.deregistered_at IS NOT NULL THEN
    RETURN format('executor %s was deregistered by %s', p_executor_id, v_executor.deregistered_by);
  ELSIF v_executor.owner_role IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pg_roles r
      WHERE r.rolname = v_executor.owner_role AND pg_has_role(session_user, r.oid, 'MEMBER')) THEN
    RETURN format('executor %s belongs to role %s, of which %s is no member', p_executor_id, v_executor.owner_role, session_user);
  ELSIF NOT EXISTS (SELECT 1 FROM public.job_subscription s WHERE s.executor_id = p_executor_id AND s.enabled) THEN
    RETURN format('executor %s has no enabled subscription', p_executor_id);
  ELSIF NOT EXISTS (SELECT 1 FROM public.job_subscription s
      WHERE s.executor_id = p_executor_id AND s.enabled AND s.executor_kind = v_executor.executor_kind) THEN
    RETURN format('executor %s is of kind %s, its subscriptions are of another', p_executor_id, v_executor.executor_kind);
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_refusal(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_refusal(text) TO dot_executor, queue_viewer, workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_job_refusal(text) IS 'Why fn_job_claim gives this session nothing as that executor; null when it may.';

-- fn_job_lane_rule(executor, domain, kind) → the subscription that governs the lane for the executor: of the
-- enabled ones the most specific, the kind before the domain. Internal.
CREATE FUNCTION public.fn_job_lane_rule(p_executor_id text, p_event_domain text, p_job_kind text)
RETURNS SETOF public.job_subscription
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.* FROM public.job_subscription s
  WHERE s.executor_id = p_executor_id AND s.enabled
    AND (s.job_kind IS NULL OR s.job_kind = p_job_kind) AND (s.event_domain IS NULL OR s.event_domain = p_event_domain)
  ORDER BY s.job_kind IS NULL, s.event_domain IS NULL LIMIT 1
$$;
REVOKE ALL ON FUNCTION public.fn_job_lane_rule(text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_lane_rule(text, text, text) IS 'The subscription that governs a lane for an executor (DP6 §3.3). Internal.';

-- A lane that may have work for a claim: its rule (room: the places that are free under it), the lease it would be,
-- the priority of its next job, of which executor kind, what else the claim must know, and where the caller stopped.
CREATE TYPE public.job_claim_lane AS (event_domain text, job_kind text, subscription_id uuid, floor int, room int, token uuid,
  head int, executor text, owner_role text, lease_secs text, after_priority int, after_time timestamptz, after_id uuid);
COMMENT ON TYPE public.job_claim_lane IS 'A lane as fn_job_claim sees it. Internal.';

-- fn_job_lane_head(lane, below) → the highest priority under below at which a job can be claimed after the key, NULL =
-- none. The key is where the caller stopped; what stands before it at its priority is not looked at, so that the dead
-- entries an old snapshot keeps there cost nothing. Internal.
CREATE FUNCTION public.fn_job_lane_head(p_lane public.job_claim_lane, p_below bigint) RETURNS int
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_head int;
BEGIN
  SELECT q.priority INTO v_head FROM public.job_queue q
  WHERE q.event_domain = p_lane.event_domain AND q.job_kind = p_lane.job_kind AND q.ready
    AND q.priority >= p_lane.floor AND q.priority > p_lane.after_priority AND q.priority < p_below
    AND q.status IN ('queued', 'retry_waiting') AND q.executor = p_lane.executor
  ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1;
  IF v_head IS NOT NULL THEN
    RETURN v_head;
  END IF;
  IF p_lane.after_priority >= p_lane.floor AND p_lane.after_priority < p_below THEN
    SELECT q.priority INTO v_head FROM public.job_queue q
    WHERE q.event_domain = p_lane.event_domain AND q.job_kind = p_lane.job_kind AND q.ready
      AND q.priority = p_lane.after_priority AND (q.process_after, q.job_id) > (p_lane.after_time, p_lane.after_id)
      AND q.status IN ('queued', 'retry_waiting') AND q.executor = p_lane.executor
    ORDER BY q.process_after, q.job_id LIMIT 1;
    IF v_head IS NOT NULL THEN
      RETURN v_head;
    END IF;
  END IF;
  SELECT q.priority INTO v_head FROM public.job_queue q
  WHERE q.event_domain = p_lane.event_domain AND q.job_kind = p_lane.job_kind AND q.ready
    AND q.priority >= p_lane.floor AND q.priority < least(p_below, p_lane.after_priority)
    AND q.status IN ('queued', 'retry_waiting') AND q.executor = p_lane.executor
  ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1;
  RETURN v_head;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_lane_head(public.job_claim_lane, bigint) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_lane_head(public.job_claim_lane, bigint) IS 'The priority of the next claimable job of a lane. Internal.';

-- fn_job_claim(executor, kinds, limit, after) → the rows leased, higher priority first, older first; nothing
-- when refused (fn_job_refusal says why). after: {"<domain>/<kind>": [priority, process_after, job_id]}, where
-- this worker stopped in each lane; without it the lanes are swept from their start. Lanes whose next jobs
-- have the same priority share the limit. The governing subscriptions are locked first, so that max_parallel
-- holds whatever runs beside it. A call that meets very many priorities may return fewer than there are.
-- Commit before working: a lease is held only once it is committed.
CREATE FUNCTION public.fn_job_claim(p_executor_id text, p_kinds text[] DEFAULT NULL, p_limit int DEFAULT 1, p_after jsonb DEFAULT NULL)
RETURNS SETOF public.job_queue
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_lanes public.job_claim_lane[]; -- those that may have work
  v_lane public.job_claim_lane;
  v_until timestamptz;
  -- of more than one: the room and the token of a rule are kept at its first lane
  v_rules uuid[];                  -- of each that has work
  v_heads int[];                   -- the priorities of their next jobs
  v_rule record;
  v_key jsonb;
  v_first int;
  v_left int := p_limit;
  v_top int;
  v_next int;
  v_at int[];                      -- the lanes with the highest priority …
  v_times timestamptz[];           -- … and where each was picked up to
  v_ids uuid[];
  v_i int;
  v_time timestamptz;
  v_id uuid;
  v_n int;
  v_got int;
  v_tids tid[];
  v_picked tid[] := ARRAY[]::tid[];
  v_tokens uuid[] := ARRAY[]::uuid[];
  v_governing uuid[] := ARRAY[]::uuid[];
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 10000, not %', p_limit USING ERRCODE = '22023';
  ELSIF jsonb_typeof(p_after) <> 'object' THEN
    RAISE EXCEPTION 'p_after must be an object of [priority, process_after, job_id]' USING ERRCODE = '22023';
  ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    -- an old snapshot would not see what the neighbours hold
    RAISE EXCEPTION 'fn_job_claim needs a transaction that is read committed' USING ERRCODE = '25001';
  END IF;
  -- What fn_job_refusal refuses finds no lane here. Where there is no work, a claim locks and writes nothing.
  v_lanes := ARRAY(
    SELECT ROW(l.event_domain, l.job_kind, r.subscription_id, r.priority_floor, 0, gen_random_uuid(), n.head, h.executor_kind,
      h.owner_role, (SELECT d.value FROM public.dot_config d WHERE d.key = 'queue.lease.duration_seconds'),
      2147483647, '-infinity', '00000000-0000-0000-0000-000000000000')::public.job_claim_lane
    FROM public.dot_config c
    CROSS JOIN public.queue_heartbeat h
    CROSS JOIN (SELECT DISTINCT o.event_domain, o.job_kind FROM public.job_lane o WHERE p_kinds IS NULL OR o.job_kind = ANY (p_kinds)) l
    CROSS JOIN LATERAL ( -- as fn_job_lane_rule, which would be a call per lane
      SELECT s.subscription_id, s.priority_floor, s.executor_kind FROM public.job_subscription s
      WHERE s.executor_id = p_executor_id AND s.enabled
        AND (s.job_kind IS NULL OR s.job_kind = l.job_kind) AND (s.event_domain IS NULL OR s.event_domain = l.event_domain)
      ORDER BY s.job_kind, s.event_domain LIMIT 1) r
    LEFT JOIN LATERAL (
      SELECT q.priority AS head FROM public.job_queue q
      WHERE p_after IS NULL AND q.event_domain = l.event_domain AND q.job_kind = l.job_kind AND q.ready AND q.priority >= r.priority_floor
        AND q.status IN ('queued', 'retry_waiting') AND q.executor = h.executor_kind
      ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1) n ON true
    WHERE c.key = 'queue.job_substrate.enabled' AND c.value = 'true' AND h.executor_id = p_executor_id AND h.deregistered_at IS NULL
      AND r.executor_kind = h.executor_kind AND (n.head IS NOT NULL OR p_after IS NOT NULL));
  v_lane := v_lanes[1];
  IF v_lane IS NULL OR v_lane.owner_role IS NOT NULL AND public.fn_job_refusal(p_executor_id) IS NOT NULL THEN
    RETURN;
  END IF;
  v_until := clock_timestamp() + make_interval(secs => CASE WHEN v_lane.lease_secs ~ '^[0-9]{1,9}$' THEN v_lane.lease_secs::int ELSE 300 END);

  -- The rules are locked before anybody counts what they hold, so that max_parallel is kept. One that changed meanwhile
  -- admits nothing in this call.
  IF p_after IS NULL AND cardinality(v_lanes) = 1 THEN
    SELECT s.max_parallel INTO v_lane.room FROM public.job_subscription s
    WHERE s.subscription_id = v_lane.subscription_id AND s.enabled AND s.executor_kind = v_lane.executor
      AND s.executor_id = p_executor_id AND s.priority_floor = v_lane.floor
      AND (s.job_kind IS NULL OR s.job_kind = v_lane.job_kind) AND (s.event_domain IS NULL OR s.event_domain = v_lane.event_domain)
    FOR UPDATE;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    RETURN QUERY
    WITH claimed AS (
      UPDATE public.job_queue q SET status = 'leased', lease_owner = p_executor_id, lease_until = v_until,
        lease_token = v_lane.token, picked_at = clock_timestamp(), updated_at = now()
      WHERE q.ctid = ANY (ARRAY( -- locked, so that their places stand
        SELECT w.ctid FROM public.job_queue w
        WHERE w.event_domain = v_lane.event_domain AND w.job_kind = v_lane.job_kind AND w.ready
          AND w.priority BETWEEN v_lane.floor AND v_lane.head AND w.status IN ('queued', 'retry_waiting') AND w.executor = v_lane.executor
        ORDER BY w.priority DESC, w.process_after, w.job_id
        LIMIT greatest(0, least(p_limit, v_lane.room - (SELECT COALESCE(sum(l.live), 0) FROM public.job_lease l
          WHERE l.subscription_id = v_lane.subscription_id)))
        FOR UPDATE SKIP LOCKED))
      RETURNING q.*
    ), leased AS (
      INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
      SELECT v_lane.token, p_executor_id, v_lane.subscription_id, v_until, array_agg(c.job_id), count(*)::int
      FROM claimed c HAVING count(*) > 0
    )
    SELECT * FROM claimed c ORDER BY c.priority DESC, c.process_after, c.job_id;
    RETURN;
  END IF;

  FOR i IN 1..cardinality(v_lanes) LOOP
    v_lane := v_lanes[i];
    v_key := p_after -> (v_lane.event_domain || '/' || v_lane.job_kind);
    IF v_key IS NOT NULL THEN
      v_lane.after_priority := COALESCE((v_key ->> 0)::int, v_lane.after_priority);
      v_lane.after_time := COALESCE((v_key ->> 1)::timestamptz, v_lane.after_time);
      v_lane.after_id := COALESCE((v_key ->> 2)::uuid, v_lane.after_id);
      v_lanes[i] := v_lane;
    END IF;
    v_heads[i] := CASE WHEN p_after IS NULL THEN v_lane.head ELSE public.fn_job_lane_head(v_lane, 2147483648) END;
    v_rules[i] := CASE WHEN v_heads[i] IS NOT NULL THEN v_lane.subscription_id END;
  END LOOP;
  FOR v_rule IN
    SELECT s.subscription_id, s.job_kind, s.event_domain, s.priority_floor, s.max_parallel FROM public.job_subscription s
    WHERE s.subscription_id = ANY (v_rules) AND s.enabled AND s.executor_kind = v_lane.executor AND s.executor_id = p_executor_id
    ORDER BY s.subscription_id FOR UPDATE
  LOOP
    v_first := array_position(v_rules, v_rule.subscription_id);
    IF v_lanes[v_first].floor = v_rule.priority_floor AND NOT EXISTS (SELECT FROM unnest(v_lanes) l
      WHERE l.subscription_id = v_rule.subscription_id AND (l.job_kind <> v_rule.job_kind OR l.event_domain <> v_rule.event_domain)) THEN
      v_lanes[v_first].room := greatest(v_rule.max_parallel
        - COALESCE((SELECT sum(l.live) FROM public.job_lease l WHERE l.subscription_id = v_rule.subscription_id), 0), 0);
    END IF;
  END LOOP;

  -- Jobs are picked, and stay locked, a round of the lanes with the highest priority at a time; then all are claimed at once.
  FOR v_round IN 1..64 LOOP
    v_next := (SELECT max(h) FROM unnest(v_heads) h);
    EXIT WHEN v_next IS NULL OR v_left = 0;
    IF v_next IS DISTINCT FROM v_top THEN
      v_top := v_next;
      v_times := ARRAY[]::timestamptz[];
    END IF;
    v_at := ARRAY(SELECT x.i FROM unnest(v_heads) WITH ORDINALITY AS x (h, i) WHERE x.h = v_top ORDER BY x.i);
    FOR k IN 1..cardinality(v_at) LOOP
      EXIT WHEN v_left = 0;
      v_i := v_at[k];
      CONTINUE WHEN v_heads[v_i] IS NULL; -- its rule is full since
      v_lane := v_lanes[v_i];
      v_first := array_position(v_rules, v_lane.subscription_id);
      v_lane.room := v_lanes[v_first].room;
      v_n := (v_left + cardinality(v_at) - k) / (cardinality(v_at) - k + 1);
      IF v_times[v_i] IS NULL THEN
        v_times[v_i] := CASE WHEN v_lane.after_priority = v_top THEN v_lane.after_time ELSE '-infinity' END;
        v_ids[v_i] := CASE WHEN v_lane.after_priority = v_top THEN v_lane.after_id ELSE '00000000-0000-0000-0000-000000000000' END;
      END IF;
      SELECT array_agg(x.tid), max(x.process_after), (array_agg(x.job_id))[count(*)] INTO v_tids, v_time, v_id FROM (
        SELECT w.ctid AS tid, w.process_after, w.job_id FROM public.job_queue w
        WHERE w.event_domain = v_lane.event_domain AND w.job_kind = v_lane.job_kind AND w.ready AND w.priority = v_top
          AND (w.process_after, w.job_id) > (v_times[v_i], v_ids[v_i])
          AND w.status IN ('queued', 'retry_waiting') AND w.executor = v_lane.executor
        ORDER BY w.process_after, w.job_id LIMIT least(v_n, v_lane.room) FOR UPDATE SKIP LOCKED) x;
      v_got := COALESCE(cardinality(v_tids), 0);
      v_left := v_left - v_got;
      v_lanes[v_first].room := v_lane.room - v_got;
      IF v_got > 0 THEN
        v_times[v_i] := v_time;
        v_ids[v_i] := v_id;
        v_picked := v_picked || v_tids;
        v_tokens := v_tokens || array_fill(v_lanes[v_first].token, ARRAY[v_got]);
        v_governing := v_governing || array_fill(v_lane.subscription_id, ARRAY[v_got]);
      END IF;
      IF v_got = v_lane.room THEN
        FOR i IN v_first..cardinality(v_rules) LOOP
          IF v_rules[i] = v_lane.subscription_id THEN
            v_heads[i] := NULL;
          END IF;
        END LOOP;
      ELSIF v_got < v_n THEN
        v_heads[v_i] := public.fn_job_lane_head(v_lane, v_top);
      END IF;
    END LOOP;
  END LOOP;

  IF v_left = p_limit THEN
    RETURN;
  END IF;
  RETURN QUERY
  WITH claimed AS (
    UPDATE public.job_queue q SET status = 'leased', lease_owner = p_executor_id, lease_until = v_until,
      lease_token = g.token, picked_at = clock_timestamp(), updated_at = now()
    FROM unnest(v_picked, v_tokens) AS g (tid, token) WHERE q.ctid = g.tid RETURNING q.*
  ), leased AS (
    INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
    SELECT c.lease_token, p_executor_id, g.subscription_id, v_until, array_agg(c.job_id), count(*)::int
    FROM claimed c JOIN (SELECT DISTINCT x.token, x.subscription_id FROM unnest(v_tokens, v_governing) AS x (token, subscription_id)) g
      ON g.token = c.lease_token
    GROUP BY 1, 3
  )
  SELECT * FROM claimed c ORDER BY c.priority DESC, c.process_after, c.job_id;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_claim(text, text[], int, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_claim(text, text[], int, jsonb) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_claim(text, text[], int, jsonb) IS
  'Leases jobs for a registered executor within its subscriptions (DP6 §3.3). Commit before working on them.';

-- ---------------------------------------------------------------------------------------------------
-- Results. Each takes parallel arrays of job ids and lease tokens, changes what the token still holds, and
-- answers per pair: done, or lease_lost when the token holds the job no more. The same result once more is
-- done, and changes nothing.
-- ---------------------------------------------------------------------------------------------------
-- fn_job_lease_lock(ids, tokens): checks the arrays and locks the leases. Internal.
CREATE FUNCTION public.fn_job_lease_lock(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p_job_ids IS NULL OR p_lease_tokens IS NULL OR cardinality(p_job_ids) <> cardinality(p_lease_tokens)
    OR cardinality(p_job_ids) NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_job_ids and p_lease_tokens must hold the same number of values, 1 to 100000' USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens) ORDER BY l.lease_token FOR UPDATE;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_lease_lock(uuid[], uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_lease_lock(uuid[], uuid[]) IS 'Checks and locks what a result is reported for. Internal.';

-- fn_job_start(ids, tokens) → (job_id, outcome): leased → in_progress.
CREATE FUNCTION public.fn_job_start(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  UPDATE public.job_queue q SET status = 'in_progress', updated_at = now()
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
  WHERE q.job_id = g.id AND q.lease_token = g.token AND q.status = 'leased';
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_queue q WHERE q.job_id = g.id AND q.lease_token = g.token)
    THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_start(uuid[], uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_start(uuid[], uuid[]) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_start(uuid[], uuid[]) IS 'Says that leased jobs are being worked on: leased to in_progress.';

-- fn_job_renew(ids, tokens) → (job_id, outcome): the lease lasts its full time from now.
CREATE FUNCTION public.fn_job_renew(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_until timestamptz := clock_timestamp() + make_interval(secs => public.fn_cfg_int('queue.lease.duration_seconds', 300));
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  RETURN QUERY
  WITH given AS MATERIALIZED (
    SELECT g.id, g.token FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
  ), kept AS (
    UPDATE public.job_queue q SET lease_until = v_until FROM given g
    WHERE q.job_id = g.id AND q.lease_token = g.token RETURNING q.job_id AS id, q.lease_token AS token
  ), leases AS (
    UPDATE public.job_lease l SET lease_until = v_until
    FROM (SELECT DISTINCT k.token FROM kept k) k WHERE l.lease_token = k.token
  )
  SELECT g.id, CASE WHEN (g.id, g.token) IN (SELECT k.id, k.token FROM kept k) THEN 'done' ELSE 'lease_lost' END FROM given g;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_renew(uuid[], uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_renew(uuid[], uuid[]) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_renew(uuid[], uuid[]) IS
  'Prolongs leases from now by queue.lease.duration_seconds. The other jobs of the same claim stay leased with it.';

-- fn_job_ack(ids, tokens) → (job_id, outcome): succeeded; the job moves to job_history.
CREATE FUNCTION public.fn_job_ack(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_done uuid[];
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  WITH gone AS (
    DELETE FROM public.job_queue q USING unnest(p_job_ids, p_lease_tokens) AS g (id, token)
    WHERE q.job_id = g.id AND q.lease_token = g.token RETURNING q.*
  ), kept AS (
    INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, ready, priority, process_after,
      enqueued_at, picked_at, finished_at, lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
      idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
      correlation_id, causation_event_id, updated_at, prior_token, prior_result, from_status)
    SELECT job_id, job_kind, event_domain, executor, 'succeeded', ready, priority, process_after,
      enqueued_at, picked_at, now(), lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
      idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
      correlation_id, causation_event_id, now(), prior_token, prior_result, status
    FROM gone
  ), freed AS (
    UPDATE public.job_lease l SET live = l.live - d.n
    FROM (SELECT x.lease_token, count(*)::int AS n FROM gone x GROUP BY 1) d WHERE l.lease_token = d.lease_token
  )
  SELECT array_agg(job_id) INTO v_done FROM gone;
  DELETE FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens) AND l.live = 0;
  IF cardinality(v_done) = cardinality(p_job_ids) THEN
    RETURN QUERY SELECT d, 'done' FROM unnest(v_done) d;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_history h
      WHERE h.job_id = g.id AND h.lease_token = g.token AND 'succeeded' IN (h.status, h.from_status))
    THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_ack(uuid[], uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_ack(uuid[], uuid[]) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_ack(uuid[], uuid[]) IS 'Records success: the jobs move to job_history. Fenced by the lease token.';

-- fn_job_release(ids, tokens) → (job_id, outcome): handed back to queued, no attempt spent.
CREATE FUNCTION public.fn_job_release(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_back bigint;
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  WITH back AS (
    UPDATE public.job_queue q SET status = 'queued', lease_owner = NULL, lease_until = NULL, lease_token = NULL,
      prior_token = q.lease_token, prior_result = 'released', updated_at = now()
    FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
    WHERE q.job_id = g.id AND q.lease_token = g.token RETURNING g.token
  ), freed AS (
    UPDATE public.job_lease l SET live = l.live - d.n
    FROM (SELECT token, count(*)::int AS n FROM back GROUP BY 1) d WHERE l.lease_token = d.token
  )
  SELECT count(*) INTO v_back FROM back;
  DELETE FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens) AND l.live = 0;
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_queue q
        WHERE q.job_id = g.id AND q.prior_token = g.token AND q.prior_result = 'released')
      OR (v_back < cardinality(p_job_ids) AND EXISTS (SELECT 1 FROM public.job_history h
        WHERE h.job_id = g.id AND h.prior_token = g.token AND h.prior_result = 'released')) THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_release(uuid[], uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_release(uuid[], uuid[]) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_release(uuid[], uuid[]) IS 'Hands leased jobs back to queued without spending an attempt.';

-- fn_job_bury(ids, statuses, codes, errors, lost): moves leased jobs to job_history as failed or dead_letter, with
-- the try that failed counted; dead ones get their job_dead_letter row. The caller holds the leases. Internal.
CREATE FUNCTION public.fn_job_bury(p_job_ids uuid[], p_statuses text[], p_codes text[], p_errors text[], p_lost int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  WITH gone AS (
    DELETE FROM public.job_queue q USING unnest(p_job_ids, p_statuses, p_codes, p_errors) AS g (id, fate, code, error)
    WHERE q.job_id = g.id
    RETURNING q.*, g.fate, g.code, g.error
  ), letters AS (
    INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, executor, attempts, failure_code, last_error, payload,
      priority, max_attempts, source_ref, target_ref, payload_ref, correlation_id, causation_event_id, first_failed_at, last_failed_at)
    SELECT x.job_id, x.job_kind, x.event_domain, x.executor, x.attempts + 1, x.code, x.error, x.payload,
      x.priority, x.max_attempts, x.source_ref, x.target_ref, x.payload_ref, x.correlation_id, x.causation_event_id,
      COALESCE(x.first_failed_at, now()), now()
    FROM gone x WHERE x.fate = 'dead_letter' ORDER BY x.job_id
  )
  INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, ready, priority, process_after,
    enqueued_at, picked_at, finished_at, lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
    idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
    correlation_id, causation_event_id, updated_at, prior_token, prior_result, from_status)
  SELECT x.job_id, x.job_kind, x.event_domain, x.executor, x.fate, x.ready, x.priority, x.process_after,
    x.enqueued_at, x.picked_at, now(), x.lease_owner, x.lease_until, x.lease_token, x.attempts + 1, x.max_attempts,
    x.lost_leases + p_lost, x.idempotency_key, x.source_ref, x.target_ref, x.payload_ref, x.payload, x.error, x.code,
    COALESCE(x.first_failed_at, now()), x.actor, x.correlation_id, x.causation_event_id, now(), x.prior_token, x.prior_result, x.status
  FROM gone x;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_bury(uuid[], text[], text[], text[], int) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_bury(uuid[], text[], text[], text[], int) IS
  'Moves jobs whose last try failed to history, and to job_dead_letter. Internal.';

-- fn_job_lease_less(tokens): takes from each lease as many jobs as the token stands there; empty leases go.
-- Internal.
CREATE FUNCTION public.fn_job_lease_less(p_lease_tokens uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  UPDATE public.job_lease l SET live = l.live - d.n
  FROM (SELECT t, count(*)::int AS n FROM unnest(p_lease_tokens) t GROUP BY 1) d WHERE l.lease_token = d.t;
  DELETE FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens) AND l.live = 0;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_lease_less(uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_lease_less(uuid[]) IS 'Counts jobs out of their leases. Internal.';

-- fn_job_fail(ids, tokens, codes, errors, permanent) → (job_id, outcome): one more finished try. Permanent →
-- failed, not kept as a dead letter; attempts at max_attempts → dead_letter; else retry_waiting for up to
-- base × 2^(attempts-1), capped, full jitter. A code that is none counts as HANDLER_ERROR.
CREATE FUNCTION public.fn_job_fail(p_job_ids uuid[], p_lease_tokens uuid[], p_codes text[], p_errors text[], p_permanent boolean[])
RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_cap double precision := public.fn_cfg_int('queue.retry.backoff_cap_seconds', 3600);
  v_base double precision := public.fn_cfg_int('queue.retry.backoff_base_seconds', 10);
  v_ids uuid[];
  v_tokens uuid[];
  v_fates text[];
  v_codes text[];
  v_errors text[];
BEGIN
  IF cardinality(p_job_ids) IS DISTINCT FROM cardinality(p_codes) OR cardinality(p_job_ids) IS DISTINCT FROM cardinality(p_errors)
    OR cardinality(p_job_ids) IS DISTINCT FROM cardinality(p_permanent) THEN
    RAISE EXCEPTION 'all arrays must hold the same number of values' USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  SELECT array_agg(x.id), array_agg(x.token), array_agg(x.fate), array_agg(x.code), array_agg(x.error)
  INTO v_ids, v_tokens, v_fates, v_codes, v_errors FROM (
    SELECT DISTINCT ON (g.id) g.id, g.token,
      CASE WHEN octet_length(s.said) <= 4096 THEN s.said
        ELSE left(s.said, 200) || ' … ' || right(s.said, CASE WHEN octet_length(s.said) - length(s.said) <= 400 THEN 3200 ELSE 800 END)
        END AS error, -- the cause stands last
      CASE WHEN g.code ~ '^[A-Z][A-Z0-9_]{0,63}$' THEN g.code ELSE 'HANDLER_ERROR' END AS code,
      CASE WHEN COALESCE(g.permanent, false) THEN 'failed' WHEN q.attempts + 1 >= q.max_attempts THEN 'dead_letter'
        ELSE 'retry_waiting' END AS fate
    FROM unnest(p_job_ids, p_lease_tokens, p_codes, p_errors, p_permanent) AS g (id, token, code, error, permanent)
    JOIN public.job_queue q ON q.job_id = g.id AND q.lease_token = g.token
    CROSS JOIN LATERAL ( -- a cut before the mask may fall into a secret: what is near it is not kept
      SELECT CASE WHEN length(g.error) <= 4500 THEN public.fn_mask_said(g.error)
        ELSE left(public.fn_mask_said(left(g.error, 1500)), 200) || ' … ' || right(public.fn_mask_said(right(g.error, 2500)), 800) END AS said
      OFFSET 0) s
    ORDER BY g.id) x;

  UPDATE public.job_queue q SET status = 'retry_waiting', lease_owner = NULL, lease_until = NULL, lease_token = NULL,
    attempts = q.attempts + 1, prior_token = g.token, prior_result = 'failed', last_error = g.error, failure_code = g.code,
    first_failed_at = COALESCE(q.first_failed_at, now()), updated_at = now(), ready = v_base = 0,
    process_after = clock_timestamp() + make_interval(secs => random() * least(v_cap, v_base * power(2, least(q.attempts, 30))))
  FROM unnest(v_ids, v_tokens, v_fates, v_codes, v_errors) AS g (id, token, fate, code, error)
  WHERE g.fate = 'retry_waiting' AND q.job_id = g.id;
  PERFORM public.fn_job_bury(array_agg(g.id), array_agg(g.fate), array_agg(g.code), array_agg(g.error), 0)
  FROM unnest(v_ids, v_fates, v_codes, v_errors) AS g (id, fate, code, error)
  WHERE g.fate <> 'retry_waiting' HAVING count(*) > 0;
  PERFORM public.fn_job_lease_less(v_tokens);
  IF cardinality(v_ids) = cardinality(p_job_ids) THEN
    RETURN QUERY SELECT d, 'done' FROM unnest(v_ids) d;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_queue q
        WHERE q.job_id = g.id AND q.prior_token = g.token AND q.prior_result = 'failed')
      OR EXISTS (SELECT 1 FROM public.job_history h WHERE h.job_id = g.id
        AND (h.lease_token = g.token AND (h.status IN ('failed', 'dead_letter') OR h.from_status IN ('failed', 'dead_letter'))
          OR h.prior_token = g.token AND h.prior_result = 'failed'))
    THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_fail(uuid[], uuid[], text[], text[], boolean[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_fail(uuid[], uuid[], text[], text[], boolean[]) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_fail(uuid[], uuid[], text[], text[], boolean[]) IS
  'Records failed tries: to be retried, failed for good, or dead. Fenced by the lease token.';

-- ---------------------------------------------------------------------------------------------------
-- Ticks
-- ---------------------------------------------------------------------------------------------------
-- fn_job_tick(limit) → {promoted, next_due}: finds due work that waited outside the claim index; next_due is
-- when the next of it falls due, NULL = none. Many may run at once. Tick worker job_queue_default.
CREATE FUNCTION public.fn_job_tick(p_limit int DEFAULT 10000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_domains text[];
  v_counts bigint[];
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  WITH due AS MATERIALIZED (
    SELECT q.job_id FROM public.job_queue q WHERE NOT q.ready AND q.process_after <= now()
    ORDER BY q.process_after, q.job_id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ), up AS (
    UPDATE public.job_queue q SET ready = true, updated_at = now() FROM due d WHERE q.job_id = d.job_id
    RETURNING q.event_domain
  )
  SELECT array_agg(x.event_domain), array_agg(x.n) INTO v_domains, v_counts
  FROM (SELECT event_domain, count(*) AS n FROM up GROUP BY 1 ORDER BY 1) x;
  PERFORM public.fn_queue_wake('queue_wake_' || w.domain, jsonb_build_object('layer', 'job', 'event_domain', w.domain,
    'worker_hint', 'job_executor', 'count', w.n, 'occurred_at', clock_timestamp()))
  FROM unnest(v_domains, v_counts) AS w (domain, n);
  DELETE FROM public.job_lane l WHERE EXISTS (SELECT 1 FROM public.job_lane o
    WHERE o.event_domain = l.event_domain AND o.job_kind = l.job_kind AND o.ctid < l.ctid);
  RETURN jsonb_build_object(
    'promoted', COALESCE((SELECT sum(n) FROM unnest(v_counts) n), 0),
    'next_due', (SELECT to_char(q.process_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM public.job_queue q
      WHERE NOT q.ready AND isfinite(q.process_after) ORDER BY q.process_after, q.job_id LIMIT 1));
END $$;
REVOKE ALL ON FUNCTION public.fn_job_tick(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_tick(int) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_tick(int) IS 'Tick job_queue_default: makes late work and retries claimable when they are due.';

-- fn_job_reap(tokens) → {reaped, returned, dead_lettered}: what is left of these leases, which the caller has
-- locked, counts as one lost try each: back to queued, or dead at the third lost lease or the last attempt.
-- Internal.
CREATE FUNCTION public.fn_job_reap(p_lease_tokens uuid[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_ids uuid[];
  v_codes text[];
  v_returned bigint;
  v_dead int;
BEGIN
  SELECT array_agg(x.job_id), array_agg(x.code) INTO v_ids, v_codes FROM (
    SELECT q.job_id, CASE WHEN q.lost_leases + 1 >= 3 THEN 'LEASE_LOST_LIMIT' WHEN q.attempts + 1 >= q.max_attempts THEN 'LEASE_LOST' END AS code
    FROM (SELECT unnest(l.job_ids) AS id, l.lease_token FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens)) j
    JOIN public.job_queue q ON q.job_id = j.id AND q.lease_token = j.lease_token
    ORDER BY q.job_id) x;
  WITH back AS (
    UPDATE public.job_queue q SET status = 'queued', lease_owner = NULL, lease_until = NULL, lease_token = NULL,
      attempts = q.attempts + 1, lost_leases = q.lost_leases + 1, first_failed_at = COALESCE(q.first_failed_at, now()),
      failure_code = 'LEASE_LOST', last_error = 'the lease of ' || q.lease_owner || ' expired', updated_at = now()
    FROM unnest(v_ids, v_codes) AS g (id, code) WHERE q.job_id = g.id AND g.code IS NULL RETURNING q.event_domain
  ), rung AS MATERIALIZED (
    SELECT public.fn_queue_wake('queue_wake_' || b.event_domain, jsonb_build_object('layer', 'job', 'event_domain', b.event_domain,
      'worker_hint', 'job_executor', 'count', b.n, 'occurred_at', clock_timestamp())), b.n
    FROM (SELECT event_domain, count(*) AS n FROM back GROUP BY 1) b
  )
  SELECT COALESCE(sum(n), 0) INTO v_returned FROM rung;
  PERFORM public.fn_job_bury(array_agg(g.id), array_agg('dead_letter'::text), array_agg(g.code),
    array_agg('the worker went silent: its lease expired'::text), 1)
  FROM unnest(v_ids, v_codes) AS g (id, code) WHERE g.code IS NOT NULL HAVING count(*) > 0;
  DELETE FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens);
  v_dead := COALESCE(cardinality(v_ids), 0) - v_returned;
  RETURN jsonb_build_object('reaped', COALESCE(cardinality(v_ids), 0), 'returned', v_returned, 'dead_lettered', v_dead);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_reap(uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_reap(uuid[]) IS 'Takes the jobs of locked leases back. Internal.';

-- fn_job_reap_expired(limit) → {reaped, returned, dead_lettered}: takes back expired leases, oldest first, about
-- limit jobs. Many at once share them out. Tick worker lease_reaper.
CREATE FUNCTION public.fn_job_reap_expired(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_tokens uuid[];
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  SELECT array_agg(x.lease_token) INTO v_tokens FROM (
    SELECT l.lease_token FROM public.job_lease l
    WHERE l.lease_until < clock_timestamp() AND l.lease_token IN (
      SELECT w.lease_token FROM (
        SELECT e.lease_token, sum(e.live) OVER (ORDER BY e.lease_until, e.lease_token) - e.live AS before
        FROM (SELECT lease_token, live, lease_until FROM public.job_lease WHERE lease_until < clock_timestamp()
          ORDER BY lease_until, lease_token LIMIT 4 * p_limit) e) w -- more than wanted: a neighbour may be taking the first ones
      WHERE w.before < 4 * p_limit)
    ORDER BY l.lease_until, l.lease_token LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
  IF v_tokens IS NULL THEN
    RETURN jsonb_build_object('reaped', 0, 'returned', 0, 'dead_lettered', 0);
  END IF;
  RETURN public.fn_job_reap(v_tokens);
END $$;
REVOKE ALL ON FUNCTION public.fn_job_reap_expired(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_job_reap_expired(int) TO dot_executor;
COMMENT ON FUNCTION public.fn_job_reap_expired(int) IS
  'Tick lease_reaper: expired leases count as lost tries; their jobs go back to queued or die.';

SELECT public.fn_queue_tick_worker_add('job_queue_default', 'fn_job_tick', 'queue.job_substrate.enabled', true, '{}');
SELECT public.fn_queue_tick_worker_add('lease_reaper', 'fn_job_reap_expired', 'queue.lease.reaper_enabled', true, '{}');

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
SELECT public.fn_queue_tick_worker_drop('lease_reaper');
SELECT public.fn_queue_tick_worker_drop('job_queue_default');
DROP FUNCTION public.fn_job_reap_expired(int);
DROP FUNCTION public.fn_job_reap(uuid[]);
DROP FUNCTION public.fn_job_tick(int);
DROP FUNCTION public.fn_job_fail(uuid[], uuid[], text[], text[], boolean[]);
DROP FUNCTION public.fn_job_lease_less(uuid[]);
DROP FUNCTION public.fn_job_bury(uuid[], text[], text[], text[], int);
DROP FUNCTION public.fn_job_release(uuid[], uuid[]);
DROP FUNCTION public.fn_job_ack(uuid[], uuid[]);
DROP FUNCTION public.fn_job_renew(uuid[], uuid[]);
DROP FUNCTION public.fn_job_start(uuid[], uuid[]);
DROP FUNCTION public.fn_job_lease_lock(uuid[], uuid[]);
DROP FUNCTION public.fn_job_claim(text, text[], int, jsonb);
DROP FUNCTION public.fn_job_lane_head(public.job_claim_lane, bigint);
DROP TYPE public.job_claim_lane;
DROP FUNCTION public.fn_job_lane_rule(text, text, text);
DROP FUNCTION public.fn_job_refusal(text);
DROP FUNCTION public.fn_job_enqueue_many(jsonb);
DROP FUNCTION public.fn_job_enqueue(text, text, text, jsonb, int, timestamptz, text, int, text);
DROP FUNCTION public.fn_job_producer_refusal(text[]);
RESET ROLE;
