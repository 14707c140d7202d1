-- Takeover: when a worker host was killed and its successor registers the same host id, the work that the killed host
-- had leased is returned to the queue.

-- fn_queue_host_return(host row of the ended instance) → {jobs, webhooks, log}: how many jobs and webhook jobs were
-- returned to the queue before their leases expired, and a log line for each. The caller must be the login of that row,
-- and the server must have no session of the instance left (fn_queue_host_gone). If the process is alive nevertheless,
-- its results are refused, because their lease tokens no longer exist. Each return counts as a lost lease. A webhook
-- may have been sent already; it is sent again with the same webhook-id (R02 §2.4).
-- Only work that has never lost a lease is returned at once. Otherwise a job that kills its host, or a host that is
-- killed again and again, would use up all attempts within seconds. Work that lost a lease before waits until its
-- current lease expires.
-- 1. Jobs: those of the leases that sessions of this login with the tag of the instance have claimed.
-- 2. Webhook jobs: those whose worker is the instance, if the login may report webhooks.
-- If lease_reaper or lease_reset_cleaner is switched off, this function does not return the work of that tick worker
-- either. After an error it returns nothing; the two tick workers return the work when the leases expire. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_host_return(p_host public.queue_host) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_on text[] := ARRAY(SELECT w.worker_name::text FROM public.queue_tick_worker w
    WHERE w.worker_name IN ('lease_reaper', 'lease_reset_cleaner')
      AND (w.flag_key IS NULL OR public.fn_cfg_bool(w.flag_key))
      AND public.fn_cfg_int('queue.tick.' || w.worker_name || '.interval_seconds', 0) > 0);
  v_tokens uuid[];
  v_jobs uuid[];
  v_webhooks bigint[];
  v_of_jobs jsonb := '{}'::jsonb;
  v_of_webhooks jsonb := '{}'::jsonb;
BEGIN
  IF 'lease_reaper' = ANY (v_on) THEN
    SELECT array_agg(x.lease_token) INTO v_tokens FROM (
      SELECT l.lease_token FROM public.job_lease l JOIN public.queue_heartbeat h ON h.executor_id = l.lease_owner
      WHERE left(l.claimed_by, length(p_host.db_role::text) + 1) = p_host.db_role::text || ' '
        AND right(l.claimed_by, length(p_host.session_tag)) = p_host.session_tag
        AND public.fn_executor_member(h.owner_role)
      ORDER BY l.lease_token LIMIT 10000 FOR UPDATE OF l SKIP LOCKED) x;
    SELECT array_agg(x.job_id) INTO v_jobs FROM (
      SELECT q.job_id FROM (SELECT l.lease_token, unnest(l.job_ids) AS id FROM public.job_lease l
        WHERE l.lease_token = ANY (v_tokens)) i
      CROSS JOIN LATERAL (SELECT y.* FROM public.job_queue y
        WHERE y.job_id = i.id AND y.lease_token = i.lease_token OFFSET 0) q
      WHERE q.lost_leases = 0 ORDER BY q.job_id LIMIT 10000) x;
    IF v_jobs IS NOT NULL THEN
      v_of_jobs := public.fn_job_reap(v_tokens, v_jobs);
    END IF;
  END IF;
  IF 'lease_reset_cleaner' = ANY (v_on)
    AND has_function_privilege(session_user, 'public.fn_webhook_job_report(jsonb)'::regprocedure::oid, 'EXECUTE') THEN
    SELECT array_agg(x.id) INTO v_webhooks FROM (
      SELECT j.id FROM public.webhook_delivery_jobs j
      WHERE j.status = 'Leased' AND j.lease_resets = 0
        AND j.worker_id = p_host.host_id || '/' || left(p_host.instance::text, 8)
      ORDER BY j.id LIMIT 10000 FOR UPDATE SKIP LOCKED) x;
    IF v_webhooks IS NOT NULL THEN
      UPDATE public.webhook_delivery_jobs j SET lease_until = now() - interval '1 millisecond'
      WHERE j.id = ANY (v_webhooks);
      v_of_webhooks := public.fn_webhook_lease_lose(v_webhooks);
    END IF;
  END IF;
  RETURN jsonb_build_object('jobs', COALESCE(v_of_jobs -> 'reaped', '0'), 'webhooks',
    COALESCE(v_of_webhooks -> 'reset', '0'), 'log', COALESCE(v_of_jobs -> 'log', '[]')
      || COALESCE(v_of_webhooks -> 'log', '[]'));
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'qtop: what host % held before it ended goes back when its leases expire: % %', p_host.host_id,
    SQLSTATE, SQLERRM;
  RETURN '{"jobs": 0, "webhooks": 0, "log": []}'::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_host_return IS
  'Returns the work of a worker host instance that crashed to the queue, before its leases expire. Internal.';
