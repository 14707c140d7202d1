-- Enqueueing jobs. Sources: DP1 §5, DP6 §1.4. A refused call raises an error, so that the producer's transaction
-- contains both its own rows and the job, or neither. No flag stops enqueueing: flags stop claims.

COMMENT ON TABLE public.executor_producer IS
  'Who may enqueue for an executor kind (DP6 §1.4). A kind without a row is open to everyone who may enqueue.';
COMMENT ON COLUMN public.executor_producer.producer_role IS
  'if a kind has rows, only members of these roles may enqueue for it';

-- fn_job_producer_check(executor kinds): raises 42501 if this session may not enqueue for one of the executor kinds of
-- a call. The kinds are in the order of the jobs; for a call with several jobs the message names the first refused job.
-- Internal.
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
    RAISE EXCEPTION '% may not enqueue for executor kind %: executor_producer allows only other roles', concat(CASE
        WHEN cardinality(p_executors) > 1 THEN format('p_jobs[%s]: ', array_position(p_executors, v_kind) - 1) END,
      'login ', session_user), v_kind
      USING ERRCODE = '42501', HINT = (SELECT format('GRANT one of these roles TO %I: %s', session_user,
        string_agg(DISTINCT quote_ident(public.fn_queue_role_name(p.producer_role)), ', '))
        FROM public.executor_producer p WHERE p.executor_kind = v_kind);
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_job_producer_check IS
  'Raises 42501 if this session may not enqueue for an executor kind (DP6 §1.4). Internal.';

-- fn_job_terms(max attempts) → free: true = no executor kind is restricted to certain producers; max_attempts: the
-- argument or, if it is NULL, the value of the flag. Callers use it only when they could not read these values without
-- waiting. It does not wait for the flag either, and returns 20 instead. It never guesses permissions: 55P03 =
-- executor_producer stayed locked for a second, or cannot be read. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_terms(p_max_attempts int, OUT free boolean, OUT max_attempts int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $$
BEGIN
  BEGIN -- these subtransactions write nothing
    SELECT NOT EXISTS (SELECT FROM public.executor_producer), COALESCE(p_max_attempts, -- as in fn_job_enqueue
      (SELECT CASE WHEN c.value ~ '^[0-9]{1,9}$' THEN least(greatest(c.value::int, 1), 1000) END
      FROM public.dot_config c WHERE c.key = 'queue.retry.max_attempts_default'), 20)
    INTO free, max_attempts;
    RETURN;
  EXCEPTION WHEN OTHERS THEN
    max_attempts := COALESCE(p_max_attempts, 20);
  END;
  BEGIN
    PERFORM set_config('lock_timeout', '1s', true); -- until this function returns
    free := NOT EXISTS (SELECT FROM public.executor_producer);
  EXCEPTION WHEN serialization_failure OR deadlock_detected THEN
    RAISE;
  WHEN OTHERS THEN
    RAISE EXCEPTION 'whether this login may enqueue cannot be looked up in executor_producer: %', SQLERRM
      USING ERRCODE = '55P03', HINT = 'try again once executor_producer can be read';
  END;
END $$;
COMMENT ON FUNCTION public.fn_job_terms IS
  'Permissions and default attempts for enqueueing, if they could not be read without waiting. Internal.';

-- Idempotency keys. A key is kept for retention.job_keys_days after its job is final and has no open dead letter; when
-- the job is replayed, its key belongs to the new job. Jobs without a key write nothing here.
COMMENT ON TABLE public.producer_key IS
  'Idempotency keys, each with its job or event. Written in the same transaction as the job or event, moved to the new '
  'job by a replay, deleted retention.job_keys_days after the end.';
COMMENT ON COLUMN public.producer_key.scope IS
  'the role that owns the key; empty = a key of a release that did not store the owner: valid for any producer';
COMMENT ON COLUMN public.producer_key.kind IS 'the kind of the job, or domain/type of the event';
COMMENT ON COLUMN public.producer_key.target_id IS 'the job, after a replay the new job; or the event';
COMMENT ON COLUMN public.producer_key.content_hash IS
  'SHA-256 of kind, domain, executor and payload of the job, or of stream, lane, severity, subject and payload of the '
  'event';
COMMENT ON COLUMN public.producer_key.status IS
  'how the job ended; emitted for an event; NULL while the job is live';
GRANT SELECT (scope, kind, key, target_id, status, final_at) ON public.producer_key TO :"queue_viewer",
  :"dot_executor", :"workflow_admin", :"dead_letter_operator";
COMMENT ON TABLE public.job_root IS
  'For each replayed job, the first job of its chain of replays: its id is the token by which handlers recognise work '
  'that they have done.';
COMMENT ON COLUMN public.job_root.root_job_id IS
  'the job that was enqueued; a job without a row here is its own root';
GRANT SELECT ON public.job_root TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";
COMMENT ON TYPE public.job_given IS 'A job as an argument of fn_job_put. Internal.';

-- fn_job_key(job) → the idempotency key of a job, NULL = it has no key. fn_job_root(job) → the first job of its chain
-- of replays, or the job itself. Both are for jobs that fn_job_claim has just returned. They are VOLATILE so that they
-- see a job that was committed after the calling statement began; a join in that statement would not see the row in
-- job_root, and would mistake a replay for a first job.
CREATE OR REPLACE FUNCTION public.fn_job_key(p_job_id uuid) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT k.key FROM public.producer_key k WHERE k.target_id = p_job_id LIMIT 1);
END $$;
COMMENT ON FUNCTION public.fn_job_key IS 'The idempotency key of a job; for rows of fn_job_claim.';
GRANT EXECUTE ON FUNCTION public.fn_job_key TO :"dot_executor";

CREATE OR REPLACE FUNCTION public.fn_job_root(p_job_id uuid) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN COALESCE((SELECT r.root_job_id FROM public.job_root r WHERE r.job_id = p_job_id), p_job_id);
END $$;
COMMENT ON FUNCTION public.fn_job_root IS
  'The first job of a chain of replays, whose id is the token by which handlers recognise work that they have done; '
  'for rows of fn_job_claim.';
GRANT EXECUTE ON FUNCTION public.fn_job_root TO :"dot_executor";

-- fn_content_hash(content) → the SHA-256 by which a second call with the same key is compared with the first. Internal.
CREATE OR REPLACE FUNCTION public.fn_content_hash(p_content jsonb) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN sha256(convert_to(p_content::text, getdatabaseencoding()));
END $$;
COMMENT ON FUNCTION public.fn_content_hash IS
  'SHA-256 of the content that was enqueued with an idempotency key. Internal.';

-- fn_job_put(jobs) → ids and statuses: for each job, in the order of the argument, the id and status of the new job, or
-- of the existing job with its key; made: how many jobs were created. 42501 = this login is not a member of the scope's
-- role, 23505 = the key belongs to a job with different content, 40001 = another transaction committed the key after
-- this REPEATABLE READ transaction began. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_put(p_jobs public.job_given[], OUT ids uuid[], OUT statuses text[],
  OUT made bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_bad text;
  v_at text;
  v_remaining bigint;
  v_n bigint;
  v_taken uuid[];
BEGIN
  SELECT s.scope, CASE WHEN cardinality(p_jobs) > 1 THEN format('p_jobs[%s]: ', s.n - 1) END INTO v_bad, v_at
  FROM (SELECT j.scope, min(j.ordinality) AS n FROM unnest(p_jobs) WITH ORDINALITY j
    WHERE j.idempotency_key IS NOT NULL AND j.scope <> session_user GROUP BY 1) s
  WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = public.fn_queue_role_name(s.scope)
    AND pg_has_role(session_user, r.oid, 'MEMBER')) ORDER BY s.n LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION '% may not use idempotency keys of scope %', concat(v_at, 'login ', session_user), left(v_bad, 63)
      USING ERRCODE = '42501', HINT = 'a scope is a role: make the login a member of it, or leave the scope out';
  END IF;
  <<keys>>
  LOOP
    LOOP
      -- in the order of the keys, so that two calls with the same keys wait for each other instead of a deadlock
      INSERT INTO public.producer_key (scope, kind, key, target_id, content_hash)
      SELECT j.scope, j.job_kind, j.idempotency_key, j.job_id,
        public.fn_content_hash(jsonb_build_array(j.job_kind, j.event_domain, j.executor, j.payload))
      FROM unnest(p_jobs) WITH ORDINALITY j
      WHERE j.idempotency_key IS NOT NULL AND NOT EXISTS (SELECT FROM public.producer_key o
        WHERE o.scope = '' AND o.kind = j.job_kind AND o.key = j.idempotency_key)
      ORDER BY j.scope, j.job_kind, j.idempotency_key, j.ordinality
      ON CONFLICT DO NOTHING;
      -- in a separate statement, which sees keys that have been committed in the meantime
      SELECT array_agg(CASE WHEN j.idempotency_key IS NULL THEN j.job_id ELSE k.target_id END ORDER BY j.ordinality),
        array_agg(COALESCE(k.status, q.status, 'queued') ORDER BY j.ordinality),
        count(*) FILTER (WHERE j.idempotency_key IS NULL OR k.target_id = j.job_id),
        (array_agg(format('%sidempotency key %s of scope %s belongs to job %s, which has different content',
          CASE WHEN cardinality(p_jobs) > 1 THEN format('p_jobs[%s]: ', j.ordinality - 1) END, j.idempotency_key,
          j.scope, k.target_id) ORDER BY j.ordinality) FILTER (WHERE k.target_id <> j.job_id
            AND k.content_hash <> public.fn_content_hash(
              jsonb_build_array(j.job_kind, j.event_domain, j.executor, j.payload))))[1]
      INTO ids, statuses, made, v_bad
      FROM unnest(p_jobs) WITH ORDINALITY j
      LEFT JOIN LATERAL (SELECT o.* FROM public.producer_key o
        WHERE o.scope IN ('', j.scope) AND o.kind = j.job_kind AND o.key = j.idempotency_key
        ORDER BY o.scope LIMIT 1) k ON true
      LEFT JOIN LATERAL (SELECT x.status FROM public.job_queue x WHERE x.job_id = k.target_id OFFSET 0) q
        ON k.target_id <> j.job_id;
      -- otherwise a key was deleted between the two statements: repeat them
      EXIT WHEN array_position(ids, NULL) IS NULL;
    END LOOP;
    IF v_bad IS NOT NULL THEN
      RAISE EXCEPTION '%', v_bad USING ERRCODE = '23505',
        HINT = 'a key identifies one kind, domain, executor and payload: use another key for other work';
    END IF;
    v_remaining := made;
    FOR v_attempt IN 1..2 LOOP
      EXIT keys WHEN v_remaining = 0;
      IF v_attempt = 2 THEN
        -- A live job whose key is not recorded was enqueued by a release that recorded none, in a transaction that the
        -- upgrade did not wait for. Its key is recorded now, for any scope, as the migration does for live jobs.
        v_taken := ARRAY(SELECT j.job_id FROM unnest(p_jobs) WITH ORDINALITY j
          CROSS JOIN LATERAL (SELECT x.* FROM public.job_queue x
            WHERE x.job_kind = j.job_kind AND x.idempotency_key = j.idempotency_key OFFSET 0) q
          WHERE j.job_id = ids[j.ordinality] AND q.job_id <> j.job_id AND q.idempotency_key !~ '^(route|replay):'
            AND NOT EXISTS (SELECT FROM public.producer_key k WHERE k.target_id = q.job_id)
            AND NOT EXISTS (SELECT FROM public.job_queue o WHERE o.job_id = j.job_id OFFSET 0));
        IF v_taken <> '{}' THEN
          INSERT INTO public.producer_key (scope, kind, key, target_id, content_hash)
          SELECT '', q.job_kind, q.idempotency_key, q.job_id,
            public.fn_content_hash(jsonb_build_array(q.job_kind, q.event_domain, q.executor, q.payload))
          FROM unnest(p_jobs) j
          CROSS JOIN LATERAL (SELECT x.* FROM public.job_queue x
            WHERE x.job_kind = j.job_kind AND x.idempotency_key = j.idempotency_key OFFSET 0) q
          WHERE j.job_id = ANY (v_taken)
          ORDER BY q.job_kind, q.idempotency_key
          ON CONFLICT DO NOTHING;
          DELETE FROM public.producer_key k WHERE k.target_id = ANY (v_taken);
          CONTINUE keys;
        END IF;
      END IF;
      -- job_queue allows one live job per kind and key. If a live job of another scope has the same key, the new job
      -- is stored with the scope and the job id appended to its key. The same is done for a key in the form of the
      -- router's or a replay's keys, because it would block these.
      INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor, payload, priority, process_after, ready,
        idempotency_key, max_attempts, actor)
      SELECT j.job_id, j.job_kind, j.event_domain, j.executor, j.payload, j.priority, j.process_after,
        j.process_after <= now(), CASE WHEN v_attempt = 1 AND (j.idempotency_key ~ '^(route|replay):') IS NOT TRUE
          THEN j.idempotency_key ELSE format('%s of %s %s', left(j.idempotency_key, 390), j.scope, j.job_id) END,
        j.max_attempts, j.actor
      FROM unnest(p_jobs) WITH ORDINALITY j
      WHERE j.job_id = ids[j.ordinality]
        AND (v_attempt = 1 AND v_taken IS NULL
          OR NOT EXISTS (SELECT FROM public.job_queue q WHERE q.job_id = j.job_id OFFSET 0))
      ORDER BY j.job_kind, j.idempotency_key, j.scope, j.ordinality
      ON CONFLICT (job_kind, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
      GET DIAGNOSTICS v_n = ROW_COUNT;
      v_remaining := v_remaining - v_n;
    END LOOP;
    EXIT;
  END LOOP;
END $$;
COMMENT ON FUNCTION public.fn_job_put IS
  'Puts jobs whose key is new into the queue, and returns the existing jobs of the other keys. Internal.';

-- fn_job_enqueue(…) → {job_id, created: true}; with a key {job_id, created, status} of the job that has the key in the
-- scope (NULL = this login): the new job, or the first one with this content, even if that job has ended. 22023 = an
-- invalid argument, 42501 = executor_producer allows only other roles, or this login is not a member of p_scope, 23505
-- = the key belongs to a job with different content. It sends no wake signal: the caller sends one after its commit.
CREATE OR REPLACE FUNCTION public.fn_job_enqueue(p_job_kind text, p_event_domain text, p_executor text,
  p_payload jsonb DEFAULT '{}',
  p_priority int DEFAULT 100, p_process_after timestamptz DEFAULT now(), p_idempotency_key text DEFAULT NULL,
  p_max_attempts int DEFAULT NULL, p_actor text DEFAULT NULL, p_scope text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_free boolean;
  v_max int;
  v_bad text;
  v_id uuid := gen_random_uuid();
  v_put record;
BEGIN
  -- the executor kind is checked only if some kind is restricted
  BEGIN -- without waiting; the subtransaction writes nothing
    LOCK TABLE public.executor_producer, public.dot_config IN ACCESS SHARE MODE NOWAIT;
    -- inlined v_dot_config_number with the bounds of its rule, whose row need not be looked up
    SELECT NOT EXISTS (SELECT FROM public.executor_producer), COALESCE(p_max_attempts,
      (SELECT CASE WHEN c.value ~ '^[0-9]{1,9}$' THEN least(greatest(c.value::int, 1), 1000) END
      FROM public.dot_config c WHERE c.key = 'queue.retry.max_attempts_default'), 20)
    INTO v_free, v_max;
  EXCEPTION WHEN OTHERS THEN
    SELECT t.free, t.max_attempts INTO v_free, v_max FROM public.fn_job_terms(p_max_attempts) t;
  END;
  IF NOT v_free THEN
    PERFORM public.fn_job_producer_check(ARRAY[p_executor]);
  END IF;
  -- The same checks as the constraints of job_queue and job_lane: here the message can name the argument. A pattern
  -- with {0,99} costs ten times as much as one with *.
  v_bad := CASE
    WHEN (p_job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]*$' AND length(p_job_kind) <= 100) IS NOT TRUE
      THEN 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'
    WHEN (p_event_domain ~ '^[a-z][a-z0-9_]*$' AND length(p_event_domain) <= 51) IS NOT TRUE
      THEN 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$'
    WHEN (p_executor IN (:executor_kinds)) IS NOT TRUE
      THEN concat('p_executor must be ', public.fn_words(ARRAY[:executor_kinds], 'or'))
    WHEN jsonb_typeof(p_payload) <> 'object' THEN 'p_payload must be a JSON object'
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
  v_put := public.fn_job_put(ARRAY[ROW(v_id, COALESCE(p_scope, session_user), p_job_kind, p_event_domain, p_executor,
    COALESCE(p_payload, '{}'), COALESCE(p_priority, 100), COALESCE(p_process_after, now()), p_idempotency_key, v_max,
    p_actor)::public.job_given]);
  RETURN jsonb_build_object('job_id', v_put.ids[1], 'created', v_put.made = 1, 'status', v_put.statuses[1]);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_enqueue TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_job_enqueue IS
  'Puts one job into the queue. The same key with the same content returns the same job, even after it has ended.';

-- fn_json_said(value) → the value as shown in an error message: its JSON in printable ASCII, at most 60 characters.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_json_said(p_value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN regexp_replace(CASE WHEN length(p_value::text) > 60 THEN left(p_value::text, 60) || '...'
    ELSE COALESCE(p_value::text, 'null') END, '[^ -~]', '?', 'g');
END $$;
COMMENT ON FUNCTION public.fn_json_said IS 'A value as error messages show it. Internal.';

-- fn_time_bad(text) → true if the text is not a time of the years 1 to 9999; NULL = NULL. Internal.
CREATE OR REPLACE FUNCTION public.fn_time_bad(p_time text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN p_time::timestamptz NOT BETWEEN '0001-01-01Z' AND '9999-12-31Z';
EXCEPTION WHEN data_exception THEN
  RETURN true;
END $$;
COMMENT ON FUNCTION public.fn_time_bad IS 'Whether a text is not a time of the years 1 to 9999. Internal.';

-- fn_number_bad(text, least, most) → true if the text is not a whole number within these bounds; NULL = NULL. Internal.
CREATE OR REPLACE FUNCTION public.fn_number_bad(p_number text, p_least int, p_most int) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN p_number::int NOT BETWEEN p_least AND p_most;
EXCEPTION WHEN data_exception THEN
  RETURN true;
END $$;
COMMENT ON FUNCTION public.fn_number_bad IS 'Whether a text is not a whole number within bounds. Internal.';

-- fn_job_many_refusal(jobs, keys) → a description of the first invalid job of fn_job_enqueue_many: its index from 0,
-- the field, its value and the values that are allowed, but never the value of payload, idempotency key or actor. NULL
-- = all jobs are valid. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_many_refusal(p_jobs jsonb, p_keys text[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_most int := public.fn_payload_max();
BEGIN
  RETURN (SELECT format('p_jobs[%s]%s', x.n - 1, x.bad) FROM (SELECT j.n, CASE
    WHEN jsonb_typeof(j.e) <> 'object' THEN concat(' must be a JSON object, not ', public.fn_json_said(j.e))
    WHEN j.e - p_keys <> '{}' THEN concat(': the key ', public.fn_json_said(to_jsonb((SELECT k
      FROM jsonb_object_keys(j.e - p_keys) k LIMIT 1))), ' is none of ', array_to_string(p_keys, ', '))
    WHEN (j.e ->> 'job_kind' ~ '^[A-Za-z][A-Za-z0-9_.:-]*$' AND length(j.e ->> 'job_kind') <= 100) IS NOT TRUE THEN
      concat('.job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$, not be ', public.fn_json_said(j.e -> 'job_kind'))
    WHEN (j.e ->> 'event_domain' ~ '^[a-z][a-z0-9_]*$' AND length(j.e ->> 'event_domain') <= 51) IS NOT TRUE THEN
      concat('.event_domain must match ^[a-z][a-z0-9_]{0,50}$, not be ', public.fn_json_said(j.e -> 'event_domain'))
    WHEN (j.e ->> 'executor' IN (:executor_kinds)) IS NOT TRUE THEN concat('.executor must be ',
      public.fn_words(ARRAY[:executor_kinds], 'or'), ', not ', public.fn_json_said(j.e -> 'executor'))
    WHEN jsonb_typeof(j.e -> 'payload') NOT IN ('object', 'null') THEN
      concat('.payload must be a JSON object, not a JSON ', jsonb_typeof(j.e -> 'payload'))
    WHEN j.e -> 'payload' ?| ARRAY[:denied_keys] THEN concat('.payload ', public.fn_denied_key(j.e -> 'payload'))
    WHEN octet_length((j.e -> 'payload')::text) > v_most THEN format('.payload has %s bytes as text, more than %s '
      '(queue.payload.max_bytes)', octet_length((j.e -> 'payload')::text), v_most)
    WHEN public.fn_number_bad(j.e ->> 'priority', 0, 1000) THEN
      concat('.priority must be 0 to 1000, not ', public.fn_json_said(j.e -> 'priority'))
    WHEN public.fn_time_bad(j.e ->> 'process_after') THEN
      concat('.process_after must be a time of the years 1 to 9999, not ', public.fn_json_said(j.e -> 'process_after'))
    WHEN length(j.e ->> 'idempotency_key') NOT BETWEEN 1 AND 500 THEN
      concat('.idempotency_key must have 1 to 500 characters, not ', length(j.e ->> 'idempotency_key'))
    WHEN public.fn_number_bad(j.e ->> 'max_attempts', 1, 1000) THEN
      concat('.max_attempts must be 1 to 1000, not ', public.fn_json_said(j.e -> 'max_attempts'))
    WHEN length(j.e ->> 'actor') > 200 THEN
      concat('.actor must have at most 200 characters, not ', length(j.e ->> 'actor')) END AS bad
    FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS j (e, n)) x
  WHERE x.bad IS NOT NULL ORDER BY x.n LIMIT 1);
END $$;
COMMENT ON FUNCTION public.fn_job_many_refusal IS
  'What is wrong with the first invalid job of a call, by index, field and value. Internal.';

-- fn_job_enqueue_many(jobs) → {enqueued, existing, job_ids, statuses}: jobs is an array of objects with the argument
-- names of fn_job_enqueue without p_. job_ids and statuses are in the order of the array; statuses is present only if a
-- job has a key. It enqueues all jobs or raises, like fn_job_enqueue. Ids are made of milliseconds, 48 random bits and
-- the number of the job, so that they ascend and indexes grow at their end. force_generic_plan, because a custom plan
-- would copy the whole argument.
CREATE OR REPLACE FUNCTION public.fn_job_enqueue_many(p_jobs jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET plan_cache_mode = force_generic_plan SET work_mem = '64MB' AS $$
DECLARE
  c_keys CONSTANT text[] := '{job_kind, event_domain, executor, payload, priority, process_after, idempotency_key, '
    'max_attempts, actor, scope}'::text[];
  c_first CONSTANT int := 1 << 20; -- six hexadecimal digits for every job number
  v_time text := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0');
  v_random text := gen_random_uuid();
  v_prefix text := left(v_time, 8) || '-' || right(v_time, 4) || '-7' || substr(v_random, 16, 4) || '8'
    || substr(v_random, 21, 10);
  v_free boolean;
  v_max int;
  v_given int := CASE WHEN jsonb_typeof(p_jobs) = 'array' THEN jsonb_array_length(p_jobs) END;
  v_put record;
BEGIN
  IF (v_given BETWEEN 1 AND 1000000) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_jobs must be an array of 1 to 1000000 objects' USING ERRCODE = '22023';
  END IF;
  -- the executor kinds are checked only if some kind is restricted
  BEGIN -- without waiting; the subtransaction writes nothing
    LOCK TABLE public.executor_producer, public.dot_config IN ACCESS SHARE MODE NOWAIT;
    SELECT NOT EXISTS (SELECT FROM public.executor_producer), COALESCE( -- as in fn_job_enqueue
      (SELECT CASE WHEN c.value ~ '^[0-9]{1,9}$' THEN least(greatest(c.value::int, 1), 1000) END
      FROM public.dot_config c WHERE c.key = 'queue.retry.max_attempts_default'), 20)
    INTO v_free, v_max;
  EXCEPTION WHEN OTHERS THEN
    SELECT t.free, t.max_attempts INTO v_free, v_max FROM public.fn_job_terms(NULL::int) t;
  END;
  IF NOT v_free THEN
    PERFORM public.fn_job_producer_check(ARRAY(SELECT e ->> 'executor' FROM jsonb_array_elements(p_jobs) e));
  END IF;

  BEGIN
    -- values of these fields are checked only if some job has one of them
    IF jsonb_path_exists(p_jobs, '$[*] ? (exists(@.priority) || exists(@.process_after) || exists(@.actor))')
      AND EXISTS (SELECT FROM jsonb_to_recordset(p_jobs) AS x (priority int, process_after timestamptz, actor text)
        WHERE x.priority NOT BETWEEN 0 AND 1000 OR length(x.actor) > 200
          OR x.process_after NOT BETWEEN '0001-01-01Z' AND '9999-12-31Z')
      OR EXISTS (SELECT FROM jsonb_array_elements(p_jobs) e
        WHERE e - c_keys <> '{}' OR e -> 'payload' ?| ARRAY[:denied_keys] OR length(e ->> 'idempotency_key') > 500
          OR length(e ->> 'job_kind') > 100) THEN
      RAISE EXCEPTION 'p_jobs contains an invalid job' USING ERRCODE = '22023'; -- the handler below names it
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
    v_put := public.fn_job_put(ARRAY(
      SELECT ROW((v_prefix || to_hex(c_first + g.n))::uuid, COALESCE(g.scope, session_user), g.job_kind, g.event_domain,
        g.executor, COALESCE(g.payload, '{}'), COALESCE(g.priority, 100), COALESCE(g.process_after, now()),
        g.idempotency_key, COALESCE(g.max_attempts, v_max), g.actor)::public.job_given
      FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (job_kind text, event_domain text, executor text, payload jsonb,
        priority int, process_after timestamptz, idempotency_key text, max_attempts int, actor text, scope text))
        WITH ORDINALITY AS g (job_kind, event_domain, executor, payload, priority, process_after, idempotency_key,
          max_attempts, actor, scope, n)
      ORDER BY g.n));
  EXCEPTION WHEN data_exception OR check_violation OR not_null_violation THEN
    RAISE EXCEPTION '%', COALESCE(public.fn_job_many_refusal(p_jobs, c_keys),
      'p_jobs contains an invalid job: ' || SQLERRM) USING ERRCODE = '22023';
  END;
  RETURN jsonb_build_object('enqueued', v_put.made, 'existing', v_given - v_put.made, 'job_ids', v_put.ids,
    'statuses', v_put.statuses);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_enqueue_many TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_job_enqueue_many IS
  'Puts many jobs into the queue in one statement; jobs whose key exists already are counted as existing.';
