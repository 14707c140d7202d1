-- Webhooks: claim, report, renew, release and reset jobs. Source: R02 §2. Lock order: see webhook_router.sql.

-- fn_webhook_job_claim(p_worker_id, p_limit, p_skip_subscriptions, p_per_subscription, p_after, p_payload_bytes):
-- leases up to p_limit Pending jobs, oldest first, and returns the columns that a host needs to send them. It skips the
-- subscriptions in p_skip_subscriptions, of which the host has as many in flight as it may, and claims at most
-- p_per_subscription jobs of each other one. Nothing is claimed while webhook.worker.enabled is off or the interval of
-- the tick worker webhook_worker is 0, or in a copy of a database (fn_queue_clone_of).
-- p_after: of the jobs without a rate limit, claim only those with a greater id. A host that has just claimed
-- everything up to that id need not read past these jobs again. Jobs that were released meanwhile have smaller ids, so
-- the host claims without p_after once a second.
-- The claim checks the gate and the rates, so that a subscription that is suspended or out of tokens costs no attempt
-- and no lease. Three rates apply, each over all hosts: that of the subscription, that of the bulk operation that
-- requeued the delivery, and the slow start of the endpoint. A job that used a token of one of them is paced: the host
-- sends it, or begins to read its payload, within 250 ms or releases it, so that the tokens of two time slices are not
-- used together, except by payloads that take longer to read.
-- webhook_id is the same for all retries and requeues of a delivery, and differs from that of every other delivery, in
-- any database. event_created is RFC 3339 in UTC. p_payload_bytes: a payload with more bytes as text is returned as
-- NULL, and the host reads it when it sends, a few at a time. Commit before sending: a lease is valid only when it is
-- committed.
CREATE OR REPLACE FUNCTION public.fn_webhook_job_claim(p_worker_id text, p_limit int DEFAULT 1,
  p_skip_subscriptions bigint[] DEFAULT NULL, p_per_subscription int DEFAULT NULL, p_after bigint DEFAULT 0,
  p_payload_bytes int DEFAULT NULL)
RETURNS TABLE (job_id bigint, saga_id bigint, attempt_no int, lease_token uuid, lease_until timestamptz,
  lease_seconds int, timeout_seconds int, event_id bigint, event_type text, subscription_id bigint,
  callback_url text, secret_ref text, webhook_id text, payload text, event_created text, paced boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  -- no sort: if no job was waiting when the table was last analyzed, the planner would read and sort all jobs
  SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_lease int := public.fn_cfg_int('webhook.lease_seconds', 60);
  -- no request may outlive its lease, whatever values the flags have
  v_timeout int := least(public.fn_cfg_int('webhook.timeout_seconds', 30), greatest(v_lease - 10, 1));
  v_now timestamptz := clock_timestamp();
  v_quotas jsonb;          -- how many jobs each subscription may send now
  v_slow jsonb;            -- endpoints in slow start, with how many jobs each of them may send now
  v_operations bigint[];   -- bulk operations that have waiting jobs and tokens
  v_operation_tokens int[];
BEGIN
  IF p_worker_id IS NULL OR btrim(p_worker_id, E' \t\n\x0b\f\r') = '' OR length(p_worker_id) > 200 THEN
    RAISE EXCEPTION 'p_worker_id must have 1 to 200 characters' USING ERRCODE = '22023';
  END IF;
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 10000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  IF p_per_subscription < 1 THEN
    RAISE EXCEPTION 'p_per_subscription must be at least 1 or null' USING ERRCODE = '22023';
  ELSIF array_ndims(p_skip_subscriptions) > 1 THEN
    RAISE EXCEPTION 'p_skip_subscriptions must hold ids, not lists of ids' USING ERRCODE = '22023';
  END IF;
  IF NOT public.fn_cfg_bool('webhook.worker.enabled')
    OR public.fn_cfg_int('queue.tick.webhook_worker.interval_seconds', 1) = 0
    OR public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN;
  END IF;
  p_skip_subscriptions := array_remove(p_skip_subscriptions, NULL); -- a NULL would exclude every subscription

  -- First, because the end of a suspension may begin a slow start, which the gates below then show.
  PERFORM public.fn_webhook_suspensions_end();

  -- a bucket that another claim has locked has no tokens for this claim
  IF public.fn_cfg_bool('webhook.slow_start.enabled') THEN
    v_slow := COALESCE((SELECT jsonb_object_agg(x.endpoint, 0) FROM public.webhook_slow_start x), '{}')
      || COALESCE((SELECT jsonb_object_agg(b.endpoint,
        floor(public.fn_webhook_tokens(b.tokens, b.refilled_at, b.rate, v_now))::int)
      FROM (SELECT x.* FROM public.webhook_slow_start x ORDER BY x.endpoint FOR UPDATE SKIP LOCKED) b), '{}');
  END IF;
  WITH RECURSIVE waiting (op) AS (
    (SELECT j.operation_id FROM public.webhook_delivery_jobs j
      WHERE CASE j.status WHEN 'Pending' THEN true ELSE false END -- as idx_job_operation has it: migration 055
        AND j.operation_id IS NOT NULL ORDER BY j.operation_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.operation_id FROM public.webhook_delivery_jobs j
      WHERE CASE j.status WHEN 'Pending' THEN true ELSE false END AND j.operation_id > w.op
      ORDER BY j.operation_id LIMIT 1)
    FROM waiting w WHERE w.op IS NOT NULL
  ), bucket AS MATERIALIZED (
    SELECT b.operation_id, floor(public.fn_webhook_tokens(b.tokens, b.refilled_at,
      o.rate_per_second::double precision, v_now)) AS tokens
    FROM public.webhook_operation_bucket b JOIN public.queue_bulk_operation o USING (operation_id)
    WHERE b.operation_id IN (SELECT w.op FROM waiting w) AND o.state <> 'paused'
    ORDER BY b.operation_id FOR UPDATE OF b SKIP LOCKED
  )
  SELECT array_agg(b.operation_id), array_agg(least(b.tokens, p_limit)) INTO v_operations, v_operation_tokens
  FROM bucket b WHERE b.tokens >= 1;

  -- how many jobs of each subscription may be claimed, for subscriptions with waiting controlled jobs (those under a
  -- rate limit, a slow start or a circuit): the tokens of its bucket, or one probe if its circuit is half open
  WITH RECURSIVE waiting (sub) AS (
    (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND j.controlled ORDER BY j.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND j.controlled AND j.subscription_id > w.sub
      ORDER BY j.subscription_id LIMIT 1)
    FROM waiting w WHERE w.sub IS NOT NULL
  ), ready AS MATERIALIZED (
    SELECT w.sub, g.gate, g.rate_limit_per_second AS rate, (v_slow -> g.endpoint)::int AS slow
    FROM waiting w JOIN public.v_webhook_gate g ON g.subscription_id = w.sub
    WHERE g.gate IN ('open', 'half_open')
      AND (p_skip_subscriptions IS NULL OR NOT w.sub = ANY (p_skip_subscriptions))
  ), bucket AS MATERIALIZED (
    SELECT b.subscription_id AS sub, floor(public.fn_webhook_tokens(b.tokens, b.refilled_at,
      r.rate::double precision, v_now)) AS tokens
    FROM ready r JOIN public.webhook_rate_bucket b ON b.subscription_id = r.sub
    WHERE r.rate IS NOT NULL ORDER BY b.subscription_id FOR UPDATE OF b SKIP LOCKED
  ), probe AS MATERIALIZED (
    SELECT x.subscription_id AS sub
    FROM ready r JOIN public.webhook_endpoint_suspensions x ON x.subscription_id = r.sub
    WHERE r.gate = 'half_open' AND x.reason = 'circuit' AND (x.probe_until IS NULL OR x.probe_until <= v_now)
    ORDER BY x.subscription_id FOR UPDATE OF x SKIP LOCKED
  )
  SELECT jsonb_object_agg(q.sub, q.quota) INTO v_quotas
  FROM (
    SELECT r.sub, least(p_limit, p_per_subscription, r.slow,
      CASE WHEN r.gate = 'half_open' THEN (SELECT count(*) FROM probe p WHERE p.sub = r.sub) END,
      CASE WHEN r.rate IS NOT NULL THEN COALESCE((SELECT b.tokens FROM bucket b WHERE b.sub = r.sub), 0) END
    )::int AS quota
    FROM ready r) q
  WHERE q.quota > 0;

  RETURN QUERY
  WITH RECURSIVE shares AS MATERIALIZED (
    -- how many of the oldest jobs belong to each subscription, so that not more rows are locked than can be claimed
    SELECT f.subscription_id AS sub, count(*) AS n FROM (
      SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      CROSS JOIN LATERAL (SELECT g.gate = 'open' AND g.rate_limit_per_second IS NULL
          AND (v_slow ? g.endpoint) IS NOT TRUE AS ok
        -- OFFSET 0: evaluated once per subscription and remembered
        FROM public.v_webhook_gate g WHERE g.subscription_id = j.subscription_id OFFSET 0) g
      WHERE j.status = 'Pending' AND NOT j.controlled AND g.ok AND COALESCE(cardinality(p_skip_subscriptions), 0) = 0
        AND j.id > COALESCE(p_after, 0) AND j.id + 0 > 0 -- as idx_job_free has it: migration 055
      ORDER BY j.id LIMIT p_limit) f
    GROUP BY f.subscription_id
  ), oldest AS MATERIALIZED (
    SELECT p.id, p.subscription_id FROM shares f CROSS JOIN LATERAL (
      SELECT j.id, j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id = f.sub AND j.id > COALESCE(p_after, 0)
      ORDER BY j.id LIMIT least(f.n, p_per_subscription) FOR UPDATE OF j SKIP LOCKED) p
  ), walk (sub) AS (
    -- if subscriptions are skipped: read one subscription after the other, so that jobs of the skipped ones are not
    -- read
    (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND cardinality(p_skip_subscriptions) > 0
      ORDER BY j.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id > l.sub
      ORDER BY j.subscription_id LIMIT 1)
    FROM walk l WHERE l.sub IS NOT NULL
  ), candidates AS MATERIALIZED (
    SELECT n.id FROM walk l
    JOIN public.v_webhook_gate g ON g.subscription_id = l.sub AND g.gate = 'open'
      AND g.rate_limit_per_second IS NULL AND (v_slow ? g.endpoint) IS NOT TRUE
    CROSS JOIN LATERAL (
      SELECT j.id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id = l.sub
      ORDER BY j.id LIMIT 4 * least(p_limit, p_per_subscription)) n
    WHERE NOT l.sub = ANY (p_skip_subscriptions)
    ORDER BY n.id LIMIT 4 * p_limit -- more rows than needed: another claim may be locking the first ones
  ), locked AS MATERIALIZED (
    -- one lookup per id: a join might read all waiting jobs
    SELECT p.id, p.subscription_id FROM (SELECT m.id FROM candidates m ORDER BY m.id) n CROSS JOIN LATERAL (
      SELECT j.id, j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.id = n.id AND j.id + 0 > 0 AND j.status = 'Pending' AND NOT j.controlled FOR UPDATE OF j SKIP LOCKED) p
    LIMIT p_limit
  ), limited AS MATERIALIZED (
    SELECT p.id, p.subscription_id FROM jsonb_each_text(v_quotas) AS q (sub, quota) CROSS JOIN LATERAL (
      SELECT j.id, j.subscription_id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Pending' AND j.controlled AND j.subscription_id = q.sub::bigint AND j.operation_id IS NULL
      ORDER BY j.id LIMIT q.quota::int FOR UPDATE OF j SKIP LOCKED) p
  ), operated AS MATERIALIZED (
    -- of each operation its oldest jobs, within the quotas and the slow starts: jobs that one endpoint cannot get now
    -- leave the tokens of the operation to the others
    SELECT p.id, p.subscription_id FROM (
      SELECT m.id FROM unnest(v_operations, v_operation_tokens) AS q (op, tokens) CROSS JOIN LATERAL (
        SELECT w.id FROM (
          SELECT v.id, row_number() OVER (PARTITION BY u.endpoint ORDER BY v.id) AS e,
            (v_slow -> u.endpoint)::int AS slow
          FROM (
            SELECT j.id, j.subscription_id, (v_quotas -> j.subscription_id::text)::int AS quota,
              row_number() OVER (PARTITION BY j.subscription_id ORDER BY j.id) AS n
            FROM public.webhook_delivery_jobs j
            WHERE CASE j.status WHEN 'Pending' THEN true ELSE false END AND j.operation_id = q.op
              AND v_quotas ? j.subscription_id::text) v
          LEFT JOIN LATERAL (SELECT x.endpoint::text FROM public.subscriptions x
            WHERE v_slow <> '{}' AND x.id = v.subscription_id) u ON true
          WHERE v.n <= v.quota) w
        WHERE w.e <= COALESCE(w.slow, w.e) ORDER BY w.id LIMIT q.tokens) m
      ORDER BY m.id) o CROSS JOIN LATERAL (
      -- by id alone, for OFFSET 0: see job_claim.sql. A job that another claim has just taken is locked, and left out
      SELECT x.id, x.subscription_id, x.status FROM public.webhook_delivery_jobs x
      WHERE x.id = o.id OFFSET 0 FOR UPDATE SKIP LOCKED) p
    WHERE p.status = 'Pending'
  ), paced AS (
    -- the jobs of both lists together stay within the quota of their subscription and the slow start of their endpoint
    SELECT b.id, b.subscription_id FROM (
      SELECT a.id, a.subscription_id, row_number() OVER (PARTITION BY a.subscription_id ORDER BY a.id) AS n,
        (v_quotas -> a.subscription_id::text)::int AS quota,
        row_number() OVER (PARTITION BY u.endpoint ORDER BY a.id) AS e,
        (v_slow -> u.endpoint::text)::int AS slow
      FROM (SELECT id, subscription_id FROM limited UNION ALL SELECT id, subscription_id FROM operated) a
      JOIN public.subscriptions u ON u.id = a.subscription_id) b
    WHERE b.n <= b.quota AND b.e <= COALESCE(b.slow, b.e)
  ), pick AS (
    SELECT b.id FROM (
      SELECT a.id, row_number() OVER (PARTITION BY a.subscription_id ORDER BY a.id) AS n
      FROM (SELECT id, subscription_id FROM oldest UNION ALL SELECT id, subscription_id FROM locked
        UNION ALL SELECT id, subscription_id FROM paced) a) b
    WHERE p_per_subscription IS NULL OR b.n <= p_per_subscription
    ORDER BY b.id LIMIT p_limit
  ), claimed AS (
    UPDATE public.webhook_delivery_jobs j SET status = 'Leased',
      lease_until = now() + make_interval(secs => v_lease), lease_token = gen_random_uuid(),
      worker_id = p_worker_id, started_at = now()
    FROM pick p WHERE j.id = p.id
    RETURNING j.id, j.saga_id, j.attempt_no, j.lease_token, j.lease_until, j.subscription_id, j.controlled,
      j.operation_id
  ), spent AS (
    UPDATE public.webhook_rate_bucket b SET refilled_at = greatest(NULLIF(b.refilled_at, 'infinity'), v_now),
      tokens = greatest(0, public.fn_webhook_tokens(b.tokens, b.refilled_at,
        u.rate_limit_per_second::double precision, v_now) - c.n)
    FROM (SELECT subscription_id, count(*) AS n FROM claimed WHERE controlled GROUP BY subscription_id) c
    JOIN public.subscriptions u ON u.id = c.subscription_id
    WHERE b.subscription_id = c.subscription_id AND u.rate_limit_per_second IS NOT NULL
  ), spent_slow AS (
    UPDATE public.webhook_slow_start w SET refilled_at = greatest(NULLIF(w.refilled_at, 'infinity'), v_now),
      tokens = greatest(0, public.fn_webhook_tokens(w.tokens, w.refilled_at, w.rate, v_now) - c.n)
    FROM (SELECT u.endpoint::text AS endpoint, count(*) AS n FROM claimed x
      JOIN public.subscriptions u ON u.id = x.subscription_id GROUP BY u.endpoint) c
    WHERE w.endpoint = c.endpoint AND v_slow ? w.endpoint
  ), spent_operation AS (
    UPDATE public.webhook_operation_bucket b SET refilled_at = greatest(NULLIF(b.refilled_at, 'infinity'), v_now),
      tokens = greatest(0, public.fn_webhook_tokens(b.tokens, b.refilled_at,
        o.rate_per_second::double precision, v_now) - c.n)
    FROM (SELECT operation_id, count(*) AS n FROM claimed WHERE operation_id IS NOT NULL GROUP BY operation_id) c
    JOIN public.queue_bulk_operation o USING (operation_id)
    WHERE b.operation_id = c.operation_id
  ), probing AS (
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = c.id, probe_until = c.lease_until
    FROM claimed c WHERE c.controlled AND x.subscription_id = c.subscription_id AND x.reason = 'circuit'
  )
  SELECT c.id, c.saga_id, c.attempt_no, c.lease_token, c.lease_until, v_lease, v_timeout, e.id,
    e.event_type::text, u.id, u.callback_url::text, u.secret_ref,
    COALESCE(s.webhook_id::text, 'qtop_' || e.id || '_' || u.id),
    -- a payload that is short and not compressed is short as text too
    CASE WHEN pg_column_compression(e.payload) IS NULL AND pg_column_size(e.payload) < 256 THEN e.payload::text
      WHEN pg_column_size(e.payload) > p_payload_bytes
        OR pg_column_size(jsonb_build_array(e.payload)) > p_payload_bytes THEN NULL -- the uncompressed size
      WHEN public.fn_payload_fits(e.payload) THEN CASE WHEN octet_length(e.payload::text) > p_payload_bytes THEN NULL
        ELSE e.payload::text END END,
    COALESCE(to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), ''),
    u.rate_limit_per_second IS NOT NULL OR c.operation_id IS NOT NULL
      OR COALESCE(v_slow ? u.endpoint::text, false)
  FROM claimed c
  JOIN public.webhook_delivery_sagas s ON s.id = c.saga_id
  JOIN public.events e ON e.id = s.event_id
  JOIN public.subscriptions u ON u.id = s.subscription_id
  ORDER BY c.id;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_claim IS
  'Leases due webhook jobs to a worker, oldest first, within suspensions, circuits and rates (R02 §2.3).';
GRANT EXECUTE ON FUNCTION public.fn_webhook_job_claim TO :"webhook_worker";

-- fn_webhook_endpoint_gone(subscriptions): suspends webhook subscriptions whose receiver answered 410. An operator's
-- suspension without an end stays; a suspension with an end is replaced.
CREATE OR REPLACE FUNCTION public.fn_webhook_endpoint_gone(p_subscriptions bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM 1 FROM public.webhook_endpoint_state WHERE subscription_id = ANY (p_subscriptions)
    ORDER BY subscription_id FOR UPDATE;
  INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, by, note)
  SELECT g, '410', 'webhook_worker', 'the endpoint answered 410 Gone' FROM unnest(p_subscriptions) g ORDER BY g
  ON CONFLICT (subscription_id) DO UPDATE SET reason = '410', since = now(), until = NULL,
    by = EXCLUDED.by, note = EXCLUDED.note, probe_job_id = NULL, probe_until = NULL
    WHERE x.until IS NOT NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_endpoint_gone IS
  'Suspends webhook subscriptions whose receiver answered 410. Internal.';

-- fn_record_refusal(name, array, fields) → for the first object of the array with an unreadable field: its index from
-- 0, the field and its value. fields: each "name type". NULL = all fields can be read. Internal.
CREATE OR REPLACE FUNCTION public.fn_record_refusal(p_name text, p_array jsonb, p_fields text[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_object jsonb;
  v_n bigint;
  v_field text;
BEGIN
  FOR v_object, v_n IN SELECT a.e, a.n - 1 FROM jsonb_array_elements(p_array) WITH ORDINALITY AS a (e, n) LOOP
    IF jsonb_typeof(v_object) <> 'object' THEN
      RETURN format('%s[%s] must be a JSON object, not %s', p_name, v_n, public.fn_json_said(v_object));
    END IF;
    BEGIN -- one test of all fields: usually all can be read
      EXECUTE format('SELECT FROM jsonb_to_record($1) AS r (%s)', array_to_string(p_fields, ', ')) USING v_object;
    EXCEPTION WHEN data_exception THEN
      FOREACH v_field IN ARRAY p_fields LOOP
        BEGIN
          EXECUTE format('SELECT FROM jsonb_to_record($1) AS r (%s)', v_field) USING v_object;
        EXCEPTION WHEN data_exception THEN
          RETURN format('%s[%s].%s must be a %s, not %s', p_name, v_n, split_part(v_field, ' ', 1),
            substr(v_field, strpos(v_field, ' ') + 1), public.fn_json_said(v_object -> split_part(v_field, ' ', 1)));
        END;
      END LOOP;
    END;
  END LOOP;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_record_refusal IS
  'Why the first unreadable object of an array cannot be read, with index, field and value. Internal.';

-- fn_webhook_job_report(p_results): array of {job_id, lease_token, delivered, status, code, excerpt, retry_after,
-- took_ms, unsent} → per result done | repeated (the same result was recorded before) | lease_lost (nothing changed).
-- Then it updates the endpoints. Consecutive failures open a circuit; each failed probe doubles the duration of the
-- circuit up to webhook.circuit_max_seconds; a success closes it. A 410, and failures without a success for
-- webhook.disable_after_days, suspend the endpoint in the same transaction, so that nothing is claimed before the job
-- is settled. unsent = the host could not send, because the payload is unreadable: such a failure does not count for
-- the endpoint. The call fails with 55P03 if another session holds the lock of a row for more than a second; then the
-- host divides the results, so that one locked row delays no result of another endpoint.
CREATE OR REPLACE FUNCTION public.fn_webhook_job_report(p_results jsonb) RETURNS TABLE (job_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off
SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
  c_codes CONSTANT text := 'HTTP_[0-9]{3}|TIMEOUT|DNS_FAILURE|CONNECTION_REFUSED|CONNECTION_RESET|'
    'TLS_FAILURE|PROTOCOL_ERROR|UNREACHABLE|ADDRESS_REFUSED|BAD_URL|SIGNING_FAILED|WORKER_PANIC|'
    'LEASE_LOST_LIMIT';
  v_threshold int := public.fn_cfg_int('webhook.circuit_failures', 10);
  v_open double precision := public.fn_cfg_int('webhook.circuit_open_seconds', 30);
  v_longest double precision := greatest(v_open, public.fn_cfg_int('webhook.circuit_max_seconds', 900));
  v_days int := public.fn_cfg_int('webhook.disable_after_days', 5);
  v_ids bigint[];
  v_tokens text[];
  v_delivered boolean[];
  v_status int[];
  v_codes text[];
  v_excerpts text[];
  v_retry timestamptz[];
  v_took double precision[];
  v_bad text;
  v_unsent boolean[];
  v_done int[];
  v_same int[];
  v_subs bigint[];
  v_need bigint[];
  v_gone bigint[];
  v_slow text[]; -- endpoints in slow start that these results count for
BEGIN
  IF p_results IS NULL OR jsonb_typeof(p_results) <> 'array' OR jsonb_array_length(p_results) > 10000 THEN
    RAISE EXCEPTION 'p_results is no JSON array, or has more than 10000 results: record them in several calls'
      USING ERRCODE = '22023';
  END IF;
  BEGIN
    SELECT array_agg(r.job_id ORDER BY r.n), array_agg(lower(r.lease_token COLLATE "C") ORDER BY r.n),
      array_agg(r.delivered ORDER BY r.n), array_agg(r.status ORDER BY r.n),
      array_agg(NULLIF(r.code, '') ORDER BY r.n), array_agg(r.excerpt ORDER BY r.n),
      array_agg(r.retry_after ORDER BY r.n),
      array_agg(least(greatest(NULLIF(r.took_ms, 'NaN'), 0), 86400000) ORDER BY r.n),
      array_agg(COALESCE(r.unsent, false) AND NOT COALESCE(r.delivered, false) ORDER BY r.n)
    INTO v_ids, v_tokens, v_delivered, v_status, v_codes, v_excerpts, v_retry, v_took, v_unsent
    FROM ROWS FROM (jsonb_to_recordset(p_results) AS (job_id bigint, lease_token text, delivered boolean,
      status int, code text, excerpt text, retry_after timestamptz, took_ms double precision,
      unsent boolean))
      WITH ORDINALITY AS r (job_id, lease_token, delivered, status, code, excerpt, retry_after, took_ms, unsent, n);
  EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION '%', COALESCE(public.fn_record_refusal('p_results'::text, p_results, ARRAY['job_id bigint',
      'lease_token text', 'delivered boolean', 'status int', 'code text', 'excerpt text', 'retry_after timestamptz',
      'took_ms double precision', 'unsent boolean']), 'p_results cannot be read: ' || SQLERRM) USING ERRCODE = '22023';
  END;

  SELECT format('p_results[%s].code: unknown error code %s', r.n - 1, public.fn_json_said(to_jsonb(r.code))) INTO v_bad
  FROM ROWS FROM (unnest(v_codes, v_delivered)) WITH ORDINALITY AS r (code, delivered, n)
  WHERE NOT r.delivered AND r.code !~ ('^(' || c_codes || ')$') ORDER BY r.n LIMIT 1;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '%', v_bad
      USING ERRCODE = '22023', HINT = 'known: ' || replace(c_codes, '|', ', ');
  END IF;
  SELECT format('p_results[%s], job %s: %s', r.n - 1, COALESCE(r.id::text, '(none)'), CASE
      WHEN r.id IS NULL OR r.token IS NULL OR r.delivered IS NULL
        THEN 'job_id, lease_token and delivered must not be null'
      WHEN r.again THEN 'the call holds two results of this job: send one'
      WHEN r.delivered THEN concat('delivered = true needs a status of 200 to 299 and no code, not status ',
        COALESCE(r.status::text, 'null'), ' and code ', COALESCE(r.code, 'null'))
      WHEN r.code IS NULL THEN 'delivered = false needs a code, such as TIMEOUT or HTTP_503'
      ELSE concat('status must be 100 to 999 or null, not ', r.status) END)
  INTO v_bad
  FROM (SELECT i.*, count(*) OVER (PARTITION BY i.id) > 1 AS again
    FROM ROWS FROM (unnest(v_ids, v_tokens, v_delivered, v_status, v_codes)) WITH ORDINALITY
      AS i (id, token, delivered, status, code, n)) r
  WHERE r.id IS NULL OR r.token IS NULL OR r.delivered IS NULL OR r.again
    OR (r.delivered AND (r.code IS NOT NULL OR r.status IS NULL OR r.status NOT BETWEEN 200 AND 299))
    OR (NOT r.delivered AND (r.code IS NULL OR r.status NOT BETWEEN 100 AND 999))
  ORDER BY r.n LIMIT 1;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '%', v_bad USING ERRCODE = '22023';
  END IF;

  -- The excerpt comes from outside: secrets are masked, and control and bidirectional characters become visible
  -- question marks. It is computed here once: an expression in the UPDATE would be evaluated once per use.
  IF EXISTS (SELECT 1 FROM unnest(v_excerpts) e WHERE e <> '') THEN
    SELECT array_agg(CASE WHEN octet_length(c.excerpt) <= 4096 THEN c.excerpt ELSE left(c.excerpt, 1024) END
      ORDER BY c.n) INTO v_excerpts
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
      ORDER BY r.id) i -- jobs are locked in id order
    -- a leased job has a token and no finished_at; a condition on status would make the plan read all leased jobs
    WHERE j.id = i.id AND j.finished_at IS NULL AND j.lease_token::text = i.token
    RETURNING i.n, j.subscription_id)
  SELECT array_agg(f.n), array_agg(f.subscription_id) INTO v_done, v_subs FROM finished f;
  -- a separate statement, because it sees the changes that the UPDATE waited for
  IF COALESCE(cardinality(v_done), 0) < cardinality(v_ids) THEN
    SELECT array_agg(i.n) FILTER (WHERE j.status IN ('Completed', 'Failed') AND j.lease_token::text = i.token
      AND (j.status = 'Completed') = i.delivered AND j.error_code IS NOT DISTINCT FROM i.code)
    INTO v_same
    FROM unnest(v_ids, v_tokens, v_delivered, v_codes) WITH ORDINALITY AS i (id, token, delivered, code, n)
    JOIN public.webhook_delivery_jobs j ON j.id = i.id;
  END IF;

  IF v_done IS NOT NULL THEN
    -- the row of a healthy endpoint is written once a second, not once per delivery
    SELECT array_agg(t.subscription_id) INTO v_need
    FROM public.webhook_endpoint_state t
    JOIN (SELECT d.sub, bool_and(v_delivered[d.n]) AS fine
      FROM unnest(v_done, v_subs) AS d (n, sub)
      WHERE NOT v_unsent[d.n] -- an unsent delivery did not reach the endpoint
      GROUP BY d.sub) a
      ON a.sub = t.subscription_id
    WHERE NOT a.fine OR t.consecutive_failures > 0 OR t.last_success_at IS NULL
      OR t.last_success_at < now() - interval '1 second';
    -- the lock order, before a circuit that closes begins a slow start
    PERFORM 1 FROM public.webhook_endpoint_state t WHERE t.subscription_id = ANY (v_need)
      ORDER BY t.subscription_id FOR UPDATE;
    PERFORM 1 FROM public.webhook_endpoint_suspensions x WHERE x.subscription_id = ANY (v_subs)
      ORDER BY x.subscription_id FOR UPDATE;
    IF EXISTS (SELECT FROM public.webhook_slow_start) THEN
      v_slow := ARRAY(SELECT w.endpoint FROM public.webhook_slow_start w WHERE w.endpoint IN
        (SELECT u.endpoint FROM public.subscriptions u WHERE u.id = ANY (v_subs)) ORDER BY w.endpoint FOR UPDATE);
    END IF;
    IF v_need IS NOT NULL THEN
      WITH result AS MATERIALIZED (
        SELECT d.sub, d.n, v_delivered[d.n] AS delivered, v_codes[d.n] AS code,
          max(d.n) FILTER (WHERE v_delivered[d.n]) OVER (PARTITION BY d.sub) AS last_success
        FROM unnest(v_done, v_subs) AS d (n, sub) WHERE (d.sub IN (SELECT unnest(v_need))) IS TRUE
          AND NOT v_unsent[d.n]
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
          last_failure_code = COALESCE(a.last_code, t.last_failure_code),
          failing_since = CASE WHEN a.failures_since = 0 THEN NULL
            -- a time without attempts, such as without hosts, does not show that the endpoint failed
            WHEN a.any_success OR t.last_failure_at < now() - make_interval(days => NULLIF(v_days, 0)) THEN now()
            ELSE COALESCE(t.failing_since, now()) END
        FROM summary a WHERE t.subscription_id = a.sub
        RETURNING t.subscription_id, a.any_success, t.failing_since,
          -- a circuit that is open renews with a failed probe also if the threshold was raised meanwhile
          v_threshold > 0 AND (t.consecutive_failures >= v_threshold OR NOT a.any_success AND EXISTS (
            SELECT FROM public.webhook_endpoint_suspensions c
            WHERE c.subscription_id = t.subscription_id AND c.reason = 'circuit')) AS broken,
          v_days > 0 AND COALESCE(t.failing_since <= now() - make_interval(days => v_days), false) AS failing
      ), closed AS (
        DELETE FROM public.webhook_endpoint_suspensions x USING state t
        WHERE x.subscription_id = t.subscription_id AND x.reason = 'circuit'
          AND (t.any_success OR v_threshold = 0) AND NOT t.broken AND NOT t.failing
      )
      INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, until, by, note)
      SELECT t.subscription_id, CASE WHEN t.failing THEN 'failing' ELSE 'circuit' END,
        CASE WHEN NOT t.failing THEN now() + make_interval(secs => v_open) END, 'webhook_worker',
        CASE WHEN t.failing THEN 'only failures since '
          || to_char(t.failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')
          ELSE v_threshold || ' failures in a row' END
      FROM state t WHERE t.broken OR t.failing ORDER BY t.subscription_id
      ON CONFLICT (subscription_id) DO UPDATE SET reason = EXCLUDED.reason,
        note = CASE EXCLUDED.reason WHEN 'failing' THEN EXCLUDED.note ELSE x.note END,
        since = CASE EXCLUDED.reason WHEN 'failing' THEN now() ELSE x.since END, failed_probes = x.failed_probes + 1,
        until = CASE EXCLUDED.reason WHEN 'circuit' THEN now()
          + make_interval(secs => least(v_longest, v_open * power(2, least(x.failed_probes, 20) + 1))) END
        WHERE x.reason = 'circuit' AND (x.until <= now() OR EXCLUDED.reason = 'failing');
      SELECT array_agg(DISTINCT d.sub ORDER BY d.sub) INTO v_gone
      FROM unnest(v_done, v_subs) AS d (n, sub) WHERE v_codes[d.n] = 'HTTP_410';
      IF v_gone IS NOT NULL THEN
        PERFORM public.fn_webhook_endpoint_gone(v_gone);
      END IF;
    END IF;
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = NULL, probe_until = NULL
    WHERE (x.probe_job_id IN (SELECT v_ids[d] FROM unnest(v_done) d)) IS TRUE;
    IF v_slow <> '{}' THEN
      UPDATE public.webhook_slow_start w SET delivered = w.delivered + a.delivered, failed = w.failed + a.failed
      FROM (SELECT u.endpoint::text AS endpoint, count(*) FILTER (WHERE v_delivered[d.n]) AS delivered,
          count(*) FILTER (WHERE NOT v_delivered[d.n]) AS failed
        FROM unnest(v_done, v_subs) AS d (n, sub) JOIN public.subscriptions u ON u.id = d.sub
        WHERE NOT v_unsent[d.n] GROUP BY u.endpoint) a
      WHERE w.endpoint = a.endpoint AND w.endpoint = ANY (v_slow);
    END IF;
  END IF;

  RETURN QUERY
  SELECT i.id, CASE WHEN i.n IN (SELECT unnest(v_done)) THEN 'done'
    WHEN i.n IN (SELECT unnest(v_same)) THEN 'repeated' ELSE 'lease_lost' END
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, n) ORDER BY i.n;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_report IS
  'Records a worker''s results, fenced by lease token, safe to repeat; opens and closes circuits (R02 §2.3).';
GRANT EXECUTE ON FUNCTION public.fn_webhook_job_report TO :"webhook_worker";

-- fn_webhook_job_renew, fn_webhook_job_release (p_job_ids, p_lease_tokens): parallel arrays → per id
-- done | lease_lost. Renew extends the lease to its full duration from now; release returns the job to Pending, and no
-- attempt is counted. A row that another session has locked is neither changed nor returned, because a host renews or
-- releases many leases in one call. The suspension that waits for the result of a probe is locked after its job: if
-- another session has locked it, the probe is renewed without it, and is not released.
CREATE OR REPLACE FUNCTION public.fn_webhook_job_renew(p_job_ids bigint[], p_lease_tokens uuid[])
RETURNS TABLE (job_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_until timestamptz := now() + make_interval(secs => public.fn_cfg_int('webhook.lease_seconds', 60));
  v_held bigint[];
  v_suspended bigint[];
BEGIN
  IF p_job_ids IS NULL OR p_lease_tokens IS NULL OR cardinality(p_job_ids) <> cardinality(p_lease_tokens) THEN
    RAISE EXCEPTION 'p_job_ids and p_lease_tokens must have the same length, not % and %',
      COALESCE(cardinality(p_job_ids), 0), COALESCE(cardinality(p_lease_tokens), 0) USING ERRCODE = '22023';
  END IF;
  -- found by id alone, for OFFSET 0: see job_claim.sql
  v_held := ARRAY(SELECT h.id FROM (
    SELECT x.id, x.lease_token FROM (SELECT j.id, j.lease_token, j.status FROM public.webhook_delivery_jobs j
      WHERE j.id = ANY (p_job_ids) ORDER BY j.id OFFSET 0 FOR UPDATE SKIP LOCKED) x WHERE x.status = 'Leased'
    INTERSECT SELECT i.id, i.token FROM unnest(p_job_ids, p_lease_tokens) AS i (id, token)) h);
  SELECT array_agg(x.subscription_id) INTO v_suspended FROM (SELECT s.subscription_id
    FROM public.webhook_endpoint_suspensions s WHERE (s.probe_job_id IN (SELECT unnest(v_held))) IS TRUE
    ORDER BY s.subscription_id FOR UPDATE SKIP LOCKED) x;
  UPDATE public.webhook_delivery_jobs j SET lease_until = v_until WHERE j.id = ANY (v_held);
  UPDATE public.webhook_endpoint_suspensions x SET probe_until = v_until WHERE x.subscription_id = ANY (v_suspended);
  RETURN QUERY
  SELECT i.id, CASE WHEN i.id IN (SELECT unnest(v_held)) THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) WITH ORDINALITY AS i (id, token, n)
  WHERE i.id IN (SELECT unnest(v_held)) OR NOT EXISTS (SELECT FROM public.webhook_delivery_jobs j
    WHERE j.id = i.id AND j.status = 'Leased' AND j.lease_token = i.token)
  ORDER BY i.n;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_renew IS
  'Extends the leases that a worker still holds; a lost lease cannot be renewed. A row that another session has '
  'locked is not renewed and not returned.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_job_renew TO :"webhook_worker";

CREATE OR REPLACE FUNCTION public.fn_webhook_job_release(p_job_ids bigint[], p_lease_tokens uuid[])
RETURNS TABLE (job_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_suspended bigint[];
BEGIN
  IF p_job_ids IS NULL OR p_lease_tokens IS NULL OR cardinality(p_job_ids) <> cardinality(p_lease_tokens) THEN
    RAISE EXCEPTION 'p_job_ids and p_lease_tokens must have the same length, not % and %',
      COALESCE(cardinality(p_job_ids), 0), COALESCE(cardinality(p_lease_tokens), 0) USING ERRCODE = '22023';
  END IF;
  -- found by id alone, for OFFSET 0: see job_claim.sql
  v_held := ARRAY(SELECT h.id FROM (
    SELECT x.id, x.lease_token FROM (SELECT j.id, j.lease_token, j.status FROM public.webhook_delivery_jobs j
      WHERE j.id = ANY (p_job_ids) ORDER BY j.id OFFSET 0 FOR UPDATE SKIP LOCKED) x WHERE x.status = 'Leased'
    INTERSECT SELECT i.id, i.token FROM unnest(p_job_ids, p_lease_tokens) AS i (id, token)) h);
  SELECT array_agg(x.subscription_id) INTO v_suspended FROM (SELECT s.subscription_id
    FROM public.webhook_endpoint_suspensions s WHERE (s.probe_job_id IN (SELECT unnest(v_held))) IS TRUE
    ORDER BY s.subscription_id FOR UPDATE SKIP LOCKED) x;
  v_held := ARRAY(SELECT unnest(v_held) EXCEPT SELECT s.probe_job_id FROM public.webhook_endpoint_suspensions s
    WHERE s.subscription_id NOT IN (SELECT unnest(v_suspended)));
  UPDATE public.webhook_delivery_jobs j SET status = 'Pending', lease_until = NULL, lease_token = NULL,
    worker_id = NULL, started_at = NULL
  WHERE j.id = ANY (v_held);
  UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = NULL, probe_until = NULL
  WHERE x.subscription_id = ANY (v_suspended);
  RETURN QUERY
  SELECT i.id, CASE WHEN i.id IN (SELECT unnest(v_held)) THEN 'done' ELSE 'lease_lost' END
  FROM unnest(p_job_ids, p_lease_tokens) WITH ORDINALITY AS i (id, token, n)
  WHERE i.id IN (SELECT unnest(v_held)) OR NOT EXISTS (SELECT FROM public.webhook_delivery_jobs j
    WHERE j.id = i.id AND j.status = 'Leased' AND j.lease_token = i.token)
  ORDER BY i.n;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_release IS
  'Returns leased jobs to Pending without counting an attempt, as a draining worker does. A row that another session '
  'has locked is not released and not returned.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_job_release TO :"webhook_worker";

-- fn_webhook_lease_lose(ids) → {reset, failed, log}: returns jobs whose lease expired to Pending with lease_resets + 1,
-- or, at the third lost lease, fails them with LEASE_LOST_LIMIT. A job that was renewed or reported meanwhile is
-- skipped. The token is removed, so that the worker that lost the lease cannot change the job. The caller has locked
-- the rows. Internal.
-- fn_lease_reset_cleaner_run(p_limit): calls fn_webhook_lease_lose for all expired leases, once per row, however many
-- sessions run it.
CREATE OR REPLACE FUNCTION public.fn_webhook_lease_lose(p_ids bigint[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET jit = off AS $$
DECLARE
  v_reset bigint;
  v_failed bigint;
  v_log jsonb;
BEGIN
  WITH held AS MATERIALIZED ( -- by id: see job_claim.sql
    SELECT array_agg(j.id) AS ids, jsonb_object_agg(j.id, jsonb_build_array(j.lease_until, j.worker_id)) AS of
    FROM (SELECT x.* FROM public.webhook_delivery_jobs x WHERE x.id = ANY (p_ids) OFFSET 0) j
    WHERE j.status = 'Leased' AND j.lease_until < now()
  ), taken AS (
    UPDATE public.webhook_delivery_jobs j SET
      status = CASE WHEN j.lease_resets >= 2 THEN 'Failed' ELSE 'Pending' END::public.webhook_job_status,
      lease_resets = j.lease_resets + 1,
      lease_token = NULL,
      error_code = CASE WHEN j.lease_resets >= 2 THEN 'LEASE_LOST_LIMIT' END,
      finished_at = CASE WHEN j.lease_resets >= 2 THEN now() END,
      lease_until = CASE WHEN j.lease_resets >= 2 THEN j.lease_until END,
      worker_id = CASE WHEN j.lease_resets >= 2 THEN j.worker_id END,
      started_at = CASE WHEN j.lease_resets >= 2 THEN j.started_at END
    WHERE j.id = ANY (ARRAY(SELECT unnest(h.ids) FROM held h))
    RETURNING j.id, j.saga_id, j.error_code, j.status = 'Failed' AS over
  ), probes AS (
    UPDATE public.webhook_endpoint_suspensions x SET probe_job_id = NULL, probe_until = NULL
    WHERE (x.probe_job_id IN (SELECT t.id FROM taken t)) IS TRUE
  )
  SELECT count(*) FILTER (WHERE NOT t.over), count(*) FILTER (WHERE t.over), jsonb_agg(jsonb_build_object(
    'outcome', CASE WHEN t.over THEN 'failed' ELSE 'reset' END, 'saga_id', t.saga_id,
    'job_id', t.id, 'error_code', t.error_code, 'lease_expiration', t.was -> 0, 'worker_id', t.was -> 1) ORDER BY t.id)
  INTO v_reset, v_failed, v_log
  FROM (SELECT x.*, (SELECT h.of FROM held h) -> x.id::text AS was FROM taken x OFFSET 0) t;
  RETURN jsonb_build_object('reset', v_reset, 'failed', v_failed)
    || CASE WHEN v_log IS NULL THEN '{}'::jsonb ELSE jsonb_build_object('log', v_log) END;
END $$;
COMMENT ON FUNCTION public.fn_webhook_lease_lose IS
  'Resets expired leases of webhook jobs. Internal.';

CREATE OR REPLACE FUNCTION public.fn_lease_reset_cleaner_run(p_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_out jsonb;
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 100000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  v_out := '{"reset": 0, "failed": 0}'::jsonb || public.fn_queue_step('webhook_reap'::text, p_limit);
  IF NOT v_out ? 'timed_out' THEN
    PERFORM public.fn_queue_clock_recheck();
  END IF;
  RETURN v_out;
END $$;
COMMENT ON FUNCTION public.fn_lease_reset_cleaner_run IS
  'Resets expired leases, fails jobs at the third loss. Tick worker lease_reset_cleaner (R02 §2.4).';
GRANT EXECUTE ON FUNCTION public.fn_lease_reset_cleaner_run TO :"lease_reset_cleaner", :"dot_executor";
