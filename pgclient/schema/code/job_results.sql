-- Jobs: start, renew, ack, fail and release, the tick worker that promotes due jobs, and the reaper of expired leases.
-- Lock order: see job_claim.sql. Sources: DP1 §5, DP4.

-- Results. Each function gets parallel arrays of job ids and lease tokens, changes each job that is still leased with
-- its token, and returns an outcome per pair: done, or lease_lost (the job is no longer leased with this token).
-- Recording the same result again returns done and changes nothing.
-- fn_job_lease_check(ids, tokens): checks the arrays, and that this login is a member of the role that owns the
-- executor of each lease. Callers lock nothing before it: other logins can read tokens, and a transaction of a login
-- without the right must not block the host that holds the lease. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lease_check(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_executor text;
  v_owner text;
BEGIN
  IF p_job_ids IS NULL OR p_lease_tokens IS NULL OR cardinality(p_job_ids) <> cardinality(p_lease_tokens)
    OR cardinality(p_job_ids) NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_job_ids and p_lease_tokens must hold the same number of values, 1 to 100000, not % and %',
      COALESCE(cardinality(p_job_ids), 0), COALESCE(cardinality(p_lease_tokens), 0) USING ERRCODE = '22023';
  END IF;
  SELECT l.lease_owner, h.owner_role INTO v_executor, v_owner
  FROM public.job_lease l JOIN public.queue_heartbeat h ON h.executor_id = l.lease_owner
  WHERE l.lease_token = ANY (p_lease_tokens) AND h.owner_role IS NOT NULL
    AND NOT COALESCE(pg_has_role(session_user, to_regrole(quote_ident(h.owner_role))::oid, 'MEMBER'), false) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'executor % belongs to role %, and login % is not a member of it', v_executor, v_owner, session_user
      USING ERRCODE = '42501', HINT = format('GRANT %I TO %I', v_owner, session_user);
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_job_lease_check IS
  'Checks the arguments of a result, and the right to record it. Internal.';

-- fn_job_lease_lock(ids, tokens): fn_job_lease_check; then locks the leases. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lease_lock(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM public.fn_job_lease_check(p_job_ids, p_lease_tokens);
  PERFORM 1 FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens) ORDER BY l.lease_token FOR UPDATE;
END $$;
COMMENT ON FUNCTION public.fn_job_lease_lock IS
  'Checks the arguments of a result and locks its leases. Internal.';

-- fn_job_locked(ids, tokens) → the ids of the jobs for which a result or a renewal would have to wait, because another
-- session has locked the row of the job or of its lease. A worker calls it after such a call has ended with 55P03, and
-- repeats the call with the other jobs. It does not wait, and locks those until the end of the transaction.
CREATE OR REPLACE FUNCTION public.fn_job_locked(p_job_ids uuid[], p_lease_tokens uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_free_leases uuid[];
  v_ids uuid[];
  v_free_ids uuid[];
BEGIN
  PERFORM public.fn_job_lease_check(p_job_ids, p_lease_tokens);
  v_free_leases := ARRAY(SELECT l.lease_token FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens)
    ORDER BY l.lease_token FOR UPDATE SKIP LOCKED);
  -- one look-up per job, then only = ANY: see job_claim.sql
  v_ids := ARRAY(SELECT g.id FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
    CROSS JOIN LATERAL (SELECT FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token OFFSET 0) x);
  v_free_ids := ARRAY(SELECT q.job_id FROM public.job_queue q WHERE q.job_id = ANY (v_ids)
    ORDER BY q.job_id FOR UPDATE SKIP LOCKED);
  RETURN QUERY -- what is gone by now is not locked
  SELECT g.id FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
  CROSS JOIN LATERAL (SELECT FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token OFFSET 0) x
  WHERE (g.token IN (SELECT unnest(v_free_leases)) AND g.id IN (SELECT unnest(v_free_ids))) IS NOT TRUE;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_locked TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_locked IS
  'The jobs for which a result would have to wait, because another session has locked their row or their lease.';

-- fn_job_start(ids, tokens) → (job_id, outcome): changes the jobs from leased to in_progress.
CREATE OR REPLACE FUNCTION public.fn_job_start(p_job_ids uuid[], p_lease_tokens uuid[])
  RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  -- one look-up per job, then only = ANY: see job_claim.sql
  v_ids := ARRAY(SELECT g.id FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
    CROSS JOIN LATERAL (SELECT FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token OFFSET 0) x);
  UPDATE public.job_queue q SET status = 'in_progress', updated_at = now()
  WHERE q.job_id = ANY (v_ids) AND q.status = 'leased';
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_queue q
      WHERE q.job_id = g.id AND q.lease_token = g.token OFFSET 0)
    THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_start TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_start IS
  'Records that work on leased jobs has begun: leased to in_progress.';

-- fn_job_renew(ids, tokens) → (job_id, outcome): extends the lease to its full duration from now.
CREATE OR REPLACE FUNCTION public.fn_job_renew(p_job_ids uuid[], p_lease_tokens uuid[])
  RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
  v_until timestamptz := clock_timestamp() + make_interval(secs => public.fn_cfg_int('queue.lease.duration_seconds',
    300));
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  -- one look-up per job, then only = ANY: see job_claim.sql
  v_ids := ARRAY(SELECT g.id FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
    CROSS JOIN LATERAL (SELECT FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token OFFSET 0) x);
  RETURN QUERY
  WITH given AS MATERIALIZED (
    SELECT g.id, g.token FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
  ), renewed AS (
    UPDATE public.job_queue q SET lease_until = v_until WHERE q.job_id = ANY (v_ids)
    RETURNING q.job_id AS id, q.lease_token AS token
  ), leases AS (
    UPDATE public.job_lease l SET lease_until = v_until
    WHERE l.lease_token = ANY (ARRAY(SELECT DISTINCT k.token FROM renewed k))
  )
  SELECT g.id, CASE WHEN (g.id, g.token) IN (SELECT k.id, k.token FROM renewed k) THEN 'done' ELSE 'lease_lost' END
    FROM given g;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_renew TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_renew IS
  'Extends leases to queue.lease.duration_seconds from now. A lease covers all jobs of its claim: all stay leased.';

-- fn_job_ack(ids, tokens) → (job_id, outcome): records success and moves the jobs to job_history.
CREATE OR REPLACE FUNCTION public.fn_job_ack(p_job_ids uuid[], p_lease_tokens uuid[])
  RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_done uuid[];
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  v_done := public.fn_job_finish(p_job_ids, p_lease_tokens, 'succeeded'::text);
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
GRANT EXECUTE ON FUNCTION public.fn_job_ack TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_ack IS
  'Records success: the jobs move to job_history. Fenced by the lease token.';

-- fn_job_release(ids, tokens) → (job_id, outcome): returns the jobs to queued; no attempt is counted.
CREATE OR REPLACE FUNCTION public.fn_job_release(p_job_ids uuid[], p_lease_tokens uuid[])
  RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
  v_freed uuid[];
  v_requeued bigint;
BEGIN
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  -- one look-up per job, then only = ANY: see job_claim.sql
  v_ids := ARRAY(SELECT g.id FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token)
    CROSS JOIN LATERAL (SELECT FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token OFFSET 0) x);
  WITH requeued AS (
    UPDATE public.job_queue q SET status = 'queued', lease_owner = NULL, lease_until = NULL, lease_token = NULL,
      prior_token = q.lease_token, prior_result = 'released', updated_at = now()
    WHERE q.job_id = ANY (v_ids) RETURNING q.prior_token AS token
  )
  SELECT count(*), array_agg(r.token) INTO v_requeued, v_freed FROM requeued r;
  PERFORM public.fn_job_lease_less(v_freed);
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_queue q
        WHERE q.job_id = g.id AND q.prior_token = g.token AND q.prior_result = 'released' OFFSET 0)
      OR (v_requeued < cardinality(p_job_ids) AND EXISTS (SELECT 1 FROM public.job_history h
        WHERE h.job_id = g.id AND h.prior_token = g.token AND h.prior_result = 'released')) THEN 'done'
          ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_release TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_release IS
  'Returns leased jobs to queued without counting an attempt.';

-- fn_job_bury(ids, statuses, codes, errors, lost): moves leased jobs to job_history as failed or dead_letter and counts
-- the failed attempt. A job with status dead_letter gets a row of job_dead_letter, and producer_key gets the final
-- status. A job whose payload is damaged becomes failed with PAYLOAD_UNREADABLE and keeps no payload: there is nothing
-- to replay. The caller has locked the leases. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_bury(p_job_ids uuid[], p_statuses text[], p_codes text[], p_errors text[],
  p_lost int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  WITH given AS MATERIALIZED ( -- by id: see job_claim.sql
    SELECT jsonb_object_agg(g.id, g.n) AS of FROM unnest(p_job_ids) WITH ORDINALITY AS g (id, n)
  ), gone AS (
    DELETE FROM public.job_queue q WHERE q.job_id = ANY (p_job_ids) RETURNING q.*
  ), deleted AS (
    SELECT q.*, r.damage IS NULL AS whole,
      CASE WHEN r.damage IS NULL THEN p_statuses[r.n] ELSE 'failed' END AS new_status,
      CASE WHEN r.damage IS NULL THEN p_codes[r.n] ELSE 'PAYLOAD_UNREADABLE' END AS code,
      CASE WHEN r.damage IS NULL THEN p_errors[r.n]
        ELSE left(concat('the payload cannot be read and is not kept: ', r.damage, '; ', p_errors[r.n]), 1000) END
        AS error
    FROM gone q CROSS JOIN LATERAL (SELECT ((SELECT i.of FROM given i) ->> q.job_id::text)::int AS n,
      public.fn_job_payload_damage(q.payload) AS damage OFFSET 0) r
  ), dead AS (
    INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, executor, attempts, failure_code, last_error,
      payload,
      priority, max_attempts, source_ref, target_ref, payload_ref, correlation_id, causation_event_id,
        first_failed_at, last_failed_at)
    SELECT x.job_id, x.job_kind, x.event_domain, x.executor, x.attempts + 1, x.code, x.error, x.payload,
      x.priority, x.max_attempts, x.source_ref, x.target_ref, x.payload_ref, x.correlation_id, x.causation_event_id,
      COALESCE(x.first_failed_at, now()), now()
    FROM deleted x WHERE x.new_status = 'dead_letter' ORDER BY x.job_id
  ), keys AS (
    UPDATE public.producer_key k SET status = x.new_status, final_at = now() FROM deleted x
    WHERE x.idempotency_key IS NOT NULL AND k.target_id = x.job_id
  )
  INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, ready, priority, process_after,
    enqueued_at, picked_at, finished_at, lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases,
    idempotency_key, source_ref, target_ref, payload_ref, payload, last_error, failure_code, first_failed_at, actor,
    correlation_id, causation_event_id, updated_at, prior_token, prior_result, from_status)
  SELECT x.job_id, x.job_kind, x.event_domain, x.executor, x.new_status, x.ready, x.priority, x.process_after,
    x.enqueued_at, x.picked_at, now(), x.lease_owner, x.lease_until, x.lease_token, x.attempts + 1, x.max_attempts,
    x.lost_leases + p_lost, x.idempotency_key, x.source_ref, x.target_ref, x.payload_ref,
    CASE WHEN x.whole THEN x.payload ELSE '{}' END, x.error, x.code,
    COALESCE(x.first_failed_at, now()), x.actor, x.correlation_id, x.causation_event_id, now(), x.prior_token,
      x.prior_result, x.status
  FROM deleted x;
END $$;
COMMENT ON FUNCTION public.fn_job_bury IS
  'Moves jobs whose last attempt failed to history, and to job_dead_letter. Internal.';

-- fn_job_lease_less(tokens): lowers live, the number of jobs that a lease still holds, by the number of times that the
-- token of the lease is in the list, and deletes leases without jobs. The caller has locked the leases. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lease_less(p_lease_tokens uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF cardinality(p_lease_tokens) <= 1000 THEN -- the comparisons are the square of it
    DELETE FROM public.job_lease l
    WHERE l.lease_token = ANY (p_lease_tokens) AND l.live = cardinality(array_positions(p_lease_tokens, l.lease_token));
    -- usually these were jobs of one lease: either its last ones, or others are left
    IF NOT FOUND OR EXISTS (SELECT FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens)) THEN
      UPDATE public.job_lease l SET live = l.live - cardinality(array_positions(p_lease_tokens, l.lease_token))
      WHERE l.lease_token = ANY (p_lease_tokens);
    END IF;
    RETURN;
  END IF;
  WITH given AS MATERIALIZED ( -- by token: see job_claim.sql
    SELECT jsonb_object_agg(d.t, d.n) AS of FROM (SELECT t, count(*) AS n FROM unnest(p_lease_tokens) t GROUP BY 1) d
  )
  UPDATE public.job_lease l SET live = l.live - ((SELECT i.of FROM given i) ->> l.lease_token::text)::int
  WHERE l.lease_token = ANY (p_lease_tokens);
  DELETE FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens) AND l.live = 0;
END $$;
COMMENT ON FUNCTION public.fn_job_lease_less IS
  'Lowers the number of jobs that leases still hold, and deletes leases without jobs. Internal.';

-- fn_job_fail(ids, tokens, codes, errors, permanent) → (job_id, outcome): records a failed attempt. The job becomes
-- failed, without a dead letter, if the failure is permanent; dead_letter if attempts reaches max_attempts; otherwise
-- retry_waiting, for the next wait of the schedule of its kind or of queue.retry.schedule. A code with characters that
-- codes do not have is stored as HANDLER_ERROR. A job that the reaper made a dead letter is lease_lost: nothing of the
-- report is stored.
CREATE OR REPLACE FUNCTION public.fn_job_fail(p_job_ids uuid[], p_lease_tokens uuid[], p_codes text[],
  p_errors text[], p_permanent boolean[])
RETURNS TABLE (job_id uuid, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
  v_tokens uuid[];
  v_statuses text[];
  v_codes text[];
  v_errors text[];
  v_waits interval[];
BEGIN
  IF cardinality(p_job_ids) IS DISTINCT FROM cardinality(p_codes)
    OR cardinality(p_job_ids) IS DISTINCT FROM cardinality(p_errors)
    OR cardinality(p_job_ids) IS DISTINCT FROM cardinality(p_permanent) THEN
    RAISE EXCEPTION
      'p_job_ids, p_codes, p_errors and p_permanent must hold the same number of values, not %, %, % and %',
      COALESCE(cardinality(p_job_ids), 0), COALESCE(cardinality(p_codes), 0), COALESCE(cardinality(p_errors), 0),
      COALESCE(cardinality(p_permanent), 0) USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_job_lease_lock(p_job_ids, p_lease_tokens);
  SELECT array_agg(x.id), array_agg(x.token), array_agg(x.new_status), array_agg(x.code), array_agg(x.error),
    array_agg(CASE x.new_status WHEN 'retry_waiting' THEN public.fn_retry_wait('queue.retry.schedule'::text, x.job_kind,
      x.attempts + 1) END)
  INTO v_ids, v_tokens, v_statuses, v_codes, v_errors, v_waits FROM (
    SELECT DISTINCT ON (g.id) g.id, g.token, q.job_kind::text, q.attempts::int,
      CASE WHEN octet_length(s.said) <= 4096 THEN s.said
        ELSE left(s.said, 200) || ' … ' || right(s.said, CASE WHEN octet_length(s.said) - length(s.said) <= 400
          THEN 3200 ELSE 800 END)
        END AS error, -- the beginning and the end are kept: the cause is usually at the end
      CASE WHEN g.code ~ '^[A-Z][A-Z0-9_]{0,63}$' THEN g.code ELSE 'HANDLER_ERROR' END AS code,
      CASE WHEN COALESCE(g.permanent, false) THEN 'failed' WHEN q.attempts + 1 >= q.max_attempts THEN 'dead_letter'
        ELSE 'retry_waiting' END AS new_status
    FROM unnest(p_job_ids, p_lease_tokens, p_codes, p_errors, p_permanent) AS g (id, token, code, error, permanent)
    CROSS JOIN LATERAL (SELECT x.* FROM public.job_queue x WHERE x.job_id = g.id AND x.lease_token = g.token
      OFFSET 0) q
    CROSS JOIN LATERAL ( -- cutting before masking may cut a secret in two, so the text next to the cut is dropped
      SELECT CASE WHEN length(g.error) <= 4500 THEN public.fn_mask_said(g.error)
        ELSE left(public.fn_mask_said(left(g.error, 1500)), 200) || ' … '
          || right(public.fn_mask_said(right(g.error, 2500)), 800) END AS said
      OFFSET 0) s
    ORDER BY g.id) x;

  WITH given AS MATERIALIZED ( -- by id: see job_claim.sql
    SELECT array_agg(g.id) AS ids, jsonb_object_agg(g.id, g.n) AS of
    FROM unnest(v_ids, v_statuses) WITH ORDINALITY AS g (id, new_status, n) WHERE g.new_status = 'retry_waiting'
  )
  UPDATE public.job_queue q SET status = 'retry_waiting', lease_owner = NULL, lease_until = NULL, lease_token = NULL,
    attempts = q.attempts + 1, prior_token = q.lease_token, prior_result = 'failed',
    first_failed_at = COALESCE(q.first_failed_at, now()), updated_at = now(),
    (failure_code, last_error, ready, process_after) = (
      SELECT v_codes[r.n], v_errors[r.n], v_waits[r.n] = interval '0', clock_timestamp() + v_waits[r.n]
      FROM (SELECT ((SELECT i.of FROM given i) ->> q.job_id::text)::int AS n OFFSET 0) r)
  WHERE q.job_id = ANY (ARRAY(SELECT unnest(d.ids) FROM given d));
  PERFORM public.fn_job_bury(array_agg(g.id), array_agg(g.new_status), array_agg(g.code), array_agg(g.error), 0)
  FROM unnest(v_ids, v_statuses, v_codes, v_errors) AS g (id, new_status, code, error)
  WHERE g.new_status <> 'retry_waiting' HAVING count(*) > 0;
  PERFORM public.fn_job_lease_less(v_tokens);
  IF cardinality(v_ids) = cardinality(p_job_ids) THEN
    RETURN QUERY SELECT d, 'done' FROM unnest(v_ids) d;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT g.id, CASE WHEN EXISTS (SELECT 1 FROM public.job_queue q
        WHERE q.job_id = g.id AND q.prior_token = g.token AND q.prior_result = 'failed' OFFSET 0)
      OR EXISTS (SELECT 1 FROM public.job_history h WHERE h.job_id = g.id
        AND (h.lease_token = g.token AND (h.status IN ('failed', 'dead_letter')
          OR h.from_status IN ('failed', 'dead_letter')) AND h.failure_code NOT IN ('LEASE_LOST', 'LEASE_LOST_LIMIT')
          OR h.prior_token = g.token AND h.prior_result = 'failed'))
    THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) AS g (id, token);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_fail TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_fail IS
  'Records failed attempts: retried, failed for good, or a dead letter. Fenced by the lease token.';

-- fn_job_tick(limit) → {promoted, next_due, next_after, at}: makes due jobs claimable: sets ready, which adds them to
-- the claim index. next_due: when the first job becomes due, in the past if a due job is locked, NULL = no job waits
-- for its time; next_after: the same without jobs that are due already; at: the server's time, for hosts whose clock
-- differs. Several sessions may run it at once. Tick worker job_queue_default.
CREATE OR REPLACE FUNCTION public.fn_job_tick(p_limit int DEFAULT 10000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_out jsonb;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  v_out := '{"promoted": 0}'::jsonb || public.fn_queue_step('job_promote'::text, p_limit);
  IF NOT v_out ? 'timed_out' THEN
    v_out := v_out || public.fn_queue_step('job_lanes'::text, p_limit);
  END IF;
  -- step 3 at the top of job_watermark.sql; the lease shows that nobody searches for watermarks
  IF EXISTS (SELECT FROM public.job_watermark_below) AND NOT public.fn_job_watermark_valid() THEN
    PERFORM FROM public.dot_iu_runtime_lease l WHERE l.lease_name = 'job_watermark' FOR UPDATE SKIP LOCKED;
    IF FOUND AND NOT public.fn_job_watermark_valid() THEN
      DELETE FROM public.job_watermark_below;
    ELSIF NOT EXISTS (SELECT FROM public.dot_iu_runtime_lease l WHERE l.lease_name = 'job_watermark') THEN
      -- no exception: the jobs that are due remain promoted
      v_out := jsonb_build_object('error', public.fn_queue_row_missing('dot_iu_runtime_lease job_watermark')) || v_out;
    END IF;
  END IF;
  -- without quarantined jobs: they are due already, and nobody knows when they will be promoted
  RETURN v_out || jsonb_build_object('next_due', (
    SELECT to_char(q.process_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM public.job_queue q
    WHERE NOT q.ready AND q.process_after >= (SELECT public.fn_job_unready_from()) AND isfinite(q.process_after)
      AND NOT EXISTS (SELECT FROM public.queue_quarantine x
      WHERE x.step = 'job_promote' AND x.target = q.job_id::text)
    ORDER BY q.process_after, q.job_id LIMIT 1),
    'next_after', (SELECT to_char(x.due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM public.fn_job_unready_first(now()) AS x (due) WHERE isfinite(x.due)),
    'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_tick TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_tick IS
  'Tick job_queue_default: makes scheduled jobs and retries claimable when they are due.';

-- fn_job_next_due(told, since) → when the next job becomes due that is not claimable yet (NULL = none), and the
-- server's time. If that is still told, the next_due of a tick, it returns the first job that is due at since, the
-- time of that tick, or later: jobs that were due before are locked by somebody and must not hide those that became due
-- meanwhile.
-- It locks and writes nothing, so that a host may ask once a second.
CREATE OR REPLACE FUNCTION public.fn_job_next_due(p_told timestamptz, p_since timestamptz,
  OUT next_due timestamptz, OUT at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  next_due := public.fn_job_unready_first(public.fn_job_unready_from());
  IF next_due = p_told AND next_due < p_since THEN
    next_due := public.fn_job_unready_first(p_since);
  END IF;
  next_due := NULLIF(next_due, 'infinity');
  at := clock_timestamp();
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_next_due TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_next_due IS
  'When the next job becomes due that is not claimable yet, and the time of the server.';

-- fn_job_reap(tokens, only) → {reaped, returned, dead_lettered, log}: returns the jobs of these leases, which the
-- caller has locked, to queued, or makes them dead letters at the third lost lease or after the last attempt. One whose
-- payload is damaged is counted there too, and becomes failed (fn_job_bury).
-- The first lost lease of a job costs no attempt: one job of the claim may have killed the host, and the others did not
-- cause that. After the first, hosts run the job alone (lost_leases), and each lost lease counts as an attempt. If a
-- job was in_progress at its last attempt, that attempt is used.
-- only: reap only these jobs of the leases; NULL = all. A lease stays while it holds other jobs. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_reap(p_lease_tokens uuid[], p_only uuid[] DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_ids uuid[];
  v_codes text[];
  v_freed uuid[];
  v_returned bigint;
  v_dead int;
  v_log jsonb;
BEGIN
  SELECT array_agg(x.job_id), array_agg(x.code), jsonb_agg(jsonb_build_object(
    'outcome', CASE WHEN x.code IS NULL THEN 'reset' ELSE 'dead letter' END, 'job_id', x.job_id,
    'error_code', COALESCE(x.code, 'LEASE_LOST'), 'lease_expiration', x.lease_until, 'worker_id', x.lease_owner))
  INTO v_ids, v_codes, v_log FROM (
    SELECT q.job_id, q.lease_until, q.lease_owner,
      CASE WHEN q.lost_leases + 1 >= 3 THEN 'LEASE_LOST_LIMIT'
        WHEN q.attempts + 1 >= q.max_attempts AND (q.lost_leases > 0 OR q.status = 'in_progress') THEN 'LEASE_LOST'
        END AS code
    FROM (SELECT unnest(l.job_ids) AS id, l.lease_token FROM public.job_lease l
      WHERE l.lease_token = ANY (p_lease_tokens)) j
    CROSS JOIN LATERAL (SELECT x.* FROM public.job_queue x
      WHERE x.job_id = j.id AND x.lease_token = j.lease_token OFFSET 0) q
    WHERE p_only IS NULL OR j.id IN (SELECT unnest(p_only))
    ORDER BY q.job_id) x;
  IF p_only IS NOT NULL THEN
    SELECT array_agg(q.lease_token) INTO v_freed FROM public.job_queue q WHERE q.job_id = ANY (v_ids);
  END IF;
  WITH requeued AS (
    UPDATE public.job_queue q SET status = 'queued', lease_owner = NULL, lease_until = NULL, lease_token = NULL,
      attempts = q.attempts + (q.lost_leases > 0)::int, lost_leases = q.lost_leases + 1,
      first_failed_at = COALESCE(q.first_failed_at, now()),
      failure_code = 'LEASE_LOST', last_error = CASE WHEN q.lease_until >= clock_timestamp()
        THEN 'the host that ran the job as executor ' || q.lease_owner || ' ended without handing it back'
        ELSE 'the lease of executor ' || q.lease_owner || ' expired' END, updated_at = now()
    WHERE q.job_id = ANY (ARRAY(SELECT g.id FROM unnest(v_ids, v_codes) AS g (id, code) WHERE g.code IS NULL))
    RETURNING q.event_domain
  ), signalled AS MATERIALIZED (
    SELECT public.fn_queue_wake('queue_wake_' || b.event_domain,
      jsonb_build_object('layer', 'job', 'event_domain', b.event_domain,
      'worker_hint', 'job_executor', 'count', b.n, 'occurred_at', clock_timestamp())), b.n
    FROM (SELECT event_domain, count(*) AS n FROM requeued GROUP BY 1) b
  )
  SELECT COALESCE(sum(n), 0) INTO v_returned FROM signalled;
  PERFORM public.fn_job_bury(array_agg(g.id), array_agg('dead_letter'::text), array_agg(g.code),
    array_agg('the worker stopped renewing: its lease expired'::text), 1)
  FROM unnest(v_ids, v_codes) AS g (id, code) WHERE g.code IS NOT NULL HAVING count(*) > 0;
  IF p_only IS NULL THEN
    DELETE FROM public.job_lease l WHERE l.lease_token = ANY (p_lease_tokens);
  ELSE
    PERFORM public.fn_job_lease_less(v_freed);
  END IF;
  v_dead := COALESCE(cardinality(v_ids), 0) - v_returned;
  RETURN jsonb_build_object('reaped', COALESCE(cardinality(v_ids), 0), 'returned', v_returned, 'dead_lettered', v_dead)
    || CASE WHEN v_log IS NULL THEN '{}'::jsonb ELSE jsonb_build_object('log', v_log) END;
END $$;
COMMENT ON FUNCTION public.fn_job_reap IS 'Returns the jobs of locked leases to the queue. Internal.';

-- fn_job_reap_expired(limit) → {reaped, returned, dead_lettered}: reaps expired leases, oldest first, about limit jobs.
-- Sessions that run it at the same time reap different leases. Tick worker lease_reaper.
CREATE OR REPLACE FUNCTION public.fn_job_reap_expired(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_out jsonb;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  v_out := '{"reaped": 0, "returned": 0, "dead_lettered": 0}'::jsonb
    || public.fn_queue_step('job_reap'::text, p_limit);
  IF NOT v_out ? 'timed_out' THEN
    PERFORM public.fn_queue_clock_recheck();
  END IF;
  RETURN v_out;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_reap_expired TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_reap_expired IS
  'Tick lease_reaper: returns jobs of expired leases to queued or dead-letters them; the first loss costs no attempt.';
