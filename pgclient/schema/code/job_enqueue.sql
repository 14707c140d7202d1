-- Jobs: enqueue. Sources: DP1 §5, DP6 §1.4.

COMMENT ON TABLE public.executor_producer IS
  'Who may enqueue for an executor kind (DP6 §1.4). Without a row anybody with the right to enqueue may.';
COMMENT ON COLUMN public.executor_producer.producer_role IS 'where a row exists, only members may enqueue for the kind';

-- Enqueueing. What is refused raises, so that a producer's transaction has its own rows and the job, or neither. No
-- flag stops it: switches stop claims. fn_job_producer_check(executor kinds): raises 42501 where this session may not
-- enqueue for one of them. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_producer_check(p_executors text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_kind text;
BEGIN
  SELECT p.executor_kind INTO v_kind FROM public.executor_producer p
  WHERE p.executor_kind = ANY (p_executors)
  GROUP BY p.executor_kind
  HAVING NOT bool_or(EXISTS (SELECT 1 FROM pg_roles r
    WHERE r.rolname = public.fn_queue_role_name(p.producer_role)
    AND pg_has_role(session_user, r.oid, 'MEMBER')))
  ORDER BY 1 LIMIT 1;
  IF v_kind IS NOT NULL THEN
    RAISE EXCEPTION '% may not enqueue for executor kind %: executor_producer names others', session_user, v_kind
      USING ERRCODE = '42501', HINT = 'ask for membership in a role that executor_producer names for this kind';
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_job_producer_check IS
  'Raises 42501 where this session may not enqueue (DP6 §1.4). Internal.';

-- fn_job_enqueue(…) → {job_id, created: true}, or {job_id, created: false} of the active job of the same
-- kind that has the key. 22023 = an argument that cannot be, 42501 = executor_producer names others. Rings no bell: the
-- caller does after its commit.
CREATE OR REPLACE FUNCTION public.fn_job_enqueue(p_job_kind text, p_event_domain text, p_executor text,
  p_payload jsonb DEFAULT '{}',
  p_priority int DEFAULT 100, p_process_after timestamptz DEFAULT now(), p_idempotency_key text DEFAULT NULL,
  p_max_attempts int DEFAULT NULL, p_actor text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_free boolean;
  v_max int;
  v_bad text;
  v_id uuid := gen_random_uuid();
BEGIN
  -- which kind is asked only where somebody is named for one
  SELECT NOT EXISTS (SELECT FROM public.executor_producer),
    COALESCE(p_max_attempts, (SELECT m.n FROM public.v_dot_config_number m
      WHERE m.key = 'queue.retry.max_attempts_default'), 20)
  INTO v_free, v_max;
  IF NOT v_free THEN
    PERFORM public.fn_job_producer_check(ARRAY[p_executor]);
  END IF;
  -- what job_queue and job_lane refuse, in the words of the arguments; {0,99} in a pattern costs ten times what * does
  v_bad := CASE
    WHEN (p_job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]*$' AND length(p_job_kind) <= 100) IS NOT TRUE
      THEN 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'
    WHEN (p_event_domain ~ '^[a-z][a-z0-9_]*$' AND length(p_event_domain) <= 51) IS NOT TRUE
      THEN 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$'
    WHEN (p_executor IN (:executor_kinds)) IS NOT TRUE
      THEN concat('p_executor must be ', public.fn_words(ARRAY[:executor_kinds], 'or'))
    WHEN jsonb_typeof(p_payload) <> 'object' THEN 'p_payload must be an object'
    WHEN p_payload ?| ARRAY[:denied_keys]
      THEN concat('p_payload ', public.fn_denied_key(p_payload))
    WHEN p_priority NOT BETWEEN 0 AND 1000 THEN 'p_priority must be 0 to 1000'
    WHEN p_process_after NOT BETWEEN '0001-01-01Z' AND '9999-12-31Z'
      THEN 'p_process_after must be a time of the years 1 to 9999'
    WHEN length(p_actor) > 200 THEN 'p_actor must have at most 200 characters' END;
  IF v_bad IS NULL AND num_nonnulls(p_max_attempts, p_idempotency_key) > 0 THEN
    v_bad := CASE
      WHEN p_max_attempts NOT BETWEEN 1 AND 1000 THEN 'p_max_attempts must be 1 to 1000'
      WHEN length(p_idempotency_key) NOT BETWEEN 1 AND 500 THEN 'p_idempotency_key must have 1 to 500 characters' END;
  END IF;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '%', v_bad USING ERRCODE = '22023';
  END IF;
  IF p_idempotency_key IS NULL THEN
    INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready,
      max_attempts, actor)
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
GRANT EXECUTE ON FUNCTION public.fn_job_enqueue TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_job_enqueue IS
  'Puts one job into the queue; the same key twice while active is one job.';

-- fn_job_enqueue_many(jobs) → {enqueued, existing, job_ids}: an array of objects with the names of
-- fn_job_enqueue without p_; job_ids in the order given. All or nothing; raises as fn_job_enqueue
-- does. The ids ascend, so that the indexes
-- grow at their end: milliseconds, 48 random bits, the number of the job. Plans are generic: others copy the argument.
CREATE OR REPLACE FUNCTION public.fn_job_enqueue_many(p_jobs jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET plan_cache_mode = force_generic_plan SET work_mem = '64MB' AS $$
DECLARE
  c_keys CONSTANT text[] := '{job_kind, event_domain, executor, payload, priority, process_after, idempotency_key, '
    'max_attempts, actor}'::text[];
  c_first CONSTANT int := 1 << 20; -- six hexadecimal digits, whatever is added
  v_time text := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0');
  v_random text := gen_random_uuid();
  v_prefix text := left(v_time, 8) || '-' || right(v_time, 4) || '-7' || substr(v_random, 16, 4) || '8'
    || substr(v_random, 21, 10);
  v_free boolean;
  v_max int;
  v_stray text;
  v_denied text;
  v_given int := CASE WHEN jsonb_typeof(p_jobs) = 'array' THEN jsonb_array_length(p_jobs) END;
  v_made int;
  v_ids jsonb;
BEGIN
  IF (v_given BETWEEN 1 AND 1000000) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_jobs must be an array of 1 to 1000000 objects' USING ERRCODE = '22023';
  END IF;
  -- which kinds is asked only where somebody is named for one
  SELECT NOT EXISTS (SELECT FROM public.executor_producer),
    COALESCE((SELECT m.n FROM public.v_dot_config_number m
      WHERE m.key = 'queue.retry.max_attempts_default'), 20)
  INTO v_free, v_max;
  IF NOT v_free THEN
    PERFORM public.fn_job_producer_check(ARRAY(SELECT DISTINCT x.executor
      FROM jsonb_to_recordset(p_jobs) AS x (executor text)));
  END IF;

  -- looked for at all only where some job names one
  IF jsonb_path_exists(p_jobs, '$[*] ? (exists(@.priority) || exists(@.process_after) || exists(@.actor))') THEN
    BEGIN
      SELECT CASE WHEN x.priority NOT BETWEEN 0 AND 1000 THEN 'priority must be 0 to 1000'
        WHEN length(x.actor) > 200 THEN 'actor must have at most 200 characters'
        ELSE 'process_after must be a time of the years 1 to 9999' END INTO v_stray
      FROM jsonb_to_recordset(p_jobs) AS x (priority int, process_after timestamptz, actor text)
      WHERE x.priority NOT BETWEEN 0 AND 1000 OR length(x.actor) > 200
        OR x.process_after NOT BETWEEN '0001-01-01Z' AND '9999-12-31Z' LIMIT 1;
    EXCEPTION WHEN data_exception THEN
      v_stray := SQLERRM;
    END;
    IF v_stray IS NOT NULL THEN
      RAISE EXCEPTION 'p_jobs holds a job that cannot be: %', v_stray USING ERRCODE = '22023';
    END IF;
  END IF;

  -- A key that was active and is free a moment later must not leave its job behind: then all is taken back, with
  -- the locks on the other keys, and tried again.
  FOR v_try IN 1..10 LOOP
    BEGIN
      SELECT (SELECT k FROM jsonb_object_keys(e - c_keys) k LIMIT 1),
        CASE WHEN e -> 'payload' ?| ARRAY[:denied_keys] THEN public.fn_denied_key(e -> 'payload') END
      INTO v_stray, v_denied FROM jsonb_array_elements(p_jobs) e
      WHERE e - c_keys <> '{}' OR e -> 'payload' ?| ARRAY[:denied_keys] LIMIT 1;
      IF v_denied IS NOT NULL THEN
        RAISE EXCEPTION 'payload %', v_denied USING ERRCODE = '22023';
      ELSIF FOUND THEN
        RAISE EXCEPTION '% is none of %', quote_literal(v_stray), array_to_string(c_keys, ', ') USING ERRCODE = '22023';
      END IF;
      IF NOT jsonb_path_exists(p_jobs, '$[*].idempotency_key ? (@ != null)') THEN
        INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after,
          ready, max_attempts, actor)
        SELECT (v_prefix || to_hex(c_first + g.n))::uuid, g.job_kind, g.event_domain, g.executor,
          COALESCE(g.payload, '{}'),
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
          AS g (job_kind, event_domain, executor, payload, priority, process_after, idempotency_key, max_attempts,
            actor, n)
      ), plain AS (
        INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after,
          ready, max_attempts, actor)
        SELECT id, job_kind, event_domain, executor, COALESCE(payload, '{}'), COALESCE(priority, 100),
          COALESCE(process_after, now()),
          COALESCE(process_after <= now(), true), COALESCE(max_attempts, v_max), actor
        FROM given WHERE idempotency_key IS NULL
      ), keyed AS (
        -- in the order of the keys, so that two calls with the same keys wait for each other, never in a circle
        INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready,
          idempotency_key, max_attempts, actor)
        SELECT id, job_kind, event_domain, executor, COALESCE(payload, '{}'), COALESCE(priority, 100),
          COALESCE(process_after, now()),
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
GRANT EXECUTE ON FUNCTION public.fn_job_enqueue_many TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_job_enqueue_many IS
  'Puts many jobs into the queue in one statement; keys that are active already are counted as existing.';
