-- Webhooks: slow start, which limits how fast deliveries are sent after a blockade, and the token buckets of send
-- rates.
--
-- A slow start limits the rate of one endpoint (host:port, all its subscriptions):
--   1. It begins when a blockade of the endpoint ends and more than 10 s of its usual rate waits. Blockades are: a
--      suspension or circuit; a subscription that is switched off or was changed; the flags of webhooks switched off;
--      no host for 60 s; events that could not be routed for 60 s; a copy that is not adopted yet.
--   2. It starts at the usual rate, or at 10 requests a second where the endpoint has never had a delivery.
--   3. Every 10 s the rate doubles, if it was used and at most a fifth of the requests failed.
--   4. It ends when at most one second of its rate is left to claim, and after webhook.slow_start.max_seconds at the
--      latest (0 = no such limit).
-- While webhook.slow_start.enabled is off, none begins, and running ones have no effect.

COMMENT ON TABLE public.webhook_slow_start IS
  'Endpoints in slow start: their send rate rises in steps after a blockade. Has the reason, the current rate and the '
  'requests of the current step.';
COMMENT ON COLUMN public.webhook_slow_start.endpoint IS 'host:port, as subscriptions.endpoint';
COMMENT ON COLUMN public.webhook_slow_start.rate IS 'requests per second, over all hosts';
COMMENT ON COLUMN public.webhook_slow_start.step_at IS 'start of the current step';
COMMENT ON COLUMN public.webhook_slow_start.delivered IS 'requests of this step that succeeded';
COMMENT ON COLUMN public.webhook_slow_start.failed IS 'requests of this step that failed';
COMMENT ON COLUMN public.webhook_slow_start.tokens IS 'requests that may be sent now';
GRANT SELECT ON public.webhook_slow_start TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin";

COMMENT ON TABLE public.webhook_operation_bucket IS
  'Requests that bulk operations may send now: a claim uses tokens of the rate of its operation.';
GRANT SELECT ON public.webhook_operation_bucket TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin";

-- fn_webhook_tokens(tokens, refilled_at, rate, now) → the tokens in a bucket at now. The bucket gains rate tokens per
-- second. It holds at most those of a quarter of a second (at least 1), so that unused tokens expire, and the fraction
-- of a token that the last claim could not use. For another quarter of a second less than one token more is kept,
-- because hosts claim once in that time. A new bucket holds a quarter of a second. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_tokens(p_tokens double precision, p_refilled_at timestamptz,
  p_rate double precision, p_now timestamptz) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_slice double precision := greatest(p_rate / 4, 1);
  v_tokens double precision;
BEGIN
  IF NOT isfinite(p_refilled_at) THEN
    RETURN v_slice;
  END IF;
  v_tokens := p_tokens + greatest(extract(epoch FROM p_now - p_refilled_at)::double precision, 0) * p_rate;
  RETURN CASE WHEN v_tokens < v_slice + least(p_rate / 4, 1) THEN v_tokens
    ELSE v_slice + p_tokens - floor(p_tokens) END;
END $$;
COMMENT ON FUNCTION public.fn_webhook_tokens IS
  'The requests that a bucket allows now: about those of a quarter of a second of its rate at most. Internal.';

-- fn_webhook_usual_rates(subscriptions) → the endpoints of these subscriptions (NULL = all) that have waiting
-- deliveries, with their number. usual_rate: deliveries per second, in those seconds of the last 500 settled attempts
-- of each subscription in which it delivered; 10 if it never did. Of more than 100 subscriptions it reads fewer
-- attempts each (at least 20), and after 2 s, as on a cold cache, it reads no more and takes 10 for the rest: a host
-- waits for it. slow_start: whether a slow start would begin if a blockade ended now. first_minute: the most requests
-- that would be sent in the first minute after that, as far as rates limit them.
CREATE OR REPLACE FUNCTION public.fn_webhook_usual_rates(p_subscriptions bigint[])
RETURNS TABLE (endpoint text, waiting bigint, usual_rate double precision, slow_start boolean, first_minute bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_enabled boolean := public.fn_cfg_bool('webhook.slow_start.enabled');
  v_until timestamptz := clock_timestamp() + interval '2 seconds';
BEGIN
  RETURN QUERY
  WITH work AS MATERIALIZED (
    SELECT c.k1::bigint AS sub, sum(c.n)::bigint AS n FROM public.v_queue_counter c
    WHERE c.scope = 'saga' AND c.k2 IN ('Pending', 'PendingRetry', 'InProgress') GROUP BY c.k1 HAVING sum(c.n) > 0
  ), place AS MATERIALIZED (
    SELECT s.endpoint::text AS endpoint, sum(w.n)::bigint AS n,
      sum(least(w.n, ceil(s.rate_limit_per_second * 60))) AS limited -- without a rate limit: all
    FROM work w JOIN public.subscriptions s ON s.id = w.sub
    WHERE p_subscriptions IS NULL OR s.endpoint IN
      (SELECT x.endpoint FROM public.subscriptions x WHERE x.id = ANY (p_subscriptions))
    GROUP BY s.endpoint
  ), sub AS MATERIALIZED (
    SELECT s.id, p.endpoint FROM place p JOIN public.subscriptions s ON s.endpoint = p.endpoint
  ), history AS (
    SELECT b.endpoint, sum(h.rate)::double precision AS usual FROM sub b CROSS JOIN LATERAL (
      SELECT count(*)::double precision / NULLIF(count(DISTINCT date_trunc('second', j.finished_at)), 0) AS rate
      FROM (SELECT x.status, x.finished_at FROM public.webhook_delivery_jobs x
        WHERE x.subscription_id = b.id AND x.settled_at IS NOT NULL ORDER BY x.id DESC
        LIMIT CASE WHEN clock_timestamp() < v_until
          THEN (SELECT least(500, greatest(20, 50000 / greatest(count(*), 1))) FROM sub) ELSE 0 END) j
      WHERE j.status = 'Completed') h
    GROUP BY b.endpoint
  ), known AS (
    SELECT p.endpoint, p.n, p.limited, COALESCE(r.usual, 10) AS usual, v_enabled AND p.n > 10 * COALESCE(r.usual, 10)
      AS slow
    FROM place p LEFT JOIN history r ON r.endpoint = p.endpoint
  )
  -- six steps of 10 s: 10 × (1 + 2 + 4 + 8 + 16 + 32)
  SELECT k.endpoint, k.n, k.usual, k.slow,
    least(k.limited, CASE WHEN k.slow THEN ceil(k.usual * 630) END)::bigint FROM known k;
END $$;
COMMENT ON FUNCTION public.fn_webhook_usual_rates IS
  'Endpoints with work: how much is waiting, the usual rate, and how much the first minute after a blockade sends.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_usual_rates TO :"queue_viewer", :"dead_letter_operator",
  :"workflow_admin", :"subscription_admin";

-- fn_webhook_slow_start_begin(subscriptions, why, again): begins a slow start for each endpoint of these subscriptions
-- (NULL = all) with more waiting deliveries than its usual rate sends in 10 s. again: true = a running slow start
-- begins again, false = it continues. It locks those that run before it inserts new ones: see the lock order in
-- webhook_router.sql. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_slow_start_begin(p_subscriptions bigint[], p_why text, p_again boolean)
  RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_endpoints text[];
  v_rates double precision[];
  v_running text[];
BEGIN
  IF NOT public.fn_cfg_bool('webhook.slow_start.enabled') THEN
    RETURN;
  END IF;
  SELECT array_agg(u.endpoint), array_agg(u.usual_rate) INTO v_endpoints, v_rates
  FROM public.fn_webhook_usual_rates(p_subscriptions) u WHERE u.slow_start;
  IF p_again THEN
    v_running := ARRAY(SELECT w.endpoint FROM public.webhook_slow_start w
      WHERE w.endpoint IN (SELECT unnest(v_endpoints)) ORDER BY w.endpoint FOR UPDATE);
    UPDATE public.webhook_slow_start w SET began_at = v_now, why = p_why, rate = u.rate, step_at = v_now,
      delivered = 0, failed = 0, tokens = 1, refilled_at = v_now
    FROM unnest(v_endpoints, v_rates) AS u (endpoint, rate)
    WHERE w.endpoint = u.endpoint AND w.endpoint IN (SELECT unnest(v_running));
  END IF;
  INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
  SELECT u.endpoint, v_now, p_why, u.rate, v_now, v_now FROM unnest(v_endpoints, v_rates) AS u (endpoint, rate)
  ORDER BY u.endpoint
  ON CONFLICT (endpoint) DO NOTHING;
END $$;
COMMENT ON FUNCTION public.fn_webhook_slow_start_begin IS
  'Begins the slow start of endpoints whose blockade ended. Internal.';

-- fn_webhook_hosts_back(): called before a host that sends webhooks is registered, or records its first heartbeat after
-- 60 s, as when it could not reach the database. Begins slow starts if no such host was seen for 60 s. The tick
-- webhook_worker sees that only after two of its intervals, which may be an hour. The host gives up after 5 s, so
-- nothing here takes long: a slow start that another session has locked stays as it is, without the lock order of
-- webhook_router.sql, because this waits 20 ms for it and that session may wait for those begun here. A slow start that
-- fails does not stop the host. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_hosts_back() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_since timestamptz := v_now - interval '60 seconds';
  v_endpoints text[];
  v_rates double precision[];
  v_first int[]; -- ranges of v_endpoints that have not begun
  v_last int[];
  v_i int;
  v_j int;
BEGIN
  IF public.fn_cfg_bool('webhook.slow_start.enabled')
    AND EXISTS (SELECT FROM public.queue_tick_worker w
      WHERE w.worker_name = 'webhook_worker' AND w.last_run_at < v_since)
    AND NOT EXISTS (SELECT FROM public.queue_host q WHERE 'webhook_worker' = ANY (q.loops || q.last_loops)
      AND COALESCE(q.stopped_at, q.last_seen_at) > v_since)
    AND NOT EXISTS (SELECT FROM public.webhook_endpoint_state t
      WHERE greatest(t.last_success_at, t.last_failure_at) > v_since) THEN
    SELECT array_agg(u.endpoint ORDER BY u.endpoint), array_agg(u.usual_rate ORDER BY u.endpoint)
    INTO v_endpoints, v_rates FROM public.fn_webhook_usual_rates(NULL::bigint[]) u WHERE u.slow_start;
    PERFORM set_config('lock_timeout', '20ms', true); -- undone when this function returns
    v_first := CASE WHEN cardinality(v_endpoints) > 0 THEN '{1}'::int[] ELSE '{}'::int[] END;
    v_last := ARRAY[cardinality(v_endpoints)];
    WHILE cardinality(v_first) > 0 LOOP -- all in one statement; where that meets a locked one, each half by itself
      v_i := v_first[1];
      v_j := v_last[1];
      v_first := v_first[2:];
      v_last := v_last[2:];
      IF clock_timestamp() > v_now + interval '3 seconds' THEN
        RAISE LOG 'qtop: slow starts from % on did not begin: there was no time left', v_endpoints[v_i];
        EXIT;
      END IF;
      BEGIN
        INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
        SELECT u.endpoint, v_now, 'no host sent webhooks for a minute', u.rate, v_now, v_now
        FROM unnest(v_endpoints[v_i:v_j], v_rates[v_i:v_j]) AS u (endpoint, rate)
        ON CONFLICT (endpoint) DO UPDATE SET began_at = excluded.began_at, why = excluded.why, rate = excluded.rate,
          step_at = excluded.step_at, delivered = 0, failed = 0, tokens = 1, refilled_at = excluded.refilled_at;
      EXCEPTION WHEN lock_not_available THEN
        IF v_i = v_j THEN
          RAISE LOG 'qtop: the slow start of % could not begin: %', v_endpoints[v_i], SQLERRM;
        ELSE
          v_first := ARRAY[v_i, (v_i + v_j) / 2 + 1] || v_first;
          v_last := ARRAY[(v_i + v_j) / 2, v_j] || v_last;
        END IF;
      END;
    END LOOP;
  END IF;
EXCEPTION WHEN OTHERS THEN
  RAISE LOG 'qtop: slow starts of webhooks could not begin: %', SQLERRM;
END $$;
COMMENT ON FUNCTION public.fn_webhook_hosts_back IS
  'Begins slow starts if no host sent webhooks for a minute. Internal.';

-- fn_webhook_slow_start_step(only, except): every 10 s, doubles, keeps or ends the rate of each slow start, for the
-- endpoints in only (NULL = all) without those in except. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_slow_start_step(p_only text[], p_except text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_longest double precision := NULLIF(public.fn_cfg_int('webhook.slow_start.max_seconds', 0), 0);
  v_start public.webhook_slow_start;
  v_left bigint;
BEGIN
  DELETE FROM public.webhook_slow_start WHERE endpoint IN (SELECT endpoint FROM public.webhook_slow_start
    WHERE began_at <= clock_timestamp() - make_interval(secs => v_longest)
      AND (p_only IS NULL OR endpoint = ANY (p_only)) AND endpoint <> ALL (p_except)
    ORDER BY endpoint FOR UPDATE SKIP LOCKED);
  FOR v_start IN
    SELECT * FROM public.webhook_slow_start WHERE step_at <= clock_timestamp() - interval '10 seconds'
      AND (p_only IS NULL OR endpoint = ANY (p_only)) AND endpoint <> ALL (p_except)
    ORDER BY endpoint FOR UPDATE SKIP LOCKED
  LOOP
    -- a slow start also ends when no subscription has its endpoint any more, because the URL was changed
    SELECT COALESCE(sum(p.n), 0) INTO v_left FROM public.subscriptions s CROSS JOIN LATERAL (
      -- one look-up for each value of controlled: with IN, all waiting jobs might be read
      SELECT count(*) AS n FROM unnest('{true,false}'::boolean[]) c CROSS JOIN LATERAL (
        SELECT FROM public.webhook_delivery_jobs j
        WHERE j.status = 'Pending' AND j.controlled = c AND j.subscription_id = s.id LIMIT 10001) x) p
    WHERE s.endpoint = v_start.endpoint;
    IF v_left <= v_start.rate THEN
      DELETE FROM public.webhook_slow_start WHERE endpoint = v_start.endpoint;
    ELSE
      UPDATE public.webhook_slow_start SET step_at = clock_timestamp(), delivered = 0, failed = 0,
        rate = CASE WHEN delivered + failed >= 5 * rate AND failed * 5 <= delivered + failed
          THEN least(rate * 2, 1000000) ELSE rate END
      WHERE endpoint = v_start.endpoint;
    END IF;
  END LOOP;
END $$;
COMMENT ON FUNCTION public.fn_webhook_slow_start_step IS
  'Doubles, holds or ends the rate of each slow start every 10 s. Internal.';

-- The triggers below begin a slow start when a blockade ends: a suspension is deleted, a subscription may get more
-- deliveries than before, or a flag is switched on.
CREATE OR REPLACE FUNCTION public.fn_webhook_suspension_released() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM old_rows) THEN
    PERFORM public.fn_webhook_slow_start_begin((SELECT array_agg(o.subscription_id) FROM old_rows o),
      (SELECT CASE o.reason WHEN 'circuit' THEN 'its circuit closed' ELSE 'its suspension ended' END
      FROM old_rows o LIMIT 1), true);
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_suspension_released IS
  'Trigger: begins a slow start where a suspension or circuit ends.';

CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_released() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_more bigint[];   -- subscriptions that may get more than before
  v_forget bigint[]; -- those of them whose earlier failures say nothing any more, as after fn_endpoint_resume
BEGIN
  SELECT array_agg(n.id), array_agg(n.id) FILTER (WHERE NOT o.active OR NOT o.verified
    OR n.callback_url <> o.callback_url)
  INTO v_more, v_forget FROM new_rows n JOIN old_rows o USING (id)
  WHERE n.active AND n.verified AND (NOT o.active OR NOT o.verified OR n.callback_url <> o.callback_url
    OR COALESCE(n.rate_limit_per_second > o.rate_limit_per_second, o.rate_limit_per_second IS NOT NULL));
  IF v_more IS NULL THEN
    RETURN NULL;
  END IF;
  v_forget := ARRAY(SELECT t.subscription_id FROM public.webhook_endpoint_state t
    WHERE t.subscription_id = ANY (v_forget) AND (t.consecutive_failures > 0 OR t.failing_since IS NOT NULL)
    ORDER BY t.subscription_id FOR UPDATE); -- see the lock order in webhook_router.sql
  UPDATE public.webhook_endpoint_state SET consecutive_failures = 0, failing_since = NULL
  WHERE subscription_id = ANY (v_forget);
  PERFORM public.fn_webhook_slow_start_begin(v_more, 'its subscription was changed'::text, true);
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_released IS
  'Trigger: begins a slow start where a webhook subscription may get more than before, and forgets earlier failures.';

CREATE OR REPLACE FUNCTION public.fn_webhooks_released() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM public.fn_webhook_slow_start_begin(NULL::bigint[], NEW.key || ' was switched on', true);
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhooks_released IS
  'Trigger: begins a slow start of all endpoints when webhooks are switched on.';

CREATE OR REPLACE TRIGGER trg_suspension_released AFTER DELETE ON public.webhook_endpoint_suspensions
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_suspension_released();
CREATE OR REPLACE TRIGGER trg_subscription_released AFTER UPDATE ON public.subscriptions
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_subscription_released();
CREATE OR REPLACE TRIGGER trg_webhooks_released AFTER UPDATE OF value ON public.dot_config FOR EACH ROW
  WHEN (NEW.key = 'webhook.worker.enabled' AND NEW.value = 'true' AND OLD.value <> 'true'
    OR NEW.key IN ('queue.tick.saga_orchestrator.interval_seconds', 'queue.tick.webhook_worker.interval_seconds')
      AND OLD.value = '0' AND NEW.value <> '0')
  EXECUTE FUNCTION public.fn_webhooks_released();
